# SPDX-License-Identifier: Apache-2.0
"""What processes hold open, by kind: so that a test can ask whether anything was left behind, and say what it was.

    held = leaks.Held(agent=agent.agent_pid(), qemu=machine.pid)
    before = held.at_rest()
    ...                       # something comes and goes
    held.wait_no_more_than(before)

What is made once and kept is no leak: take the first count after one whole turn of what is tested, and when what
comes by itself has come (agent_at_rest()).
"""
import collections
import os
import re
import select

import harness

# A count that has not changed for so many looks is one at rest.
LOOKS = 10
PAUSE_S = 0.02


def unix_sockets():
    """{inode: path} of Unix sockets that have a name."""
    found = {}
    with open("/proc/net/unix", encoding="ascii", errors="replace") as table:
        for line in table:
            words = line.split(None, 7)
            if len(words) == 8:
                found[words[6]] = words[7].strip()
    return found


def kinds_of(pid):
    """A Counter of what its descriptors are: a file by its path, a socket by its name, numbers as N."""
    folder, names = f"/proc/{pid}/fd", unix_sockets()
    kinds = collections.Counter()
    for number in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{number}")
        except OSError:
            continue  # it was closed meanwhile, or is the one that lists
        numbered = re.fullmatch(r"(\w+):\[(\d+)\]", target)
        if numbered:
            target = f"{numbered[1]} {names.get(numbered[2], '')}".strip()
        kinds[re.sub(r"\d+", "N", target)] += 1
    return kinds


class Held:
    """What these processes hold: each has a name for messages."""

    def __init__(self, **pids):
        self.pids = pids

    def now(self):
        found = collections.Counter()
        for name, pid in self.pids.items():
            for kind, number in kinds_of(pid).items():
                found[f"{kind} of {name}"] = number
        return found

    def at_rest(self):
        """The count, once it has not changed for a while."""
        seen, looks = self.now(), 0

        def unchanged():
            nonlocal seen, looks
            now = self.now()
            looks = looks + 1 if now == seen else 0
            seen = now
            select.select([], [], [], PAUSE_S)
            return looks >= LOOKS

        harness.wait_until(unchanged, f"descriptors of {', '.join(self.pids)} at rest")
        return seen

    def wait_no_more_than(self, before):
        """Failure names the kinds of which there are more than @before."""
        try:
            harness.wait_until(lambda: not self.now() - before, "")
        except harness.Failure:
            more = self.now() - before
            if more:
                left = ", ".join(f"{number} x {kind}" for kind, number in sorted(more.items()))
                raise harness.Failure(f"left behind: {left}") from None


def agent_at_rest(agent):
    """No session, and the warm workers of the next ones are there: what an agent has then does not change by itself."""
    wanted = int(agent.sections["agent"]["warm_workers"])

    def is_at_rest():
        workers = agent.workers()
        return not agent.sessions() and len(workers) == wanted and all(one["state"] == "warm" for one in workers)

    try:
        harness.wait_until(is_at_rest, "")
    except harness.Failure:
        workers = [(one["state"], one["sessions"]) for one in agent.workers()]
        raise harness.Failure(f"the agent has {len(agent.sessions())} sessions, workers {workers}; "
                              f"awaited were none, and {wanted} warm") from None

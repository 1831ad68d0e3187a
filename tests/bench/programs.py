# SPDX-License-Identifier: Apache-2.0
"""Programs of a benchmark: guests and baselines that answer a line with a line, where they run, what they use."""
import contextlib
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "vm"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import harness  # pylint: disable=wrong-import-position

ANSWER_S = 120
ALL_CPUS = sorted(os.sched_getaffinity(0))


class Unable(Exception):
    """The machine or the build cannot do this measurement; the text says why."""


def median(values):
    return statistics.median(values)


# --- where things run ---------------------------------------------------------------------------------

def cpu_pair():
    """One processor for the host's side and another for the guest's."""
    if len(ALL_CPUS) < 2:
        raise Unable("needs two processors")
    return ALL_CPUS[0], ALL_CPUS[1]


def threads_of(pid):
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return []


def pin(pid, cpus):
    """All threads of a process, now; threads it starts later inherit."""
    for tid in threads_of(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(tid, cpus)


@contextlib.contextmanager
def born_on(cpus):
    """What is started inside begins on these processors. A program that begins on a single one never spins."""
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ALL_CPUS)


# --- what they use ------------------------------------------------------------------------------------

def cpu_ns(pid):
    """Processor time of all threads of a process: schedstat counts nanoseconds where stat counts ticks."""
    total = 0
    for tid in threads_of(pid):
        try:
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as stat:
                total += int(stat.read().split()[0])
        except (OSError, IndexError):
            pass
    return total


def cpu_ticks(pid):
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])
    return 0


def rss_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


# --- programs that take commands ----------------------------------------------------------------------

class Commanded:
    """A bench program: tell() sends a command, hear() reads one answer."""

    def __init__(self, guest):
        self.guest = guest
        self.pid = self.hear()["ready"]

    def tell(self, *words):
        self.guest.write_line(" ".join(str(word) for word in words))

    def hear(self):
        line = self.guest.read_line(ANSWER_S)
        if line is None:
            raise Unable(f"{os.path.basename(self.guest.argv[0])} ended")
        try:
            answer = json.loads(line)
        except ValueError:
            raise Unable(f"{os.path.basename(self.guest.argv[0])} said: {line}") from None
        if "error" in answer:
            raise Unable(answer["error"])
        return answer

    def ask(self, *words):
        self.tell(*words)
        return self.hear()

    def end(self):
        self.guest.end()


def baseline():
    return Commanded(harness.Guest([harness.program("bench-raw")]))


def guest_of(agent, tenant, env=None):
    return Commanded(agent.guest(tenant, [harness.program("bench-guest")], env=env))


def open_guest(agent, tenant, env=None):
    """A guest with a session, and the process that serves it."""
    guest = guest_of(agent, tenant, env)
    guest.ask("open")
    guest.worker = worker_of(agent, guest)
    return guest


def worker_of(agent, guest):
    """Pid of the worker that serves a guest, once the agent knows."""
    def find():
        for session in agent.sessions():
            if session["pid"] == guest.pid and session["worker_pid"]:
                return session["worker_pid"]
        return None
    return harness.wait_until(find, "a worker for the guest")


def wait_warm(agent):
    harness.wait_until(lambda: any(worker["state"] == "warm" for worker in agent.workers()), "a warm worker")


def in_ms(milliseconds):
    """CLOCK_MONOTONIC then, as programs read it."""
    return time.monotonic_ns() + int(milliseconds * 1e6)

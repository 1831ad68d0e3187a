# SPDX-License-Identifier: Apache-2.0
"""Deaths, standstills and failures at failpoints while sessions, queues and agents move; test_failpoints.py runs a slice of them,
./dev campaign migration as many as one likes.

A round is a migration with one point armed, chosen by chance. Afterwards one agent serves, every task is accounted for
(history.py), and the bytes are right; at the end of a world nothing is left over. A round is repeated by its seed.
"""
import os
import random
import signal
import sys

import harness
from devices import MIB, Mover, world
from failpoints import DIE, FAIL, STALL, Points, table
from history import KILLED, History
from hosts import two
from scripted import Scripted, events, worker_of

sys.path.insert(1, str(harness.SOURCE / "tests" / "system" / "upgrade"))
import builds as other_builds  # pylint: disable=wrong-import-position

SETTLE_S = 90
NOBODY = "nobody"
ACTIONS = {"die": DIE, "stall": STALL, "fail": FAIL}
# Who lives only while there is something to move; the others are there again after a round.
WHO = {"gantryd": "agent", "gantry-worker": "worker", "gantry-mover": "mover"}


def points_of(*starts):
    return sorted(name for name in table() if name.startswith(starts))


def choose(chance, names, actions=("die", "die", "stall", "fail")):
    name = chance.choice(names)
    action = chance.choice([a for a in actions if a != "fail" or table()[name][1] == "io"])
    return name, action


def is_of_workers(name):
    """A worker passes it as it takes a session: once, and where none has to, one is killed first."""
    return name.startswith("worker.")


def skipped(chance, name, choices):
    return chance.choice(choices) if table()[name][1] == "io" and not is_of_workers(name) else 0


# Points that nobody passes unless something went wrong before: that, and how it does.
LEADS = {
    "out.back": ("link.send", "fail"), "out.ask": ("send.committed", "die"),
    "move.discard": ("move.copy", "fail"), "move.resume": ("move.copy", "fail"),
}


class Tally:
    """What was armed, how much of it was hit, who was killed beside, and what that came to."""

    def __init__(self):
        self.rounds = self.fired = 0
        self.at = {}
        self.beside = {}
        self.outcomes = {}

    def note(self, name, action, fired, outcome, beside=NOBODY):
        self.rounds += 1
        self.fired += bool(fired)
        if fired:
            at = self.at.setdefault(name, {})
            at[action] = at.get(action, 0) + 1
        if beside != NOBODY:
            self.beside[beside] = self.beside.get(beside, 0) + 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def add(self, other):
        """Another's, as its record() was."""
        self.rounds += other["rounds"]
        self.fired += other["hits"]
        for name, actions in other["at"].items():
            mine = self.at.setdefault(name, {})
            for action, number in actions.items():
                mine[action] = mine.get(action, 0) + number
        for mine, theirs in ((self.beside, other["beside"]), (self.outcomes, other["outcomes"])):
            for key, number in theirs.items():
                mine[key] = mine.get(key, 0) + number

    def record(self):
        """All of it, for a file of JSON."""
        return {"rounds": self.rounds, "hits": self.fired, "at": self.at, "beside": self.beside, "outcomes": self.outcomes}

    def __str__(self):
        return f"{self.rounds} rounds, {self.fired} hits at {len(self.at)} points: {self.outcomes}"


def lead(points, name):
    """Has that go wrong without which nobody passes @name."""
    if name in LEADS:
        points.arm(LEADS[name][0], ACTIONS[LEADS[name][1]])


def pids_named(agent, name):
    return [pid for pid in agent.pids()
            if os.path.basename(harness.command_of(pid).split(" ")[0] or "-") == name]


# --- sessions between hosts ---

HOST_POINTS = ("out.", "in.", "send.", "receive.", "link.", "journal.", "worker.a")


class HostWorld:
    """north and south, a guest that follows, and the points of both."""

    def __init__(self, stack):
        self.points = [stack.enter_context(Points()), stack.enter_context(Points())]
        self.hosts = stack.enter_context(two(north_env=self.points[0].env, south_env=self.points[1].env))
        self.agents = [self.hosts.north, self.hosts.south]
        self.at_rest = [self.what_is_kept(agent) for agent in self.agents]
        self.guest = Scripted(self.hosts.north, "red", opened=False, env={"GANTRY_DOOR": "stream:" + self.hosts.front})
        self.guest.ask("open timeout_ms 90000")  # longer than any round is out of breath
        self.guest.ask("queue q")
        self.guest.ask(f"buffer big {MIB} device")
        self.guest.ask(f"random big {MIB} 5")
        self.wanted = self.guest.ask(f"expect {MIB} 5")
        self.history = History(self.guest)
        self.source = 0

    def what_is_kept(self, agent):
        harness.wait_until(lambda: agent.workers(), "a worker that waits")
        return other_builds.fds_of(agent.monitor.pid)

    def listed(self, index, what):
        """None while its agent is being restarted."""
        ended = self.agents[index].ctl("--json", "--timeout", "2s", what, "list")
        return ended.json()[what + "s"] if ended.code == 0 else None

    def row(self, points, name):
        """The session, at the host that has it."""
        def ask():
            if points.stalled(name):  # what the round before left to be written came by
                points.clear()
            return self.listed(self.source, "session")
        try:
            return harness.wait_until(ask, "an answer")
        except harness.Failure as failure:
            raise harness.Failure(f"{failure}; {self.what_is_said()}") from None

    def what_is_said(self):
        """Both agents' words for who has the session."""
        said = [agent.ctl("--json", "--timeout", "2s", "session", "list") for agent in self.agents]
        return f"{'north' if self.source == 0 else 'south'} has the session; " + "; ".join(
            f"{name}: {ended.code} {' '.join(ended.out.split())[:300]} {ended.err.strip()}" for name, ended in zip(("north", "south"), said))

    def settled(self):
        """The number of the host that serves the session + 1, once one does and nobody is in doubt; the guest is led there."""
        # In this order: where nothing moves any more, sessions are where they are. The other way round a migration between the two
        # lists would be taken for one that is over, and the guest be led to where its session was, for as long as it looks for it.
        moving = [self.listed(0, "migration"), self.listed(1, "migration")]
        sessions = [self.listed(0, "session"), self.listed(1, "session")]
        serving = [n for n, rows in enumerate(sessions) if rows and rows[0]["state"] in ("attached", "recovering")]
        if len(serving) == 1:
            self.hosts.follow(self.agents[serving[0]])
        if None in sessions or None in moving or sum(map(len, sessions)) != 1:
            return None
        if not all(map(self.finished, moving)):
            return None
        return serving[0] + 1 if serving and sessions[serving[0]][0]["state"] == "attached" else None

    def finished(self, rows):
        return all(row["state"] in ("done", "failed") for row in rows)

    def side(self, name, chance):
        """Whose page: what leaves is of the source, what arrives of the destination."""
        if name.startswith(("out.", "send.", "serve.")):
            return self.source
        return 1 - self.source if name.startswith(("in.", "receive.", "pull.")) else chance.choice((0, 1))

    def kill_other(self, chance, stalled_pid):
        """While one stands still another dies."""
        agent = chance.choice(self.agents)
        what = chance.choice(("gantry-mover", "gantry-worker", "gantryd"))
        found = [pid for pid in pids_named(agent, what) if pid not in (stalled_pid, agent.monitor.pid)]
        if found:
            harness.send_signal(chance.choice(found), signal.SIGKILL)
        return f"{what} of {'north' if agent is self.agents[0] else 'south'}" if found else NOBODY

    def round(self, t, chance, tally, names):
        name, action = choose(chance, names)
        side = self.side(name, chance)
        points = self.points[side]
        points.arm(name, ACTIONS[action], skip=skipped(chance, name, (0, 0, 0, 1, 3)))
        lead(points, name)
        self.history.put(chance.randrange(1, 40))
        row = self.row(points, name)
        begun = self.hosts.migrate(row[0]["session_id"], "--no-wait", source=self.agents[self.source])
        if is_of_workers(name) and side == self.source and row[0]["worker_pid"]:
            self.agents[side].kill_worker(row[0]["worker_pid"])
        self.history.begin(chance.randrange(1, 60))
        over = lambda: points.fired(name) or self.settled()
        harness.wait_until(over, f"{name} {action}: hit, or over", SETTLE_S)
        also = NOBODY
        if points.stalled(name):
            also = self.kill_other(chance, points.pid(name))
        points.clear()
        told = f"{name} {action} at {'source' if side == self.source else 'target'} (killed beside: {also}; told: {begun})"
        now = harness.wait_until(self.settled, f"{told}: one host has it", SETTLE_S) - 1
        try:
            self.history.end()
            self.history.check(t, KILLED)
            t.equal(self.guest.ask(f"sum q big {MIB}", 60), self.wanted, "bytes")
        except harness.Failure as failure:
            raise harness.Failure(f"{told}: {failure}") from None
        tally.note(name, action, points.fired(name), "stayed" if now == self.source else "moved", also)
        self.source = now

    def end(self, t):
        """Nothing is left over on either side."""
        # It has just been asked something, so its stream is whole and its goodbye is heard: vsock_grace (60 s) is not needed.
        self.guest.ask("close")
        for agent, kept in zip(self.agents, self.at_rest):
            harness.wait_until(lambda a=agent: a.sessions() == [], f"no session is left at {os.path.basename(agent.vsock)}", 30)
            harness.wait_until(lambda a=agent: not pids_named(a, "gantry-mover"), "no mover is left")
            harness.wait_until(lambda a=agent: all(row["mem_used"] == 0 for row in a.ctl_json("device", "list")["devices"]),
                               "all memory of devices is back")
            tenant = agent.ctl_json("tenant", "show", "red")["tenant"]
            t.equal([tenant["mem_used"], tenant["sessions"]], [0, 0], "the tenant's account")
            self.keeps_no_more(agent, kept)
        if self.hosts.proxy.rescued:
            t.note(f"hung up as it was told something: {self.hosts.proxy.rescued} bytes on their way to the host")


    def keeps_no_more(self, agent, kept):
        """The monitor's descriptors."""
        try:
            harness.wait_until(lambda: other_builds.fds_of(agent.monitor.pid) <= kept, "kept descriptors")
        except harness.Failure as failure:
            folder = f"/proc/{agent.monitor.pid}/fd"
            now = sorted(os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder))
            raise harness.Failure(f"{failure}; {kept} at first, now {len(now)}: {' '.join(now)}; workers {agent.workers()}") from None


def host_rounds(t, rounds, seed, names=None, tally=None):
    import contextlib
    chance, tally = random.Random(seed), tally or Tally()
    names = names or points_of(*HOST_POINTS)
    with contextlib.ExitStack() as stack:
        made = HostWorld(stack)
        for _ in range(rounds):
            made.round(t, chance, tally, names)
        made.end(t)
    return tally


# --- queues between devices ---

QUEUE_POINTS = ("queue.", "move.", "worker.a")
# Slabs, and their stewards, are of devices with memory of their own.
WINDOW_POINTS = (*QUEUE_POINTS, "steward.")


def queue_rounds(t, pair, rounds, seed, names=None, tally=None):
    chance, tally = random.Random(seed), tally or Tally()
    names = names or points_of(*(QUEUE_POINTS if pair == "plain" else WINDOW_POINTS))
    with Points() as points, world(pair, env=points.env) as agent:
        made = Mover(agent)
        size = 4 * MIB
        made.guest.ask(f"buffer big {size} device")
        made.guest.ask(f"random big {size} {seed}")
        wanted = made.guest.ask(f"expect {size} {seed}")
        made.guest.ask(f"sum q big {size}", 60)
        made.begin_history()
        for _ in range(rounds):
            name, action = choose(chance, names)
            points.arm(name, ACTIONS[action], skip=skipped(chance, name, (0, 0, 1)))
            lead(points, name)
            made.put(chance.randrange(1, 60))
            before = made.device()
            going = made.start(made.elsewhere())
            if is_of_workers(name):
                agent.kill_worker(worker_of(agent, made.guest))
            elif name.startswith("steward."):  # more memory than is kept at hand, and back
                made.guest.ask(f"buffer more {96 * MIB} device")
                made.guest.start(f"sum q more {96 * MIB}")
                made.guest.answer(60)
                made.guest.ask("free more", 60)
            made.history.begin(chance.randrange(1, 100))
            # The command ends with the worker; another one, which takes the session, is yet to come then.
            over = lambda: points.fired(name) or (going.process.poll() is not None and not is_of_workers(name))
            harness.wait_until(over, f"{name}: hit, or over", 60)
            fired, also = points.fired(name), NOBODY
            if points.stalled(name) and chance.random() < 0.5:
                also = chance.choice(("gantryd", "gantry-worker"))
                found = [pid for pid in pids_named(agent, also) if pid not in (agent.monitor.pid, points.pid(name))]
                if found:
                    harness.send_signal(chance.choice(found), signal.SIGKILL)
                also = also if found else NOBODY
            points.clear()
            made.history.end()
            going.wait(60)
            agent.wait_ready()
            told = f"{pair}, {name} {action} (killed beside: {also}; told: {going.output()})"
            try:
                made.check_history(t, KILLED)
                t.equal(made.guest.ask(f"sum q big {size}", 90), wanted, "bytes")
            except harness.Failure as failure:
                raise harness.Failure(f"{told}: {failure}") from None
            tally.note(name, action, fired, "stayed" if made.device() == before else "moved", also)
        made.guest.ask("close")
        harness.wait_until(lambda: all(row["mem_used"] == 0 for row in agent.ctl_json("device", "list")["devices"]),
                           "all memory of devices is back", 30)
    return tally


# --- another build of the agent ---

UPGRADE_POINTS = ("upgrade.", "standby.", "monitor.", "renew.", "worker.a", "journal.")


def upgrade_rounds(t, rounds, seed, names=None, tally=None):
    """In each a queue moves, too."""
    chance, tally = random.Random(seed), tally or Tally()
    names = names or points_of(*UPGRADE_POINTS)
    with other_builds.OwnWorkerFile() as workers, Points() as points, world("windows", env=points.env) as agent:
        made = Mover(agent)
        made.begin_history()
        files = other_builds.Builds(agent)
        paths = [files.copy("gantryd-next"), files.copy("gantryd-next", "gantryd-again")]
        for number in range(rounds):
            name, action = choose(chance, names)
            points.arm(name, ACTIONS[action])
            made.put(chance.randrange(1, 60))
            moving = made.start(made.elsewhere()) if chance.random() < 0.5 else None
            renew = name.startswith(("renew.", "worker.")) or chance.random() < 0.1
            if renew:
                workers.replace()
            asked = other_builds.begin(agent, paths[number % 2], *["--restart-workers"] * renew)
            made.history.begin(chance.randrange(1, 60))
            harness.wait_until(lambda: points.fired(name) or asked.process.poll() is not None, f"{name}: hit, or over", 60)
            fired = points.fired(name)
            points.clear()
            made.history.end()
            asked.wait(90)
            if moving:
                moving.wait(60)
            agent.monitor.poll()
            other_builds.serves(agent)
            harness.wait_until(lambda: agent.ctl_json("version")["agent"]["monitor_pid"], "a monitor")
            try:
                made.check_history(t, KILLED)
            except harness.Failure as failure:
                raise harness.Failure(f"{name} {action}: {failure}; told: {asked.output()}") from None
            tally.note(name, action, fired, "upgraded" if "upgraded from" in asked.output() else "not")
        t.equal(len(agent.sessions()), 1)
        made.guest.ask("close")
        harness.wait_until(lambda: all(row["mem_used"] == 0 for row in agent.ctl_json("device", "list")["devices"]),
                           "all memory of devices is back", 30)
        t.equal(events(agent, "session-lost"), [])
    return tally

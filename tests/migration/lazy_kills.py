# SPDX-License-Identifier: Apache-2.0
"""Deaths and standstills while a session goes lazily to and fro and its buffers are fetched (kills.py has the other worlds).

Whoever dies: one host has the session; a buffer is right or, where a process of the way died, lost, which each task that uses
it is told; no task runs twice; what is lost is freed and made anew, and the session goes on.
"""
import contextlib
import os
import random

import harness
import kills
from devices import MIB
from history import KILLED, History

POINTS = (*kills.HOST_POINTS, "serve.", "pull.")
SIZES = {"a": MIB, "b": 64 * 1024 + 8, "c": 2 * MIB, "d": 4096}
FETCHING = ("serving", "pulling")
LOST = "error DEVICE_LOST "


class LazyWorld(kills.HostWorld):
    def __init__(self, stack):
        super().__init__(stack)
        self.guest.ask("free big")
        self.wanted_of = {}
        self.lost = set()
        self.made = 0
        for name in SIZES:
            self.make(name)

    def make(self, name):
        self.made += 1
        self.guest.ask(f"buffer {name} {SIZES[name]} device")
        self.guest.ask(f"random {name} {SIZES[name]} {self.made}")
        self.wanted_of[name] = self.guest.ask(f"expect {SIZES[name]} {self.made}")

    def finished(self, rows):
        return all(row["state"] in ("done", "failed", *FETCHING) for row in rows)

    def fetched(self):
        """Nothing is left at the other host, and it knows."""
        rows = [self.listed(0, "migration"), self.listed(1, "migration")]
        return None not in rows and not any(row["state"] in FETCHING for one in rows for row in one)

    def view(self):
        """Who has what, for people."""
        rows = []
        for index, name in enumerate(("north", "south")):
            sessions = [(row["session_id"], row["state"]) for row in self.listed(index, "session") or ["no answer"] if row != "no answer"]
            moves = [(row["migration_id"], row["state"], row["text"]) for row in (self.listed(index, "migration") or [])[-2:]]
            rows.append(f"{name} has {sessions}, {moves}")
        return f"{'; '.join(rows)}; guests are led to {os.path.basename(self.hosts.proxy.target)}"

    def answered(self, over, timeout=kills.SETTLE_S):
        """What the guest says, or None where @over came true before it said anything."""
        harness.wait_until(lambda: self.guest.process.has_line() or over(), "an answer, or a point that is hit", timeout)
        return self.guest.answer(timeout) if self.guest.process.has_line() else None

    def judge(self, t, name, answer, may_lose):
        """The bytes are right, or they are lost and stay so."""
        if answer.startswith(LOST):
            t.true(may_lose or name in self.lost, f"buffer {name} is lost, but nobody died")
            self.lost.add(name)
        else:
            t.true(name not in self.lost, f"buffer {name} was lost and is there again: {answer}")
            t.equal(answer, "ok " + self.wanted_of[name], f"bytes of {name}")

    def value(self, name):
        return self.guest.tell(f"sum q {name} {SIZES[name]}", kills.SETTLE_S)

    def use(self, t, chance, points, name):
        """Buffers are used, so that they are fetched, until the point is hit. The one that is under way then; None: none is."""
        for buffer in chance.sample(sorted(SIZES), len(SIZES)):
            if points.fired(name):
                return None
            self.guest.start(f"sum q {buffer} {SIZES[buffer]}")
            answer = self.answered(lambda: points.fired(name))
            if answer is None:
                return buffer
            self.judge(t, buffer, answer, may_lose=points.fired(name) or name in kills.LEADS)
        return None

    def end_history(self, t, may_lose):
        """Its buffer may be lost, too; then nobody knows how often its tasks ran, but each has ended."""
        history = self.history
        answer = self.guest.tell("float y", kills.SETTLE_S)
        if not answer.startswith(LOST):
            history.check(t, KILLED)
            return
        t.true(may_lose, "the history's buffer is lost, but nobody died")
        ended = {}
        for name, number in history.tickets:
            for word in self.guest.ask(f"ends {name} {number}", 100).split():
                key, _, value = word.partition("=")
                ended[key] = ended.get(key, 0) + int(value)
        t.equal(set(key for key, value in ended.items() if value) - KILLED - {"DEVICE_LOST"}, set(), f"how tasks ended: {ended}")
        t.equal(sum(ended.values()), history.tasks, f"tasks accounted for: {ended}")
        self.guest.ask("free y")
        self.history = History(self.guest)

    def make_whole(self):
        """All is here again: what is lost is made anew."""
        for name in sorted(self.lost):
            self.guest.ask(f"free {name}")
            self.make(name)
        self.lost.clear()
        harness.wait_until(self.fetched, "that all is fetched", kills.SETTLE_S)

    def round(self, t, chance, tally, names):
        name, action = kills.choose(chance, names, ("die", "die", "stall", "fail"))
        side = self.side(name, chance)
        points = self.points[side]
        points.arm(name, kills.ACTIONS[action], skip=kills.skipped(chance, name, (0, 0, 0, 1, 3)))
        kills.lead(points, name)
        self.history.put(chance.randrange(1, 40))
        row = harness.wait_until(lambda: self.listed(self.source, "session"), "an answer")
        begun = self.hosts.migrate(row[0]["session_id"], "--no-wait", "--lazy", source=self.agents[self.source])
        if kills.is_of_workers(name) and side == self.source and row[0]["worker_pid"]:
            self.agents[side].kill_worker(row[0]["worker_pid"])
        self.history.begin(chance.randrange(1, 60))
        harness.wait_until(lambda: points.fired(name) or self.settled(), f"{name} {action}: hit, or over", kills.SETTLE_S)
        using = None
        if not points.fired(name):
            self.history.end()
            using = self.use(t, chance, points, name)
        also = kills.NOBODY
        if points.stalled(name):
            also = self.kill_other(chance, points.pid(name))
        fired = points.fired(name)
        may_lose = fired or name in kills.LEADS
        told = f"{name} {action} at {'source' if side == self.source else 'target'} (killed beside: {also}; told: {begun})"
        points.clear()
        try:
            if using:
                self.judge(t, using, self.guest.answer(kills.SETTLE_S), may_lose=True)
            now = harness.wait_until(self.settled, "one host has it", kills.SETTLE_S) - 1
            if self.history.is_putting:
                self.history.end(kills.SETTLE_S)
            for buffer in sorted(SIZES):
                self.judge(t, buffer, self.value(buffer), may_lose)
            for buffer in sorted(self.lost):
                self.judge(t, buffer, self.value(buffer), may_lose=False)
            self.end_history(t, may_lose)
            outcome = "moved" if now != self.source else "stayed"
            tally.note(name, action, fired, outcome + (", with losses" if self.lost else ""), also)
            self.make_whole()
        except harness.Failure as failure:
            raise harness.Failure(f"{told}: {failure}; {self.view()}") from None
        self.source = now


def rounds(t, number, seed, names=None, tally=None):
    chance, tally = random.Random(seed), tally or kills.Tally()
    names = names or kills.points_of(*POINTS)
    with contextlib.ExitStack() as stack:
        made = LazyWorld(stack)
        for _ in range(number):
            made.round(t, chance, tally, names)
        made.end(t)
    return tally

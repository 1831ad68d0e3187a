# SPDX-License-Identifier: Apache-2.0
"""Kills at any moment of a migration between hosts: afterwards exactly one host has the session, no task is lost and none ran
twice. GANTRY_KILLS says how many (default 12), GANTRY_SEED which."""
import os
import random
import select
import signal
import socket
import threading
import time

import harness
import puppet
from hosts import two

KILLS = int(os.environ.get("GANTRY_KILLS", "12"))
SEED = int(os.environ.get("GANTRY_SEED", "1"))


def movers(agent):
    return [pid for pid in harness.descendants(agent.monitor.pid)
            if os.path.basename(harness.command_of(pid).split(" ")[0] or "-") == "gantry-mover"]


def sessions(agent):
    """None while its agent is being restarted."""
    listed = agent.ctl("--json", "--timeout", "2s", "session", "list")
    return listed.json()["sessions"] if listed.code == 0 else None


def migrations(agent):
    listed = agent.ctl("--json", "--timeout", "2s", "migration", "list")
    return listed.json()["migrations"] if listed.code == 0 else None


def settled(hosts):
    """Who has the session, once one has it and nobody is in doubt."""
    found = [sessions(hosts.north), sessions(hosts.south)]
    moving = [migrations(hosts.north), migrations(hosts.south)]
    if None in found or None in moving:
        return None
    if any(m["state"] not in ("done", "failed") for listed in moving for m in listed):
        return None
    serving = [agent for agent, listed in zip((hosts.north, hosts.south), found)
               if [s for s in listed if s["state"] == "attached"]]
    if len(serving) != 1 or sum(len(listed) for listed in found) != 1:
        return None
    return serving[0]


class Leader:
    """Leads the guest's new connections to whoever says that it has the session: tried in turn."""

    def __init__(self, hosts):
        self.hosts, self.end = hosts, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.end.wait(0.1):
            for agent in (self.hosts.north, self.hosts.south):
                listed = sessions(agent)
                if listed and listed[0]["state"] in ("attached", "recovering"):
                    self.hosts.follow(agent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join(20)


def kill(hosts, source, what):
    target = hosts.south if source is hosts.north else hosts.north
    agent = source if what.startswith("source") else target
    if what.endswith("agent"):
        listed = agent.ctl("--json", "--timeout", "2s", "version")
        if listed.code == 0:
            harness.send_signal(listed.json()["agent"]["pid"], signal.SIGKILL)
    elif what.endswith("mover"):
        for pid in movers(agent):
            harness.send_signal(pid, signal.SIGKILL)
    elif what == "source worker":
        for s in sessions(source) or []:
            harness.send_signal(s["worker_pid"], signal.SIGKILL)


KINDS = ["source agent", "target agent", "source mover", "target mover", "source worker"]


def test_after_a_kill_at_any_moment_one_host_has_the_session_and_all_its_tasks(t):
    chance = random.Random(SEED)
    outcomes = {"moved": 0, "stayed": 0}
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 4194304")
        guest.do("fill 0 1 4194304 7")
        guest.do("chain 0 40 0")
        steps, source = 40, hosts.north
        with Leader(hosts):
            for number in range(KILLS):
                what, after = KINDS[number % len(KINDS)], chance.random() * 0.25
                guest.start("chain 0 200 0")
                begun = hosts.migrate(sessions(source)[0]["session_id"], "--no-wait", source=source)
                t.equal(begun.code, 0, f"{number}: {begun}")
                time.sleep(after)  # the moment is the chance that is looked for
                kill(hosts, source, what)
                now = harness.wait_until(lambda: settled(hosts), f"{number}: after the end of the {what} one host has it",
                                         60)
                guest.finish("chain", 60)
                steps += 200
                t.equal(float(guest.do("value 0", 60)[0]), puppet.chain_value(steps), f"{number}: {what}")
                outcomes["stayed" if now is source else "moved"] += 1
                source = now
        print(f"# {outcomes}")


# --- the two words of the hand-over, lost one at a time ---

MESSAGE = 265  # bytes of a TLS record with a message between movers: 248, its type, a tag
HEAD = 5


class Records:
    """How many messages went one way over a connection, however its bytes come in."""

    def __init__(self):
        self.pending, self.messages = b"", 0

    def take(self, data):
        self.pending += data
        while len(self.pending) >= HEAD:
            length = int.from_bytes(self.pending[3:HEAD], "big")
            if len(self.pending) < HEAD + length:
                return
            self.messages += length == MESSAGE
            self.pending = self.pending[HEAD + length:]


class Wire:
    """Between the movers. After PREPARED (the third message that comes back) the first connection holds what goes on in
    one direction: COMMIT, or OWNED. cut() ends it; later connections are passed on."""

    def __init__(self, port, hold):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(8)
        self.port, self.target, self.hold = self.listener.getsockname()[1], port, hold
        self.holding, self.cutting, self.end = threading.Event(), threading.Event(), False
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        first = True
        while not self.end:
            try:
                near, _ = self.listener.accept()
                with near, socket.create_connection(("127.0.0.1", self.target)) as far:
                    self.carry(near, far, first)
            except OSError:
                pass
            first = False

    def carry(self, near, far, first):
        went, came = Records(), Records()
        while not self.end and not (first and self.cutting.is_set()):
            for source in select.select([near, far], [], [], 0.02)[0]:
                held = first and came.messages >= 3 and ((source is near) == (self.hold == "commit"))
                if held:
                    self.holding.set()
                    select.select([], [], [], 0.01)
                    continue
                data = source.recv(1 << 16)
                if not data:
                    return
                if source is near:
                    went.take(data)
                elif went.messages:  # before that it is the handshake, whose records may have any length
                    came.take(data)
                (far if source is near else near).sendall(data)

    def cut(self):
        self.cutting.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end = True
        self.cutting.set()
        self.listener.close()


def offered(hosts, guest, wire):
    guest.do("chain 0 40 0")
    begun = hosts.migrate(guest.session, "--no-wait", to=f"127.0.0.1:{wire.port}")
    if begun.code:
        raise harness.Failure(str(begun))
    harness.wait_until(wire.holding.is_set, f"that {wire.hold} is under way")


def ends_at(t, hosts, guest, agent):
    hosts.follow(agent)
    now = harness.wait_until(lambda: settled(hosts), "that one host has it", 60)
    t.true(now is agent, "the other host has it")
    t.equal(float(guest.do("value 0", 60)[0]), puppet.chain_value(40))
    guest.do("chain 0 40 0")
    t.equal(float(guest.do("value 0", 60)[0]), 2 * puppet.chain_value(40))


def test_offer_that_never_arrives_brings_the_session_back(t):
    with two() as hosts, Wire(hosts.south.port, "commit") as wire:
        guest = hosts.guest()
        offered(hosts, guest, wire)
        t.equal([s["state"] for s in hosts.north.sessions()], ["held"])
        refused = hosts.north.ctl("migration", "cancel", str(hosts.migrations(hosts.north)[0]["migration_id"]))
        t.equal(refused.code, 7, str(refused))
        wire.cut()
        ends_at(t, hosts, guest, hosts.north)


def test_offer_whose_destination_forgot_it_brings_the_session_back(t):
    with two() as hosts, Wire(hosts.south.port, "commit") as wire:
        guest = hosts.guest()
        offered(hosts, guest, wire)
        hosts.south.kill_agent()
        hosts.south.wait_ready()
        wire.cut()
        ends_at(t, hosts, guest, hosts.north)


def test_acceptance_that_is_lost_is_asked_for(t):
    with two() as hosts, Wire(hosts.south.port, "owned") as wire:
        guest = hosts.guest()
        offered(hosts, guest, wire)
        harness.wait_until(lambda: [s for s in hosts.south.sessions() if s["state"] == "attached"], "that it runs there")
        t.equal([s["state"] for s in hosts.north.sessions()], ["held"])
        wire.cut()
        ends_at(t, hosts, guest, hosts.south)


def test_agents_that_restart_in_doubt_find_out(t):
    with two() as hosts, Wire(hosts.south.port, "owned") as wire:
        guest = hosts.guest()
        offered(hosts, guest, wire)
        harness.wait_until(lambda: [s for s in hosts.south.sessions() if s["state"] == "attached"], "that it runs there")
        for agent in (hosts.north, hosts.south):
            agent.kill_agent()
            agent.wait_ready()
        ends_at(t, hosts, guest, hosts.south)


harness.main(globals(), limit_s=60 + 15 * KILLS)

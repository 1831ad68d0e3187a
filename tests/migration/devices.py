# SPDX-License-Identifier: Apache-2.0
"""Queues that move between devices: worlds, moves, and a checker of what became of every task.

The checker: a guest puts additions of one to a float, by a kernel that is not idempotent. What ended OK ran once, what is
IN_DOUBT once or not at all, nothing ran twice and nothing is lost:  OK <= sum <= OK + IN_DOUBT,  OK + IN_DOUBT = tasks.
"""
import random

import harness
from scripted import Scripted, session_of, worker_of

MIB = 1 << 20
WINDOW = {"backend": "cpu", "cores": 1, "mem": "1G", "window": "yes"}
PLAIN = {"backend": "cpu", "cores": 1, "mem": "1G"}
PAIRS = {"plain": (PLAIN, PLAIN), "windows": (WINDOW, WINDOW), "mixed": (PLAIN, WINDOW)}
# What a task may end with whose worker was killed.
KILLED = {"OK", "IN_DOUBT"}


def world(pair="plain", **keys):
    """A gantryd with devices d0 and d1, and tenant red, which may use both."""
    devices = {f"d{index}": dict(device) for index, device in enumerate(PAIRS[pair])}
    devices.update(keys.pop("more", {}))
    tenant = {"mem": "512M", "virtual": "2G", "heap": "64M", **keys.pop("tenant", {})}
    return harness.Agent(devices=devices, tenants={"red": tenant, **keys.pop("tenants", {})}, **keys)


class Mover:
    """A guest with a queue q, and what its administrator does to it."""

    def __init__(self, agent, tenant="red"):
        self.agent = agent
        self.guest = Scripted(agent, tenant)
        self.guest.ask("queue q")
        self.session = session_of(agent, self.guest)["session_id"]
        self.slot = agent.ctl_json("queue", "list", "--session", str(self.session))["queues"][0]["slot"]
        self.name = f"{self.session}:{self.slot}"
        self.tasks = 0
        self.tickets = []

    def device(self):
        return self.agent.ctl_json("queue", "show", self.name)["queue"]["device"]

    def elsewhere(self):
        return "d1" if self.device() == "d0" else "d0"

    def move(self, to, *options):
        return self.agent.ctl("queue", "migrate", self.name, "--to", to, *options)

    def start(self, to, *options):
        """gantryctl in the background; wait() for it."""
        argv = [harness.program("gantryctl"), "--socket", self.agent.admin]
        return harness.Guest([*argv, "queue", "migrate", self.name, "--to", to, *options], env=self.agent.env)

    def migrations(self):
        return [row for row in self.agent.ctl_json("migration", "list")["migrations"] if row["kind"] == "queue"]

    # --- the checker ---

    def begin_history(self):
        self.guest.ask("buffer y 64 device")
        self.guest.ask("float y 0")

    def put(self, number):
        name = f"h{len(self.tickets)}"
        self.guest.ask(f"add q {name} y {number}")
        self.tickets.append((name, number))
        self.tasks += number

    def check_history(self, t, allowed=frozenset({"OK"})):
        ended = {}
        for name, number in self.tickets:
            for word in self.guest.ask(f"ends {name} {number}", 100).split():
                key, _, value = word.partition("=")
                ended[key] = ended.get(key, 0) + int(value)
        t.equal(set(key for key, value in ended.items() if value) - set(allowed), set(), f"how tasks ended: {ended}")
        t.equal(sum(ended.values()), self.tasks, f"tasks accounted for: {ended}")
        ran = float(self.guest.ask("float y"))
        t.true(ended.get("OK", 0) <= ran <= ended.get("OK", 0) + ended.get("IN_DOUBT", 0),
               f"ran {ran} times: {ended}")
        self.tickets, self.tasks = [], 0
        self.guest.ask("float y 0")
        return ended


def kill_rounds(t, pair, rounds, seed, victims=("worker", "agent")):
    """Moves to and fro with tasks running; in each round somebody is killed at a moment that chance chooses."""
    chance = random.Random(seed)
    with world(pair) as agent:
        made = Mover(agent)
        size = 8 * MIB
        made.guest.ask(f"buffer big {size} device")
        made.guest.ask(f"random big {size} {seed}")
        wanted = made.guest.ask(f"expect {size} {seed}")
        made.guest.ask(f"sum q big {size}", 60)
        made.begin_history()
        for number in range(rounds):
            victim = chance.choice(victims)
            pid = worker_of(agent, made.guest) if victim == "worker" else None
            made.put(chance.randrange(1, 60))
            going = made.start(made.elsewhere())
            made.put(chance.randrange(1, 200))
            if victim == "worker":
                agent.kill_worker(pid)
            else:
                agent.kill_agent()
            made.put(chance.randrange(1, 60))
            going.wait(60)
            agent.wait_ready()
            made.check_history(t, KILLED)
            t.equal(made.guest.ask(f"sum q big {size}", 90), wanted, f"seed {seed}, round {number}, {victim}: bytes")
        # Nothing is left over: one session, its charges what its buffers are.
        made.guest.ask("close")
        harness.wait_until(lambda: all(row["mem_used"] == 0 for row in agent.ctl_json("device", "list")["devices"]),
                           "all memory of devices is back", 30)

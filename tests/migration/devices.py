# SPDX-License-Identifier: Apache-2.0
"""Queues that move between devices: worlds, moves, and kills while they move."""
import random

import harness
from history import KILLED, History
from scripted import Scripted, session_of, worker_of

MIB = 1 << 20
WINDOW = {"backend": "cpu", "cores": 1, "mem": "1G", "window": "yes"}
PLAIN = {"backend": "cpu", "cores": 1, "mem": "1G"}
PAIRS = {"plain": (PLAIN, PLAIN), "windows": (WINDOW, WINDOW), "mixed": (PLAIN, WINDOW)}


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
        self.guest = Scripted(agent, tenant, opened=False)
        self.guest.ask("open timeout_ms 60000")
        self.guest.ask("queue q")
        self.session = session_of(agent, self.guest)["session_id"]
        self.slot = agent.ctl_json("queue", "list", "--session", str(self.session))["queues"][0]["slot"]
        self.name = f"{self.session}:{self.slot}"
        self.history = None

    def queues(self):
        """Devices by queues' names; the session's own queue is not among them."""
        rows = self.agent.ctl_json("queue", "list", "--session", str(self.session))["queues"]
        return {f"{self.session}:{row['slot']}": row["device"] for row in rows}

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

    # --- the checker (history.py) ---

    def begin_history(self):
        self.history = History(self.guest)

    def put(self, number):
        self.history.put(number)

    def check_history(self, t, allowed=frozenset({"OK"})):
        return self.history.check(t, allowed)


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

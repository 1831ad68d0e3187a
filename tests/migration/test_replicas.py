#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Buffers that queues on several devices read: each device has a copy, until somebody writes. Bytes that move are counted."""
import random

import harness
from devices import MIB, PLAIN, WINDOW
from scripted import Scripted, session_of, worker_of


def metric(agent, name):
    return sum(row["value"] for row in agent.ctl_json("stats")["metrics"] if row["name"] == name)


def fakecuda():
    """A GPU over the fake driver; Skip where the build has none."""
    found = {key: harness.find_in_build(name, lambda path: "fakecuda" in path)
             for key, name in (("driver", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1"), ("nvrtc", "libnvrtc.so"))}
    if not all(found.values()):
        raise harness.Skip("the build has no fake driver of GPUs")
    return {"backend": "cuda", "mem": "512M", **{key: str(path) for key, path in found.items()}}


class Readers:
    """A guest with a queue on each device of @agent and a buffer, a ticket at a time."""

    def __init__(self, agent, devices):
        self.agent = agent
        self.guest = Scripted(agent, "red", opened=False)
        self.guest.ask("open timeout_ms 60000")
        self.session = session_of(agent, self.guest)["session_id"]
        self.queues = []
        for device in devices:
            name = f"q{len(self.queues)}"
            self.guest.ask(f"queue {name}")
            slot = max(row["slot"] for row in self.rows())
            self.queues.append((name, f"{self.session}:{slot}"))
            self.move(len(self.queues) - 1, device)

    def rows(self):
        return self.agent.ctl_json("queue", "list", "--session", str(self.session))["queues"]

    def move(self, index, device):
        ended = self.agent.ctl("queue", "migrate", self.queues[index][1], "--to", device)
        if ended.code not in (0, 7):  # 7: it is there
            raise harness.Failure(f"queue {index} to {device}: {ended.err}")

    def shown(self):
        return self.agent.ctl_json("session", "show", str(self.session))["session"]

    def buffer(self, name, size):
        self.guest.ask(f"buffer {name} {size} device")

    def put(self, command, kill=None):
        """A task; what is in doubt after @kill is put again: here all may run twice."""
        for _ in range(10):
            self.guest.ask(command)
            if kill:
                kill()
                kill = None
            said = self.guest.tell("wait t 60000", 90)
            if said.startswith("ok"):
                return
            if "IN_DOUBT" not in said:
                raise harness.Failure(f"{command}: {said}")
        raise harness.Failure(f"{command}: in doubt again and again")

    def write(self, index, name, off, size, word, kill=None):
        self.put(f"pattern {self.queues[index][0]} t {name} {off} {size} {word}", kill)

    def read(self, index, name, off, size, word, kill=None):
        """How many words are not @word, as a task of that queue finds them."""
        self.put(f"copy {self.queues[index][0]} t out 0 {name} {off} {size}", kill)
        return size // 8 - int(self.guest.ask(f"count out {size} {word}", 60))


def test_readers_on_two_devices_copy_a_buffer_once(t):
    size = 16 * MIB
    with harness.Agent(devices={"d0": dict(WINDOW), "d1": dict(WINDOW)},
                       tenants={"red": {"mem": "512M", "virtual": "2G"}}) as agent:
        made = Readers(agent, ("d0", "d1"))
        made.buffer("b", size)
        made.buffer("out", MIB)
        made.write(0, "b", 0, size, 5)
        before = made.shown()["moved_bytes"]
        for number in range(12):
            t.equal(made.read(number % 2, "b", number * MIB, MIB, 5), 0)
        shown = made.shown()
        # `out` is written on both, and goes to and fro.
        t.true(size <= shown["moved_bytes"] - before <= size + 26 * MIB, f"moved: {shown['moved_bytes'] - before}")
        t.equal((shown["replicas"] >= 1, shown["replica_bytes"] >= size), (True, True))
        t.true(metric(agent, "gantry_replica_bytes_total") >= size, "counted")
        made.write(1, "b", 0, MIB, 6)
        t.equal([made.read(index, "b", 0, MIB, 6) for index in (0, 1)], [0, 0])
        made.guest.ask("close")
        harness.wait_until(lambda: all(row["mem_used"] == 0 for row in agent.ctl_json("device", "list")["devices"]),
                           "all memory of devices is back", 30)


def test_memory_of_copies_that_died_with_their_worker_is_the_pools(t):
    size = 64 * MIB
    with harness.Agent(devices={"d0": dict(WINDOW), "d1": dict(WINDOW)},
                       tenants={"red": {"mem": "512M", "virtual": "2G"}}) as agent:
        made = Readers(agent, ("d0", "d1"))
        made.buffer("b", size)
        made.buffer("out", MIB)
        made.write(0, "b", 0, size, 5)
        t.equal([made.read(index, "b", 0, MIB, 5) for index in (0, 1)], [0, 0])

        def slabs():
            return sum(row["slab_bytes"] for row in agent.ctl_json("device", "list")["devices"])

        t.true(slabs() >= 2 * size, f"slabs of the buffer and its copy: {slabs()}")
        pid = worker_of(agent, made.guest)
        agent.kill_worker(pid)
        harness.wait_until(lambda: worker_of(agent, made.guest) not in (None, 0, pid), "a successor serves it", 60)
        t.equal(made.read(0, "b", 0, MIB, 5), 0)
        t.true(size <= slabs() < 2 * size, f"slabs of the buffer: {slabs()}")
        harness.wait_until(lambda: all(row["slab_dirty_bytes"] == 0 for row in agent.ctl_json("device", "list")["devices"]),
                           "the copy's slabs are zeroed", 30)


def test_without_replicas_the_buffer_goes_to_and_fro(t):
    size = 16 * MIB
    with harness.Agent(devices={"d0": dict(WINDOW), "d1": dict(WINDOW)},
                       tenants={"red": {"mem": "512M", "virtual": "2G", "replicas": "no"}}) as agent:
        made = Readers(agent, ("d0", "d1"))
        made.buffer("b", size)
        made.buffer("out", MIB)
        made.write(0, "b", 0, size, 5)
        for number in range(6):
            t.equal(made.read(number % 2, "b", 0, MIB, 5), 0)
        shown = made.shown()
        t.true(shown["moved_bytes"] >= 5 * size, f"moved: {shown['moved_bytes']}")
        t.equal((shown["replicas"], metric(agent, "gantry_replicas_total")), (0, 0))


def test_queue_that_leaves_a_device_takes_the_copies_from_there(t):
    size = 16 * MIB
    with harness.Agent(devices={name: dict(WINDOW) for name in ("d0", "d1", "d2")},
                       tenants={"red": {"mem": "512M", "virtual": "2G"}}) as agent:
        made = Readers(agent, ("d0", "d1"))
        made.buffer("b", size)
        made.buffer("out", MIB)
        made.write(0, "b", 0, size, 5)
        t.equal(made.read(1, "b", 0, MIB, 5), 0)

        def used():
            return {row["name"]: row["mem_used"] for row in agent.ctl_json("device", "list")["devices"]}
        t.true(used()["d1"] >= size, f"{used()}")
        t.code(agent.ctl("device", "drain", "d1", "--timeout", "60s"), 0)
        harness.wait_until(lambda: used()["d1"] == 0, "the drained device is empty", 30)
        t.equal([made.read(index, "b", 0, MIB, 5) for index in (0, 1)], [0, 0])


def chance_rounds(t, devices, rounds, seed):
    """Reads and writes of parts by whoever chance chooses, with moves and deaths of the worker in between."""
    parts, part = 8, 128 * 1024
    chance = random.Random(seed)
    with harness.Agent(devices=devices, tenants={"red": {"mem": "256M", "virtual": "2G"}}) as agent:
        made = Readers(agent, list(devices))
        names = [f"b{number}" for number in range(3)]
        words = {}
        made.buffer("out", part)
        for name in names:
            made.buffer(name, parts * part)
            for number in range(parts):
                words[name, number] = chance.randrange(1, 1 << 32)
                made.write(0, name, number * part, part, words[name, number])
        wrong = 0
        for _ in range(rounds):
            index, name, number = chance.randrange(len(devices)), chance.choice(names), chance.randrange(parts)
            kill = None
            if chance.random() < 0.03:
                kill = lambda pid=worker_of(agent, made.guest): agent.kill_worker(pid)
            if chance.random() < 0.05:
                made.move(index, chance.choice(list(devices)))
            if chance.random() < 0.3:
                words[name, number] = chance.randrange(1, 1 << 32)
                made.write(index, name, number * part, part, words[name, number], kill)
            else:
                wrong += made.read(index, name, number * part, part, words[name, number], kill)
        for (name, number), word in words.items():
            wrong += sum(made.read(index, name, number * part, part, word) for index in range(len(devices)))
        t.equal(wrong, 0, f"seed {seed}: wrong words")
        t.true(metric(agent, "gantry_replicas_total") > 0, "copies were made")
        made.guest.ask("close")
        harness.wait_until(lambda: all(row["mem_used"] == 0 for row in agent.ctl_json("device", "list")["devices"]),
                           "all memory of devices is back", 30)


def test_chance_readers_and_writers_of_two_windows_and_host_memory(t):
    chance_rounds(t, {"d0": dict(WINDOW), "d1": dict(WINDOW), "d2": dict(PLAIN)}, 150, 20261122)


def test_chance_readers_and_writers_of_two_cpus_and_a_gpu(t):
    chance_rounds(t, {"d0": dict(WINDOW), "d1": dict(WINDOW), "d2": fakecuda()}, 120, 20261123)


if __name__ == "__main__":
    harness.main(globals(), 120)

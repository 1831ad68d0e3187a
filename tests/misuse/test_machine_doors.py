#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile machines: what they write into the desks of their door memory, and say over a stream, beside an honest guest of
another tenant, whose results must be what they would be alone. Seeds are fixed: what fails, fails again.
"""
import os
import random
import shutil
import struct
import tempfile
import threading

import harness
import ivpeer
from scripted import Scripted, honest, still_honest
from test_stream import DATA, DONE, MAGIC, POSITIONS, PUT, Peer, hello, relays

KEYS = {"ivshmem": "yes", "ivshmem_size": "64M", "ivshmem_machines": 2, "heap": "16M", "sessions": 16, "host_mem": "512M"}
EXTREMES = (0, 1, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
EXTREMES_64 = (*EXTREMES, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


class World:
    """An agent with the hostile tenant red and an honest guest of blue's."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="gm-")
        self.vsock = os.path.join(self.folder, "v")
        self.agent = harness.Agent(tenants={"red": {**KEYS, "vsock_path": self.vsock}, "blue": {}},
                                   agent={"vsock_grace": "200ms"})
        self.pid = self.agent.agent_pid()

    def __enter__(self):
        self.agent.__enter__()
        self.neighbour = honest(self.agent)
        return self

    def __exit__(self, *what):
        self.agent.__exit__(*what)
        shutil.rmtree(self.folder, ignore_errors=True)

    def machine(self):
        return ivpeer.Machine(str(self.agent.run_dir / "doors/red/ivshmem.sock"))

    def is_unharmed(self, t):
        """And nothing of the hostile guests' is left."""
        harness.wait_until(lambda: [s["tenant"] for s in self.agent.sessions()] == ["blue"], "red's sessions end")
        harness.wait_until(lambda: not relays(self.agent), "their relays, too")
        still_honest(self.neighbour)
        t.equal(self.agent.agent_pid(), self.pid, "the same agent")


# --- streams ---

def frame_of_chance(rng):
    kind = rng.choice((DATA, PUT, POSITIONS, DONE, *range(40)))
    length = rng.choice((16, 24, 32, 88, 96, 16 + 8 * rng.randrange(400), rng.choice(EXTREMES)))
    tag = rng.choice((*range(9), rng.choice(EXTREMES)))
    body = b"".join(struct.pack("<Q", rng.choice((rng.getrandbits(64), rng.choice(EXTREMES_64))))
                    for _ in range(min(length, 4096) // 8))
    return struct.pack("<IHHII", MAGIC, kind, rng.random() < 0.05, length, tag) + body[:max(0, min(length, 4096) - 16)]


def test_frames_of_chance_end_their_own_session_at_most(t):
    rng = random.Random(11)
    with World() as world:
        for _ in range(40):
            peer = Peer(world.vsock)
            peer.attach()
            try:
                for _ in range(rng.randrange(1, 12)):
                    peer.say(frame_of_chance(rng))
            except OSError:
                pass  # it has heard enough
            peer.sock.close()
        world.is_unharmed(t)


def test_strangers_who_never_finish_their_hello_keep_nobody_out(t):
    with World() as world:
        half = []
        for number in range(48):
            peer = Peer(world.vsock)
            half.append(peer)
            try:
                peer.say(hello()[:number * 2 + 1])
            except OSError:
                pass  # there are as many at the door as may be
        Scripted(world.agent, "blue").ask("close")  # another tenant's door is its own
        for peer in half:
            peer.sock.close()
        harness.wait_until(lambda: attaches(world), "the door is free again")
        world.is_unharmed(t)


def attaches(world):
    peer = Peer(world.vsock)
    try:
        peer.attach()
        return True
    except harness.Failure:
        return False    # there are still as many half-open ones as may be
    finally:
        peer.sock.close()


# --- desks ---

def test_hellos_of_all_extremes_get_what_fits_or_a_sentence(t):
    rng = random.Random(12)
    with World() as world, world.machine() as vm:
        for number in range(60):
            desk = vm.desk(number % 64)
            desk.claim(wake=rng.choice((0, 1, 2, 77)), vector=rng.choice(EXTREMES)).wait_served()
            body = struct.pack("<IIQQQIIII16s32s", rng.choice((0, 1, 1, 1)), rng.choice((1, 1, 1, 0xFFFFFFFF)),
                               *(rng.choice((0, *EXTREMES_64)) for _ in range(3)),
                               rng.choice(EXTREMES), rng.choice(EXTREMES), rng.choice((0, 0, 0, 1)),
                               rng.choice(EXTREMES), rng.randbytes(16),
                               rng.choice((b"name", b"x" * 32, b"\x1b[2J\n")))
            desk.post(ivpeer.header(ivpeer.HELLO) + body)
            message = desk.answer()
            if ivpeer.kind_of(message) == ivpeer.WELCOME:
                welcome, off = ivpeer.Welcome(message), desk.get("<Q", 152)
                t.true(vm.data_off <= off and off + welcome.bytes <= vm.bytes, "inside the machine's memory")
            else:
                t.true(ivpeer.status_of(message)[1], "a sentence")
            desk.clear()
        vm.close()
        world.is_unharmed(t)


def test_messages_that_change_while_they_are_read_harm_nobody(t):
    """What was checked must be what is used: a message is copied once."""
    with World() as world, world.machine() as vm:
        words = [ivpeer.hello(heap=1 << 20), bytes(112), ivpeer.header(ivpeer.ADOPT, 3) + bytes(16),
                 ivpeer.header(ivpeer.HELLO)[:8] + b"\xff\xff\xff\xff" + bytes(100)]
        is_over = threading.Event()

        def flip():
            while not is_over.is_set():
                for message in words:
                    for desk in desks:
                        vm.map[desk.off + 256:desk.off + 256 + len(message)] = message

        desks = [vm.desk(i) for i in range(4)]
        thread = threading.Thread(target=flip)
        thread.start()
        try:
            for _ in range(25):
                for desk in desks:
                    desk.claim().wait_served()
                    desk.put("<I", 72, (desk.get("<I", 140) + 1) & 0xFFFFFFFF)
                    desk.machine.ring()
                    harness.wait_until(lambda desk=desk: desk.over or desk.get("<I", 136) != desk.get("<I", 76),
                                       "an answer of some kind")
                    desk.take(512, 136, 76)
        finally:
            is_over.set()
            thread.join()
        vm.close()
        world.is_unharmed(t)


def test_two_machines_of_a_tenant_one_of_them_hostile(t):
    """Desks, memory and doorbells of one are nothing to the other, though both are the same tenant's."""
    rng = random.Random(13)
    with World() as world, world.machine() as hostile, world.machine() as vm:
        desk = vm.desk(0)
        welcome = desk.attach(heap=1 << 20)
        before = bytes(vm.map[welcome.off:welcome.off + 4096])
        for _ in range(3000):
            at = rng.randrange(hostile.bytes - 64)
            hostile.map[at:at + 64] = rng.randbytes(64)
            hostile.ring(rng.randrange(8))
        t.equal((desk.over, vm.state), (False, ivpeer.OPEN), "the other machine's session goes on")
        t.true(bytes(vm.map[welcome.off:welcome.off + 64]) == before[:64], "its segment is untouched")
        hostile.close()
        desk.clear()
        world.is_unharmed(t)


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

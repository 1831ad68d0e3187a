#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of machines that are woken by bytes of a channel beside their ivshmem device: what a virtio-serial port is to
them is here a socket that this program carries, as a hypervisor does.
"""
import contextlib
import os
import select
import socket
import struct

import harness
import ivpeer
from scripted import Scripted

POLL, MSIX, BYTE = 0, 1, 2
MAGIC = 0x4B574E47
HELLO = struct.Struct("<IIQQ")
ANSWER = struct.Struct("<IIQ")
LISTENING = 140  # of the segment's header


def world(**red):
    keys = {"ivshmem": "yes", "ivshmem_size": "64M", "sessions": 8, "heap": "16M", **red}
    return harness.Agent(devices={"cpu0": {}}, tenants={"red": keys})


def path(agent, name="ivshmem.sock"):
    return str(agent.run_dir / "doors" / "red" / name)


def machine(agent):
    return ivpeer.Machine(path(agent))


class Port:
    """A port of a machine, without a guest's kernel between."""

    def __init__(self, agent, where=None):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(harness.WAIT_S)
        self.sock.connect(where or path(agent, "wake.sock"))

    def say_hello(self, epoch, nonce=77, before=b""):
        self.sock.sendall(before + HELLO.pack(MAGIC, 0, epoch, nonce))

    def hello(self, epoch, nonce=77, before=b""):
        """The channel's number."""
        self.say_hello(epoch, nonce, before)
        magic, number, seen = ANSWER.unpack(self.sock.recv(ANSWER.size, socket.MSG_WAITALL))
        assert (magic, seen) == (MAGIC, nonce) and number, (magic, number, seen)
        return number

    def is_silent(self, seconds=0.2):
        return not select.select([self.sock], [], [], seconds)[0]

    def close(self):
        self.sock.close()


def offered(desk, number):
    """What the host makes of a claim that names a channel."""
    desk.claim(wake=BYTE, vector=number).wait_served()
    return desk.get("<I", 160)


def wakeups(agent):
    return [session["wakeup"] for session in agent.sessions()]


# --- scripted ---

def test_channel_is_of_who_says_the_machines_epoch(t):
    with world(ivshmem_machines=2) as agent, machine(agent) as vm, machine(agent) as other:
        port = Port(agent)
        number = port.hello(vm.epoch)
        t.equal(offered(vm.desk(0), number), BYTE, "its own")
        t.equal(offered(vm.desk(1), number + 5), POLL, "one that is not there")
        t.equal(offered(other.desk(0), number), POLL, "another machine's")
        later = port.hello(vm.epoch, before=b"\1\1GNWnoise" * 9)
        t.true(later != number, "who opens the port later has another number")
        t.equal((offered(vm.desk(2), number), offered(vm.desk(3), later)), (POLL, BYTE), "and the one before is gone")
        port.say_hello(4711)
        t.true(port.is_silent(), "no machine has that epoch")
        port.close()
        harness.wait_until(lambda: offered(vm.desk(4), later) == POLL, "it ends with its connection")


def test_session_is_woken_by_bytes_across_restarts(t):
    with world() as agent, machine(agent) as vm:
        port = Port(agent)
        number = port.hello(vm.epoch)
        desk = vm.desk(0).claim(wake=BYTE, vector=number).wait_served()
        desk.post(ivpeer.hello(heap=1 << 20))
        t.equal(ivpeer.kind_of(desk.answer()), ivpeer.WELCOME)
        t.equal((desk.get("<I", 160), wakeups(agent)), (BYTE, ["port"]), "as it is shown")
        agent.kill_agent()
        agent.wait_ready()
        t.equal(wakeups(agent), ["port"], "the next agent knows")
        t.equal(offered(vm.desk(1), number), BYTE, "and has the channel")
        # The end is a change of state: who listens hears of it.
        struct.pack_into("<I", vm.map, desk.get("<Q", 152) + LISTENING, 1)
        agent.kill_worker(agent.sessions()[0]["worker_pid"])
        t.equal(port.sock.recv(16), b"\1", "one byte for one wait")
        t.true(port.is_silent(), "and no more")


def by_vsock(agent, red="red"):
    """Where a machine's vsock device leads to: a program that connects there may want to be woken, and no session."""
    where = str(agent.root / "vsock")
    agent.set_tenant(red, vsock_path=where)
    agent.reload()
    harness.wait_until(lambda: os.path.exists(where), "the vsock door")
    return where


def test_session_is_woken_by_bytes_over_vsock(t):
    with world(ivshmem_machines=2) as agent, machine(agent) as vm, machine(agent) as other:
        where = by_vsock(agent)
        port = Port(agent, where)
        number = port.hello(vm.epoch)
        t.equal(offered(other.desk(0), number), POLL, "another machine's")
        desk = vm.desk(0).claim(wake=BYTE, vector=number).wait_served()
        desk.post(ivpeer.hello(heap=1 << 20))
        t.equal(ivpeer.kind_of(desk.answer()), ivpeer.WELCOME)
        t.equal((desk.get("<I", 160), wakeups(agent)), (BYTE, ["vsock"]), "as it is shown")
        agent.kill_agent()
        agent.wait_ready()
        t.equal(wakeups(agent), ["vsock"], "the next agent knows")
        struct.pack_into("<I", vm.map, desk.get("<Q", 152) + LISTENING, 1)
        agent.kill_worker(agent.sessions()[0]["worker_pid"])
        t.equal(port.sock.recv(16), b"\1", "one byte for one wait")
        port.close()
        harness.wait_until(lambda: offered(vm.desk(4), number) == POLL, "it ends with its connection")


def test_vsock_of_who_has_no_such_machine_is_silent_and_costs_nothing(t):
    with world() as agent, machine(agent) as vm:
        where = by_vsock(agent)
        liar = Port(agent, where)
        liar.say_hello(vm.epoch + 1)
        t.true(liar.is_silent(), "no machine has that epoch")
        slow = Port(agent, where)
        for byte in HELLO.pack(MAGIC, 0, vm.epoch, 5):
            slow.sock.sendall(bytes([byte]))
        t.equal(ANSWER.unpack(slow.sock.recv(ANSWER.size, socket.MSG_WAITALL))[2], 5, "byte by byte")
        many = [Port(agent, where) for _ in range(40)]
        for one in many:
            with contextlib.suppress(OSError):  # it may have ended already
                one.say_hello(vm.epoch)
        harness.wait_until(lambda: sum(ended(p) for p in many) >= 20, "channels beyond those of a machine end")
        t.equal(agent.sessions(), [])


def ended(port):
    """The other side has hung up; answers that came before are passed over."""
    while not port.is_silent(0):
        try:
            if not port.sock.recv(64):
                return True
        except ConnectionResetError:
            return True
    return False


def test_guest_that_talks_into_its_channel_costs_little_and_gets_nothing(t):
    with world() as agent, machine(agent) as vm:
        port = Port(agent)
        words = (b"x" * 5000 + HELLO.pack(MAGIC, 0, vm.epoch, 1)) * 40
        port.sock.setblocking(False)
        sent = 0
        try:
            while sent < 10_000_000:
                sent += port.sock.send(words)
        except BlockingIOError:
            pass
        t.below(sent, 10_000_000, "it is not read as fast as it comes")
        other = Port(agent)     # as long as it is open
        t.equal(offered(vm.desk(0), other.hello(vm.epoch)), BYTE, "others are heard")
        many = [Port(agent) for _ in range(40)]
        harness.wait_until(lambda: sum(not p.is_silent(0) for p in many) >= 20, "channels beyond those of a machine end")


# --- with the library ---

def test_library_sleeps_until_a_byte_comes(t):
    with world() as agent, machine(agent) as vm:
        guest = Scripted(agent, "red", env={"GANTRY_DOOR": vm.door(wake=path(agent, "wake.sock"))})
        t.equal(wakeups(agent), ["port"])
        guest.ask("queue q")
        for _ in range(40):
            guest.ask("run q t spin 1 3000000")
            guest.ask("wait t 30000")
        off = vm.desk(agent.sessions()[0]["desk"]).get("<Q", 152)
        waits = vm.word("<I", off + LISTENING)
        t.note(f"{vm.bytes_to_guest} bytes for {waits} waits")

        def stats():
            return {m["name"]: m["value"] for m in agent.ctl_json("stats")["metrics"]}
        # The last byte may still be on its way.
        harness.wait_until(lambda: stats()["gantry_tenant_wakeups_total"] == vm.bytes_to_guest - ANSWER.size,
                           "each is counted")
        values = stats()
        t.equal((values["gantry_tenant_wake_channels"], values["gantry_tenant_machine_desks"]), (1, 1))
        t.true(vm.bytes_to_guest >= 20, "tasks that take long are waited for asleep")
        t.true(vm.bytes_to_guest <= waits + ANSWER.size, "one byte at most for each wait")
        guest.ask("close")


def test_library_whose_channel_breaks_goes_on_without(t):
    with world() as agent, machine(agent) as vm:
        guest = Scripted(agent, "red", env={"GANTRY_DOOR": vm.door(wake=path(agent, "wake.sock"))})
        guest.ask("queue q")
        vm.hang_up_wake()
        for _ in range(5):
            guest.ask("run q t spin 1 3000000")
            guest.ask("wait t 30000")
        second = Scripted(agent, "red", env={"GANTRY_DOOR": vm.door()})
        harness.wait_until(lambda: wakeups(agent) == ["poll", "poll"], "who comes later polls, as the first does now")
        second.ask("close")
        guest.ask("close")


def test_channel_that_does_not_answer_is_not_waited_for_long(t):
    with world() as agent, machine(agent) as vm:
        mute = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door = vm.door()
        mute.bind(vm.folder + "/wake")
        mute.listen(4)
        guest = Scripted(agent, "red", env={"GANTRY_DOOR": door})
        t.equal(wakeups(agent), ["poll"])
        guest.ask("close")
        mute.close()


if __name__ == "__main__":
    harness.main(globals())

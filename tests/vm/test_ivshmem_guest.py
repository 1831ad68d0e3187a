# SPDX-License-Identifier: Apache-2.0
"""What libgantry does with an ivshmem device before an agent has answered: finds it, enables it, claims a desk, leaves.

The host is scripted: an ivshmem server that hands out a door memory, and looks at the desks. In a machine with an
IOMMU, a real agent's device is there as well, and its sessions are woken by interrupts.
"""
import fcntl
import mmap
import os
import signal
import socket
import struct
import tempfile
import threading

import doors
import harness
import vm

MAGIC, DATA_OFF, BYTES, NDESKS, PAGE = 0x314d444e41474e47, 2 << 20, 16 << 20, 64, 4096
OPEN, POLL, MSIX = 1, 0, 1
NO_AGENT, DENIED, ARG, VERSION = "-103", "-105", "-1", "-104"
MFD = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
F_ADD_SEALS, SEALS = 1033, 1 | 2 | 4


class Desk:
    def __init__(self, memory, index):
        (self.generation, self.boot_id, self.pid, self.uid, self.wake, self.mapping, _, _, self.vector, _,
         self.space) = struct.unpack_from("<Q16sIIIIIIIIQ", memory, PAGE * (1 + index))


class Door:
    """A door memory, and the server that gives it to QEMU."""

    def __init__(self, nvectors=2):
        self.folder = tempfile.TemporaryDirectory(prefix="gantry-vm-door-")
        self.path = f"{self.folder.name}/iv"
        self.nvectors = nvectors
        self.memfd = os.memfd_create("door", MFD)
        os.ftruncate(self.memfd, BYTES)
        fcntl.fcntl(self.memfd, F_ADD_SEALS, SEALS)
        self.memory = mmap.mmap(self.memfd, BYTES)
        struct.pack_into("<QIIQQQQII", self.memory, 0, MAGIC, 1, NDESKS, PAGE, DATA_OFF, BYTES, 7, nvectors, 0)
        struct.pack_into("<II", self.memory, 64, OPEN, 0)
        self.events = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2 * nvectors)]
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4)
        self.connections = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        """Each connection: version, its id, the memory, the host's vectors, its own."""
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            conn.sendall(struct.pack("<qq", 0, 1))
            socket.send_fds(conn, [struct.pack("<q", -1)], [self.memfd])
            for number, event in enumerate(self.events):
                socket.send_fds(conn, [struct.pack("<q", number // self.nvectors)], [event])
            self.connections.append(conn)

    def devices(self, name="iv"):
        return ["-chardev", f"socket,path={self.path},id={name}",
                "-device", f"ivshmem-doorbell,vectors={self.nvectors},chardev={name},id={name}-device"]

    def claims(self):
        """{index: desk} of those that are claimed."""
        desks = {index: Desk(self.memory, index) for index in range(NDESKS)}
        return {index: desk for index, desk in desks.items() if desk.generation & 1}

    def wait_claims(self, number):
        return harness.wait_until(lambda: (lambda found: found if len(found) == number else None)(self.claims()),
                                  f"{number} claims")

    def rung(self):
        """Whether the host's vector 0 was rung since the last time."""
        try:
            return os.eventfd_read(self.events[0])
        except BlockingIOError:
            return 0

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        for sock in [self.listener] + self.connections:
            sock.close()
        for descriptor in self.events + [self.memfd]:
            os.close(descriptor)
        self.memory.close()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.close()


def guest(machine, milliseconds, user="", door="ivshmem:"):
    program = machine.start(["door-guest", milliseconds], env={"GANTRY_DOOR": door}, user=user)
    machine.port.pump(lambda: not machine.port.to_guest, harness.WAIT_S, "the guest to take input")
    return program


def says(program, *parts):
    line = program.read_line()
    missing = [part for part in parts if part not in (line or "")]
    if missing:
        raise harness.Failure(f"{line!r} has no {missing}")


def third_claim(before, now):
    """Of the same two desks one has a new claim."""
    return before.keys() == now.keys() and sum(before[i].generation != now[i].generation for i in now) == 1


def test_claims_of_a_stock_guest(t):
    with Door() as door, Door() as other, vm.Vm(programs=["door-guest"], devices=door.devices()) as machine:
        address, = machine.pci(device="1110")
        folder = f"/sys/bus/pci/devices/{address}"

        # Nobody answers: the claim is made, rung for, and given back.
        alone = guest(machine, 3000)
        (index, desk), = door.wait_claims(1).items()
        boot_id = machine.do("cat /proc/sys/kernel/random/boot_id").strip().replace("-", "")
        t.equal((desk.boot_id.hex(), desk.uid, desk.wake), (boot_id, 0, POLL))
        says(alone, f"err {NO_AGENT}", "in time")
        t.equal(door.claims(), {})
        t.true(door.rung() >= 2, "the doorbell was not rung for claim and end")
        t.equal(Desk(door.memory, index).generation, desk.generation + 1)

        # Without GANTRY_DOOR: no socket is there, so the device is found.
        says(machine.start(["door-guest", 100]), f"err {NO_AGENT}", "in time")

        # Two at once have two desks; one that is killed leaves its own to the next.
        first, second = guest(machine, 60000), guest(machine, 60000)
        before = door.wait_claims(2)
        first.kill(signal.SIGKILL)
        t.equal(first.wait(), -signal.SIGKILL)
        third = guest(machine, 60000)
        harness.wait_until(lambda: third_claim(before, door.claims()), "the dead one's desk is taken over")
        second.kill()
        third.kill()

        # Another user may, once root lets him.
        says(guest(machine, 100, user="guest"), f"err {DENIED}", "udev")
        machine.do(f"chown root:guest {folder}/resource[02]; chmod 660 {folder}/resource[02]")
        says(guest(machine, 100, user="guest"), f"err {NO_AGENT}", "in time")

        # Two devices: by name.
        machine.ask("chardev-add", id="iv2", backend={"type": "socket", "data": {
            "addr": {"type": "unix", "data": {"path": other.path}}, "server": False}})
        machine.device_add("ivshmem-doorbell", id="iv2-device", chardev="iv2", vectors=2)
        _, address2 = harness.wait_until(lambda: (lambda seen: seen if len(seen) == 2 else None)(
            sorted(machine.pci(device="1110"), key=lambda found: found != address)), "the second device")
        says(guest(machine, 100), f"err {ARG}", address, address2, "2 devices")
        named = guest(machine, 60000, door=f"ivshmem:{address2}")
        other.wait_claims(1)

        # An agent of other times: a sentence that says who is the older one.
        for version in (0, 2):
            struct.pack_into("<I", other.memory, 8, version)
            says(guest(machine, 100, door=f"ivshmem:{address2}"), f"err {VERSION}", f"version {version}", "update")
        struct.pack_into("<I", other.memory, 8, 1)
        t.equal(len(other.claims()), 1)

        # Unplugged under a program that waits: an error, not a hang, not a SIGBUS.
        machine.device_del("iv2-device")
        says(named, f"err {NO_AGENT}", "unplugged")
        t.equal(named.wait(), 1)


def hand_to_vfio(machine, address):
    """As docs/inside-the-guest.md says."""
    folder = f"/sys/bus/pci/devices/{address}"
    machine.do(f"echo 1 >{folder}/enable; echo vfio-pci >{folder}/driver_override; echo {address} >/sys/bus/pci/drivers_probe;"
               f"group=/dev/vfio/$(basename $(readlink {folder}/iommu_group)); chgrp guest $group; chmod 660 $group")


def test_vfio_gives_one_process_the_interrupt(t):
    with Door() as door, doors.agent() as agent, \
            vm.Vm(programs=["door-guest", *doors.PROGRAMS], machine="q35,kernel-irqchip=split",
                  modules=["vfio_pci", "vfio_iommu_type1"],
                  devices=["-device", "intel-iommu,intremap=on", "-device", "pcie-root-port,id=root1,chassis=1,slot=1",
                           *door.devices(), *doors.ivshmem(agent, "red", bus="root1")]) as machine:
        sizes = {machine.do(f"stat -c %s /sys/bus/pci/devices/{one}/resource2").strip(): one
                 for one in machine.pci(device="1110")}
        address, real = sizes[str(BYTES)], sizes[str(64 << 20)]
        for one in (address, real):
            hand_to_vfio(machine, one)
        doors.admit(machine)

        # The claims.
        first = guest(machine, 60000, door=f"ivshmem:{address}")
        (_, desk), = door.wait_claims(1).items()
        t.equal((desk.wake, desk.vector), (MSIX, 0))
        guest(machine, 60000, door=f"ivshmem:{address}")
        t.equal(sorted(desk.wake for desk in door.wait_claims(2).values()), [POLL, MSIX])
        first.kill()
        t.equal(first.wait(), -signal.SIGKILL)

        # Sessions of the real agent, of an ordinary user: the first has the interrupt, the second polls.
        inside = doors.Inside(machine, f"ivshmem:{real}")
        woken = inside.honest()
        session, = agent.sessions()
        t.equal(session["wakeup"], "msix")
        t.contains(agent.ctl("session", "show", session["session_id"]).out, "msix")
        t.contains(machine.do("gantry-guest", user="guest"), "woken by interrupts")
        before = interrupts(machine)
        doors.still_honest(woken)
        harness.wait_until(lambda: interrupts(machine) > before, "an interrupt of the device reaches the guest")
        polls = inside.honest()
        t.equal(sorted(one["wakeup"] for one in agent.sessions()), ["msix", "poll"])
        doors.still_honest(woken)
        doors.still_honest(polls)
        t.note(f"{interrupts(machine) - before} interrupts")

        # An unplugging asks the process that holds the device, which lets go.
        doors.unplug(machine)
        for program in (woken, polls):
            answer = program.tell("honest check", timeout=doors.ROUNDS_S)
            t.true(answer.startswith("error DETACHED "), answer)
        harness.wait_until(lambda: not agent.sessions(), "the sessions of the device that is gone end")


def interrupts(machine):
    """How often vfio devices have interrupted this machine's processors."""
    return int(machine.do("awk '/vfio/ {n += $2 + $3} END {print n + 0}' /proc/interrupts"))


if __name__ == "__main__":
    harness.main(globals(), limit_s=300)

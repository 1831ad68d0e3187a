# SPDX-License-Identifier: Apache-2.0
"""What libgantry does with an ivshmem device before an agent has answered: finds it, enables it, claims a desk, leaves.

The host is scripted: an ivshmem server that hands out a door memory, and looks at the desks.
"""
import fcntl
import mmap
import os
import signal
import socket
import struct
import tempfile
import threading

import harness
import vm

MAGIC, DATA_OFF, BYTES, NDESKS, PAGE = 0x314d444e41474e47, 2 << 20, 16 << 20, 64, 4096
OPEN, POLL, MSIX = 1, 0, 1
NO_AGENT, DENIED, ARG = "-103", "-105", "-1"
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
        alone = guest(machine, 700)
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

        # Unplugged under a program that waits: an error, not a hang, not a SIGBUS.
        machine.device_del("iv2-device")
        says(named, f"err {NO_AGENT}", "unplugged")
        t.equal(named.wait(), 1)


def test_vfio_gives_one_process_the_interrupt(t):
    with Door() as door, vm.Vm(programs=["door-guest"], machine="q35,kernel-irqchip=split", modules=["vfio_pci", "vfio_iommu_type1"],
                               devices=["-device", "intel-iommu,intremap=on"] + door.devices()) as machine:
        address, = machine.pci(device="1110")
        machine.do(f"echo vfio-pci >/sys/bus/pci/devices/{address}/driver_override;"
                   f"echo {address} >/sys/bus/pci/drivers_probe; ls /dev/vfio/[0-9]*")
        first = guest(machine, 60000)
        (_, desk), = door.wait_claims(1).items()
        t.equal((desk.wake, desk.vector), (MSIX, 0))
        guest(machine, 60000)
        t.equal(sorted(desk.wake for desk in door.wait_claims(2).values()), [POLL, MSIX])
        first.kill()
        t.equal(first.wait(), -signal.SIGKILL)


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

# SPDX-License-Identifier: Apache-2.0
"""A virtual machine as gantryd sees one: what QEMU's ivshmem device does with its server, and a machine's programs.

    machine = ivpeer.Machine(agent.ivshmem_socket("red"))    # version, id, memory, vectors
    desk = machine.desk(0); desk.claim(); desk.post(ivpeer.hello()); desk.answer()
    agent.guest("red", [...], env={"GANTRY_DOOR": machine.door()})   # a real libgantry on it

The machine is a thread that passes a guest's doorbells on to the host, as the hypervisor does.
"""
import array
import contextlib
import fcntl
import mmap
import os
import select
import shutil
import socket
import struct
import tempfile
import threading
import time

import harness

MAGIC = 0x314d444e41474e47
HOST = 1
DESKS = 64
DESK_BYTES = 4096
OPEN, DRAIN, CLOSED = 1, 2, 3
HELLO, WELCOME, REFUSE, SHARE, SHARED, ADOPT, ADOPTED, NOTICE = range(1, 9)
DOOR_MAGIC = 0x52444e47
LEN = {HELLO: 112, WELCOME: 72, REFUSE: 192, SHARE: 32, SHARED: 40, ADOPT: 32, ADOPTED: 40, NOTICE: 192}
MSIX = 1
BOOT = bytes(range(1, 17))


class Refused(Exception):
    """The server said a version that is none: its status."""

    def __init__(self, status):
        super().__init__(f"server sent version {status}, expecting 0")
        self.status = status


class Lost(Exception):
    """What QEMU would loop on for ever: the end of the stream before the memory came."""


def receive(sock, timeout=harness.WAIT_S):
    """One message as QEMU reads it: 8 bytes, and at most one descriptor."""
    sock.settimeout(timeout)
    fds = array.array("i")
    data, control, _flags, _address = sock.recvmsg(8, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    for level, kind, value in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(value[:4])
    if len(data) != 8:
        raise Lost(f"{len(data)} bytes of a message")
    return struct.unpack("<q", data)[0], fds[0] if fds else None


def header(kind, tag=0):
    return struct.pack("<IHHII", DOOR_MAGIC, kind, 0, LEN[kind], tag)


def hello(heap=0, nqueues=0, name=b"ivpeer"):
    body = struct.pack("<IIQQQIIII16s32s", 1, 1, heap, 0, 0, nqueues, 0, 0, os.getpid(), b"", name)
    return header(HELLO) + body


def kind_of(message):
    return struct.unpack_from("<IH", message)[1]


def status_of(message):
    """Of a refusal or a notice: status and sentence."""
    return struct.unpack_from("<i", message, 16)[0], message[32:192].split(b"\0")[0].decode()


class Welcome:
    def __init__(self, message):
        (self.version, self.props, self.session, self.bytes, self.address, self.nqueues,
         self.nslots) = struct.unpack_from("<IIQQQII", message, 16)


class Machine:
    def __init__(self, path, vectors=8):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(harness.WAIT_S)
        self.fds = []
        self.folder = None
        self.port = None
        self.hung_up = False
        self.bytes_to_guest = 0
        self.stopping = os.eventfd(0)
        self.thread = None
        try:
            self.sock.connect(path)
            self.shake(vectors)
        except BaseException:
            self.close()
            raise

    def shake(self, vectors):
        version, _ = receive(self.sock)
        if version != 0:
            raise Refused(version)
        self.id, _ = receive(self.sock)
        minus_one, memory = receive(self.sock)
        assert minus_one == -1 and memory is not None, (minus_one, memory)
        self.memory = memory
        self.fds.append(memory)
        self.peers = {}
        self.take_vectors(vectors)
        self.bytes = os.fstat(memory).st_size
        self.map = mmap.mmap(memory, self.bytes)

    def take_vectors(self, n):
        """The next @n doorbells or interrupts."""
        for _ in range(n):
            peer, fd = receive(self.sock)
            os.set_blocking(fd, True)   # as QEMU does to what it is given
            self.peers.setdefault(peer, []).append(fd)
            self.fds.append(fd)

    def word(self, fmt, offset):
        return struct.unpack_from(fmt, self.map, offset)[0]

    @property
    def state(self):
        return self.word("<I", 64)

    @property
    def heartbeat(self):
        return self.word("<I", 68)

    @property
    def data_off(self):
        return self.word("<Q", 24)

    @property
    def epoch(self):
        return self.word("<Q", 40)

    def ring(self, vector=0):
        os.eventfd_write(self.peers[HOST][vector], 1)

    def desk(self, index):
        return Desk(self, index)

    def door(self, wake=None):
        """GANTRY_DOOR of programs of this machine: a folder that looks like the device's in sysfs. With a port that leads
        to the agent's socket @wake, for one program at a time."""
        if not self.folder:
            self.folder = tempfile.mkdtemp(prefix="gantry-ivpeer-")
            os.symlink(f"/proc/{os.getpid()}/fd/{self.memory}", os.path.join(self.folder, "resource2"))
            self.bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.bell.bind(os.path.join(self.folder, "doorbell"))
            self.thread = threading.Thread(target=self.pass_on, daemon=True)
            self.thread.start()
        if wake and not self.port:
            self.port = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.port.bind(os.path.join(self.folder, "wake"))
            self.port.listen(1)
            self.port_thread = threading.Thread(target=self.carry_wake, args=(wake,), daemon=True)
            self.port_thread.start()
        return "ivshmem:" + self.folder

    def carry_wake(self, wake):
        """A port stays connected to the host when its program in the guest ends."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
            host.connect(wake)
            while not self.hung_up:
                try:
                    guest, _ = self.port.accept()
                except OSError:
                    return
                with guest, contextlib.suppress(OSError):   # either end may go at any time
                    self.carry_between(guest, host)

    def carry_between(self, guest, host):
        while not self.hung_up:
            ready, _, _ = select.select([guest, host], [], [], 0.05)
            if host in ready:
                data = host.recv(64)
                self.bytes_to_guest += len(data)
                guest.sendall(data)
            if guest in ready:
                data = guest.recv(64)
                if not data:
                    return
                host.sendall(data)

    def hang_up_wake(self):
        """The port's device goes."""
        self.hung_up = True
        os.unlink(os.path.join(self.folder, "wake"))
        self.port_thread.join()

    def pass_on(self):
        while True:
            ready, _, _ = select.select([self.bell, self.stopping], [], [])
            if self.stopping in ready:
                return
            value = struct.unpack("<I", self.bell.recv(4))[0]
            peer, vector = value >> 16, value & 0xffff
            if peer in self.peers and vector < len(self.peers[peer]):
                os.eventfd_write(self.peers[peer][vector], 1)

    def close(self):
        """The hypervisor ends."""
        if self.thread:
            os.eventfd_write(self.stopping, 1)
            self.thread.join()
            self.bell.close()
        self.thread = None
        if self.port:
            self.hung_up = True
            self.port.shutdown(socket.SHUT_RDWR)
            self.port_thread.join(10)
            self.port.close()
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        if self.stopping >= 0:
            os.close(self.stopping)
            self.stopping = -1
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Desk:
    """A guest process's, without locks: the test knows who uses which."""

    def __init__(self, machine, index):
        self.machine = machine
        self.off = DESKS_OFF(machine) + index * DESK_BYTES
        self.index = index

    def get(self, fmt, at):
        return struct.unpack_from(fmt, self.machine.map, self.off + at)[0]

    def put(self, fmt, at, value):
        struct.pack_into(fmt, self.machine.map, self.off + at, value)

    @property
    def generation(self):
        return self.get("<Q", 0)

    @property
    def served(self):
        return self.get("<Q", 128)

    def claim(self, boot=BOOT, wake=0, vector=0, ring=True):
        m = self.machine.map
        struct.pack_into("<16sIIIIIII", m, self.off + 8, boot, 4711, 1000, wake, 1, 0, 0, vector)
        self.put("<Q", 0, self.generation + 1 + self.generation % 2)
        if ring:
            self.machine.ring()
        return self

    def clear(self):
        self.put("<Q", 0, self.generation + self.generation % 2)
        self.machine.ring()

    def wait_served(self, timeout=harness.WAIT_S):
        harness.wait_until(lambda: self.served == self.generation, "the claim is served", timeout)
        return self

    def post(self, message, n=1):
        self.machine.map[self.off + 256:self.off + 256 + len(message)] = message
        self.put("<I", 72, (self.get("<I", 72) + n) & 0xffffffff)
        self.machine.ring()

    def take(self, box, posted, taken):
        """The message in a box, or None."""
        count = self.get("<I", posted)
        if count == self.get("<I", taken):
            return None
        at = self.off + box
        message = bytes(self.machine.map[at:at + 256])
        self.put("<I", taken, count)
        return message

    def notice(self):
        return self.take(768, 144, 80)

    def answer(self, timeout=harness.WAIT_S):
        found = []

        def there():
            message = self.take(512, 136, 76)
            if message is not None:
                found.append(message)
            return found or self.served != self.generation

        harness.wait_until(there, "an answer", timeout)
        if not found:
            found.append(self.take(512, 136, 76))
        return found[0]

    def attach(self, **ask):
        self.claim().wait_served()
        self.post(hello(**ask))
        message = self.answer()
        assert message and kind_of(message) == WELCOME, message and status_of(message)
        welcome = Welcome(message)
        welcome.off = self.get("<Q", 152)
        welcome.bell = self.get("<I", 148)
        welcome.wake = self.get("<I", 160)
        return welcome

    @property
    def over(self):
        return self.served != self.generation


def DESKS_OFF(machine):
    return machine.word("<Q", 16)

# SPDX-License-Identifier: Apache-2.0
"""A mover alone, between a test that plays its agent and one that plays a hostile host."""
import array
import contextlib
import fcntl
import os
import signal
import socket
import ssl
import struct
import subprocess
import termios
import threading

import harness
from hosts import certificates

MAGIC, PROTOCOL = 0x52564f4d, 1
START, ACCEPT, CANCEL, CONNECTED, SESSION, FAILED = 1, 2, 4, 10, 13, 15
HELLO, ACCEPTED, IMAGE = 20, 21, 29
RECEIVE = 2
AGENT_FD = 3
SO_SNDBUFFORCE = 32
PAGE, CHUNK = 4096, 256 << 10
MASK = (1 << 64) - 1
LEDGER_MAGIC, NOBJECTS = 0x52474c59544e4147, 8192
P1, P2, P3, P4, P5 = (0x9e3779b185ebca87, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0x85ebca77c2b2ae63, 0x27d4eb2f165667c5)


def message(kind, text="", values=(0, 0, 0, 0), code=0):
    return struct.pack("<4I4Q16s176sQ", MAGIC, kind, code, 0, *values, bytes(16), text.encode(), 0)


def start(role, folder):
    words = struct.pack("<6I3Q", role, 0, 0, os.getuid(), os.getgid(), 8, 0, 0, 0)
    return message(START) + words + struct.pack("<256s64s192s584s", b"", b"south", folder.encode(), b"")


# --- sums of records (IMAGE.md) ---

def rotate(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def step(lane, value):
    return rotate((lane + value * P2) & MASK, 31) * P1 & MASK


def sum64(data):
    assert len(data) % 8 == 0
    at, left = 0, len(data)
    total = P5
    if left >= 32:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        for at in range(0, left - left % 32, 32):
            lanes = [step(lane, value) for lane, value in zip(lanes, struct.unpack_from("<4Q", data, at))]
        at, left = left - left % 32, left % 32
        total = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            total = ((total ^ step(0, lane)) * P1 + P4) & MASK
    total = total + len(data) & MASK
    for (value,) in struct.iter_unpack("<Q", data[at:at + left]):
        total = (rotate(total ^ step(0, value), 27) * P1 + P4) & MASK
    total = (total ^ total >> 33) * P2 & MASK
    total = (total ^ total >> 29) * P3 & MASK
    return total ^ total >> 32


def record(kind, flags, payload, sums, at=0):
    """@sums: of the payload's pages."""
    head = struct.pack("<2I3Q", kind, flags, at, len(payload), 0)
    total = sum64(head)
    for one in sums:
        total = sum64(struct.pack("<2Q", total, one))
    return head[:24] + struct.pack("<Q", total) + payload


# --- the mover ---

class Mover:
    """One that receives; .agent is the end of the agent, .host the end of the other host."""

    def __init__(self):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        self.host = socket.socket()
        with contextlib.suppress(PermissionError):  # all of what a test has to say fits
            self.host.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 8 << 20)
        self.host.connect(listener.getsockname())
        near, _ = listener.accept()
        listener.close()
        self.agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def give():
            os.dup2(theirs.fileno(), AGENT_FD)

        self.process = subprocess.Popen([harness.program("gantry-mover")], preexec_fn=give, pass_fds=(AGENT_FD,),
                                        close_fds=True)
        theirs.close()
        self.agent.sendmsg([start(RECEIVE, os.path.join(certificates(), "south"))],
                           [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [near.fileno()]))])
        near.close()

    def secure(self):
        """The other host, with a good certificate."""
        folder = os.path.join(certificates(), "north")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
        context.load_verify_locations(os.path.join(folder, "ca.pem"))
        context.check_hostname = False
        self.host = context.wrap_socket(self.host)
        self.host.sendall(message(HELLO, "north", (PROTOCOL, 0, 0, 0)))
        assert self.says() == (CONNECTED, 0, "north")

    def says(self, timeout=30):
        """The next word to the agent: kind, code, text."""
        self.agent.settimeout(timeout)
        packet = self.agent.recv(4096)
        kind, code = struct.unpack_from("<2I", packet, 4)
        return kind, code, packet[64:240].split(b"\0")[0].decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.agent.close()
        with contextlib.suppress(OSError):
            self.host.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


LEDGER_VERSION = 2
SEGMENT_BYTES, SLAB_BYTES, NQUEUES, NSLOTS = 4 << 20, 1 << 20, 4, 16


def session_record(slab):
    fields = struct.pack("<4I7Q", LEDGER_VERSION, 1, NQUEUES, NSLOTS, SEGMENT_BYTES, slab, 0, slab, slab, 1, 1)
    payload = (fields + struct.pack("<QQII16s16s32s32s64s", 0, 0, 2, 0, b"key", b"token", b"red", b"test", b"north")).ljust(584, b"\0")
    return record(1, 0, payload, [sum64(payload)])


def sealed(size, content=b""):
    made = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(made, size)
    os.pwrite(made, content, 0)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return made


def up(size):
    return (size + PAGE - 1) // PAGE * PAGE


def ledger(slab=SLAB_BYTES):
    queues, objects = 320, up(320 + NQUEUES * 192)
    tasks = objects + NOBJECTS * 128
    size = up(tasks + NQUEUES * NSLOTS * 256)
    head = struct.pack("<Q4I7Q32s", LEDGER_MAGIC, LEDGER_VERSION, NQUEUES, NSLOTS, NOBJECTS, queues, objects, tasks, size, 1,
                       SEGMENT_BYTES, slab, b"red")
    return sealed(size, head)


def pour(host, data):
    with contextlib.suppress(OSError):  # it may hang up
        host.sendall(data)


def waiting(host):
    """Bytes that the other end has not taken."""
    return struct.unpack("i", fcntl.ioctl(host.fileno(), termios.TIOCOUTQ, bytes(4)))[0]


def accept(mover, memory, pages):
    """The agent gives memory, of whose slab @pages bytes may be used; the image may go on."""
    mover.agent.sendmsg([message(ACCEPT, values=(pages, 0, 0, 0))],
                        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", memory))])
    for made in memory:
        os.close(made)
    assert mover.host.recv(4096)[4] == ACCEPTED


def image(magic=0x31454741494e5447, version=1, least=1):
    """The head of one of @version, for readers from @least on."""
    return struct.pack("<Q4IQ", magic, version, least, 32, PAGE, 0)


def offer(mover, data):
    mover.secure()
    mover.host.sendall(message(IMAGE))
    assert mover.host.recv(4096)[4] == HELLO
    pour(mover.host, data)


def begin(mover, slab=SLAB_BYTES):
    """An image's start; the session is told to the agent."""
    offer(mover, image() + session_record(slab))
    told = mover.says()
    assert told[0] == SESSION, str(told)


def test_agent_is_heard_while_there_is_always_more_to_read(t):
    """It may want an end, for another build or because the migration was called back, and has to get it before the image does."""
    page = sum64(bytes(PAGE))
    filler = record(1000, 1, bytes(CHUNK), [page] * (CHUNK // PAGE))  # of a kind that is passed over
    with Mover() as mover:
        begin(mover)
        accept(mover, [sealed(SEGMENT_BYTES), sealed(SLAB_BYTES), ledger()], SLAB_BYTES)
        mover.process.send_signal(signal.SIGSTOP)
        # At its end is what no reader takes, but it is too late for that.
        sending = threading.Thread(target=pour, args=(mover.host, filler * 6 + record(999, 0, b"", [])))
        sending.start()
        mover.agent.send(message(CANCEL, "enough"))
        harness.wait_until(lambda: not sending.is_alive() or waiting(mover.host) > CHUNK, "that the sockets are full")
        mover.process.send_signal(signal.SIGCONT)
        kind, _, text = mover.says()
        t.equal((kind, text), (FAILED, "enough"))
        mover.agent.close()
        sending.join()


def test_image_that_cannot_be_read_is_refused_and_the_agent_told_why(t):
    session = session_record(SLAB_BYTES)
    for data, code, words in ((image(version=9, least=9), 8, "version 9 for readers from 9 on"),
                              (image(magic=7), 1, "no image"),
                              (image() + session[:-1] + b"x", 1, "record 0 is damaged"),
                              (image() + session[:40], 5, "other host")):
        with Mover() as mover:
            offer(mover, data)
            if code == 5:
                mover.host.close()  # in the middle of a record
            kind, told, text = mover.says()
            t.equal((kind, told), (FAILED, code), text)
            t.contains(text, words)
    with Mover() as mover:  # a later one that this one can read
        offer(mover, image(version=9) + session)
        t.equal(mover.says()[0], SESSION)


def test_pages_beyond_what_the_session_may_have_are_refused(t):
    """The slab is address space, and its size no bound for memory; what is charged for is told at the end."""
    slab, limit = 64 << 20, 2 << 20
    with Mover() as mover:
        begin(mover, slab)
        memory = sealed(slab)
        accept(mover, [sealed(SEGMENT_BYTES), os.dup(memory), ledger(slab)], limit)
        page = sum64(b"x" * PAGE)
        pages = b"".join(record(5, 0, b"x" * CHUNK, [page] * (CHUNK // PAGE), 1 << 56 | at) for at in range(0, slab, CHUNK))
        sending = threading.Thread(target=pour, args=(mover.host, pages))
        sending.start()
        kind, code, text = mover.says()
        t.equal((kind, code), (FAILED, 6), text)
        t.contains(text, "more pages come than the session may have")
        sending.join()
        mover.process.wait(30)
        t.true(os.fstat(memory).st_blocks * 512 <= limit + (8 << 20), f"{os.fstat(memory).st_blocks * 512} bytes came")
        os.close(memory)


harness.main(globals())

# SPDX-License-Identifier: Apache-2.0
"""Stands between a guest and the agent's stream socket, knows where frames end, and breaks connections when told."""
import os
import select
import socket
import struct
import threading

HEADER = struct.Struct("<IHHII")
MAGIC = 0x52444E47
DATA = 33
CHUNK = 65536


class Direction:
    """What goes one way over one connection. Frames are counted as they have gone whole."""

    def __init__(self):
        self.frames = 0
        self.left = 0  # bytes of the frame under way that are to come
        self.head = b""

    def cut_at(self, data, frames, inside):
        """How much of @data may go before frame number @frames (from 0) has begun, or is half gone; None: all."""
        at = 0
        while at < len(data):
            if self.left == 0:
                if self.frames == frames and not inside and not self.head:
                    return at
                take = min(HEADER.size - len(self.head), len(data) - at)
                self.head += data[at:at + take]
                at += take
                if len(self.head) < HEADER.size:
                    return None
                magic, _, _, length, _ = HEADER.unpack(self.head)
                if magic != MAGIC:
                    raise AssertionError("a frame that is none")
                self.left = length - HEADER.size
                if self.frames == frames and inside:
                    return min(at + self.left // 2, len(data))
            take = min(self.left, len(data) - at)
            self.left -= take
            at += take
            if self.left == 0:
                self.frames += 1
                self.head = b""
        return None


def last_words(gone, other):
    """What an end had said before it hung up reaches the other, as in a virtual machine's stream: a goodbye above all."""
    gone.setblocking(False)
    try:
        data = gone.recv(CHUNK)
        other.sendall(data)
    except OSError:
        return 0
    return len(data)


class Proxy:
    """Listens at @path and connects to @target. cuts: [(direction, frame, inside)], one for each connection in turn."""

    def __init__(self, path, target, cuts=()):
        self.path, self.target = path, target
        self.cuts = list(cuts)
        self.connections = 0
        self.rescued = 0  # bytes that an end had said which hung up just as it was told something
        self.seen = []  # frames that went, by connection: [to the host, to the guest]
        self.hold = threading.Event()  # set: new connections are refused
        self.drop = threading.Event()
        self.end = False
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(8)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
        self.end = True
        self.drop.set()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(10)
        self.listener.close()
        os.unlink(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def break_now(self):
        self.drop.set()

    def run(self):
        while not self.end:
            try:
                guest, _ = self.listener.accept()
            except OSError:
                return
            if self.hold.is_set():
                guest.close()
                continue
            with guest, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
                try:
                    host.connect(self.target)
                except OSError:
                    continue
                self.connections += 1
                self.drop.clear()
                self.carry(guest, host, self.cuts.pop(0) if self.cuts else None)

    def carry(self, guest, host, cut):
        ways = {guest: (host, Direction(), 0), host: (guest, Direction(), 1)}
        self.seen.append([ways[guest][1], ways[host][1]])
        while not self.drop.is_set() and not self.end:
            for source in select.select(list(ways), [], [], 0.01)[0]:
                sink, direction, number = ways[source]
                try:
                    data = source.recv(CHUNK)
                except OSError:
                    return
                if not data:
                    return
                wanted = cut[1] if cut and cut[0] == number else -1
                at = direction.cut_at(data, wanted, cut[2] if cut else False)
                try:
                    sink.sendall(data if at is None else data[:at])
                except OSError:
                    self.rescued += last_words(sink, source)
                    return
                if at is not None:
                    return

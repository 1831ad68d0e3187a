# SPDX-License-Identifier: Apache-2.0
"""An ivshmem server (protocol version 0) for tests of what surrounds the agent's own: one memory per connection, the
host as peer 0, IDs that are never used again. The whole handshake is sent at accept and waits for nobody."""
import array
import ctypes
import fcntl
import os
import select
import socket
import struct
import threading

F_ADD_SEALS = 1033
SEALS = 1 | 2 | 4  # SEAL, SHRINK, GROW
MEMORY = -1


def door_memory(size):
    """A memfd that can neither grow nor shrink any more."""
    fd = os.memfd_create("gantry-door", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    return fd


def eventfd():
    fd = ctypes.CDLL(None, use_errno=True).eventfd(0, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "eventfd")
    return fd


def send(connection, number, fd=None):
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd is not None else []
    connection.sendmsg([struct.pack("<q", number)], extra)


class Server:
    """Serves in a thread until close(). size: of the memory of connections to come."""

    def __init__(self, path, size=64 << 20, vectors=8, mode=0o666):
        self.path, self.size, self.vectors = path, size, vectors
        self.peers = {}  # connection: (its id, its process)
        self.next_id = 1
        self.lock = threading.Lock()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        os.chmod(path, mode)
        self.listener.listen(8)
        self.stop, self.stopped = os.pipe()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def welcome(self, connection):
        # Interrupts of the machine's own are for programs that ask for them; see host-agent/agent/ivshmem.h for why.
        fds = [eventfd() for _ in range(self.vectors)]
        memory = door_memory(self.size)
        try:
            send(connection, 0)
            send(connection, self.next_id)
            send(connection, MEMORY, memory)
            for fd in fds:
                send(connection, 0, fd)
        finally:
            for fd in fds + [memory]:
                os.close(fd)
        with self.lock:
            pid, = struct.unpack_from("i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            self.peers[connection] = (self.next_id, pid)
        self.next_id += 1

    def serve(self):
        while True:
            ready, _, _ = select.select([self.listener, self.stop, *self.peers], [], [])
            if self.stop in ready:
                return
            for connection in ready:
                if connection is self.listener:
                    self.welcome(connection.accept()[0])
                elif not self.heard(connection):
                    with self.lock:
                        del self.peers[connection]
                    connection.close()

    @staticmethod
    def heard(connection):
        try:
            return connection.recv(4096)
        except OSError:
            return b""

    def peer_pids(self):
        """{id: process} of those that are connected."""
        with self.lock:
            return dict(self.peers.values())

    def close(self):
        os.write(self.stopped, b"x")
        self.thread.join()
        for connection in [self.listener, *self.peers]:
            connection.close()
        os.close(self.stop)
        os.close(self.stopped)
        if os.path.exists(self.path):
            os.unlink(self.path)

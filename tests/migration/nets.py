# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces and a link between them, by the kernel's own words (rtnetlink(7), veth(4)): no other program is needed but
util-linux's nsenter, which runs one there. They last as long as we hold them, and leave nothing behind however we end. Needs root."""
import contextlib
import ctypes
import os
import socket
import struct
import threading

CLONE_NEWNET = 0x40000000
NEWLINK, NEWADDR, ERROR = 16, 20, 2
REQUEST, ACK, CREATE, EXCL = 1, 4, 0x400, 0x200
UP = 1
IFLA_IFNAME, IFLA_LINKINFO, IFLA_NET_NS_FD = 3, 18, 28
INFO_KIND, INFO_DATA, VETH_PEER = 1, 2, 1
IFA_ADDRESS, IFA_LOCAL = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


def in_thread(work):
    """What @work gives on a thread of its own, for a namespace is a thread's."""
    got = []

    def run():
        try:
            got.append((work(), None))
        except OSError as why:
            got.append((None, why))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    result, why = got[0]
    if why:
        raise why
    return result


def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def link_message(index=0, flags=0, change=0):
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


class Net:
    """One namespace: .path is its file, for setns(2) and nsenter."""

    def __init__(self):
        self.file, self.talk = in_thread(self.make)
        self.path = f"/proc/{os.getpid()}/fd/{self.file}"
        self.number = 0

    @staticmethod
    def make():
        call("unshare", CLONE_NEWNET)
        with contextlib.ExitStack() as stack:
            file = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, file)
            talk = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            stack.pop_all()
            return file, talk

    def close(self):
        self.talk.close()
        os.close(self.file)

    def ask(self, kind, flags, body):
        """Sends a request, and raises what the kernel answers."""
        self.number += 1
        self.talk.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST | ACK | flags, self.number, 0) + body)
        answer = self.talk.recv(65536)
        _, answered, _, number, _, status = struct.unpack_from("=IHHIIi", answer)
        if answered != ERROR or number != self.number:
            raise OSError(0, f"the kernel answered {answered} to request {number}")
        if status < 0:
            raise OSError(-status, os.strerror(-status))

    def index(self, end):
        def look():
            call("setns", self.file, CLONE_NEWNET)
            return socket.if_nametoindex(end)
        return in_thread(look)

    def join(self, end, peer, peer_end):
        """A link: @end is here, @peer_end in @peer."""
        other = link_message() + attribute(IFLA_IFNAME, peer_end.encode() + b"\0") + attribute(IFLA_NET_NS_FD, struct.pack("=I", peer.file))
        info = attribute(INFO_KIND, b"veth") + attribute(INFO_DATA, attribute(VETH_PEER, other))
        self.ask(NEWLINK, CREATE | EXCL, link_message() + attribute(IFLA_IFNAME, end.encode() + b"\0") + attribute(IFLA_LINKINFO, info))

    def address(self, end, address, prefix=24):
        raw = socket.inet_aton(address)
        self.ask(NEWADDR, CREATE | EXCL, struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, self.index(end)) +
                 attribute(IFA_LOCAL, raw) + attribute(IFA_ADDRESS, raw))

    def set_up(self, end, up=True):
        self.ask(NEWLINK, 0, link_message(self.index(end), UP if up else 0, UP))

    def argv(self):
        """What to put before a program's words to have it run here."""
        return ["nsenter", f"--net={self.path}", "--"]

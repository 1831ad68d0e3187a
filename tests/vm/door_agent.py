# SPDX-License-Identifier: Apache-2.0
"""An agent that is nothing but a tenant's door: the admin calls door_show, door_drain and door_open, and the ivshmem
server behind them, told by a test how to be: another size, no right, mute, a guest that does not leave."""
import os
import socketserver
import struct
import threading

import ivshmem_server

DOOR_SHOW, DOOR_DRAIN, DOOR_OPEN = 90, 91, 92
NOT_FOUND, DENIED = 3, 4


# --- as much of protobuf as that needs ---------------------------------------------------------------

def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(**fields):
    """message(_1="text", _2=7, _3=[b"one", b"two"])"""
    out = b""
    for name, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            out += field(int(name[1:]), value)
    return out


def parse(data):
    """{field number: value}; the last of several."""
    at, fields = 0, {}

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 2:
            size = number()
            fields[key >> 3] = data[at:at + size]
            at += size
        else:
            fields[key >> 3] = number()
    return fields


# --- the agent ----------------------------------------------------------------------------------------

class Agent:
    """Answers at FOLDER/admin.sock; the door of tenant red is at FOLDER/doors/red/ivshmem.sock."""

    def __init__(self, folder, size=64 << 20, mode=0o666, max_peers=1, right=True, cid=0):
        self.admin = os.path.join(folder, "admin.sock")
        door = os.path.join(folder, "doors", "red")
        os.makedirs(door, mode=0o755)
        self.size, self.max_peers, self.right, self.cid = size, max_peers, right, cid
        self.leaving = set()  # numbers of machines that are drained
        self.vsock_state = "open"
        self.claims = 0  # programs at the door
        self.leave = True  # they do when the door drains
        self.asked = []
        self.server = ivshmem_server.Server(os.path.join(door, "ivshmem.sock"), size, mode=mode)
        self.listener = socketserver.ThreadingUnixStreamServer(self.admin, self.handler())
        self.listener.daemon_threads = True
        self.thread = threading.Thread(target=self.listener.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def pause(self):
        """As an agent that has been stopped: connections come about, and nobody answers."""
        self.listener.shutdown()

    def close(self):
        self.listener.shutdown()
        self.listener.server_close()
        self.thread.join()
        self.server.close()

    def handler(agent):  # pylint: disable=no-self-argument
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                while True:
                    head = self.rfile.read(4)
                    if len(head) < 4:
                        return
                    request = parse(self.rfile.read(struct.unpack("<I", head)[0]))
                    reply = field(1, request[2]) + agent.answer(request)
                    self.wfile.write(struct.pack("<I", len(reply)) + reply)
        return Handler

    def answer(self, request):
        for verb, answer in ((DOOR_SHOW, self.show), (DOOR_DRAIN, self.drain), (DOOR_OPEN, self.open)):
            if verb in request:
                body = parse(request[verb])
                tenant = body.get(1, b"").decode()
                self.asked.append((verb, body))
                if tenant != "red":
                    return message(_2=NOT_FOUND, _3=f"there is no tenant {tenant}")
                return answer(body)
        return message(_2=8, _3="this agent has only doors")

    @property
    def state(self):
        """Of the machines that are here: "drain" if one of them is about to lose its device."""
        return "drain" if self.leaving & set(self.server.peer_pids()) else "open"

    def show(self, _):
        vsock = {"_3": message(_1=self.cid, _2=7070, _4=self.vsock_state, _5="no vsock here")} if self.cid else {}
        if not self.right:
            return field(20, message(_1="red", **vsock))
        peers = [message(_1=peer, _2=pid, _4=self.server.size, _6="drain" if peer in self.leaving else "open", _7=self.claims, _8=self.claims, _9=64,
                         _10=peer) for peer, pid in sorted(self.server.peer_pids().items())]
        door = message(_1=self.server.path, _2=self.server.size, _3=self.size, _4=self.server.vectors,
                       _5=self.max_peers, _6="open", _8=peers)
        return field(20, message(_1="red", _2=door, **vsock))

    def drain(self, body):
        self.leaving.add(parse(body[3])[1])
        if self.leave:
            self.claims = 0
        return b""

    def open(self, body):
        if 3 in body:
            self.leaving.discard(parse(body[3])[1])
            return b""
        self.server.size = parse(body[2])[1] if 2 in body else self.size
        return b""



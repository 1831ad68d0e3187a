# SPDX-License-Identifier: Apache-2.0
"""The host's end of port-tunnel.c: leads the streams of one machine, which is here now or may come, to a Unix stream socket."""
import os
import select
import socket
import struct
import threading
import time

END, ESC = b"\xc0", b"\xdb"
CHUNK = 1 << 16


def frame(kind, about, data=b""):
    inner = kind + struct.pack("<I", about) + data
    return END + inner.replace(ESC, b"\xdb\xdd").replace(END, b"\xdb\xdc") + END


class Tunnel:
    """@path: the socket of the machine's port, which is there while a QEMU has the machine; @target: where streams go."""

    def __init__(self, path, target):
        self.path, self.target = str(path), target
        self.hold = threading.Event()  # set: no stream goes through
        self.connections = 0
        self.end = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
        self.end = True
        self.thread.join(10)

    def run(self):
        while not self.end:
            with socket.socket(socket.AF_UNIX) as port:
                try:
                    port.connect(self.path)
                except OSError:
                    time.sleep(0.01)  # until a QEMU listens: nobody tells
                    continue
                self.serve(port)

    def serve(self, port):
        """Until its QEMU has gone."""
        hello = int.from_bytes(os.urandom(4), "little")
        state = {"met": False, "stream": None, "number": 0, "buffer": b""}
        again = 0.0
        try:
            while not self.end:
                # What reaches a machine before it runs may be there unnoticed until something else comes.
                if not state["met"] and time.monotonic() >= again:
                    port.sendall(frame(b"H", hello))
                    again = time.monotonic() + 0.2
                waiting = [port] + ([state["stream"]] if state["stream"] else [])
                for source in select.select(waiting, [], [], 0.05)[0]:
                    if source is port:
                        data = port.recv(CHUNK)
                        if not data:
                            return
                        self.hear(port, state, data, hello)
                    elif source is state["stream"]:
                        self.pass_on(port, state)
        except OSError:
            pass
        finally:
            if state["stream"]:
                state["stream"].close()

    @staticmethod
    def pass_on(port, state):
        try:
            data = state["stream"].recv(CHUNK // 2)
        except OSError:
            data = b""
        if data:
            port.sendall(frame(b"D", state["number"], data))
        else:
            state["stream"].close()
            state["stream"] = None
            port.sendall(frame(b"C", state["number"]))

    def hear(self, port, state, data, hello):
        *whole, state["buffer"] = (state["buffer"] + data).split(END)
        for inner in whole:
            inner = inner.replace(b"\xdb\xdc", END).replace(b"\xdb\xdd", ESC)
            if len(inner) < 5:
                continue
            kind, about, rest = inner[:1], struct.unpack_from("<I", inner, 1)[0], inner[5:]
            # What comes before the answer to our greeting was for another host.
            if kind == b"H":
                state["met"] = about == hello
            elif state["met"]:
                self.obey(port, state, kind, about, rest)

    def obey(self, port, state, kind, about, data):
        if kind == b"O":
            if state["stream"]:
                state["stream"].close()
            state["number"], state["stream"] = about, None
            self.connections += 1
            stream = socket.socket(socket.AF_UNIX)
            try:
                if self.hold.is_set():
                    raise OSError
                stream.connect(self.target)
                state["stream"] = stream
            except OSError:
                stream.close()
                port.sendall(frame(b"C", about))
        elif state["stream"] and about == state["number"]:
            try:
                if kind == b"D":
                    state["stream"].sendall(data)
                    return
            except OSError:
                port.sendall(frame(b"C", about))
            state["stream"].close()
            state["stream"] = None

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The service is started again, as `systemctl restart` does it, and sessions go on. The test plays systemd: it keeps the
descriptors that the service gives it by datagrams, ends the service, and starts it anew with them."""
import array
import os
import select
import signal
import socket
import subprocess
import threading
import time

import harness
from builds import Builds
from scripted import Scripted, honest, still_honest

MS = 1000000
FIRST_FD = 3


class Store(threading.Thread):
    """systemd's end of NOTIFY_SOCKET, with its rules: one name may be there twice, and REMOVE takes all of a name."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.lock = threading.Lock()
        self.kept = []  # (name, descriptor)
        self.lines = []
        self.over = False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        os.chmod(path, 0o666)
        self.start()

    def run(self):
        while not self.over:
            if not select.select([self.socket], [], [], 0.1)[0]:
                continue
            data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4 * 16))
            fds = array.array("i")
            for level, kind, body in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(body[:len(body) - len(body) % fds.itemsize])
            self.take(data.decode(), list(fds))

    def take(self, text, fds):
        words = dict(line.partition("=")[::2] for line in text.splitlines())
        with self.lock:
            self.lines.append(text)
            if words.get("FDSTORE") == "1" and words.get("FDPOLL") == "0":
                self.kept += [(words["FDNAME"], fd) for fd in fds]
                fds = []
            if words.get("FDSTOREREMOVE") == "1":
                for name, fd in [pair for pair in self.kept if pair[0] == words["FDNAME"]]:
                    os.close(fd)
                    self.kept.remove((name, fd))
        for fd in fds:
            os.close(fd)

    def names(self):
        with self.lock:
            return sorted(name for name, _ in self.kept)

    def settled(self):
        """What is kept once nothing has come or gone for a while, but workers."""
        seen, since = None, 0

        def unchanged():
            nonlocal seen, since
            now = [name for name in self.names() if not name.startswith("w/")]
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > 0.5
        harness.wait_until(unchanged, "the store is at rest")
        return seen

    def close(self):
        self.over = True
        self.join()
        self.socket.close()
        for _, fd in self.kept:
            os.close(fd)


class Service(harness.Agent):
    """A gantryd as a service whose unit has FileDescriptorStoreMax=."""

    def __init__(self, **options):
        self.store = None
        super().__init__(options=["--descriptor-store"], **options)

    def start(self, ready=True):
        if not self.store:
            self.store = Store(self.root / "systemd")
        with self.store.lock:
            kept = list(self.store.kept)
        env = dict(self.env, NOTIFY_SOCKET=str(self.root / "systemd"))
        if kept:
            env |= {"LISTEN_FDS": str(len(kept)), "LISTEN_FDNAMES": ":".join(name for name, _ in kept)}
        # High first: where they are to be, others may lie.
        high = [os.dup(fd) for _, fd in kept]
        base = max(high, default=0) + len(high) + 64

        def place():
            harness.end_with_the_test()
            moved = [os.dup2(fd, base + i) for i, fd in enumerate(high)]
            for i, fd in enumerate(moved):
                os.dup2(fd, FIRST_FD + i)
            os.closerange(FIRST_FD + len(moved), base + len(moved))

        with open(self.log_path, "ab") as log:
            self.monitor = subprocess.Popen(["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *self.argv()], env=env,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            cwd=self.root, start_new_session=True, preexec_fn=place, close_fds=False)
        for fd in high:
            os.close(fd)
        if ready:
            self.wait_ready()
        return self

    def restart(self, kill=signal.SIGTERM):
        """As systemctl: the main process is told, what is left is killed, the next gets the descriptors."""
        self.remember()
        self.monitor.send_signal(kill)
        self.monitor.wait(30)
        self.kill_all()  # also a monitor that an agent has started meanwhile
        self.start()

    def close(self):
        super().close()
        if self.store:
            self.store.close()
            self.store = None


def service(**options):
    return Service(tenants={"red": dict(options.pop("red", {})), "blue": {}}, **options)


def counting(agent, n):
    guest = Scripted(agent, "red")
    guest.ask("queue q")
    guest.ask("buffer b 64 device")
    guest.ask("float b 0")
    guest.ask(f"add q t b {n}")
    return guest


def test_sessions_survive_a_restart_of_the_service(t):
    with service() as agent:
        neighbour = honest(agent)
        counter = counting(agent, 3000)
        busy = Scripted(agent, "red")
        busy.ask("queue q")
        busy.ask(f"run q t spin 100 {5 * MS}")
        before = {row["session_id"]: row["pid"] for row in agent.sessions()}
        for _ in range(3):
            agent.restart()
            harness.wait_until(lambda: {row["session_id"]: row["pid"] for row in agent.sessions()} == before,
                               "the same sessions are served")
            still_honest(neighbour)
        counter.ask("wait t 60000", timeout=70)
        t.equal(float(counter.ask("float b")), 3000.0, "tasks that ran")
        t.contains(busy.ask("ends t 100", 60), "OK=100")
        Scripted(agent, "red").ask("queue q")


def test_service_that_is_killed_leaves_its_sessions_too(t):
    with service() as agent:
        neighbour = honest(agent)
        agent.restart(kill=signal.SIGKILL)
        still_honest(neighbour)


def test_what_ends_leaves_the_store(t):
    with service() as agent:
        harness.wait_until(lambda: {"lock", "l/red"} <= set(agent.store.names()), "the lock and the doors are kept")
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        number = guest.session()
        harness.wait_until(lambda: f"s/{number:x}/bell" in agent.store.names(), "the session is kept")
        kept = agent.store.settled()
        t.equal(len(set(kept)), len(kept), f"one descriptor of each name: {kept}")
        guest.kill()
        harness.wait_until(lambda: not [n for n in agent.store.names() if n.startswith(f"s/{number:x}/")],
                           "the session has left the store")


def test_guests_that_come_during_a_restart_wait_for_it(t):
    with service() as agent:
        agent.remember()
        agent.monitor.send_signal(signal.SIGTERM)
        agent.monitor.wait(30)
        agent.kill_all()
        guest = Scripted(agent, "red", opened=False)
        guest.start("open timeout_ms 30000")
        agent.start()
        t.true(guest.answer().startswith("ok"))


def test_a_monitor_that_died_does_not_leave_the_store_behind(t):
    with service() as agent:
        neighbour = honest(agent)
        before = agent.store.settled()
        old = agent.version()["monitor_pid"]
        agent.kill_monitor()
        harness.wait_until(lambda: agent.version()["monitor_pid"] not in (0, old), "another monitor")
        harness.wait_until(lambda: agent.store.settled() == before, "the same is kept, once each")
        t.true(any("MAINPID=" in line for line in agent.store.lines), "systemd is told who is the main process")
        still_honest(neighbour)


def test_upgrade_keeps_the_store(t):
    with service() as agent:
        neighbour = honest(agent)
        t.code(agent.ctl("agent", "upgrade", "--binary", Builds(agent).copy("gantryd-next"), timeout=90), 0)
        t.equal(agent.version()["version"], "9.1.0")
        agent.restart()  # of the build that the unit names
        t.true(agent.version()["version"] != "9.1.0")
        still_honest(neighbour)
        Scripted(agent, "red").ask("queue q")


def test_descriptors_that_are_none_of_ours_do_no_harm(t):
    with service(start=False) as agent:
        agent.store = Store(agent.root / "systemd")
        one, other = socket.socketpair()
        agent.store.kept = [("connection", os.dup(one.fileno())), ("s/zz/ledger", os.dup(other.fileno())),
                            ("x" * 200, os.dup(one.fileno())), ("s/5/ledger/1/1/0", os.dup(other.fileno()))]
        agent.start()
        Scripted(agent, "red").ask("queue q")
        t.equal(agent.version()["restarts"], 0)


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

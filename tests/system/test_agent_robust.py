#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent among guests, workers and administrators that mean it no good, and a monitor that is stuck."""
import os
import random
import resource
import signal
import socket
import struct
import time

import harness
from scripted import Scripted

HELLO, REFUSE = 1, 3
MAGIC = 0x52444E47


def hello(name=b"guest"):
    header = struct.pack("<IHHII", MAGIC, HELLO, 0, 112, 0)
    return header + struct.pack("<IIQQQIIII16s32s", 1, 1, 0, 0, 0, 0, 0, 0, 0, b"", name)


def connect(agent, tenant="red"):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(10)
    sock.connect(agent.door(tenant))
    return sock


def answer_kind(sock):
    data = sock.recv(4096)
    return struct.unpack_from("<H", data, 4)[0] if data else 0


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def events(agent, kind):
    text = agent.ctl("events").out
    return [line for line in text.splitlines() if kind in line]


def write_memfd(pid, name, offset, data):
    """What a worker that was broken into can do to memory that it shares; @pid is who keeps the descriptor."""
    folder = f"/proc/{pid}/fd"
    try:
        for number in os.listdir(folder):
            if os.readlink(f"{folder}/{number}").startswith(f"/memfd:{name}"):
                with open(f"{folder}/{number}", "r+b", buffering=0) as file:
                    file.seek(offset)
                    file.write(data)
                return
    except PermissionError as refused:
        raise harness.Skip(f"cannot look into the monitor: {refused}") from refused
    raise harness.Failure(f"process {pid} has no {name}")


def attaches(agent, tenant):
    """Restarted agents need a moment: the door is there throughout."""
    guest = Scripted(agent, tenant)
    guest.ask("queue q")
    guest.kill()


# --- sockets ------------------------------------------------------------------------------------------

def http(where, request):
    with socket.create_connection(where, timeout=10) as sock:
        sock.sendall(request)
        data = b""
        while True:
            part = sock.recv(65536)
            if not part:
                return data
            data += part


def test_metrics_answers_and_bounds_who_asks(t):
    where = ("127.0.0.1", harness.free_port())
    with harness.Agent(agent={"metrics": f"{where[0]}:{where[1]}"}) as agent:
        idle = [socket.create_connection(where, timeout=10) for _ in range(100)]
        harness.wait_until(lambda: idle[99].recv(1) == b"", "a connection past the limit is closed")
        for sock in idle:
            sock.close()
        page = b""

        def served():
            nonlocal page
            try:
                page = http(where, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            except ConnectionError:
                return False
            return page.startswith(b"HTTP/1.1 200 ")

        harness.wait_until(served, "metrics are served again")
        t.contains(page, b'gantry_tenant_sessions{tenant="red"} 0\n')
        t.contains(http(where, b"GET / HTTP/1.0\r\n\r\n"), b"404")
        t.contains(http(where, b"POST /metrics HTTP/1.0\r\n\r\n"), b"405")
        try:
            t.contains(http(where, b"GET /metrics" + b"x" * 4096), b"431")
        except ConnectionError:
            pass  # closed with bytes unread: TCP may say so before the answer
        t.equal(agent.ctl("version").code, 0)


def test_admin_socket_survives_garbage_and_half_frames(t):
    with harness.Agent() as agent:
        kept = []
        for data in (b"\xff\xff\xff\xff", b"\x04\0\0\0\xff\xff\xff\xff", b"\0\0\0\0", b"\x10\0\0\0\x08"):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(str(agent.admin))
            sock.sendall(data)
            kept.append(sock)
        t.true(kept[0].recv(65536), "too long a frame gets a sentence")
        t.equal(kept[0].recv(65536), b"", "and the end")
        t.equal(agent.ctl("version").code, 0)


# --- doors --------------------------------------------------------------------------------------------

def test_hello_after_the_tenant_was_removed_is_refused(t):
    with harness.Agent(tenants={"red": {}, "blue": {}}) as agent:
        early = connect(agent)
        harness.wait_until(lambda: agent.ctl("version").code == 0, "the agent has accepted it")
        del agent.sections["tenants"]["red"]
        agent.write_config()
        t.code(agent.reload(), 0)
        early.send(hello())
        t.equal(answer_kind(early), REFUSE)
        t.equal(agent.sessions(), [])
        attaches(agent, "blue")


def test_program_names_are_shown_printable(t):
    with harness.Agent() as agent:
        guest = connect(agent)
        guest.send(hello(b"\x1b[31mred\n\xff"))
        guest.recv(4096)
        harness.wait_until(lambda: agent.sessions(), "it is attached")
        t.equal(agent.sessions()[0]["program"], "?[31mred??")
        t.true("\x1b" not in agent.log(), "the log has no escape")


def test_a_storm_of_protocol_errors_leaves_the_history_readable(t):
    with harness.Agent(tenants={"red": {}, "blue": {}}) as agent:
        for _ in range(300):
            sock = connect(agent)
            sock.send(b"x" * 16)
            try:
                sock.recv(4096)
            except ConnectionError:
                pass
            sock.close()
        t.below(len(events(agent, "door-protocol-error")), 100)
        t.true(events(agent, "device-added"), "what happened first is still there")
        attaches(agent, "blue")


# --- the agent itself ---------------------------------------------------------------------------------

def test_agent_gives_up_what_it_does_not_need(t):
    with harness.Agent() as agent:
        shown = status_of(agent.agent_pid())
        t.equal((shown["NoNewPrivs"], shown["Seccomp"]), ("1", "2"))
        for cap in (16, 17, 22, 25):  # SYS_MODULE, SYS_RAWIO, SYS_BOOT, SYS_TIME
            t.equal(int(shown["CapPrm"], 16) >> cap & 1, 0, f"capability {cap}")
        t.contains(agent.ctl("doctor").out, "agent confinement")
        attaches(agent, "red")


def test_monitor_and_agent_may_have_as_many_descriptors_as_the_host_allows(t):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with harness.Agent() as agent:
            for pid in (agent.monitor.pid, agent.agent_pid()):
                t.equal(resource.prlimit(pid, resource.RLIMIT_NOFILE)[0], hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_monitor_that_does_not_read_stops_nobody_and_is_told_everything_later(t):
    with harness.Agent(tenants={"red": {"sessions": 200}}) as agent:
        harness.send_signal(agent.monitor.pid, signal.SIGSTOP)
        survivor = Scripted(agent, "red")
        for _ in range(400):
            if events(agent, "monitor-silent"):
                break
            attaches(agent, "red")
        t.true(events(agent, "monitor-silent"), "the agent noticed")
        began = time.monotonic()
        late = Scripted(agent, "red")
        t.below(time.monotonic() - began, 4, "an attach does not wait for the monitor")
        harness.send_signal(agent.monitor.pid, signal.SIGCONT)
        # The agent hears of room before the monitor has read all: a restart is safe once both sessions are kept.
        before = agent.agent_pid()
        told = Told(agent.monitor.pid)
        harness.wait_until(lambda: kept_sessions(agent.monitor.pid) >= 2 and told.everything(), "the monitor has everything")
        agent.kill_agent()
        harness.wait_until(lambda: agent.ctl("version").code == 0 and agent.agent_pid() != before, "another agent")
        harness.wait_until(lambda: len(agent.sessions()) == 2, "both sessions are there")
        for guest in (survivor, late):
            guest.ask("queue q")


class Told:
    """Whether a monitor has been told all that there is to tell: what it holds has not changed for a while."""

    def __init__(self, pid):
        self.folder = f"/proc/{pid}/fd"
        self.held = None
        self.since = 0

    def everything(self):
        held = sorted(os.listdir(self.folder))
        if held != self.held:
            self.held, self.since = held, time.monotonic()
        return time.monotonic() - self.since > 1


def kept_sessions(pid):
    folder = f"/proc/{pid}/fd"
    kept = 0
    try:
        for name in os.listdir(folder):
            try:
                kept += os.readlink(f"{folder}/{name}").startswith("/memfd:gantry-ledger")
            except FileNotFoundError:
                pass  # closed meanwhile
    except PermissionError as refused:
        raise harness.Skip(f"cannot look into the monitor: {refused}") from refused
    return kept


def test_agent_killed_at_any_moment_of_attach_and_detach_leaks_nothing(t):
    with harness.Agent(tenants={"red": {"sessions": 50}, "blue": {}}) as agent:
        steady = Scripted(agent, "blue")
        chance = random.Random(16)
        for _ in range(12):
            pid = agent.agent_pid()
            guests = [Scripted(agent, "red", opened=False) for _ in range(3)]
            for guest in guests:
                guest.start("open")
            time.sleep(chance.random() * 0.03)  # any moment: what is tested is that none is special
            harness.send_signal(pid, signal.SIGKILL)
            for guest in guests:
                guest.kill()
            harness.wait_until(lambda old=pid: agent.ctl("version").code == 0 and agent.agent_pid() != old,
                               "another agent")
        harness.wait_until(lambda: [s["tenant"] for s in agent.sessions()] == ["blue"], "only blue is left")
        steady.ask("queue q")
        shown = agent.ctl_json("tenant", "show", "red")["tenant"]
        t.equal((shown["mem_used"], shown["virtual_used"], shown["host_mem_used"]), (0, 0, 0))
        harness.wait_until(lambda: kept_sessions(agent.monitor.pid) == 1, "the monitor keeps one session")


# --- a worker that was broken into ----------------------------------------------------------------------

def restart(agent):
    before = agent.agent_pid()
    agent.kill_agent()
    harness.wait_until(lambda: agent.ctl("version").code == 0 and agent.agent_pid() != before, "another agent")


def test_a_ledger_that_names_another_tenant_makes_its_session_nobodys(t):
    with harness.Agent(tenants={"red": {}, "blue": {}}) as agent:
        guest = Scripted(agent, "red")
        write_memfd(agent.monitor.pid, "gantry-ledger", 80, b"blue".ljust(32, b"\0"))
        restart(agent)
        harness.wait_until(lambda: not agent.sessions(), "the session is gone")
        t.true(events(agent, "session-lost"), "and it was said")
        guest.kill()
        attaches(agent, "blue")
        attaches(agent, "red")


def test_a_broken_share_page_costs_a_device_index_and_no_agent(t):
    with harness.Agent(devices={"cpu0": {}, "cpu1": {}}, tenants={"red": {}}) as agent:
        guest = Scripted(agent, "red")
        write_memfd(agent.monitor.pid, "gantry-share", 0, b"\0" * 16)
        restart(agent)
        t.true(events(agent, "device-lost"), "it was said")
        guest.kill()
        harness.wait_until(lambda: not agent.sessions(), "the session is gone")
        t.equal(sorted(d["name"] for d in agent.ctl_json("device", "list")["devices"]), ["cpu0", "cpu1"])
        attaches(agent, "red")


harness.main(globals())

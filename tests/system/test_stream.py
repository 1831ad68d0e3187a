# SPDX-License-Identifier: Apache-2.0
"""Guests behind a stream: attached through a relay, over connections that break, with agents and workers that die."""
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import struct
import tempfile
import termios
import time

import harness
import puppet
from scripted import events
from streamproxy import HEADER, MAGIC, Proxy, last_words

WELCOME, REFUSE, NOTICE = 2, 3, 8
POSITIONS, DATA, PUT, DONE, STATE = 32, 33, 34, 35, 36
NSLOTS, REPLY_BYTES = 256, 192
E_PROTOCOL, E_DETACHED, E_AGAIN = -100, -101, -12


@contextlib.contextmanager
def world(agent=None, tenants=None, env=None, **keys):
    """An agent with the tenant red behind a stream; its socket is .vsock, and a free path for a proxy .front."""
    folder = tempfile.mkdtemp(prefix="gs-")
    try:
        path = os.path.join(folder, "v")
        made = {"red": {"vsock_path": path, **keys}, **(tenants or {})}
        with harness.Agent(tenants=made, agent=agent, env=env) as served:
            served.vsock = path
            served.front = os.path.join(folder, "front")
            harness.wait_until(lambda: os.path.exists(path), "the stream socket")
            yield served
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stream_guest(agent, path=None, **options):
    guest = agent.guest("red", [harness.program("puppet-guest")], env={"GANTRY_DOOR": "stream:" + (path or agent.vsock)})
    return puppet.Puppet(agent, "red", guest=guest, **options)


def relays(agent):
    return [pid for pid in harness.descendants(agent.monitor.pid)
            if os.path.basename(harness.command_of(pid).split(" ")[0] or "-") == "gantry-relay"]


def run_chain(guest, steps=40):
    guest.do(f"chain 0 {steps} 0")
    return float(guest.do("value 0", 60)[0])


# --- sessions ---

def test_stream_session_works_and_ends_without_a_trace(t):
    with world(agent={"vsock_grace": "10m"}) as agent:
        guest = stream_guest(agent)
        t.equal(run_chain(guest), puppet.chain_value(40))
        shown = agent.ctl_json("session", "show", str(guest.session))
        t.equal(shown["session"]["door"] if "session" in shown else shown["sessions"][0]["door"], "stream")
        t.equal(len(relays(agent)), 1)
        guest.do("close")
        # Sooner than the grace of one that is gone without a word.
        harness.wait_until(lambda: not agent.sessions(), "the session's end")
        harness.wait_until(lambda: not relays(agent), "the relay's end")
        t.equal(guest.end(), 0)


def test_guest_that_is_killed_ends_its_session_after_the_grace(t):
    with world(agent={"vsock_grace": "200ms"}) as agent:
        guest = stream_guest(agent)
        guest.guest.kill()
        harness.wait_until(lambda: not agent.sessions(), "the session's end")
        harness.wait_until(lambda: not relays(agent), "the relay's end")


def test_relay_that_dies_ends_the_session_with_a_sentence(t):
    with world() as agent:
        guest = stream_guest(agent)
        os.kill(relays(agent)[0], signal.SIGKILL)
        harness.wait_until(lambda: not agent.sessions(), "the session's end")
        sentence = guest.fails("alloc 0 4096", E_DETACHED)
        t.true("over" in sentence or "hung up" in sentence, sentence)


def test_session_end_reaches_the_guest_as_a_sentence(t):
    with world() as agent:
        guest = stream_guest(agent)
        t.equal(agent.ctl("session", "kick", str(guest.session)).code, 0)
        harness.wait_until(lambda: not agent.sessions(), "the session's end")
        guest.fails("alloc 0 4096", E_DETACHED)


def test_tenant_that_is_full_refuses_over_the_stream(t):
    with world(sessions=1) as agent:
        stream_guest(agent)
        second = stream_guest(agent, open_with=None)
        sentence = second.fails("open", -106)
        t.true("1 of 1 sessions" in sentence, sentence)
        t.equal(len(relays(agent)), 1)


# --- deaths ---

def test_worker_that_dies_is_replaced_behind_the_relay(t):
    with world() as agent:
        guest = stream_guest(agent)
        run_chain(guest)
        agent.kill_worker(agent.sessions()[0]["worker_pid"])
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        t.equal(agent.sessions()[0]["worker_restarts"], 1)


def test_agent_that_dies_leaves_stream_sessions_alone(t):
    with world() as agent:
        guest = stream_guest(agent)
        before = relays(agent)
        guest.start("chain 0 400 200000")
        old = agent.agent_pid()
        agent.kill_agent()
        agent.wait_ready()
        t.true(agent.agent_pid() != old, "another agent")
        guest.finish()
        t.equal(float(guest.do("value 0", 60)[0]), puppet.chain_value(400))
        t.equal(relays(agent), before)
        guest.do("close")
        harness.wait_until(lambda: not agent.sessions(), "the session's end")
        harness.wait_until(lambda: not relays(agent), "the relay's end")


def test_stream_that_breaks_while_the_agent_is_away_comes_back(t):
    with world() as agent, Proxy(agent.front, agent.vsock) as proxy:
        guest = stream_guest(agent, agent.front)
        run_chain(guest)
        agent.kill_agent()
        proxy.break_now()
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        agent.wait_ready()
        t.equal(agent.sessions()[0]["session_id"], guest.session)
        t.true(proxy.connections >= 2, "it came back")


# --- breaks ---

def count_frames(agent):
    """Frames that a whole run takes in each direction."""
    with Proxy(agent.front, agent.vsock) as proxy:
        guest = stream_guest(agent, agent.front)
        run_chain(guest, 6)
        seen = [way.frames for way in proxy.seen[0]]
        guest.do("close")
        guest.end()
    return seen


def test_stream_that_breaks_at_each_frame_goes_on_where_it_was(t):
    with world(agent={"vsock_grace": "5s"}) as agent:
        frames = count_frames(agent)
        t.true(frames[0] > 10 and frames[1] > 10, str(frames))
        # The first frame each way is HELLO and WELCOME: before there is a session there is nothing to return to.
        for direction in (0, 1):
            for frame in range(1, frames[direction]):
                with Proxy(agent.front, agent.vsock, [(direction, frame, frame % 2 == 1)]) as proxy:
                    guest = stream_guest(agent, agent.front)
                    t.equal(run_chain(guest, 6), puppet.chain_value(6))
                    t.equal(guest.do("stats")[1], "0")
                    t.true(proxy.connections >= 1, "it came")
                    guest.do("close")
                    guest.end()
                    harness.wait_until(lambda: not agent.sessions(), "the session's end")
        harness.wait_until(lambda: not agent.sessions(), "the sessions' end")


def test_stream_that_breaks_again_and_again_loses_and_repeats_nothing(t):
    with world(agent={"vsock_grace": "30s"}) as agent:
        cuts = [(number % 2, 3 + number, number % 3 == 0) for number in range(30)]
        with Proxy(agent.front, agent.vsock, cuts) as proxy:
            guest = stream_guest(agent, agent.front)
            for turn in range(1, 6):  # each goes on from where the one before ended
                t.equal(run_chain(guest, 120), turn * puppet.chain_value(120))
            t.true(proxy.connections >= 4, f"{proxy.connections} connections")


def test_stream_that_does_not_come_back_ends_the_session(t):
    with world(agent={"vsock_grace": "300ms"}) as agent, Proxy(agent.front, agent.vsock) as proxy:
        guest = stream_guest(agent, agent.front)
        proxy.hold.set()
        proxy.break_now()
        harness.wait_until(lambda: not agent.sessions(), "the session's end")
        sentence = guest.fails("alloc 0 4096", E_DETACHED)
        t.true("did not come back" in sentence, sentence)


# --- strangers ---

def hello(nonce=bytes(16)):
    body = struct.pack("<IIQQQIIII", 1, 1, 0, 0, 0, 0, 0, 0, 0) + nonce + b"stranger".ljust(32, b"\0")
    return HEADER.pack(MAGIC, 1, 0, HEADER.size + len(body), 0) + body


class Peer:
    """A raw stream; speaks and hears frames."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(harness.WAIT_S)
        self.sock.connect(path)

    def say(self, data):
        self.sock.sendall(data)

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                return None
            data += more
        return data

    def hear(self):
        """(kind, tag, body), or None at the end."""
        try:
            head = self.read(HEADER.size)
        except ConnectionResetError:
            return None
        if head is None:
            return None
        _, kind, _, length, tag = HEADER.unpack(head)
        return kind, tag, self.read(length - HEADER.size)

    def hear_kind(self, wanted):
        while True:
            frame = self.hear()
            if frame is None:
                raise harness.Failure(f"the host hung up before a frame of kind {wanted}")
            if frame[0] == wanted:
                return frame[2]

    def attach(self):
        """HELLO to positions; returns the nonce and the number of queues."""
        self.say(hello())
        welcome = self.hear_kind(WELCOME)
        nqueues, nonce = struct.unpack_from("<I", welcome, 32)[0], welcome[40:56]
        self.hear_kind(POSITIONS)
        self.say(positions(nqueues))
        return nonce, nqueues


def frame(kind, body, tag=0):
    return HEADER.pack(MAGIC, kind, 0, HEADER.size + len(body), tag) + body


def positions(nqueues):
    return frame(POSITIONS, struct.pack("<QII", 0, nqueues, 0) + bytes(8 * nqueues))


def status_of(body):
    return struct.unpack_from("<i", body)[0], body[16:].partition(b"\0")[0].decode()


HOSTILE = {
    "noise": bytes(range(256)) * 16,
    "a wrong magic": b"\0" * 64,
    "an unknown kind": frame(99, bytes(32)),
    "a length of 4 GiB": HEADER.pack(MAGIC, PUT, 0, 0xFFFFFFF8, 1),
    "tasks for no queue": frame(PUT, bytes(8 + 64), 4000),
    "tasks ahead of their place": frame(PUT, struct.pack("<Q", 5) + bytes(64), 1),
    "data past the heap": frame(DATA, struct.pack("<Q", 1 << 40) + bytes(64)),
    "data at the end of all numbers": frame(DATA, struct.pack("<Q", (1 << 64) - 8) + bytes(64)),
    "a host's frame": frame(DONE, bytes(24), 1),
    "positions again": positions(8),
    "more tasks than slots": b"".join(frame(PUT, struct.pack("<Q", n) + bytes(64), 1) for n in range(5000)),
}


def test_guests_that_break_the_rules_end_their_own_session_only(t):
    with world(tenants={"blue": {}}, sessions=16) as agent:
        neighbour = puppet.Puppet(agent, "blue")
        for name, words in HOSTILE.items():
            peer = Peer(agent.vsock)
            peer.attach()
            try:
                peer.say(words)
            except OSError:
                pass  # it has heard enough
            status, sentence = status_of(peer.hear_kind(NOTICE))
            t.equal(status, E_PROTOCOL, name)
            t.true(sentence, name)
            while peer.hear():
                pass
            peer.sock.close()
        t.equal(run_chain(neighbour), puppet.chain_value(40))
        harness.wait_until(lambda: len(agent.sessions()) == 1, "the sessions' end")
        harness.wait_until(lambda: not relays(agent), "the relays' end")
        text = agent.ctl("metrics").out
        t.true("protocol" in text or text == "", "metrics")


def test_strangers_at_the_stream_door_are_refused(t):
    with world() as agent:
        for words in (bytes(112), hello()[:-32] + b"x" * 32, frame(4, bytes(96))):
            peer = Peer(agent.vsock)
            peer.say(words)
            t.equal(status_of(peer.hear_kind(REFUSE))[0], E_PROTOCOL)
            t.equal(peer.hear(), None)
        peer = Peer(agent.vsock)
        peer.say(hello(b"0123456789abcdef"))
        t.equal(status_of(peer.hear_kind(REFUSE)), (E_DETACHED, "the session is over"))
        t.equal(agent.sessions(), [])
        t.equal(relays(agent), [])


SO_SNDBUFFORCE = 32


def test_relay_hears_the_agent_while_its_guest_never_stops(t):
    """What its guest has sent already must not be all taken first: there may be no end to it."""
    with world() as agent:
        peer = Peer(agent.vsock)
        peer.attach()
        try:
            peer.sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 64 << 20)
        except OSError as error:
            raise harness.Skip(f"no room for what the guest sends: {error}") from None
        relay = relays(agent)[0]
        harness.send_signal(relay, signal.SIGSTOP)
        words = frame(DATA, struct.pack("<Q", 0) + b"x") * 40000
        for _ in range(32):
            peer.say(words)
        t.equal(agent.ctl("session", "kick", str(agent.sessions()[0]["session_id"])).code, 0)
        harness.wait_until(lambda: not agent.sessions(), "the session's end")
        harness.send_signal(relay, signal.SIGCONT)
        end = None
        try:
            while peer.sock.recv(65536):
                pass
        except ConnectionResetError as error:
            end = error
        t.true(end, "it hung up with the guest's words unread")
        harness.wait_until(lambda: not relays(agent), "the relay's end")


def test_streams_that_come_again_and_again_do_not_push_events_out(t):
    with world() as agent:
        peer = Peer(agent.vsock)
        nonce, _ = peer.attach()
        began = time.monotonic()
        for _ in range(60):
            again = Peer(agent.vsock)
            again.say(hello(nonce))
            again.hear_kind(WELCOME)
            again.sock.close()
        told = events(agent, "session-reconnected")
        # Twenty in ten seconds; who has been away may be told of twice.
        most = 20 * (1 + (time.monotonic() - began) // 10) + 21
        t.true(0 < len(told) <= most, f"{len(told)} events of 60 streams")
        t.equal(len(agent.sessions()), 1)


def test_door_of_a_stream_is_called_the_same_by_the_next_agent(t):
    with world() as agent:
        peer = Peer(agent.vsock)
        peer.attach()

        def doors():
            return [s["door"] for s in agent.sessions()]
        for _ in range(2):
            t.equal(doors(), ["stream"])
            agent.kill_agent()
            agent.wait_ready()
            # A session has no door until the process that keeps its stream has found the agent.
            harness.wait_until(lambda: doors() != [""], "somebody is at the session's door")
        t.equal(doors(), ["stream"])


def metrics(agent, *names):
    found = {m["name"]: m["value"] for m in agent.ctl_json("stats")["metrics"] if '"red"' in m["labels"]}
    return [found["gantry_tenant_" + name] for name in names]


def by_door(agent):
    return {m["labels"].partition('door="')[2].rstrip('"'): m["value"] for m in agent.ctl_json("stats")["metrics"]
            if m["name"] == "gantry_tenant_door_sessions" and '"red"' in m["labels"]}


def test_relays_are_counted_also_by_the_next_agent(t):
    with world() as agent, Proxy(agent.front, agent.vsock) as proxy:
        guest = stream_guest(agent, agent.front)
        run_chain(guest)
        proxy.break_now()
        run_chain(guest)
        names = ("relays", "stream_reconnects_total", "relay_tasks_total", "relay_in_bytes_total", "relay_out_bytes_total",
                 "wakeups_total")
        harness.wait_until(lambda: metrics(agent, "stream_reconnects_total") == [1], "the new stream is counted")
        before = metrics(agent, *names)
        t.equal(before[0], 1, "one relay")
        t.true(before[2] >= 80 and before[3] > 0 and before[4] > 0, str(before))
        t.equal(by_door(agent), {"unix": 0, "ivshmem": 0, "vsock": 0, "stream": 1})
        agent.kill_agent()
        agent.wait_ready()
        after = metrics(agent, *names)
        t.equal(after[:2], [1, 1], "the next agent sees the relay and what it counted")
        t.true(after[2] >= before[2] and after[3] >= before[3], f"{before} {after}")
        guest.do("close")
        harness.wait_until(lambda: metrics(agent, "relays") == [0], "it has ended")
        t.true(metrics(agent, "relay_tasks_total")[0] >= before[2], "what it did is remembered")


def test_vsock_door_is_shown_to_who_attaches_machines(t):
    with harness.Agent(tenants={"red": {"vsock_cid": 42}, "blue": {}}) as agent:
        shown = agent.ctl("vm", "args", "red", "--transport", "vsock")
        t.contains(shown.out, "guest-cid=42")
        t.contains(agent.ctl("vm", "args", "red").out, "guest-cid=42", "the one it has")
        t.code(agent.ctl("vm", "args", "blue", "--transport", "vsock"), 4)


def test_nonce_is_good_at_its_own_tenants_door_only(t):
    folder = tempfile.mkdtemp(prefix="gs-")
    try:
        other = os.path.join(folder, "blue")
        with world(tenants={"blue": {"vsock_path": other}}) as agent:
            peer = Peer(agent.vsock)
            nonce, _ = peer.attach()
            thief = Peer(other)
            thief.say(hello(nonce))
            t.equal(status_of(thief.hear_kind(REFUSE))[0], E_DETACHED)
            again = Peer(agent.vsock)
            again.say(hello(nonce))
            t.equal(again.hear_kind(WELCOME)[40:56], nonce)
            t.equal(len(agent.sessions()), 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_guest_that_does_not_read_holds_up_nobody(t):
    with world(tenants={"blue": {}}) as agent:
        neighbour = puppet.Puppet(agent, "blue")
        peer = Peer(agent.vsock)
        _, nqueues = peer.attach()
        # props on the control queue, as many as it has slots, and no answer is read
        for number in range(256):
            peer.say(frame(PUT, struct.pack("<QHHIQ", number, 26, 0, 0, 0) + bytes(48), 0))
        t.equal(run_chain(neighbour), puppet.chain_value(40))
        t.equal(len(agent.sessions()), 2)
        peer.sock.close()


def queued(sock):
    """Bytes that were sent to it and not read."""
    told = bytearray(4)
    fcntl.ioctl(sock, termios.FIONREAD, told)
    return int.from_bytes(told, "little")


def fill(peer):
    """Asks for props, as many at a time as there are slots, until the answers that nobody reads fill the socket."""
    answers = 0
    while True:
        for _ in range(NSLOTS):
            peer.say(frame(PUT, struct.pack("<Q", answers) + struct.pack("<HHIQ", 26, 0, 0, 0) + bytes(48), 0))
            answers += 1
        seen, since = queued(peer.sock), time.monotonic()

        def all_or_no_more():
            nonlocal seen, since
            if queued(peer.sock) != seen:
                seen, since = queued(peer.sock), time.monotonic()
            return seen > answers * REPLY_BYTES or time.monotonic() - since > 2
        harness.wait_until(all_or_no_more, "answers, or none for a while")
        if seen <= answers * REPLY_BYTES:
            return


def test_relay_of_a_guest_that_does_not_read_sleeps(t):
    with world() as agent:
        peer = Peer(agent.vsock)
        peer.attach()
        fill(peer)
        relay, = relays(agent)
        before, start = harness.cpu_s(relay), time.monotonic()
        harness.wait_until(lambda: time.monotonic() - start > 2, "two seconds to judge by")
        used = harness.cpu_s(relay) - before
        t.true(used < 0.2, f"{used} s of processor time in 2 s, of a relay that can do nothing")
        peer.sock.close()


def calls_of_trips(guest, trips):
    """System calls that the guest makes with its stream for each of so many round trips."""
    with tempfile.NamedTemporaryFile() as trace:
        tracer = harness.Guest(["strace", "-f", "-o", trace.name, "-p", str(guest.guest.pid)])
        harness.wait_until(lambda: tracer.process.poll() is not None or traced(guest.guest.pid), "strace")
        if tracer.process.poll() is not None:
            raise harness.Skip("strace cannot trace here")
        guest.do(f"rtt 1 0 {trips}", 60)
        tracer.kill(signal.SIGINT)
        tracer.wait()
        with open(trace.name, encoding="utf-8", errors="replace") as log:
            calls = [line.split(None, 1)[1].partition("(")[0] for line in log]
        return sum(calls.count(name) for name in ("sendmsg", "recvmsg", "poll")) / trips


def test_round_trip_takes_two_system_calls_of_its_guest(t):
    trips, rounds = 200, 8
    if not shutil.which("strace"):
        t.skip("no strace (package strace)")
    with world() as agent:
        guest = stream_guest(agent)
        guest.do("queue 1")
        guest.do(f"rtt 1 0 {trips}", 60)
        # More, where the host is kept from its work for longer than a receive waits: then the guest polls. Seldom always.
        for _ in range(rounds):
            counted = calls_of_trips(guest, trips)
            if counted < 2.5:
                break
    t.note(f"{counted:.2f} a round trip: send, receive")
    t.true(1 < counted < 2.5, f"{counted:.2f} system calls for a round trip")


def traced(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        return "TracerPid:\t0\n" not in status.read()


def test_proxy_passes_on_what_was_said_before_an_end_hung_up(t):
    guest, near = socket.socketpair()
    far, host = socket.socketpair()
    with guest, near, far, host:
        near.sendall(b"something that is never read")
        guest.sendall(b"goodbye")
        guest.close()
        t.equal(last_words(near, far), 7)
        t.equal(host.recv(100), b"goodbye")
        t.equal(last_words(near, far), 0)


if __name__ == "__main__":
    harness.main(globals())

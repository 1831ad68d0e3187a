# SPDX-License-Identifier: Apache-2.0
"""Workers of a tenant with communicators speak with each other, and with nobody else."""
import errno
import json
import os
import re
import socket

import harness
from confined import check_worker, confined_agent, need_root, status_of, worker_of

LISTEN, CONNECT, SOCKET, NAME, SEND, FILE, WALK = range(7)
TENANTS = {"red": {"communicators": "yes"}, "blue": {"communicators": "yes"}, "plain": {}}


class Speaker:
    """A guest whose worker does what it is told."""

    def __init__(self, agent, tenant):
        self.agent = agent
        self.guest = agent.guest(tenant, [harness.program("confine-guest"), "speak"])
        line = self.guest.read_line()
        if line != "ready":
            raise harness.Failure(f"a speaker of {tenant}: {line}")

    def ask(self, what, a=0, b=0):
        self.guest.write_line(f"{what} {a} {b}")
        line = self.guest.read_line() or ""
        if not re.fullmatch(r"answer -?\d+", line):
            raise harness.Failure(f"speaker {what}: {line}")
        return int(line.split()[1])

    def end(self):
        self.guest.process.stdin.close()
        return self.guest.wait()

    @property
    def worker(self):
        return worker_of(self.agent, self.guest.pid)

    def net(self):
        return os.readlink(f"/proc/{self.worker['pid']}/ns/net")


def agent_of(tenants=None, **keys):
    return confined_agent(tenants=tenants or TENANTS, **keys)


def event_of(agent, kind):
    found = [json.loads(line) for line in agent.ctl("--json", "events").out.splitlines()]
    return [event for event in found if event["kind"] == kind]


def served(t, agent):
    """Skips where the machine gives no network namespace to whoever runs the test."""
    failed = event_of(agent, "communicators-failed")
    if failed:
        t.skip(failed[0]["text"])


def test_workers_of_one_tenant_reach_each_other(t):
    with agent_of() as agent:
        served(t, agent)
        one, other = Speaker(agent, "red"), Speaker(agent, "red")
        t.true(one.worker["pid"] != other.worker["pid"], "a worker each")
        t.equal(one.net(), other.net(), "one network")
        port = one.ask(LISTEN)
        t.true(port > 0, f"listening: {port}")
        t.equal(other.ask(CONNECT, port), 0, "over the loopback")
        t.equal(one.ask(NAME, 7), 0, "an abstract name")
        t.equal(other.ask(SEND, 7), 1, "a datagram to it")
        t.equal(one.ask(WALK), 1, "one interface")
        for speaker in (one, other):
            check_worker(t, speaker.worker)
            t.true("seccomp" in speaker.worker["confined"] and "netns" in speaker.worker["confined"], f"{speaker.worker}")
            t.equal(speaker.end(), 0)


def test_nobody_else_reaches_them(t):
    with agent_of() as agent, socket.socket() as host:
        served(t, agent)
        host.bind(("127.0.0.1", 0))
        host.listen()
        red, blue, plain = (Speaker(agent, name) for name in ("red", "blue", "plain"))
        t.equal(len({red.net(), blue.net(), plain.net(), os.readlink("/proc/self/ns/net")}), 4, "a network each")
        port = red.ask(LISTEN)
        t.equal(blue.ask(CONNECT, port), -errno.ECONNREFUSED, "another tenant's port")
        t.equal(red.ask(CONNECT, host.getsockname()[1]), -errno.ECONNREFUSED, "the host's port")
        with socket.socket() as outside:
            t.equal(outside.connect_ex(("127.0.0.1", port)), errno.ECONNREFUSED, "from the host")
        t.equal(red.ask(NAME, 9), 0)
        t.equal(blue.ask(SEND, 9), -errno.ECONNREFUSED, "another tenant's name")
        t.equal(plain.ask(LISTEN), -errno.EPERM, "who has no communicators has no sockets")
        for speaker in (red, blue, plain):
            t.equal(speaker.end(), 0)
        found = {check["name"]: check["state"] for check in json.loads(agent.ctl("--json", "doctor").out)["checks"]}
        t.equal([found.get(f"communicators of {name}") for name in ("red", "blue", "plain")], ["ok", "ok", None])


def test_other_sockets_are_refused(t):
    with agent_of() as agent:
        served(t, agent)
        red = Speaker(agent, "red")
        for family, kind in ((socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_SEQPACKET), (socket.AF_INET, socket.SOCK_DGRAM),
                             (socket.AF_INET, socket.SOCK_RAW), (socket.AF_INET6, socket.SOCK_STREAM), (socket.AF_PACKET, socket.SOCK_RAW),
                             (socket.AF_VSOCK, socket.SOCK_STREAM), (socket.AF_ALG, socket.SOCK_SEQPACKET)):
            t.equal(red.ask(SOCKET, int(family), int(kind)), -errno.EPERM, f"{family.name} {kind.name}")
        t.equal(red.ask(SOCKET, int(socket.AF_INET), int(socket.SOCK_STREAM) | socket.SOCK_NONBLOCK), 0)
        t.equal(red.end(), 0)


def test_what_nccl_makes_in_dev_shm_is_memory_of_the_worker(t):
    before = set(os.listdir("/dev/shm"))
    with agent_of() as agent:
        served(t, agent)
        one, other, plain = Speaker(agent, "red"), Speaker(agent, "red"), Speaker(agent, "plain")
        t.equal(one.ask(FILE), 1, "made, found, removed")
        t.equal(other.ask(FILE, 1), -errno.ENOENT, "another's by its name")
        t.equal(plain.ask(FILE), -errno.EPERM, "a worker without communicators makes no file")
        t.equal({name for name in set(os.listdir("/dev/shm")) - before if name.startswith("nccl-")}, set(), "nothing lies there")


def test_the_network_outlives_workers_and_the_agent(t):
    with agent_of() as agent:
        served(t, agent)
        one = Speaker(agent, "red")
        net, port = one.net(), one.ask(LISTEN)
        before = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.answers() and agent.agent_pid() != before, "the next agent")
        other = Speaker(agent, "red")
        t.equal(other.net(), net, "the same network under the next agent")
        t.equal(other.ask(CONNECT, port), 0, "the first is still there")
        agent.kill_worker(one.worker["pid"])
        t.equal(one.ask(WALK), 1, "its successor")
        t.equal(one.net(), net, "a successor is in it too")


def test_the_network_ends_with_the_tenant(t):
    with agent_of() as agent:
        served(t, agent)
        one = Speaker(agent, "red")
        net = one.net()

        def holders():
            return [pid for pid in os.listdir("/proc") if pid.isdigit() and holds(pid, net)]
        t.true(holders(), "somebody holds it")
        del agent.sections["tenants"]["red"]
        agent.write_config()
        agent.reload()
        harness.wait_until(lambda: not holders(), "nobody holds the network")


def test_who_has_a_name_anew_has_another_network(t):
    with agent_of() as agent:
        served(t, agent)

        def kept():
            return [w for w in json.loads(agent.ctl("--json", "worker", "list").out)["workers"] if w["state"] == "warm"]
        Speaker(agent, "red").end()
        harness.wait_until(lambda: len(kept()) >= 3, "workers that are kept ready")
        before = {w["pid"] for w in kept()}
        red = agent.sections["tenants"].pop("red")
        agent.write_config()
        agent.reload()
        agent.sections["tenants"]["red"] = red
        agent.write_config()
        agent.reload()
        again = Speaker(agent, "red")
        t.true(again.worker["pid"] not in before, f"not in what the name's first tenant had: {again.worker['pid']} of {before}")
        t.equal(again.end(), 0)


def holds(pid, net):
    try:
        return os.readlink(f"/proc/{pid}/ns/net") == net or any(
            os.readlink(f"/proc/{pid}/fd/{fd}") == net for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def test_a_worker_of_another_user_speaks_too(t):
    need_root()
    with agent_of(worker_user="nobody") as agent:
        served(t, agent)
        one, other = Speaker(agent, "red"), Speaker(agent, "red")
        t.equal(other.ask(CONNECT, one.ask(LISTEN)), 0)
        t.true("uid" in one.worker["confined"], f"{one.worker}")
        t.equal(int(status_of(one.worker["pid"])["CapEff"], 16), 0, "no capability in its network")
        check_worker(t, one.worker)


def test_tenants_that_share_workers_are_refused_it(t):
    with harness.Agent(start=False, tenants={"red": {"communicators": "yes", "isolation": "pooled", "trust_group": "lab"}}) as agent:
        agent.write_config()
        ended = harness.run(agent.argv() + ["--check-config"])
        t.true(ended.code != 0, f"{ended}")
        t.contains(ended.err, "communicators wants isolation = isolated: workers of a trust group are not the tenant's alone")


harness.main(globals())

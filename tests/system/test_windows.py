#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Devices whose memory is apart from the host's, as a GPU's is, shown on cpu devices with window=yes."""
import signal

import harness
from puppet import Puppet
from scripted import Scripted, gone, honest, still_honest

MIB = 1 << 20
PEEKS = (0, 4096 - 8, 65536, MIB - 8)


def gpu(mem="512M", **more):
    return dict({"backend": "cpu", "window": "yes", "mem": mem}, **more)


def agent_with(devices, red=None):
    return harness.Agent(devices=devices, tenants={"red": dict({"mem": "1G", "virtual": "2G"}, **(red or {})),
                                                   "blue": {"mem": "256M"}})


def pattern(number, round_=0):
    return 0x0101010101010101 * (number % 200 + 1) + (round_ << 32)


def fill(guest, number, size, round_=0):
    guest.do(f"fill 0 {number} {size} {pattern(number, round_)}")


def check(t, guest, number, size, round_=0):
    for off in PEEKS:
        if off + 8 <= size:
            t.equal(int(guest.do(f"peek {number} {off}")[0]), pattern(number, round_), f"buffer {number} at {off}")


def worker_of(agent, guest):
    for row in agent.sessions():
        if row["session_id"] == guest.session:
            return row["worker_pid"]
    raise harness.Failure("the session has no worker")


def kill_worker(agent, guest):
    before = worker_of(agent, guest)
    agent.kill_worker(before)
    harness.wait_until(lambda: worker_of(agent, guest) not in (0, before), "a successor")


def test_buffers_outlive_their_workers(t):
    sizes = [64, 4096, 100000, MIB, 3 * MIB, 9 * MIB]
    with agent_with({"gpu0": gpu()}) as agent:
        neighbour = honest(agent)
        guest = Puppet(agent, "red")
        for number, size in enumerate(sizes):
            guest.do(f"alloc {number} {size}")
            fill(guest, number, size)
        guest.do("wait 0")
        for round_ in range(4):
            kill_worker(agent, guest)
            for number, size in enumerate(sizes):
                check(t, guest, number, size, round_)
                fill(guest, number, size, round_ + 1)
            guest.do("wait 0")
        still_honest(neighbour)


def test_buffers_outlive_the_agent(t):
    with agent_with({"gpu0": gpu()}) as agent:
        guest = Puppet(agent, "red")
        for number in range(8):
            guest.do(f"alloc {number} {2 * MIB}")
            fill(guest, number, 2 * MIB)
        guest.do("wait 0")
        before = agent.agent_pid()
        agent.kill_agent(signal.SIGKILL)
        harness.wait_until(lambda: agent.agent_pid() != before, "another agent")
        for number in range(8, 12):
            guest.do(f"alloc {number} {8 * MIB}")
            fill(guest, number, 8 * MIB)
        guest.do("wait 0")
        kill_worker(agent, guest)
        for number in range(12):
            check(t, guest, number, 2 * MIB if number < 8 else 8 * MIB)


def test_over_commit_keeps_bytes_also_when_workers_die(t):
    size = 4 * MIB
    with agent_with({"gpu0": gpu("64M")}) as agent:
        guest = Puppet(agent, "red")
        for number in range(30):
            guest.do(f"alloc {number} {size}")
            fill(guest, number, size)
        guest.do("wait 0")
        for round_ in range(3):
            for number in range(30):
                check(t, guest, number, size, round_)
                fill(guest, number, size, round_ + 1)
                if number == 17:
                    guest.do("wait 0")
                    kill_worker(agent, guest)
            guest.do("wait 0")


def test_memory_moves_with_the_queue(t):
    with agent_with({"cpu0": {"mem": "256M"}, "gpu0": gpu()}) as agent:
        guest = Puppet(agent, "red")
        for number in range(6):
            guest.do(f"alloc {number} {3 * MIB}")
        for round_ in range(6):
            guest.do(f"set 0 2 {1 + round_ % 2}")
            for number in range(6):
                fill(guest, number, 3 * MIB, round_)
            guest.do("wait 0")
            for number in range(6):
                check(t, guest, number, 3 * MIB, round_)


def test_dead_guests_leave_nothing(t):
    with agent_with({"gpu0": gpu("128M")}) as agent:
        neighbour = honest(agent)
        for _ in range(4):
            guest = Puppet(agent, "red")
            guest.do(f"alloc 0 {80 * MIB}")
            fill(guest, 0, 80 * MIB)
            guest.do("wait 0")
            check(t, guest, 0, 80 * MIB)
            number = guest.session
            guest.guest.kill()
            harness.wait_until(lambda: gone(agent, number), "the session is gone")
        shown = agent.ctl_json("tenant", "show", "red")["tenant"]
        t.equal((shown["mem_used"], shown["virtual_used"]), (0, 0), "what red still holds")
        still_honest(neighbour)


def test_next_tenant_sees_zeros(t):
    with agent_with({"gpu0": gpu("64M")}) as agent:
        for tenant in ("red", "blue", "red", "blue"):
            guest = Puppet(agent, tenant)
            guest.do(f"alloc 0 {48 * MIB}")
            # One word, so that the memory is there; the others are as they came.
            guest.do(f"fill 0 0 8 {pattern(7)}")
            guest.do("wait 0")
            for off in range(8, 48 * MIB, 4 * MIB):
                t.equal(int(guest.do(f"peek 0 {off}")[0]), 0, f"{tenant} at {off}")
            fill(guest, 0, 48 * MIB)
            guest.do("wait 0")
            number = guest.session
            guest.do("close")
            harness.wait_until(lambda: gone(agent, number), "the session is gone")


def test_sharing_between_sessions_works_in_host_memory(t):
    with agent_with({"gpu0": gpu()}) as agent:
        guest = Scripted(agent, "red")
        guest.ask("buffer shared 1048576 shared")
        guest.ask("fill shared 1048576 0x5ec2e75ec2e7")
        shown = agent.ctl_json("tenant", "show", "red")["tenant"]
        t.equal(shown["mem_used"], 0, "device memory of a shared buffer")


if __name__ == "__main__":
    harness.main(globals())

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host's side of the ivshmem door: machines that connect, their desks, what hostile ones may do, restarts.

The machines are ivpeer.py's; programs in them are its desks, or a real libgantry.
"""
import functools
import os
import random
import re
import resource
import select
import socket
import struct
import time

import harness
import ivpeer
from ivpeer import REFUSE, kind_of, status_of
from scripted import Scripted, honest, still_honest


@functools.lru_cache(maxsize=None)
def statuses():
    """Numbers of statuses by name, from the one place that has them."""
    text = (harness.SOURCE / "proto/vocab.h").read_text()
    return {name: int(number) for name, number in re.findall(r"\bS\((\w+), (-\d+),", text)}


def world(red=None, **more):
    keys = {"ivshmem": "yes", "ivshmem_size": "64M", "sessions": 8}
    keys.update(red or {})
    return harness.Agent(devices={"cpu0": {}}, tenants={"red": keys, "blue": {}}, **more)


def path(agent, tenant="red"):
    return str(agent.run_dir / "doors" / tenant / "ivshmem.sock")


def machine(agent, tenant="red", vectors=8):
    return ivpeer.Machine(path(agent, tenant), vectors)


def tenant_of(agent, name="red"):
    return agent.ctl_json("tenant", "show", name)["tenant"]


def gone(agent):
    return not agent.sessions()


# --- machines -----------------------------------------------------------------------------------------

def says_more(vm):
    return bool(select.select([vm.sock], [], [], 0)[0])


def test_interrupts_are_given_when_a_program_asks_for_them(t):
    with world() as agent, machine(agent) as vm:
        vm.desk(0).claim().wait_served()
        t.true(not says_more(vm), "a machine whose programs poll got more than doorbells")
        vm.desk(1).claim(wake=ivpeer.MSIX, vector=2).wait_served()
        vm.take_vectors(8)
        t.equal({peer: len(fds) for peer, fds in vm.peers.items()}, {0: 8, 1: 8}, "vectors by peer")
        vm.desk(2).claim(wake=ivpeer.MSIX, vector=3).wait_served()
        t.true(not says_more(vm), "they were given twice")


def test_interrupts_are_given_by_the_agent_after_this_one(t):
    with world() as agent, machine(agent) as vm:
        harness.wait_until(lambda: vm.state == ivpeer.OPEN, "the door opens")
        old = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.ctl("--timeout", "2s", "version").code == 0 and agent.agent_pid() != old,
                           "another agent answers")
        vm.desk(1).claim(wake=ivpeer.MSIX).wait_served()
        vm.take_vectors(8)
        t.equal({peer: len(fds) for peer, fds in vm.peers.items()}, {0: 8, 1: 8}, "vectors by peer")


def test_machine_gets_memory_and_doorbells(t):
    with world() as agent, machine(agent) as vm:
        t.equal(vm.id, 0, "the machine's id")
        t.equal(sorted((peer, len(fds)) for peer, fds in vm.peers.items()), [(ivpeer.HOST, 8)], "vectors by peer")
        t.equal(vm.word("<I", 52), ivpeer.HOST, "whose doorbells they are")
        t.equal(vm.bytes, 64 << 20, "the memory's size")
        t.equal(vm.word("<Q", 0), ivpeer.MAGIC, "magic")
        t.equal((vm.word("<I", 12), vm.word("<Q", 32), vm.word("<I", 48)), (64, 64 << 20, 8), "desks, bytes, vectors")
        # The memory comes with the handshake; the agent opens it when that is out.
        harness.wait_until(lambda: vm.state == ivpeer.OPEN, "the door opens")
        t.equal(tenant_of(agent)["host_mem_used"], 64 << 20, "charged to the tenant")
        before = vm.heartbeat
        harness.wait_until(lambda: vm.heartbeat > before, "the heart beats")
        vm.close()
        harness.wait_until(lambda: tenant_of(agent)["host_mem_used"] == 0, "the memory is given back")


def test_guest_process_attaches_at_a_desk(t):
    with world() as agent, machine(agent) as vm:
        desk = vm.desk(3)
        welcome = desk.attach(heap=8 << 20)
        t.equal(welcome.off % (2 << 20), 0, "where the segment begins")
        t.true(welcome.off >= vm.data_off and welcome.off + welcome.bytes <= vm.bytes, "the segment is inside")
        t.equal(vm.word("<Q", welcome.off) != 0, True, "it has a header")
        t.equal(welcome.bell in range(1, 8), True, "its bell is a doorbell of its own")
        session = agent.sessions()[0]
        t.equal(session["door"], "ivshmem", "transport")
        t.equal(tenant_of(agent)["host_mem_used"], 64 << 20, "nothing is charged twice")
        desk.clear()
        harness.wait_until(lambda: gone(agent), "the session ends with its claim")
        t.true(desk.over, "it is not served any more")


def test_claims_and_ends_of_all_kinds(t):
    with world() as agent, machine(agent) as vm:
        first, second = vm.desk(0), vm.desk(1)
        a, b = first.attach(heap=4 << 20), second.attach(heap=4 << 20)
        t.true(a.off + a.bytes <= b.off or b.off + b.bytes <= a.off, "segments do not overlap")
        again = first.attach(heap=4 << 20)      # a new process found the old one's lock free
        t.true(again.session != a.session, "another session")
        harness.wait_until(lambda: len(agent.sessions()) == 2, "the old session ends")
        third = vm.desk(2)
        third.claim(boot=bytes(16 * [7])).wait_served()     # the machine was reset: its processes are dead
        harness.wait_until(lambda: gone(agent), "sessions of the older kernel end")
        vm.close()
        harness.wait_until(lambda: tenant_of(agent)["host_mem_used"] == 0, "all is given back")


def test_memory_of_a_segment_is_zero_when_given(t):
    with world() as agent, machine(agent) as vm:
        vm.map[vm.data_off:] = b"\xa5" * (vm.bytes - vm.data_off)
        welcome = vm.desk(0).attach(heap=16 << 20)
        heap = welcome.off + struct.unpack_from("<Q", vm.map, welcome.off + 40)[0]
        seen = bytes(vm.map[welcome.off + welcome.bytes - (8 << 20):welcome.off + welcome.bytes])
        t.equal(seen.count(0), len(seen), "the heap's end is zero")
        t.true(heap > welcome.off, "the heap is in the segment")


def test_agent_serves_while_a_large_part_is_cleared(t):
    step = 4 << 20
    with world(red={"ivshmem_size": "256M", "heap": "200M"}) as agent, machine(agent) as vm:
        desk = vm.desk(0)
        first = desk.attach(heap=200 << 20)
        end = first.off + first.bytes
        for off in range(first.off, end, step):
            vm.map[off:min(off + step, end)] = b"\xa5" * min(step, end - off)
        desk.clear()
        late = vm.desk(1).claim().wait_served()
        late.post(ivpeer.hello(heap=200 << 20))     # has room only where the first one was
        longest, asked = 0, 0
        while late.get("<I", 136) == late.get("<I", 76):
            began = time.monotonic()
            t.equal(ask_admin(agent, SHOW, field(1, "red"))[0], 0, "it answers")
            longest, asked = max(longest, time.monotonic() - began), asked + 1
        t.equal(kind_of(late.answer()), ivpeer.WELCOME)
        t.note(f"{asked} questions meanwhile, the longest answer took {1000 * longest:.1f} ms")
        off = late.get("<Q", 152)
        t.equal(off, first.off, "where the first one was")
        heap = first.off + struct.unpack_from("<Q", vm.map, off + 40)[0]
        t.equal(sum(vm.map[at:min(at + step, end)].count(0xa5) for at in range(heap, end, step)), 0, "left over")
        t.true(metric(agent, "gantry_tenant_machine_clearings_total") >= first.bytes // step, "in steps")
        t.true(metric(agent, "gantry_tenant_machine_cleared_bytes_total") >= first.bytes, "all of it")


def test_segments_are_as_large_as_there_is_room(t):
    with world() as agent, machine(agent) as vm:
        sizes = [vm.desk(i).attach().bytes for i in range(2)]
        t.true(all(size <= (64 << 20) // 4 for size in sizes), f"unasked, a quarter: {sizes}")
        rest = vm.desk(2).attach(heap=60 << 20)
        t.true(sum(sizes) + rest.bytes <= (64 << 20) - vm.data_off, "asked, what is left")
        desk = vm.desk(3)
        desk.claim().wait_served()
        desk.post(ivpeer.hello(heap=1 << 20))
        message = desk.answer()
        t.equal((kind_of(message), status_of(message)[0]), (REFUSE, statuses()["LIMIT"]), "no room")
        t.contains(status_of(message)[1], "door memory", "the sentence")


def test_library_of_another_time_is_told_what_both_speak(t):
    with world() as agent, machine(agent) as vm:
        desk = vm.desk(0)
        for oldest, newest in ((0, 0), (7, 9)):
            message = bytearray(ivpeer.hello(heap=1 << 20))
            struct.pack_into("<II", message, 16, oldest, newest)
            desk.claim().wait_served()
            desk.post(bytes(message))
            answer = desk.answer()
            t.equal((kind_of(answer), status_of(answer)[0]), (REFUSE, statuses()["VERSION"]))
            t.contains(status_of(answer)[1], f"the library {oldest} to {newest}")
            t.true(desk.over and gone(agent), "nothing is left of it")
        t.true(desk.attach(heap=1 << 20).session > 0, "one that speaks the same comes in")


def test_second_machine_is_turned_away_by_a_version(t):
    with world() as agent, machine(agent):
        try:
            machine(agent)
            t.true(False, "a second machine came in")
        except ivpeer.Refused as refused:
            t.equal(refused.status, statuses()["FULL"], "the version says why")
        harness.wait_until(lambda: "ivshmem_machines" in agent.log(), "the log says which limit")
    with world(red={"host_mem": "100M", "ivshmem_machines": 2, "heap": "16M"}) as agent, machine(agent):
        try:
            machine(agent)
            t.true(False, "memory beyond the tenant's")
        except ivpeer.Refused as refused:
            t.equal(refused.status, statuses()["LIMIT"], "the version says why")


def test_machine_that_speaks_is_ended(t):
    with world() as agent, machine(agent) as vm:
        vm.desk(0).attach(heap=1 << 20)
        vm.sock.send(b"hello")
        harness.wait_until(lambda: gone(agent) and tenant_of(agent)["host_mem_used"] == 0, "the machine is gone")


def test_nobody_listens_while_there_is_no_agent(t):
    with world() as agent:
        agent.stop()
        try:
            machine(agent)
            t.true(False, "connected to nobody")
        except (ConnectionRefusedError, FileNotFoundError):
            pass


# --- programs of machines --------------------------------------------------------------------------------

def program(agent, vm, tenant="red", **more):
    return Scripted(agent, tenant, env={"GANTRY_DOOR": vm.door()}, **more)


def busy(guest, ms=2, n=50):
    guest.ask("queue q")
    guest.ask(f"run q t spin {n} {ms * 1000000}")
    return guest


def test_real_library_runs_tasks_over_it(t):
    with world() as agent, machine(agent) as vm:
        guest = program(agent, vm)
        t.equal([(s["door"], s["machine"]) for s in agent.sessions()], [("ivshmem", 1)], "as it is shown")
        for name, kind in (("host", "host"), ("dev", "device")):
            guest.ask(f"buffer {name} 1048576 {kind}")
            guest.ask(f"fill {name} 1048576 0x5ec2e75ec2e7")
        busy(guest)
        guest.ask("wait t 30000")
        second = program(agent, vm)
        t.equal(len({s["desk"] for s in agent.sessions()}), 2, "desks of their own")
        guest.ask("close")
        second.ask("close")
        harness.wait_until(lambda: gone(agent), "both sessions end")


def test_killed_program_is_found_by_the_next(t):
    with world() as agent, machine(agent) as vm:
        victim = program(agent, vm)
        number = victim.session()
        victim.kill()
        harness.wait_until(lambda: not harness.alive(victim.pid), "it is dead")
        second = program(agent, vm)     # takes the dead one's lock, and clears or takes its desk
        harness.wait_until(lambda: number not in [s["session_id"] for s in agent.sessions()], "its session ends")
        t.true(second.session() != number, "another session")


def test_agent_killed_its_machines_never_notice(t):
    with world() as agent, machine(agent) as vm:
        neighbour = honest(agent)
        guest = busy(program(agent, vm), n=200)
        before = vm.heartbeat
        agent.kill_agent()
        guest.ask("wait t 30000")
        t.equal(vm.state, ivpeer.OPEN, "still open")
        agent.wait_ready()
        harness.wait_until(lambda: vm.heartbeat > before + 1, "the heart beats again")
        t.true(guest.session() in [s["session_id"] for s in agent.sessions()], "the session is known")
        second = program(agent, vm)
        t.equal(len(agent.sessions()), 3, "and new ones come")
        guest.ask("run q t spin 5 1000000")
        guest.ask("wait t 30000")
        second.ask("close")
        guest.ask("close")
        harness.wait_until(lambda: tenant_of(agent)["sessions"] == 0, "both end")
        still_honest(neighbour)
        vm.close()
        harness.wait_until(lambda: tenant_of(agent)["host_mem_used"] == 0, "the memory is given back")


def test_claim_that_an_agent_left_unanswered_is_told_so(t):
    with world() as agent, machine(agent) as vm:
        desk = vm.desk(0).claim().wait_served()
        agent.kill_agent()
        harness.wait_until(lambda: desk.over, "it is not served any more")
        t.true(desk.attach(heap=1 << 20).session > 0, "claimed anew, it is served")


def test_worker_killed_session_goes_on(t):
    with world() as agent, machine(agent) as vm:
        guest = program(agent, vm)
        guest.ask("queue q")
        agent.kill_worker(agent.sessions()[0]["worker_pid"])
        guest.ask("run q t spin 5 1000000")
        guest.ask("wait t 30000")
        t.equal(agent.sessions()[0]["worker_restarts"], 1, "another worker has it")


def test_machine_gone_ends_all_its_sessions(t):
    with world() as agent:
        vm = machine(agent)
        for i in range(4):
            vm.desk(i).attach(heap=1 << 20)
        vm.close()
        harness.wait_until(lambda: gone(agent) and tenant_of(agent)["host_mem_used"] == 0, "nothing is left")
        with machine(agent) as again:
            t.true(again.desk(0).attach(heap=1 << 20).session > 4, "the next machine is served")


def test_door_closed_by_configuration_ends_what_is_there(t):
    with world() as agent, machine(agent) as vm:
        desk = vm.desk(0)
        desk.attach(heap=1 << 20)
        agent.set_tenant("red", ivshmem="no")
        agent.reload()
        harness.wait_until(lambda: desk.over, "the claim ends")
        t.equal(status_of(desk.notice())[0], statuses()["DETACHED"], "its guest is told")
        harness.wait_until(lambda: vm.state == ivpeer.CLOSED, "for good")
        vm.sock.settimeout(0.2)
        try:
            t.true(vm.sock.recv(8) != b"", "the agent must not hang up first: QEMU might read for ever")
        except socket.timeout:
            pass


def test_machine_that_comes_while_no_descriptor_is_left_waits_and_costs_nothing(t):
    with world() as agent:
        pid = agent.agent_pid()
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
            waiting.connect(path(agent))
            spent, began = harness.cpu_s(pid), time.monotonic()
            while time.monotonic() < began + 2:
                t.equal(select.select([waiting], [], [], 0.1)[0], [], "nobody is served")
            share = (harness.cpu_s(pid) - spent) / (time.monotonic() - began)
            t.note(f"{100 * share:.1f} % of a processor in the agent")
            t.below(share, 0.1, "it looks away meanwhile")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            t.equal(ivpeer.receive(waiting)[0], 0, "served once there are descriptors again")


def test_programs_of_machines_leave_the_last_descriptors_to_others(t):
    with world(red={"sessions": 64, "isolation": "pooled", "ivshmem_size": "256M"}) as agent, machine(agent) as vm:
        pid = agent.agent_pid()
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (300, hard))
        refused = None
        for number in range(60):
            desk = vm.desk(number).claim().wait_served()
            desk.post(ivpeer.hello(heap=1 << 20))
            message = desk.answer()
            if kind_of(message) == REFUSE:
                refused = status_of(message)
                break
        t.true(refused, "not all 60 come in")
        t.equal(refused[0], statuses()["AGAIN"], str(refused))
        t.contains(refused[1], "descriptors", "the sentence")
        t.true(len(agent.sessions()) >= 5, "an administrator is heard")
        t.true(metric(agent, "gantry_descriptors_exhausted_total", None) >= 1, "it is counted")


# --- administration ----------------------------------------------------------------------------------------

def varint(n):
    out = bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def ask_admin(agent, number, body):
    """The reply's code, for verbs that are other tools'."""
    request = field(1, 1) + field(2, 7) + field(number, body)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(harness.WAIT_S)
        sock.connect(str(agent.run_dir / "admin.sock"))
        sock.sendall(struct.pack("<I", len(request)) + request)
        length = struct.unpack("<I", sock.recv(4, socket.MSG_WAITALL))[0]
        reply = sock.recv(length, socket.MSG_WAITALL)
    at, code = 0, 0
    while at < len(reply) and reply[at] >> 3 <= 2:
        key, at = reply[at] >> 3, at + 1
        value, shift = 0, 0
        while True:
            byte, at = reply[at], at + 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                break
        code = value if key == 2 else code
    return code, reply


SHOW, DRAIN, OPEN = 90, 91, 92


def test_drain_lets_programs_finish_and_nobody_in(t):
    with world(red={"ivshmem_machines": 2, "heap": "16M"}) as agent, machine(agent) as vm:
        desk, late = vm.desk(0), vm.desk(1)
        desk.attach(heap=1 << 20)
        t.equal(ask_admin(agent, DRAIN, field(1, "red"))[0], 0, "drained")
        t.equal(vm.state, ivpeer.DRAIN, "the memory says so")
        late.claim()
        try:
            machine(agent)
            t.true(False, "a machine came in")
        except ivpeer.Refused as refused:
            t.equal(refused.status, statuses()["AGAIN"], "machines are told to come again")
        t.equal((len(agent.sessions()), late.over), (1, True), "the session goes on, the claim waits")
        agent.kill_agent()
        agent.wait_ready()
        t.equal(vm.state, ivpeer.DRAIN, "the next agent knows")
        t.equal(ask_admin(agent, OPEN, field(1, "red") + field(2, field(1, 32 << 20)))[0], 0, "opened")
        late.wait_served()
        with machine(agent) as small:
            t.equal(small.bytes, 32 << 20, "of the size that was said")


def door_of(agent, tenant="red"):
    return ask_admin(agent, SHOW, field(1, tenant))[1]


def test_drain_and_size_are_known_to_the_next_agent(t):
    with world(red={"ivshmem_machines": 2, "heap": "16M"}) as agent:
        t.equal(ask_admin(agent, OPEN, field(1, "red") + field(2, field(1, 32 << 20)))[0], 0, "a size is said")
        t.equal(ask_admin(agent, DRAIN, field(1, "red"))[0], 0, "drained before anybody came")
        agent.kill_agent()
        agent.wait_ready()
        t.true(b"drain" in door_of(agent), "the next agent knows")
        try:
            machine(agent)
            t.true(False, "a machine came in")
        except ivpeer.Refused as refused:
            t.equal(refused.status, statuses()["AGAIN"], "machines are told to come again")
        t.equal(ask_admin(agent, OPEN, field(1, "red") + field(2, field(1, 32 << 20)))[0], 0, "opened")
        agent.kill_agent()
        agent.wait_ready()
        with machine(agent) as vm, machine(agent) as second:
            t.equal((vm.bytes, second.bytes), (32 << 20, 64 << 20), "what was said was for one machine")


def test_deadline_of_a_drain_outlives_the_agent(t):
    with world() as agent, machine(agent) as vm:
        desk = vm.desk(0)
        desk.attach(heap=1 << 20)
        t.equal(ask_admin(agent, DRAIN, field(1, "red") + field(2, field(1, 8000000000)))[0], 0, "drained")
        agent.kill_agent()
        agent.wait_ready()
        t.equal(len(agent.sessions()), 1, "the session goes on")
        harness.wait_until(lambda: desk.over and gone(agent), "and is ended when its time has come")


def test_drain_with_a_deadline_ends_who_is_left(t):
    with world() as agent, machine(agent) as vm:
        desk = vm.desk(0)
        desk.attach(heap=1 << 20)
        body = field(1, "red") + field(2, field(1, 1000000)) + field(4, "the device goes away")
        t.equal(ask_admin(agent, DRAIN, body)[0], 0, "drained")
        harness.wait_until(lambda: desk.over and gone(agent), "the session is ended")
        t.contains(status_of(desk.notice())[1], "the device goes away", "its guest is told why")


def number_of(agent, session):
    """DoorPeer.id of the machine that has it."""
    return next(s["machine"] for s in agent.sessions() if s["session_id"] == session)


def drain_one(agent, number, ns=None):
    deadline = field(2, field(1, ns)) if ns else b""
    return ask_admin(agent, DRAIN, field(1, "red") + deadline + field(3, field(1, number)))[0]


def test_machine_that_loses_its_device_stays_drained_when_the_door_is_opened_for_another(t):
    with world(red={"ivshmem_machines": 3, "heap": "16M"}) as agent, machine(agent) as leaving, machine(agent) as other:
        number = number_of(agent, leaving.desk(0).attach(heap=1 << 20).session)
        t.equal(drain_one(agent, number), 0, "drained")
        late = leaving.desk(1).claim()
        t.equal((leaving.state, other.state), (ivpeer.DRAIN, ivpeer.OPEN), "it alone")
        size = field(1, "red") + field(2, field(1, 32 << 20))
        t.equal(ask_admin(agent, OPEN, size)[0], 0, "opened for the next machine")
        t.equal((leaving.state, late.over), (ivpeer.DRAIN, True), "it is drained still")
        agent.kill_agent()
        agent.wait_ready()
        t.equal(ask_admin(agent, OPEN, size)[0], 0, "and by the next agent")
        t.equal((leaving.state, late.over), (ivpeer.DRAIN, True), "which knows of it")
        t.equal(ask_admin(agent, OPEN, field(1, "red") + field(3, field(1, number)))[0], 0, "it stays after all")
        late.wait_served()
        t.equal(ask_admin(agent, OPEN, field(1, "red") + field(3, field(1, 99)))[0], 3, "no such machine")
        with machine(agent) as small:
            t.equal(small.bytes, 32 << 20, "what was said of the next one's size holds")


def test_machines_that_lose_their_devices_have_times_of_their_own(t):
    with world(red={"ivshmem_machines": 3, "heap": "16M"}) as agent, machine(agent) as first, machine(agent) as second:
        soon, never = first.desk(0), second.desk(0)
        numbers = [number_of(agent, desk.attach(heap=1 << 20).session) for desk in (soon, never)]
        t.equal(drain_one(agent, numbers[0], 4000000000), 0, "in four seconds")
        t.equal(drain_one(agent, numbers[1], 3600000000000), 0, "in an hour")
        t.equal(ask_admin(agent, OPEN, field(1, "red"))[0], 0, "and others are welcome")
        agent.kill_agent()
        agent.wait_ready()
        harness.wait_until(lambda: soon.over and len(agent.sessions()) == 1, "the first one's time comes")
        t.equal((never.over, second.state), (False, ivpeer.DRAIN), "the second's has not")


def test_doors_are_shown_and_bad_requests_refused(t):
    with world() as agent, machine(agent) as vm:
        vm.desk(0).attach(heap=1 << 20)
        code, reply = ask_admin(agent, SHOW, field(1, "red"))
        t.equal((code, path(agent).encode() in reply), (0, True), "the socket's path")
        t.equal(ask_admin(agent, SHOW, field(1, "green"))[0], 3, "no such tenant")
        t.equal(ask_admin(agent, DRAIN, field(1, "blue"))[0], 4, "no such door")
        t.equal(ask_admin(agent, DRAIN, field(1, "red") + field(3, field(1, 99)))[0], 3, "no such machine")
        t.equal(ask_admin(agent, OPEN, field(1, "red") + field(2, field(1, 100 << 20)))[0], 2, "not a power of two")
        t.equal(ask_admin(agent, OPEN, field(1, "red") + field(2, field(1, 1 << 30)))[0], 6, "more than it may")


def test_right_is_given_and_taken_while_it_runs(t):
    with world(red={"ivshmem": "no"}) as agent:
        t.code(agent.ctl("tenant", "set", "red", "--ivshmem", "perhaps"), 2)
        t.code(agent.ctl("tenant", "set", "red", "--ivshmem-size", "48M"), 2)
        t.code(agent.ctl("tenant", "set", "red", "--ivshmem-machines", "0"), 2)
        t.code(agent.ctl("tenant", "set", "red", "--ivshmem", "yes", "--ivshmem-size", "32M", "--ivshmem-vectors", "2",
                         "--ivshmem-machines", "3", "--ivshmem-mode", "0600", "--ivshmem-owner", "0:0"), 0)
        shown = tenant_of(agent)
        t.equal([shown["ivshmem_" + what] for what in ("machines", "mode", "owner")], [3, "0600", "0:0"], "as it is shown")
        with machine(agent, vectors=2) as vm:
            t.equal(vm.bytes, 32 << 20, "as it was set")
            desk = vm.desk(0)
            desk.attach(heap=1 << 20)
            t.code(agent.ctl("tenant", "set", "red", "--ivshmem", "no"), 0)
            harness.wait_until(lambda: desk.over, "what is there ends")
        harness.wait_until(lambda: not os.path.exists(path(agent)), "the socket is gone")


# --- hostile machines --------------------------------------------------------------------------------------

def metric(agent, name, tenant="red"):
    for m in agent.ctl_json("stats")["metrics"]:
        if m["name"] == name and (tenant is None or f'"{tenant}"' in m["labels"]):
            return m["value"]
    raise harness.Failure(f"no metric {name}")


def hurt(agent, act, seconds=2.0):
    """Repeats act() while blue computes. What the agent spent of a second, and looks in a second."""
    neighbour = honest(agent)
    pid = agent.agent_pid()
    began, spent, looks = time.monotonic(), harness.cpu_s(pid), metric(agent, "gantry_tenant_machine_looks_total")
    while time.monotonic() < began + seconds:
        act()
    looks = metric(agent, "gantry_tenant_machine_looks_total") - looks
    # All of the time in which looks were counted: to ask for their number may take long, too.
    took, spent = time.monotonic() - began, harness.cpu_s(pid) - spent
    still_honest(neighbour)
    if agent.agent_pid() != pid:
        raise harness.Failure("the agent died")
    return spent / took, looks / took


def test_doorbells_rung_for_ever_are_heard_now_and_then(t):
    with world() as agent, machine(agent) as vm:
        vm.desk(0).attach(heap=1 << 20)
        worker, began = agent.sessions()[0]["worker_pid"], time.monotonic()
        spent = harness.cpu_s(worker)
        share, looks = hurt(agent, lambda: [vm.ring(v) for v in range(8)])
        t.note(f"its worker: {100 * (harness.cpu_s(worker) - spent) / (time.monotonic() - began):.1f} % of a processor")
        t.note(f"all doorbells for ever: {100 * share:.1f} % of a processor in the agent, {looks:.0f} looks a second")
        t.below(looks, 100, "looks a second at desks where nothing happens")


def test_generations_flapping_are_bounded(t):
    with world() as agent, machine(agent) as vm:
        desks = [vm.desk(i) for i in range(64)]

        def flap():
            for desk in desks:
                desk.put("<Q", 0, desk.generation + 1)
            vm.ring()

        began = time.monotonic()
        before = metric(agent, "gantry_tenant_machine_claims_total")
        share, looks = hurt(agent, flap)
        claims = metric(agent, "gantry_tenant_machine_claims_total") - before
        claims /= time.monotonic() - began
        t.note(f"flapping: {100 * share:.1f} % of a processor in the agent, {looks:.0f} looks, {claims:.0f} claims a second")
        t.below(claims, 130, "claims served in a second")
        t.below(looks, 1200, "looks in a second")
        for desk in desks:
            desk.put("<Q", 0, 0)
        vm.ring()
        t.true(vm.desk(5).attach(heap=1 << 20).session, "who comes in peace is served")


def test_boxes_posted_without_end_are_bounded(t):
    with world() as agent, machine(agent) as vm:
        desk = vm.desk(0)
        desk.attach(heap=1 << 20)
        share = ivpeer.header(ivpeer.SHARE, 5) + struct.pack("<QII", 77, 1, 0)

        def post():
            vm.map[desk.off + 256:desk.off + 256 + len(share)] = share
            desk.put("<I", 72, (desk.get("<I", 140) + 1) & 0xffffffff)
            desk.put("<I", 76, desk.get("<I", 136))
            vm.ring()

        spent, looks = hurt(agent, post)
        t.note(f"requests for ever: {100 * spent:.1f} % of a processor in the agent, {looks:.0f} looks a second")
        t.below(looks, 1200, "looks in a second")


def test_messages_that_cannot_be_end_their_session_only(t):
    with world() as agent, machine(agent) as vm:
        witness = vm.desk(9)
        witness.attach(heap=1 << 20)
        bad = [b"GET / HTTP/1.0", ivpeer.header(ivpeer.WELCOME) + bytes(56), ivpeer.header(ivpeer.ADOPT, 1)[:6] + b"\1",
               struct.pack("<IHHII", ivpeer.DOOR_MAGIC, ivpeer.HELLO, 0, 0xffffffff, 0), ivpeer.hello()]
        for number, message in enumerate(bad):
            desk = vm.desk(number)
            desk.attach(heap=1 << 20)
            vm.map[desk.off + 256:desk.off + 512] = bytes(256)
            desk.post(message)
            harness.wait_until(lambda: desk.over, f"message {number} ends its session")
            t.equal(status_of(desk.notice())[0], statuses()["PROTOCOL"], "its guest is told")
        desk = vm.desk(20)
        desk.attach(heap=1 << 20)
        desk.post(ivpeer.hello(), n=5)
        harness.wait_until(lambda: desk.over, "five messages in one box end it")
        t.true(not witness.over, "the neighbour at another desk goes on")


def test_memory_scribbled_over_harms_its_machine_only(t):
    with world() as agent:
        with machine(agent) as vm:
            for i in range(4):
                vm.desk(i).attach(heap=1 << 20)
            generator = random.Random(7)

            def scribble():
                for _ in range(50):
                    off = generator.randrange(0, 1 << 19) if generator.random() < 0.7 else generator.randrange(vm.bytes - 64)
                    vm.map[off:off + 64] = generator.randbytes(64)
                vm.ring()

            share, looks = hurt(agent, scribble, 4.0)
            t.note(f"scribbling: {100 * share:.1f} % of a processor in the agent, {looks:.0f} looks a second")
            agent.kill_agent()
            agent.wait_ready()
            hurt(agent, scribble, 1.0)
        harness.wait_until(lambda: tenant_of(agent)["host_mem_used"] == 0, "nothing of it is left")
        with machine(agent) as vm:
            t.true(vm.desk(0).attach(heap=1 << 20).session, "the next machine is served")


def test_offsets_of_a_segment_are_the_hosts_alone(t):
    """What the host says of places is for the guest; to change it moves nothing of the host's."""
    with world() as agent, machine(agent) as vm:
        guest = program(agent, vm)
        desk = vm.desk(agent.sessions()[0]["desk"])
        off = desk.get("<Q", 152)
        desk.put("<Q", 152, 0)
        struct.pack_into("<QQ", vm.map, off + 24, 1 << 40, 1 << 41)
        guest.ask("queue q")
        guest.ask("run q t spin 5 1000000")
        guest.ask("wait t 30000")


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

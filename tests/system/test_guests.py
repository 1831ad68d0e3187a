#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What guests do to themselves and to each other: sharing, forks, unloading, clocks; and what Arax did to its guests."""
import os
import socket
import struct
import time

import harness
from scripted import Scripted, events, gone, honest, session_of, still_honest, two_tenants, worker_of

MS = 1000000


# --- buffers between sessions -------------------------------------------------------------------------

def given(agent, owner, taker, mode, name="b"):
    """owner's buffer @name, with rights @mode, to taker."""
    path = str(agent.root / "gift")
    owner.ask(f"share {name} {mode} {path}")
    if owner.answer() != "listening":
        raise harness.Failure("the owner does not listen")
    answer = taker.tell(f"adopt {name} {path}")
    if owner.answer() != "given":
        raise harness.Failure("the owner gave nothing")
    return answer


def test_shared_buffer_is_one_memory_with_the_rights_given(t):
    with two_tenants() as agent:
        owner, reader, writer = Scripted(agent, "red"), Scripted(agent, "blue"), Scripted(agent, "blue")
        owner.ask("buffer b 65536 shared")
        owner.ask("fill b 65536 1")
        t.true(given(agent, owner, reader, "r").startswith("ok"))
        t.true(given(agent, owner, writer, "rw").startswith("ok"))
        t.equal(reader.ask("count b 65536 1"), "8192")
        writer.ask("fill b 65536 2")
        t.equal((owner.ask("count b 65536 2"), reader.ask("count b 65536 2")), ("8192", "8192"))
        reader.refused("fill b 65536 3", "ACCESS")
        t.equal(owner.ask("count b 65536 2"), "8192")


def test_shared_buffer_is_not_shared_on_beyond_its_rights(t):
    with two_tenants() as agent:
        owner, reader = Scripted(agent, "red"), Scripted(agent, "blue")
        owner.ask("buffer b 4096 shared")
        given(agent, owner, reader, "r")
        answer = reader.tell(f"share b rw {agent.root}/gift2")
        t.true(answer.startswith("error "), answer)


def test_shared_buffers_owner_dies_and_the_adopter_goes_on(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        owner, taker = Scripted(agent, "red"), Scripted(agent, "blue")
        owner.ask("buffer b 65536 shared")
        owner.ask("fill b 65536 7")
        given(agent, owner, taker, "rw")
        t.equal(taker.ask("count b 65536 7"), "8192")
        number = owner.session()
        owner.kill()
        harness.wait_until(lambda: gone(agent, number), "the owner's session is gone", 10)
        answer = taker.tell("count b 65536 7")
        t.true(answer == "ok 8192" or answer.startswith("error "), answer)
        taker.ask("queue q")
        taker.ask("run q t spin 3 1000")
        taker.ask("wait t 10000")
        still_honest(neighbour)


def test_shared_buffer_survives_the_death_of_both_workers(t):
    with two_tenants() as agent:
        owner, taker = Scripted(agent, "red"), Scripted(agent, "blue")
        owner.ask("buffer b 65536 shared")
        owner.ask("fill b 65536 9")
        given(agent, owner, taker, "rw")
        t.equal(taker.ask("count b 65536 9"), "8192")
        for guest in (owner, taker):
            agent.kill_worker(worker_of(agent, guest))
        t.equal((owner.ask("count b 65536 9", 40), taker.ask("count b 65536 9", 40)), ("8192", "8192"))
        taker.ask("fill b 65536 10")
        t.equal(owner.ask("count b 65536 10"), "8192")


def test_shared_token_outlives_a_restart_of_the_agent(t):
    with two_tenants() as agent:
        owner, taker = Scripted(agent, "red"), Scripted(agent, "blue")
        owner.ask("buffer b 4096 shared")
        owner.ask("fill b 4096 5")
        old = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.ctl("--timeout", "1s", "version").code == 0 and agent.agent_pid() != old,
                           "another agent", 10)
        t.true(given(agent, owner, taker, "rw").startswith("ok"))
        t.equal(taker.ask("count b 4096 5"), "512")


def test_adopting_what_is_no_share_is_refused(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        answer = guest.tell("adopt_pipe")
        t.true(answer.startswith("error ") and len(answer.split()) > 2, answer)


def test_buffer_that_is_not_made_for_sharing_is_refused(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.ask("buffer b 4096 device")
        t.true(guest.tell(f"share b rw {agent.root}/gift").startswith("error "))


# --- processes ----------------------------------------------------------------------------------------

def test_fork_answers_in_the_child_and_harms_no_parent(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask(f"run q t spin 50 {2 * MS}")
        t.equal(guest.ask("fork q"), "0", "calls that answered something else in the child")
        guest.ask("wait t 20000")
        still_honest(honest(agent))


def test_library_unloaded_with_everything_open(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        ended = agent.run_guest("red", [harness.program("gantry-test-unload")])
        t.code(ended, 0)
        t.contains(ended.out, "done")
        harness.wait_until(lambda: len(agent.sessions()) == 1, "its sessions are gone", 10)
        still_honest(neighbour)


def test_guest_exits_with_tasks_in_the_air(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask(f"run q t spin 200 {5 * MS}")
        guest.start("exit 3")
        t.equal(guest.process.wait(), 3)
        harness.wait_until(lambda: not agent.sessions(), "its session is gone", 10)


def test_clock_jumps_change_nothing(t):
    with two_tenants() as agent_without:
        library = harness.find_in_build("libgantry-test-jump.so", os.path.exists)
        if not library:
            t.skip("the build has no libgantry-test-jump.so")
        agent_without.close()
    env = {"LD_PRELOAD": library}
    with two_tenants(env=env, red={"deadline": "500ms"}) as agent:
        neighbour = honest(agent)
        guest = Scripted(agent, "red", env=env)
        now = time.time()
        t.true(any(abs(event["unix_ns"] / 1e9 - now) > 86400 for event in events(agent)), "the agent's clock does not jump")
        guest.ask("queue q")
        guest.ask("run q t spin 20 1000000")
        guest.ask("wait t 10000")
        guest.ask("pause q 1")
        guest.ask("run q t spin 1 1000")
        began = time.monotonic()
        guest.refused("wait t 300", "TIMEOUT")
        t.true(0.29 <= time.monotonic() - began < 5, "300 ms took another time")
        guest.ask("pause q 0")
        guest.ask("wait t 10000")
        guest.ask("run q bad endless 1")
        guest.refused("wait bad 10000", "DEADLINE")
        agent.kill_worker(worker_of(agent, neighbour))
        still_honest(neighbour)


# --- doors --------------------------------------------------------------------------------------------

def test_no_agent_is_said_at_once(t):
    with two_tenants() as agent:
        door = agent.door("red")
        agent.stop()
        guest = Scripted(agent, "red", opened=False)
        began = time.monotonic()
        guest.refused("open timeout_ms 400", "NO_AGENT")
        t.below(time.monotonic() - began, 5)
        # A stale socket: the file is there, nobody listens.
        os.makedirs(os.path.dirname(door), exist_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
            stale.bind(door)
        began = time.monotonic()
        guest.refused("open timeout_ms 400", "NO_AGENT")
        t.below(time.monotonic() - began, 5)
        # An agent that starts there replaces it.
        agent.start()
        guest.ask("open")


def test_door_closed_to_this_user_says_so(t):
    with two_tenants(red={"door_uids": "54321"}) as agent:
        for _ in range(10):
            Scripted(agent, "red", opened=False).refused("open", "DENIED")
        still_honest(honest(agent))


def test_door_that_never_answers_is_given_up(t):
    with two_tenants() as agent:
        path = str(agent.root / "mute")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
            mute.bind(path)
            mute.listen(5)
            guest = Scripted(agent, "red", opened=False, env={"GANTRY_DOOR": "unix:" + path})
            began = time.monotonic()
            answer = guest.tell("open timeout_ms 500")
            t.true(answer.startswith(("error TIMEOUT", "error NO_AGENT")), answer)
            t.below(time.monotonic() - began, 5)


def test_door_that_talks_nonsense_is_no_agent(t):
    with two_tenants() as agent:
        path = str(agent.root / "mad")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mad:
            mad.bind(path)
            mad.listen(5)
            for answer in (b"x", b"\0" * 72, struct.pack("<IHHII", 0x52444E47, 2, 0, 72, 0) + b"\xff" * 56, b"y" * 4096):
                guest = Scripted(agent, "red", opened=False, env={"GANTRY_DOOR": "unix:" + path})
                guest.start("open timeout_ms 2000")
                peer, _ = mad.accept()
                with peer:
                    peer.recv(4096)
                    peer.send(answer)
                    text = guest.answer()
                t.true(text.startswith("error ") and len(text.split()) > 2, text)


# --- failures reproduced in Arax ----------------------------------------------------------------------

def test_arax_overwritten_segment_crashes_no_server(t):
    """There a client overwrote a code pointer in the segment. Here: misuse-ring; this is the whole way round."""
    with two_tenants() as agent:
        neighbour = honest(agent)
        guest = Scripted(agent, "red")
        pid = agent.agent_pid()
        with open(f"/proc/{guest.pid}/maps", encoding="ascii") as maps:
            low, high = next(line.split()[0].split("-") for line in maps if "gantry-segment" in line)
        with open(f"/proc/{guest.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(int(low, 16))
            memory.write(b"\xcc" * min(int(high, 16) - int(low, 16), 1 << 20))
        still_honest(neighbour)
        t.equal(agent.agent_pid(), pid)
        Scripted(agent, "red")


def test_arax_absent_device_type_is_refused(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.refused("queue q 0 0x8000000000000000", "NO_DEVICE")
        guest.ask("queue q")
        guest.ask("run q t empty 1")
        guest.ask("wait t 5000")


def test_arax_client_that_dies_or_exhausts_the_segment_hangs_nobody(t):
    with two_tenants() as agent:
        for _ in range(3):
            victim = Scripted(agent, "red")
            victim.ask("queue q")
            answer, n = "ok", 0
            while answer.startswith("ok") and n < 200:
                answer = victim.tell(f"buffer b{n % 50} 4194304 host")
                n += 1
            t.true(answer.startswith(("error NO_MEMORY", "error LIMIT")), answer)
            victim.ask("run q t spin 50 1000000")
            victim.kill()
            later = Scripted(agent, "red")
            later.ask("queue q")
            later.ask("run q t spin 3 1000")
            later.ask("wait t 10000")
            later.ask("close")


def test_arax_waiting_twice_returns_twice(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask("run q t empty 1")
        for _ in range(3):
            guest.ask("wait t -1")


def test_arax_unknown_kernel_is_a_status(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.refused("run q t no_such_kernel 1", "NO_KERNEL")
        guest.ask("run q t empty 1")
        guest.ask("wait t 5000")


def test_arax_no_server_or_a_stale_segment_is_no_hang(t):
    test_no_agent_is_said_at_once(t)


def test_arax_server_killed_and_restarted_wakes_live_clients(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask(f"run q t spin 100 {5 * MS}")
        guest.start("wait t -1")
        old = agent.agent_pid()
        agent.kill_agent()
        t.equal(guest.answer(timeout=30), "ok 0")
        harness.wait_until(lambda: agent.ctl("--timeout", "1s", "version").code == 0 and agent.agent_pid() != old,
                           "another agent", 10)
        guest.ask("run q t empty 5")
        guest.ask("wait t 10000")


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


def test_arax_tasks_leak_no_memory(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask("run q t empty 100000", timeout=40)
        guest.ask("wait t 20000")
        pids = [guest.pid, worker_of(agent, guest), agent.agent_pid()]
        before = [resident_kib(pid) for pid in pids]
        for _ in range(4):
            guest.ask("run q t empty 100000", timeout=40)
            guest.ask("wait t 20000")
        after = [resident_kib(pid) for pid in pids]
        # 32 bytes a task, as there, would be 12800 KiB.
        for name, one, two in zip(("guest", "worker", "agent"), before, after):
            t.below(two - one, 1024, f"KiB that the {name} grew by in 400000 tasks")


if __name__ == "__main__":
    harness.main(globals())

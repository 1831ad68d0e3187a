# SPDX-License-Identifier: Apache-2.0
"""Sessions that go to another host with memory that a mover cannot see, or with a worker that others use: windows (of cpu devices, and of
the CUDA backend over its fake driver), pooled and packed workers, shared buffers."""
import os
import pathlib
import sys

import harness
from devices import WINDOW
from failpoints import DIE, FAIL, Points
from hosts import two
from scripted import Scripted, session_of

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
os.environ.setdefault("GANTRY_GPU_BACKEND", "fakecuda")
import gpu  # pylint: disable=wrong-import-position

UNSUPPORTED = 8
MIB = 1 << 20
ROOM = {"mem": "512M", "virtual": "2G", "heap": "64M"}
STAGING = 9 * MIB
SIZES = (8 * MIB, MIB, 64 * 1024 + 8)


def windows(**keys):
    return two(devices={"d0": dict(WINDOW)}, north_tenant=ROOM, south_tenant=ROOM, **keys)


def cuda(mode="isolated"):
    """Both hosts have one GPU of the fake driver."""
    if gpu.BACKEND != "fakecuda":
        raise harness.Skip("this is for the fake driver")
    tenant = {**ROOM, "isolation": mode, **({} if mode == "isolated" else {"trust_group": "lab"})}
    agent = {**gpu.fake_modules(), **(gpu.fake_mps() if mode == "packed" else {})}
    env = gpu.fake_environment(1)
    return two(north=agent, south=agent, north_tenant=tenant, south_tenant=tenant, devices=gpu.sections(1),
               north_env=env, south_env=env, others=())


def guest_of(hosts, tenant="red"):
    made = Scripted(hosts.north, tenant, opened=False, env={"GANTRY_DOOR": "stream:" + hosts.front})
    made.ask("open timeout_ms 60000")
    made.ask("queue q")
    return made


def own(guest, sizes=SIZES, kind="device"):
    """Buffers of random bytes; what their sums have to be."""
    wanted = {}
    for number, size in enumerate(sizes):
        guest.ask(f"buffer b{number} {size} {kind}")
        guest.ask(f"random b{number} {size} {number + 1}")
        wanted[number] = guest.ask(f"expect {size} {number + 1}")
    return wanted


def same(t, guest, wanted, sizes=SIZES):
    for number, size in enumerate(sizes):
        t.equal(guest.ask(f"sum q b{number} {size}", 90), wanted[number], f"buffer {number}")


def go(t, hosts, guest, *options):
    hosts.follow(hosts.south)
    done = hosts.migrate(guest.session(), *options)
    t.equal(done.code, 0, str(done))
    return hosts.migrations(hosts.north)[-1]


def only_what_it_owns(t, row, sizes=SIZES):
    """Each buffer's bytes once, and what of the heap was used, the library's staging among it; never the address space."""
    total = sum(sizes)
    t.true(total <= row["page_bytes"] <= total + total // 20 + STAGING, f"{row['page_bytes']} of {total}: {row}")


def stays(t, hosts, guest, words, code):
    ended = hosts.migrate(guest.session())
    t.equal(ended.code, code, str(ended))
    for word in words:
        t.contains(ended.err, word)
    dry = hosts.migrate(guest.session(), "--dry-run")
    t.equal(dry.code, code, str(dry))
    for word in words:
        t.contains(dry.err, word)
    t.equal(hosts.south.sessions(), [])


def place_of(agent):
    return [device["mem_used"] for device in agent.ctl_json("device", "list")["devices"]]


def slab_pages(agent):
    """Bytes of the slab's file that its worker holds: what lies in host memory."""
    folder = f"/proc/{agent.sessions()[0]['worker_pid']}/fd"
    return max(os.stat(os.path.join(folder, fd)).st_blocks * 512 for fd in os.listdir(folder)
               if "memfd:gantry-slab" in os.readlink(os.path.join(folder, fd)))

# --- windows ---

def test_windows_go_along_bit_by_bit_and_nothing_else_does(t):
    with windows() as hosts:
        guest = guest_of(hosts)
        guest.ask(f"buffer never {256 * MIB} device")
        wanted = own(guest)
        same(t, guest, wanted)
        only_what_it_owns(t, go(t, hosts, guest))
        t.equal(hosts.north.sessions(), [])
        same(t, guest, wanted)
        t.true(place_of(hosts.south)[0] >= sum(SIZES), "they are in the window there")
        harness.wait_until(lambda: place_of(hosts.north) == [0], "that the source has its memory back")


def test_windows_come_back_and_go_again(t):
    with windows() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        here, there = hosts.north, hosts.south
        for trip in range(4):
            same(t, guest, wanted)
            hosts.follow(there)
            done = hosts.migrate(here.sessions()[0]["session_id"], source=here)
            t.equal(done.code, 0, f"trip {trip}: {done}")
            here, there = there, here
        same(t, guest, wanted)


def test_window_that_is_written_all_the_time_arrives_as_it_was_last(t):
    with windows() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        guest.ask("buffer y 4096 device")
        guest.ask("float y 0")
        same(t, guest, wanted)
        guest.ask("add q first y 3000")
        row = go(t, hosts, guest)
        guest.ask("add q last y 500")
        guest.ask("wait last 60000", 90)
        t.equal(float(guest.ask("float y")), 3500.0)
        same(t, guest, wanted)
        t.true(row["rounds"] >= 2, str(row))


def test_window_whose_copy_ahead_is_called_off_is_as_before(t):
    with windows() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        same(t, guest, wanted)
        begun = hosts.migrate(guest.session(), "--bandwidth", "1M", "--no-wait")
        t.equal(begun.code, 0, str(begun))
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["page_bytes"] > 0, "the first pages")
        t.equal(hosts.north.ctl("migration", "cancel", begun.out.strip()).code, 0)
        same(t, guest, wanted)
        harness.wait_until(lambda: slab_pages(hosts.north) == 0, "that the copies are gone")
        harness.wait_until(lambda: hosts.migrate(guest.session(), "--dry-run").code == 0, "that it could go again")
        only_what_it_owns(t, go(t, hosts, guest))
        same(t, guest, wanted)


def test_window_that_cannot_come_to_host_memory_keeps_the_session_here(t):
    with Points() as points, windows(north_env=points.env) as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        same(t, guest, wanted)
        points.arm("worker.gather", FAIL, times=10)
        ended = hosts.migrate(guest.session())
        t.equal(ended.code, 1, str(ended))
        t.contains(ended.err, "host memory")
        t.contains(ended.err, "the session stays here")
        points.clear()
        same(t, guest, wanted)
        go(t, hosts, guest)
        same(t, guest, wanted)


def dies_meanwhile(t, point):
    with Points() as points, windows(north_env=points.env) as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        same(t, guest, wanted)
        session = guest.session()
        points.arm(point, DIE)
        hosts.follow(hosts.south)
        hosts.migrate(session)
        points.wait_fired(point)
        hosts.north.wait_ready()
        same(t, guest, wanted)
        harness.wait_until(lambda: hosts.north.sessions() == [] or hosts.migrate(session).code == 0, "that it goes", 60)
        same(t, guest, wanted)


def test_worker_that_dies_while_it_gathers_loses_nothing(t):
    dies_meanwhile(t, "worker.gather")


def test_agent_that_dies_before_it_has_all_gathered_loses_nothing(t):
    dies_meanwhile(t, "out.gather")


def test_cuda_sessions_go_along_bit_by_bit(t):
    with cuda() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        same(t, guest, wanted)
        only_what_it_owns(t, go(t, hosts, guest))
        same(t, guest, wanted)

# --- workers of several sessions ---

def pooled(isolation="pooled", there="pooled"):
    group = {
	"trust_group" : "lab"}
    return two(north_tenant={**ROOM, "isolation": isolation, **group},
               south_tenant={
	**ROOM, "isolation" : there, **(group if there != "isolated" else {})})


def test_pooled_session_goes_and_its_neighbour_in_the_same_worker_works_on(t):
    with pooled() as hosts:
        guest, beside = guest_of(hosts), Scripted(hosts.north, "red")
        beside.ask("honest start")
        beside.ask("honest check")
        wanted = own(guest)
        same(t, guest, wanted)
        worker = session_of(hosts.north, beside)["worker_pid"]
        t.equal([s["worker_pid"] for s in hosts.north.sessions()], [worker, worker])
        only_what_it_owns(t, go(t, hosts, guest))
        same(t, guest, wanted)
        beside.ask("honest check", timeout=40)
        t.equal([s["worker_pid"] for s in hosts.north.sessions()], [worker])
        t.equal(hosts.north.ctl_json("session", "show", str(beside.session()))["session"]["worker_restarts"], 0)
        hosts.follow(hosts.north)
        back = hosts.migrate(hosts.south.sessions()[0]["session_id"], source=hosts.south)
        t.equal(back.code, 0, str(back))
        same(t, guest, wanted)
        t.equal([s["worker_pid"] for s in hosts.north.sessions()], [worker, worker])


def test_session_goes_from_a_pooled_worker_to_one_of_its_own(t):
    with pooled(there="isolated") as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted)


def test_pooled_session_that_is_refused_goes_on_in_the_worker_of_before(t):
    with Points() as points, pooled() as hosts:
        guest, beside = guest_of(hosts), Scripted(hosts.north, "red")
        beside.ask("honest start")
        wanted = own(guest)
        same(t, guest, wanted)
        worker = session_of(hosts.north, beside)["worker_pid"]
        hosts.south.sections["tenants"]["red"]["isolation"] = "pooled"
        hosts.south.sections["agent"]["module_dirs"] = str(hosts.south.root)
        hosts.south.write_config()
        t.equal(hosts.south.reload().code, 0)
        ended = hosts.migrate(guest.session())
        t.equal(ended.code, 3, str(ended))
        t.contains(ended.err, "not installed there")
        same(t, guest, wanted)
        beside.ask("honest check", timeout=40)
        t.equal([s["worker_pid"] for s in hosts.north.sessions()], [worker, worker])
        t.equal(points.fired("out.gather"), 0)


def test_packed_session_goes_and_its_neighbour_at_the_same_server_works_on(t):
    with cuda("packed") as hosts:
        guest, beside = guest_of(hosts), gpu.guest(hosts.north)
        wanted = own(guest)
        kept = own(beside)
        same(t, guest, wanted)
        same(t, beside, kept)
        go(t, hosts, guest)
        same(t, guest, wanted)
        same(t, beside, kept)

# --- shared buffers ---

def share(giver, taker, folder, mode="rw"):
    """@giver's buffer s becomes @taker's buffer got."""
    path = str(folder / "share")
    giver.start(f"share s {mode} {path}")
    giver.answer()
    giver.answer()
    taker.ask(f"adopt got {path}")
    giver.answer()


def test_shared_buffer_keeps_its_session_here_and_both_are_named(t):
    with two(north_tenant=ROOM, south_tenant=ROOM) as hosts:
        guest, beside = guest_of(hosts), Scripted(hosts.north, "red")
        guest.ask(f"buffer s {MIB} shared")
        guest.ask(f"random s {MIB} 5")
        wanted = guest.ask(f"expect {MIB} 5")
        share(guest, beside, hosts.north.root)
        for who, other in ((guest, beside),):
            stays(t, hosts, who, ["its buffer", f"is shared with session {other.session()}, which stays"], UNSUPPORTED)
        t.equal(guest.ask(f"sum q s {MIB}"), wanted)
        beside.ask("free got")
        go(t, hosts, guest)
        t.equal(guest.ask(f"sum q s {MIB}"), wanted)


def test_shared_buffer_that_arrived_can_be_shared_there(t):
    with two(north_tenant=ROOM, south_tenant=ROOM) as hosts:
        guest, beside = guest_of(hosts), Scripted(hosts.south, "red")
        beside.ask("queue q")
        guest.ask(f"buffer s {MIB} shared")
        guest.ask(f"buffer later {MIB} shared")
        guest.ask(f"random s {MIB} 5")
        wanted = guest.ask(f"expect {MIB} 5")
        only_what_it_owns(t, go(t, hosts, guest), [MIB])
        share(guest, beside, hosts.south.root)
        t.equal(beside.ask(f"sum q got {MIB}"), wanted)
        beside.ask(f"random got {MIB} 6")
        t.equal(guest.ask(f"sum q s {MIB}"), beside.ask(f"expect {MIB} 6"))
        guest.ask(f"random later {MIB} 7")
        t.equal(guest.ask(f"sum q later {MIB}"), guest.ask(f"expect {MIB} 7"))
        hosts.south.kill_worker(session_of(hosts.south, beside)["worker_pid"])
        t.equal(guest.ask(f"sum q s {MIB}", 60), beside.ask(f"expect {MIB} 6"))


def test_adopted_buffer_goes_along_once_its_owner_is_gone(t):
    with two(north_tenant=ROOM, south_tenant=ROOM) as hosts:
        guest, owner = guest_of(hosts), Scripted(hosts.north, "red")
        owner.ask(f"buffer s {MIB} shared")
        owner.ask(f"random s {MIB} 5")
        share(owner, guest, hosts.north.root)
        stays(t, hosts, guest, [f"is shared with session {owner.session()}"], UNSUPPORTED)
        owner.ask("close")
        harness.wait_until(lambda: len(hosts.north.sessions()) == 1, "the owner's end")
        go(t, hosts, guest)
        t.equal(guest.ask(f"sum q got {MIB}"), guest.ask(f"expect {MIB} 5"))


def test_session_with_shared_buffers_that_turns_back_has_them_still(t):
    with two(north_tenant=ROOM, south_tenant=ROOM) as hosts:
        guest, beside = guest_of(hosts), Scripted(hosts.north, "red")
        beside.ask("queue q")
        guest.ask(f"buffer s {MIB} shared")
        guest.ask(f"random s {MIB} 5")
        wanted = guest.ask(f"expect {MIB} 5")
        hosts.south.sections["agent"]["module_dirs"] = str(hosts.south.root)
        hosts.south.write_config()
        t.equal(hosts.south.reload().code, 0)
        t.equal(guest.ask(f"sum q s {MIB}"), wanted)
        ended = hosts.migrate(guest.session())
        t.equal(ended.code, 3, str(ended))
        t.equal(guest.ask(f"sum q s {MIB}", 60), wanted)
        share(guest, beside, hosts.north.root)
        t.equal(beside.ask(f"sum q got {MIB}"), wanted)


harness.main(globals())

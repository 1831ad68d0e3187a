# SPDX-License-Identifier: Apache-2.0
"""Sessions that go to another host lazily: they run there at once, and fetch the buffers that their tasks use."""
import os
import pathlib
import sys

import harness
import puppet
from devices import WINDOW
from failpoints import DIE, STALL, Points
from hosts import Wire, two
from scripted import Scripted

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
sys.path.append(str(harness.SOURCE / "tests" / "system" / "upgrade"))
os.environ.setdefault("GANTRY_GPU_BACKEND", "fakecuda")
import builds  # pylint: disable=wrong-import-position
import gpu  # pylint: disable=wrong-import-position

FAILED, BUSY = 1, 7
MIB = 1 << 20
ROOM = {"mem": "512M", "virtual": "2G", "heap": "64M"}
SIZES = (2 * MIB, MIB, 64 * 1024 + 8, 3 * MIB)
PAGE = 4096


def up(size):
    return (size + PAGE - 1) // PAGE * PAGE


def plain(**keys):
    return two(north_tenant=ROOM, south_tenant=ROOM, **keys)


def guest_of(hosts):
    made = Scripted(hosts.north, "red", opened=False, env={"GANTRY_DOOR": "stream:" + hosts.front})
    made.ask("open timeout_ms 60000")
    made.ask("queue q")
    return made


def own(guest, sizes=SIZES):
    wanted = {}
    for number, size in enumerate(sizes):
        guest.ask(f"buffer b{number} {size} device")
        guest.ask(f"random b{number} {size} {number + 1}")
        wanted[number] = guest.ask(f"expect {size} {number + 1}")
    return wanted


def same(t, guest, wanted, numbers, sizes=SIZES):
    for number in numbers:
        t.equal(guest.ask(f"sum q b{number} {sizes[number]}", 90), wanted[number], f"buffer {number}")


def lost(guest, numbers, sizes=SIZES):
    for number in numbers:
        guest.refused(f"sum q b{number} {sizes[number]}", "DEVICE_LOST", 60)


def go(t, hosts, guest, **options):
    hosts.follow(hosts.south)
    done = hosts.migrate(guest.session(), "--lazy", **options)
    t.equal(done.code, 0, str(done))
    return done


def row(hosts, agent):
    return hosts.migrations(agent)[-1]


def state(hosts, agent):
    return row(hosts, agent)["state"]


def kinds(agent):
    return [line for line in agent.ctl("--json", "events").out.splitlines()]


def metric(agent, name):
    return {m["name"]: m["value"] for m in agent.ctl_json("stats")["metrics"]}[name]


def test_lazy_session_fetches_what_its_tasks_use_and_nothing_else(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        done = go(t, hosts, guest)
        t.contains(done.out, "fetches what it uses")
        t.equal(hosts.north.sessions(), [])
        t.equal([state(hosts, hosts.north), state(hosts, hosts.south)], ["serving", "pulling"])
        t.true(row(hosts, hosts.north)["page_bytes"] < 9 * MIB, "the heap goes at once, buffers do not")
        same(t, guest, wanted, [1, 2, 1])
        here = row(hosts, hosts.south)
        t.equal(here["pulled_bytes"], up(SIZES[1]) + up(SIZES[2]))
        t.true(0 < here["touched_bytes"] <= here["pulled_bytes"], str(here))
        harness.wait_until(lambda: row(hosts, hosts.north)["pulled_bytes"] == here["pulled_bytes"], "that both have counted")
        same(t, guest, wanted, [0, 3])
        harness.wait_until(lambda: state(hosts, hosts.south) == "done", "that all is there", 30)
        harness.wait_until(lambda: state(hosts, hosts.north) == "done", "that nothing is wanted any more", 30)
        t.equal(row(hosts, hosts.south)["pulled_bytes"], sum(map(up, SIZES)))
        t.equal(metric(hosts.south, "gantry_host_migration_pulled_bytes_total"), sum(map(up, SIZES)))
        t.equal(metric(hosts.south, "gantry_host_migration_buffers_lost_total"), 0)
        t.equal(hosts.migrate(hosts.south.sessions()[0]["session_id"], "--dry-run", source=hosts.south).code, 0)


def test_lazy_session_that_works_all_the_time_computes_the_same(t):
    with plain() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 8388608")
        guest.do("fill 0 1 8388608 7")
        guest.start("chain 0 3000 0")
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session, "--lazy")
        t.equal(done.code, 0, str(done))
        guest.finish("chain", 120)
        t.equal(float(guest.do("value 0", 60)[0]), puppet.chain_value(3000))
        t.equal(guest.do("peek 1 4194304"), ["7"])


def test_buffer_that_is_freed_is_never_fetched(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [0])
        for number in (1, 2, 3):
            guest.ask(f"free b{number}")
        harness.wait_until(lambda: state(hosts, hosts.north) == "done", "that nothing is wanted any more", 30)
        t.equal(row(hosts, hosts.south)["pulled_bytes"], SIZES[0])
        same(t, guest, wanted, [0])


def test_session_that_ends_wants_nothing_more(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [2])
        guest.ask("close")
        harness.wait_until(lambda: [state(hosts, hosts.north), state(hosts, hosts.south)] == ["done", "done"], "the end", 30)


def test_lazy_session_can_be_sent_on_only_when_it_has_all(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        there = hosts.south.sessions()[0]["session_id"]
        for options in (["--lazy"], [], ["--dry-run"]):
            back = hosts.migrate(there, *options, source=hosts.south)
            t.equal(back.code, BUSY, str(back))
            t.contains(back.err, f"still has {len(SIZES)} buffers")
        number = str(row(hosts, hosts.north)["migration_id"])
        cancelled = hosts.north.ctl("migration", "cancel", number)
        t.equal(cancelled.code, BUSY, str(cancelled))
        t.contains(cancelled.err, "cannot be taken back")
        same(t, guest, wanted, range(4))
        harness.wait_until(lambda: state(hosts, hosts.south) == "done", "that all is there", 30)
        hosts.follow(hosts.north)
        back = hosts.migrate(there, "--lazy", source=hosts.south)
        t.equal(back.code, 0, str(back))
        same(t, guest, wanted, range(4))


def test_neither_agent_is_exchanged_while_buffers_are_fetched(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        for agent in (hosts.north, hosts.south):
            asked = builds.begin(agent, builds.Builds(agent).copy("gantryd-next"))
            t.true(asked.wait(60) != 0, asked.output())
        t.equal([state(hosts, hosts.north), state(hosts, hosts.south)], ["serving", "pulling"])
        same(t, guest, wanted, range(4))


def test_windows_and_shared_buffers_go_lazily(t):
    with two(devices={"d0": dict(WINDOW)}, north_tenant=ROOM, south_tenant=ROOM) as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        guest.ask(f"buffer s {MIB} shared")
        guest.ask(f"random s {MIB} 9")
        same(t, guest, wanted, range(4))
        go(t, hosts, guest)
        same(t, guest, wanted, [3, 0])
        t.equal(row(hosts, hosts.south)["pulled_bytes"], SIZES[3] + SIZES[0])
        t.equal(guest.ask(f"sum q s {MIB}"), guest.ask(f"expect {MIB} 9"))
        same(t, guest, wanted, range(4))


def test_cuda_session_goes_lazily(t):
    if gpu.BACKEND != "fakecuda":
        raise harness.Skip("this is for the fake driver")
    env = gpu.fake_environment(1)
    with two(north=gpu.fake_modules(), south=gpu.fake_modules(), north_tenant=ROOM, south_tenant=ROOM,
             devices=gpu.sections(1), north_env=env, south_env=env) as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [1])
        t.equal(row(hosts, hosts.south)["pulled_bytes"], SIZES[1])
        same(t, guest, wanted, range(4))


# --- who dies meanwhile ---

def loses(t, hosts, guest, wanted, here, gone):
    """What was fetched is as it was, what was not is told to be lost, and the session works on."""
    lost(guest, gone)
    same(t, guest, wanted, here)
    lost(guest, gone)
    guest.ask("buffer fresh 65536 device")
    guest.ask("random fresh 65536 77")
    t.equal(guest.ask("sum q fresh 65536"), guest.ask("expect 65536 77"))
    for number in gone:
        guest.ask(f"free b{number}")
    text = "\n".join(kinds(hosts.south))
    t.contains(text, "buffers-lost")
    t.equal([s["state"] for s in hosts.south.sessions()], ["attached"])


def movers(agent):
    return [pid for pid in harness.descendants(agent.monitor.pid)
            if os.path.basename(harness.command_of(pid).split(" ")[0] or "-") == "gantry-mover"]


def test_source_that_dies_leaves_what_was_fetched_and_tells_of_the_rest(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [0, 2])
        hosts.north.kill_agent()
        harness.wait_until(lambda: state(hosts, hosts.south) == "failed", "that it is noticed", 30)
        t.contains(row(hosts, hosts.south)["text"], "2 buffers that it had not used yet are lost")
        loses(t, hosts, guest, wanted, [0, 2], [1, 3])
        t.equal(metric(hosts.south, "gantry_host_migration_buffers_lost_total"), 2)


def test_destinations_agent_that_dies_leaves_what_was_fetched_and_tells_of_the_rest(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [0])
        hosts.south.kill_agent()
        hosts.south.wait_ready()
        loses(t, hosts, guest, wanted, [0], [1, 2, 3])
        harness.wait_until(lambda: state(hosts, hosts.north) == "failed", "that the source has noticed", 30)


def goes_on_with_what_nobody_used(t, hosts, guest, wanted):
    """What was never wanted is lost as well, and keeps the session from nowhere."""
    hosts.follow(hosts.north)
    session = hosts.south.sessions()[0]["session_id"]
    harness.wait_until(lambda: hosts.migrate(session, source=hosts.south).code == 0, "that it goes on", 60)
    same(t, guest, wanted, [0])
    lost(guest, [1, 2, 3])


def test_session_whose_source_died_goes_on_with_what_nobody_used(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [0])
        hosts.north.kill_agent()
        hosts.north.wait_ready()
        harness.wait_until(lambda: state(hosts, hosts.south) == "failed", "that it is noticed", 30)
        goes_on_with_what_nobody_used(t, hosts, guest, wanted)


def test_session_whose_agent_died_goes_on_with_what_nobody_used(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [0])
        hosts.south.kill_agent()
        hosts.south.wait_ready()
        goes_on_with_what_nobody_used(t, hosts, guest, wanted)


def test_lost_buffers_stay_lost_on_the_next_host(t):
    with plain() as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [0])
        hosts.north.kill_agent()
        hosts.north.wait_ready()
        lost(guest, [1, 3])
        harness.wait_until(lambda: state(hosts, hosts.south) == "failed", "that it is noticed", 30)
        guest.ask("free b2")
        hosts.follow(hosts.north)
        back = hosts.migrate(hosts.south.sessions()[0]["session_id"], source=hosts.south)
        t.equal(back.code, 0, str(back))
        same(t, guest, wanted, [0])
        lost(guest, [1, 3])


def test_stream_that_is_altered_or_cut_while_it_is_pulled_gives_no_wrong_data(t):
    for what in ("alter_at", "cut_at"):
        with plain() as hosts, Wire(hosts.south.port) as wire:
            guest = guest_of(hosts)
            wanted = own(guest)
            go(t, hosts, guest, to=f"127.0.0.1:{wire.port}")
            same(t, guest, wanted, [2])
            setattr(wire, what, wire.went + MIB)
            lost(guest, [3])
            loses(t, hosts, guest, wanted, [2], [0, 1, 3])


def dies_at(t, point, side, whole):
    """@whole: whoever asked is told the truth all the same, for another can ask for it."""
    with Points() as points, plain(**{side + "_env": points.env}) as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [2])
        points.arm(point, DIE)
        guest.start(f"sum q b3 {SIZES[3]}")
        points.wait_fired(point)
        hosts.south.wait_ready()
        hosts.north.wait_ready()
        answer = guest.answer(60)
        if whole:
            t.equal(answer[3:], wanted[3])
        else:
            t.contains(answer, "error DEVICE_LOST")
        loses(t, hosts, guest, wanted, [2], [0, 1])


def test_source_that_dies_in_the_middle_of_a_buffer_gives_none_of_it(t):
    dies_at(t, "serve.part", "north", False)


def test_mover_that_dies_with_a_part_of_a_buffer_gives_none_of_it(t):
    dies_at(t, "pull.part", "south", False)


def test_mover_that_dies_with_all_of_a_buffer_that_nobody_knows_gives_none_of_it(t):
    dies_at(t, "pull.done", "south", False)


def test_agent_that_dies_with_a_buffer_that_its_worker_does_not_know_gives_none_of_it(t):
    dies_at(t, "in.pulled", "south", False)


def test_worker_that_dies_while_a_buffer_is_fetched_has_a_successor_that_gets_it(t):
    with Points() as points, plain(south_env=points.env) as hosts:
        guest = guest_of(hosts)
        wanted = own(guest)
        go(t, hosts, guest)
        same(t, guest, wanted, [2])
        points.arm("pull.part", STALL)
        guest.start(f"sum q b3 {SIZES[3]}")
        points.wait_stalled("pull.part")
        worker = hosts.south.sessions()[0]["worker_pid"]
        hosts.south.kill_worker(worker)
        harness.wait_until(lambda: hosts.south.sessions()[0]["state"] == "recovering", "that its end is seen", 30)
        points.clear()
        t.equal(guest.answer(60)[3:], wanted[3])
        same(t, guest, wanted, range(4))
        t.true(hosts.south.sessions()[0]["worker_pid"] != worker, "another worker")


harness.main(globals())

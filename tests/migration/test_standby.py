# SPDX-License-Identifier: Apache-2.0
"""Sessions whose guests share memory, at Unix and ivshmem doors: a program on the other host that has the key goes on with them."""
import json

import harness
import ivpeer
import puppet
from failpoints import DIE, Points
from hosts import run_chain, two

UNSUPPORTED = 8
SIGNATURE, TIMEOUT, NOT_FOUND, MOVED = -5, -11, -19, -108
PAUSED = 5


def migrate(hosts, source, session):
    done = hosts.migrate(session, source=source)
    if done.code:
        raise harness.Failure(f"session migrate: {done}")


def idle(agent, tenant="red", door=None):
    """A program without a session."""
    made = agent.guest(tenant, [harness.program("puppet-guest")], env={"GANTRY_DOOR": door} if door else None)
    return puppet.Puppet(agent, tenant, open_with=None, guest=made)


def state_of(agent):
    return [s["state"] for s in agent.sessions()]


def arrived(agent):
    harness.wait_until(lambda: state_of(agent) == ["unadopted"], "that the session has come")


def leave(guest, chain=0):
    """What another program needs to go on: the key, and the chain's handles."""
    return guest.do("key")[0], guest.do(f"holds {chain}")


def take(standby, key, held, timeout_ms=60000):
    standby.do(f"adopt {key} {timeout_ms}", 90)
    found = standby.do("found")
    standby.do("holds 0 " + " ".join(held))
    return found


def metric(agent, name):
    return {m["name"]: m["value"] for m in agent.ctl_json("stats")["metrics"]}[name]


def kinds(agent):
    return [event["kind"] for event in map(json.loads, agent.ctl("--json", "events").out.splitlines())]


def test_standby_goes_on_with_the_session_and_the_guest_before_it_is_told(t):
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        t.equal(run_chain(guest), puppet.chain_value(40))
        key, held = leave(guest)
        standby.start(f"adopt {key} 60000")
        migrate(hosts, hosts.north, guest.session)
        t.equal(standby.finish("adopt", 60), [str(guest.session)])
        t.contains(guest.fails("value 0", MOVED), "has moved to 127.0.0.1")
        for line in ("chain 0 1 0", "alloc 1 4096", "queue 1", "key"):
            guest.fails(line, MOVED)
        t.equal(hosts.north.sessions(), [])
        standby.do("found")
        standby.do("holds 0 " + " ".join(held))
        t.equal(run_chain(standby), 2 * puppet.chain_value(40))
        shown = hosts.south.sessions()[0]
        t.equal([shown["state"], shown["door"], shown["pid"]], ["attached", "unix", standby.guest.process.pid])
        t.equal(metric(hosts.south, "gantry_adoptions_total"), 1)
        t.true(0 <= metric(hosts.south, "gantry_adoption_wait_seconds") < 60)
        for kind in ("session-arrived", "session-adopted"):
            t.true(kind in kinds(hosts.south), kind)
        guest.end()
        t.equal(run_chain(standby), 3 * puppet.chain_value(40), "the old guest's end is not the session's")
        standby.end()
        harness.wait_until(lambda: not hosts.south.sessions(), "the session's end")


def test_buffers_queues_and_tickets_are_what_they_were(t):
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        second = int(guest.do("queue 1 3")[0])
        for n, (size, flags) in enumerate(((4096, 1), (1 << 20, 2), (192, 1), (8 << 20, 0))):
            guest.do(f"alloc {n} {size} {flags}")
            guest.do(f"poke {n} 8 {100 + n}")
        guest.do("free 2")
        guest.do("kernel fail")
        guest.do("launch 1 1 4")       # a task that fails
        failed = guest.do("ticket 1")[0]
        guest.fails("wait 1", SIGNATURE)
        guest.do("fill 0 1 4096 5")
        good = guest.do("ticket 0")[0]
        guest.do("wait 0")
        key = guest.do("key")[0]
        migrate(hosts, hosts.north, guest.session)
        standby.do(f"adopt {key} 0")
        queues = [[int(n) for n in word.split(":")] for word in standby.do("found")]
        t.equal([q[0] for q in queues], [guest.slot, second], "the library's own queue is not among them")
        for slot, submitted, finished in queues:
            t.equal(submitted, finished)
        buffers = [[int(n) for n in word.split(":")] for word in standby.do("buffers")]
        t.equal([b[0] for b in buffers], [4096, 1 << 20, 8 << 20])
        t.equal(buffers[0][1], 1, "host memory stays that")
        t.equal([standby.do(f"peek {n} 8")[0] for n in range(3)], ["100", "5", "103"])
        t.equal(standby.do(f"test {good}"), ["1"])
        standby.fails(f"test {failed}", SIGNATURE)
        # Nothing new lies where something is.
        for n in range(8, 24):
            standby.do(f"alloc {n} {64 << 10} 1")
            standby.do(f"poke {n} 0 77")
        t.equal([standby.do(f"peek {n} 8")[0] for n in range(3)], ["100", "5", "103"])
        standby.do("poke 0 8 1")
        t.equal(standby.do("peek 0 8"), ["1"])
        standby.do("free 0")
        standby.do("queue 2")


def test_tasks_that_had_not_run_run_there_once(t):
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        t.equal(run_chain(guest), puppet.chain_value(40))
        guest.do(f"set 0 {PAUSED} 1")
        guest.do("chain 0 40 0")
        key, held = leave(guest)
        ticket = int(guest.do("ticket 0")[0])
        migrate(hosts, hosts.north, guest.session)
        _slot, submitted, finished = (int(n) for n in take(standby, key, held)[0].split(":"))
        t.equal(submitted, ticket & ((1 << 56) - 1), "all that was put")
        t.equal(submitted - finished, 80)
        for n in range(8, 40):      # none of it in what those tasks read
            standby.do(f"alloc {n} {64 << 10} 1")
            standby.do(f"poke {n} 0 77")
        standby.do(f"set 0 {PAUSED} 0")
        standby.do("wait 0 60000", 90)
        t.equal(float(standby.do("value 0")[0]), 2 * puppet.chain_value(40))
        t.equal(standby.do(f"test {ticket}"), ["1"])
        guest.fails(f"test {ticket}", MOVED)


def test_who_reads_a_buffer_waits_for_the_tasks_that_came_along(t):
    size, count = 32 << 20, 8
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        guest.do(f"alloc 0 {size} 2")
        guest.do(f"set 0 {PAUSED} 1")
        for n in range(count):
            guest.do(f"fill 0 0 {size} {n + 1}")
        key = guest.do("key")[0]
        migrate(hosts, hosts.north, guest.session)
        standby.do(f"adopt {key} 60000", 90)
        standby.do("found")
        t.equal(len(standby.do("buffers")), 1)
        standby.do(f"set 0 {PAUSED} 0")
        t.equal(standby.do(f"peek 0 {size - 8}"), [str(count)], "tens of milliseconds after it was asked")


def test_guest_that_goes_on_putting_tasks_has_none_run_twice(t):
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        run_chain(guest)
        key, held = leave(guest)
        guest.do("flood 0 200000 16")
        standby.start(f"adopt {key} 60000")
        migrate(hosts, hosts.north, guest.session)
        standby.finish("adopt", 60)
        try:
            guest.finish("flood", 60)
        except puppet.Refused as refused:
            t.equal(refused.status, MOVED)
        else:
            raise harness.Failure("the guest went on where its session is no more")
        guest.fails("wait 0", MOVED)
        standby.do("found")
        standby.do("wait 0 60000", 90)
        _slot, submitted, finished = (int(n) for n in standby.do("found")[0].split(":"))
        t.equal(submitted, finished)
        standby.do("holds 0 " + " ".join(held))
        t.equal(run_chain(standby), 2 * puppet.chain_value(40))


def test_session_goes_there_and_back_with_a_key_for_each_trip(t):
    with two() as hosts:
        here, there = hosts.north, hosts.south
        guest = puppet.Puppet(here, "red")
        for n in range(4):
            t.equal(run_chain(guest), (n + 1) * puppet.chain_value(40))
            key, held = leave(guest)
            standby = idle(there)
            standby.start(f"adopt {key} 60000")
            migrate(hosts, here, here.sessions()[0]["session_id"])
            standby.finish("adopt", 60)
            take_rest = standby.do("found")
            t.equal(len(take_rest), 1)
            standby.do("holds 0 " + " ".join(held))
            guest.end()
            guest, here, there = standby, there, here
        t.equal(run_chain(guest), 5 * puppet.chain_value(40))


# --- who may, and who may not ---

def test_session_without_a_key_stays_and_the_command_says_what_to_call(t):
    with two() as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        refused = hosts.migrate(guest.session)
        t.equal(refused.code, UNSUPPORTED, str(refused))
        t.contains(refused.err, "shares memory with this host")
        t.contains(refused.err, "gantry_session_key()")
        t.equal(run_chain(guest), puppet.chain_value(40))


def test_wrong_key_another_tenant_and_a_second_time_find_nothing(t):
    with two(north_tenant={}, south_tenant={}, others=("blue",)) as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        run_chain(guest)
        older = guest.do("key")[0]
        key, held = leave(guest)
        t.true(older != key, "two keys are two")
        standby.fails(f"adopt {key} 0", NOT_FOUND)      # before it has come
        migrate(hosts, hosts.north, guest.session)
        t.equal(state_of(hosts.south), ["unadopted"])
        wrong = f"{int(key[:2], 16) ^ 1:02x}" + key[2:]
        for bad in (wrong, older, "0" * 31 + "1"):
            standby.fails(f"adopt {bad} 0", NOT_FOUND)
        t.contains(standby.fails(f"adopt {wrong} 300", TIMEOUT), "no session with this key")
        idle(hosts.south, "blue").fails(f"adopt {key} 0", NOT_FOUND)
        t.equal(state_of(hosts.south), ["unadopted"])
        take(standby, key, held)
        idle(hosts.south).fails(f"adopt {key} 0", NOT_FOUND)
        t.equal(run_chain(standby), 2 * puppet.chain_value(40))
        t.true(metric(hosts.south, "gantry_adoptions_refused_total") >= 5)
        t.equal(len(hosts.south.sessions()), 1)


def test_key_of_a_stream_is_none(t):
    with two() as hosts:
        guest = hosts.guest()
        t.contains(guest.fails("key", -10), "follows by itself")
        door = "stream:" + hosts.front
        t.contains(idle(hosts.north, door=door).fails("adopt " + "1" * 32 + " 0", -10), "follows")


def test_standbys_that_end_are_no_longer_waited_with(t):
    with two() as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        run_chain(guest)
        key, held = leave(guest)
        early = idle(hosts.south)
        early.start(f"adopt {key} 60000")
        early.guest.process.kill()
        early.guest.process.wait()
        standby = idle(hosts.south)
        standby.start(f"adopt {key} 60000")
        migrate(hosts, hosts.north, guest.session)
        standby.finish("adopt", 60)
        standby.do("found")
        standby.do("holds 0 " + " ".join(held))
        t.equal(run_chain(standby), 2 * puppet.chain_value(40))


# --- what fails on the way ---

def test_session_that_nobody_adopts_ends_when_the_time_is_over(t):
    with two(south={"adoption_grace": "300ms"}) as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        run_chain(guest)
        key, _held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        harness.wait_until(lambda: not hosts.south.sessions(), "its end")
        t.true("session-unadopted" in kinds(hosts.south), "the event")
        t.equal(metric(hosts.south, "gantry_adoptions_missed_total"), 1)
        idle(hosts.south).fails(f"adopt {key} 0", NOT_FOUND)
        guest.fails("value 0", MOVED)


def test_destination_that_is_killed_before_the_adoption_has_it_afterwards(t):
    with two() as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        run_chain(guest)
        key, held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        for _ in range(2):
            hosts.south.kill_agent()
            hosts.south.wait_ready()
            harness.wait_until(lambda: state_of(hosts.south) == ["unadopted"], "that the next agent holds it")
        standby = idle(hosts.south)
        take(standby, key, held)
        t.equal(run_chain(standby), 2 * puppet.chain_value(40))
        hosts.south.kill_agent()
        hosts.south.wait_ready()
        t.equal(run_chain(standby), 3 * puppet.chain_value(40))
        hosts.south.kill_worker(hosts.south.sessions()[0]["worker_pid"])
        t.equal(run_chain(standby), 4 * puppet.chain_value(40))


def adopted_though_killed_at(t, point):
    """The destination's agent dies at @point; the program that adopts goes on with the next agent, and has the session whole."""
    with Points() as points, two(south_env=points.env) as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        t.equal(run_chain(guest), puppet.chain_value(40))
        key, held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        arrived(hosts.south)
        standby = idle(hosts.south)
        points.arm(point, DIE)
        standby.start(f"adopt {key} 60000")
        points.wait_fired(point)
        hosts.south.wait_ready()
        t.equal(standby.finish("adopt", 70), [str(guest.session)])
        standby.do("found")
        standby.do("holds 0 " + " ".join(held))
        for n in range(2, 5):
            t.equal(run_chain(standby), n * puppet.chain_value(40))
            key = standby.do("key")[0]     # an answer of the door
        harness.wait_until(lambda: state_of(hosts.south) == ["attached"], "that it is nobody else's")
        other = idle(hosts.south)
        other.fails(f"adopt {key} 0", NOT_FOUND)
        hosts.south.kill_agent()           # and what is kept of it is right
        hosts.south.wait_ready()
        t.equal(run_chain(standby), 5 * puppet.chain_value(40))
        standby.end()
        harness.wait_until(lambda: not hosts.south.sessions(), "the session's end")


def test_agent_that_dies_before_a_worker_has_the_session_loses_nothing(t):
    adopted_though_killed_at(t, "adopt.joined")


def test_agent_that_dies_when_a_worker_has_the_session_loses_nothing(t):
    adopted_though_killed_at(t, "adopt.served")


def test_agent_that_dies_before_it_welcomes_the_program_loses_nothing(t):
    adopted_though_killed_at(t, "attach.kept")


def test_agent_that_dies_when_the_program_is_welcome_says_so_twice(t):
    adopted_though_killed_at(t, "adopt.welcomed")


def test_agent_that_dies_when_the_key_is_spent_loses_nothing(t):
    adopted_though_killed_at(t, "adopt.spent")


def test_key_outlives_the_agent_that_made_it(t):
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        run_chain(guest)
        key, held = leave(guest)
        hosts.north.kill_agent()
        hosts.north.wait_ready()
        run_chain(guest)
        held = guest.do("holds 0")
        migrate(hosts, hosts.north, guest.session)
        take(standby, key, held)
        t.equal(run_chain(standby), 3 * puppet.chain_value(40))


def test_guest_that_dies_on_the_way_takes_the_session_with_it(t):
    with two() as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        guest.do("alloc 1 33554432")
        guest.do("fill 0 1 33554432 7")
        guest.do("wait 0")
        guest.do("key")
        begun = hosts.migrate(guest.session, "--bandwidth", "1M", "--no-wait")
        t.equal(begun.code, 0, str(begun))
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["page_bytes"] > 0, "the first pages")
        t.contains(guest.fails("key", -12), "not now")
        guest.guest.process.kill()
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["state"] == "failed", "that it has failed")
        harness.wait_until(lambda: not hosts.south.sessions() and not hosts.north.sessions(), "that it is nowhere")


def test_session_that_waits_can_go_back_and_is_adopted_where_it_began(t):
    with two() as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        run_chain(guest)
        key, held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        arrived(hosts.south)
        migrate(hosts, hosts.south, hosts.south.sessions()[0]["session_id"])
        t.equal(hosts.south.sessions(), [])
        guest.do("close")
        take(guest, key, held)
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        t.equal(hosts.north.sessions()[0]["state"], "attached")


def test_session_that_waits_and_cannot_go_on_is_adopted_where_it_waits(t):
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), idle(hosts.south)
        run_chain(guest)
        key, held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        session = hosts.south.sessions()[0]["session_id"]
        nobody = hosts.migrate(session, source=hosts.south, to=f"127.0.0.1:{harness.free_port()}")
        t.equal(nobody.code, 5, str(nobody))
        take(standby, key, held)
        t.equal(run_chain(standby), 2 * puppet.chain_value(40))


# --- machines ---

MACHINE = {"ivshmem": "yes", "ivshmem_size": "64M"}


def machine(agent):
    return ivpeer.Machine(str(agent.run_dir / "doors" / "red" / "ivshmem.sock"), 8)


def in_machine(agent, vm, **options):
    made = agent.guest("red", [harness.program("puppet-guest")], env={"GANTRY_DOOR": vm.door()})
    return puppet.Puppet(agent, "red", guest=made, **options)


def test_session_of_a_machine_moves_into_the_memory_of_the_other_machine(t):
    with two(north_tenant=MACHINE, south_tenant=MACHINE) as hosts, machine(hosts.north) as first:
        guest = in_machine(hosts.north, first, open_with=f"open {40 << 20}")
        t.equal(run_chain(guest), puppet.chain_value(40))
        size = 30 << 20     # more than is copied at a time
        guest.do(f"alloc 3 {size} 1")
        guest.do(f"fill 0 3 {size} 77")
        guest.do(f"poke 3 {size - 8} 12345")
        key, held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        t.contains(guest.fails("value 0", MOVED), "has moved")
        arrived(hosts.south)
        with machine(hosts.south) as second:
            standby = in_machine(hosts.south, second, open_with=None)
            take(standby, key, held)
            buffers = standby.do("buffers")
            big = buffers.index(f"{size}:1")
            t.equal([standby.do(f"peek {big} {off}")[0] for off in (0, 16 << 20, size - 8)], ["77", "77", "12345"])
            t.equal(run_chain(standby), 2 * puppet.chain_value(40))
            shown = hosts.south.sessions()[0]
            t.equal([shown["state"], shown["door"]], ["attached", "ivshmem"])
            used = hosts.south.ctl_json("tenant", "show", "red")["tenant"]["host_mem_used"]
            t.equal(used, 64 << 20, "the memory that it came in went back")
            hosts.south.kill_agent()
            hosts.south.wait_ready()
            t.equal(run_chain(standby), 3 * puppet.chain_value(40))
            hosts.south.kill_worker(hosts.south.sessions()[0]["worker_pid"])
            t.equal(run_chain(standby), 4 * puppet.chain_value(40))
            standby.end()
            harness.wait_until(lambda: not hosts.south.sessions(), "the session's end")


def adopted_in_machine_though_killed_at(t, point):
    with Points() as points, two(north_tenant=MACHINE, south_tenant=MACHINE, south_env=points.env) as hosts, \
         machine(hosts.north) as first:
        guest = in_machine(hosts.north, first)
        t.equal(run_chain(guest), puppet.chain_value(40))
        key, held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        arrived(hosts.south)
        with machine(hosts.south) as second:
            standby = in_machine(hosts.south, second, open_with=None)
            points.arm(point, DIE)
            standby.start(f"adopt {key} 60000")
            points.wait_fired(point)
            hosts.south.wait_ready()
            t.equal(standby.finish("adopt", 70), [str(guest.session)], point)
            standby.do("found")
            standby.do("holds 0 " + " ".join(held))
            for n in range(2, 4):
                t.equal(run_chain(standby), n * puppet.chain_value(40), point)
                standby.do("key")
            t.equal([s["door"] for s in hosts.south.sessions()], ["ivshmem"], point)
            standby.end()
            harness.wait_until(lambda: not hosts.south.sessions(), "the session's end")


def test_agent_that_dies_before_a_machines_program_is_welcome_loses_nothing(t):
    for point in ("adopt.joined", "adopt.served", "attach.kept"):
        adopted_in_machine_though_killed_at(t, point)


def test_agent_that_dies_when_a_machines_program_is_welcome_loses_nothing(t):
    for point in ("adopt.welcomed", "adopt.spent"):
        adopted_in_machine_though_killed_at(t, point)


def test_memory_that_another_program_has_left_is_cleared_first(t):
    with two(north_tenant=MACHINE, south_tenant=MACHINE) as hosts, machine(hosts.north) as first, \
            machine(hosts.south) as second:
        guest = in_machine(hosts.north, first, open_with=f"open {40 << 20}")
        run_chain(guest)
        for early in (True, False):     # who waits for the session, and who comes after it
            here, there = (hosts.north, hosts.south) if early else (hosts.south, hosts.north)
            vm = second if early else first
            other = in_machine(there, vm, open_with=f"open {40 << 20}")
            other.do(f"alloc 0 {32 << 20} 1")
            other.do(f"fill 0 0 {32 << 20} 7")
            other.do("wait 0")
            key, held = leave(guest)
            standby = in_machine(there, vm, open_with=None)
            if early:
                standby.start(f"adopt {key} 60000")
            other.end()
            migrate(hosts, here, guest.session if early else here.sessions()[0]["session_id"])
            if not early:
                standby.start(f"adopt {key} 60000")
            standby.finish("adopt", 60)
            standby.do("found")
            standby.do("holds 0 " + " ".join(held))
            t.equal(run_chain(standby), (2 if early else 3) * puppet.chain_value(40))
            guest.end()
            guest = standby


def test_machine_whose_memory_is_too_small_is_told_and_the_session_waits_on(t):
    small = {"ivshmem": "yes", "ivshmem_size": "16M"}
    with two(north_tenant=MACHINE, south_tenant=small) as hosts, machine(hosts.north) as first:
        guest = in_machine(hosts.north, first, open_with="open 33554432")
        run_chain(guest)
        key, held = leave(guest)
        migrate(hosts, hosts.north, guest.session)
        with machine(hosts.south) as second:
            standby = in_machine(hosts.south, second, open_with=None)
            t.contains(standby.fails(f"adopt {key} 0", -9), "do not fit this machine's device")
        t.equal(state_of(hosts.south), ["unadopted"])
        standby = idle(hosts.south)     # a container's door will do
        take(standby, key, held)
        t.equal(run_chain(standby), 2 * puppet.chain_value(40))


harness.main(globals())

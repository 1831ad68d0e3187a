#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Another build of the agent takes over while a session is on its way to another host, or a queue to another device; each order."""
import json
import sys

import harness
import puppet
from devices import MIB, Mover, world
from failpoints import STALL, Points
from history import KILLED, History
from hosts import two
from scripted import Scripted, events

sys.path.insert(1, str(harness.SOURCE / "tests" / "system" / "upgrade"))
import builds  # pylint: disable=wrong-import-position

FAILED, BUSY = 1, 7


def follower(hosts, mib=0):
    """A guest behind a stream with tasks behind it, and so much memory."""
    guest = Scripted(hosts.north, "red", env={"GANTRY_DOOR": "stream:" + hosts.front})
    guest.ask("queue q")
    if mib:
        guest.ask(f"buffer big {mib * MIB} device")
        guest.ask(f"random big {mib * MIB} 5")
    history = History(guest)
    history.put(20)
    return guest, history


def begin_migrate(agent, session, port, *options):
    return harness.Guest([harness.program("gantryctl"), "--socket", agent.admin, "session", "migrate", str(session), "--to",
                          f"127.0.0.1:{port}", *options], env=agent.env)


def upgraded(t, agent, *options):
    path = builds.Builds(agent).copy("gantryd-next")
    t.code(builds.upgrade(agent, "--binary", path, "--downgrade", *options), 0)
    t.equal(builds.version_of(agent), "9.1.0")


def goes_south(t, hosts, history):
    """A migration that nothing is in the way of."""
    history.put(20)
    hosts.follow(hosts.south)
    t.code(hosts.migrate(hosts.north.sessions()[0]["session_id"]), 0)
    history.put(20)
    history.check(t)
    t.equal([len(hosts.north.sessions()), len(hosts.south.sessions())], [0, 1])


def test_session_on_its_way_stays_when_its_host_gets_another_build(t):
    with two() as hosts:
        guest, history = follower(hosts, mib=16)
        going = begin_migrate(hosts.north, guest.session(), hosts.south.port, "--bandwidth", "1M")
        harness.wait_until(lambda: [m for m in hosts.migrations(hosts.north) if m["page_bytes"]], "the first pages")
        history.put(20)
        upgraded(t, hosts.north)
        t.equal(going.wait(), BUSY, going.output())
        t.contains(going.output(), "another build of the agent takes over")
        t.contains(going.output(), "stays here")
        harness.wait_until(lambda: not hosts.south.sessions(), "that the other host lets go")
        goes_south(t, hosts, history)
        numbers = [m["migration_id"] for m in hosts.migrations(hosts.north)]
        t.true(numbers == [2], f"numbers go on: {numbers}")


def test_session_on_its_way_stays_when_the_other_host_gets_another_build(t):
    with two() as hosts:
        guest, history = follower(hosts, mib=16)
        going = begin_migrate(hosts.north, guest.session(), hosts.south.port, "--bandwidth", "1M")
        harness.wait_until(lambda: [m for m in hosts.migrations(hosts.north) if m["page_bytes"]], "the first pages")
        upgraded(t, hosts.south)
        t.equal(going.wait(), BUSY, going.output())
        t.contains(going.output(), "another build of the agent takes over there")
        t.equal(hosts.south.sessions(), [])
        goes_south(t, hosts, history)


def test_session_that_stands_still_is_let_go_by_an_upgrade(t):
    with Points() as points, two(north_env=points.env) as hosts:
        guest, history = follower(hosts)
        points.arm("send.rest", STALL)
        going = begin_migrate(hosts.north, guest.session(), hosts.south.port)
        points.wait_stalled("send.rest")
        t.equal([row["state"] for row in hosts.north.sessions()], ["held"])
        upgraded(t, hosts.north)
        points.clear()
        t.equal(going.wait(), BUSY, going.output())
        history.put(20)
        history.check(t)
        goes_south(t, hosts, history)


def test_session_that_is_offered_is_asked_about_by_the_next_build(t):
    with Points() as points, two(south_env=points.env) as hosts:
        guest, history = follower(hosts)
        points.arm("in.commit", STALL)
        hosts.follow(hosts.south)
        going = begin_migrate(hosts.north, guest.session(), hosts.south.port)
        points.wait_stalled("in.commit")
        upgraded(t, hosts.north)
        harness.wait_until(lambda: [row["state"] for row in hosts.north.sessions()] == ["held"], "that it is held")
        t.equal(going.wait(), FAILED, going.output())
        t.contains(going.output(), "asks the other host")
        points.clear()
        harness.wait_until(lambda: hosts.north.sessions() == [] and
                           [row["state"] for row in hosts.south.sessions()] == ["attached"], "that it is there", 60)
        history.put(20)
        history.check(t)


def test_session_goes_while_a_candidate_starts(t):
    with Points() as points, two(north_env=points.env) as hosts:
        _, history = follower(hosts)
        points.arm("standby.hello", STALL)
        asked = builds.begin(hosts.north, builds.Builds(hosts.north).copy("gantryd-next"))
        points.wait_stalled("standby.hello")
        goes_south(t, hosts, history)
        points.clear()
        t.equal(asked.wait(60), 0, asked.output())
        t.equal(builds.version_of(hosts.north), "9.1.0")


def test_host_that_calls_while_nobody_serves_waits_for_the_next_build(t):
    with Points() as points, two(south_env=points.env) as hosts:
        guest, history = follower(hosts)
        points.arm("standby.given", STALL)
        asked = builds.begin(hosts.south, builds.Builds(hosts.south).copy("gantryd-next"))
        points.wait_stalled("standby.given")
        hosts.follow(hosts.south)
        going = begin_migrate(hosts.north, guest.session(), hosts.south.port)
        harness.wait_until(lambda: hosts.migrations(hosts.north), "that it has begun")
        points.clear()
        t.equal(asked.wait(60), 0, asked.output())
        t.equal(going.wait(60), 0, going.output())
        history.put(20)
        history.check(t)


def test_hosts_of_another_build_send_and_take_sessions(t):
    with two() as hosts:
        _, history = follower(hosts)
        for agent in (hosts.north, hosts.south):
            upgraded(t, agent)
        goes_south(t, hosts, history)
        upgraded(t, hosts.south)
        hosts.follow(hosts.north)
        history.put(20)
        t.code(hosts.migrate(hosts.south.sessions()[0]["session_id"], source=hosts.south), 0)
        history.put(20)
        history.check(t)


# --- queues ---

def moved_to(t, agent, made, device, seconds=30):
    harness.wait_until(lambda: made.device() == device, f"the queue is on {device}", seconds)
    made.put(20)
    made.check_history(t)
    t.code(made.move("d1" if device == "d0" else "d0"), 0)
    made.put(20)
    made.check_history(t)
    t.equal(len(agent.sessions()), 1)


def test_queue_that_moves_when_another_build_takes_over_arrives(t):
    with Points() as points, world("windows", env=points.env) as agent:
        made = Mover(agent)
        made.begin_history()
        made.put(50)
        points.arm("move.copy", STALL)
        going = made.start("d1")
        points.wait_stalled("move.copy")
        upgraded(t, agent)
        made.put(50)
        points.clear()
        t.equal(going.wait(), FAILED, going.output())
        t.contains(going.output(), "another agent serves by now")
        moved_to(t, agent, made, "d1")


def test_queue_moves_while_a_candidate_starts(t):
    with Points() as points, world("windows", env=points.env) as agent:
        made = Mover(agent)
        made.begin_history()
        made.put(50)
        points.arm("standby.hello", STALL)
        asked = builds.begin(agent, builds.Builds(agent).copy("gantryd-next"))
        points.wait_stalled("standby.hello")
        t.code(made.move("d1"), 0)
        made.put(50)
        points.clear()
        t.equal(asked.wait(60), 0, asked.output())
        moved_to(t, agent, made, "d1")


def test_queue_that_moves_when_its_worker_is_exchanged_is_somewhere_and_whole(t):
    with builds.OwnWorkerFile() as file, Points() as points, world("windows", env=points.env) as agent:
        made = Mover(agent)
        made.begin_history()
        made.put(50)
        points.arm("move.round", STALL)
        going = made.start("d1")
        points.wait_stalled("move.round")
        file.replace()
        upgraded(t, agent, "--restart-workers")
        points.clear()
        going.wait(60)
        made.put(50)
        made.check_history(t, KILLED)
        moved_to(t, agent, made, made.device())


# --- who waits, and who watches ---

def test_guest_that_waits_for_a_place_waits_on_at_the_next_build(t):
    with harness.Agent(tenants={"red": {"sessions": 1, "on_full": "queue"}}) as agent:
        first = Scripted(agent, "red")
        second = Scripted(agent, "red", opened=False)
        before = builds.fds_of(agent.agent_pid())
        second.start("open timeout_ms 60000")
        # Connected; what it says then is waited for before the agent lets go.
        harness.wait_until(lambda: builds.fds_of(agent.agent_pid()) > before, "that it waits")
        upgraded(t, agent)
        first.ask("close")
        t.true(second.answer().startswith("ok"))
        second.ask("queue q")


def test_guest_that_waits_for_a_place_has_no_longer_than_its_time_out(t):
    with harness.Agent(tenants={"red": {"sessions": 1, "on_full": "queue"}}) as agent:
        _first = Scripted(agent, "red")
        second = Scripted(agent, "red", opened=False)
        before = builds.fds_of(agent.agent_pid())
        second.start("open timeout_ms 4000")
        harness.wait_until(lambda: builds.fds_of(agent.agent_pid()) > before, "that it waits")
        upgraded(t, agent)
        answer = second.answer()
        t.true(answer.startswith("error NO_AGENT ") or answer.startswith("error AGAIN "), answer)


def test_program_that_waits_for_a_session_waits_on_at_the_next_build(t):
    with two() as hosts:
        guest, standby = puppet.Puppet(hosts.north, "red"), puppet.Puppet(
            hosts.south, "red", open_with=None, guest=hosts.south.guest("red", [harness.program("puppet-guest")]))
        key = guest.do("key")[0]
        before = builds.fds_of(hosts.south.agent_pid())
        standby.start(f"adopt {key} 60000")
        harness.wait_until(lambda: builds.fds_of(hosts.south.agent_pid()) > before, "that it waits")
        upgraded(t, hosts.south)
        t.code(hosts.migrate(guest.session), 0)
        t.equal(standby.finish("adopt", 70), [str(guest.session)])


def test_follower_of_events_goes_on_with_the_next_build(t):
    with harness.Agent() as agent:
        follow = harness.Guest([harness.program("gantryctl"), "--socket", agent.admin, "--json", "events", "--follow"])
        harness.wait_until(lambda: events(agent), "an event")
        follow.read_until("{")
        upgraded(t, agent)
        follow.read_until("gantryctl: the agent has ended, or another build takes over")
        seen = []
        while "agent-upgraded" not in seen:
            seen.append(json.loads(follow.read_until("{"))["kind"])
        Scripted(agent, "red")
        while "session-attached" not in seen:
            seen.append(json.loads(follow.read_until("{"))["kind"])
        t.equal(seen.count("agent-upgraded"), 1)


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A slice of the campaign of kills.py, each run with other points; and what single points showed to be wrong."""
import os

import failpoints
import harness
import kills
import lazy_kills
import test_stream
from failpoints import ALWAYS, DIE, FAIL, STALL, Points
from history import KILLED, History
from hosts import Wire, two
from scripted import Scripted, events

BYE = 37  # of proto/stream.h
SEED = int(os.environ.get("GANTRY_SEED", "1"))
ROUNDS = int(os.environ.get("GANTRY_ROUNDS", "4"))


def test_session_between_hosts_survives_what_happens_at_its_failpoints(t):
    t.note(kills.host_rounds(t, ROUNDS, SEED))


def test_lazy_session_survives_what_happens_at_its_failpoints(t):
    t.note(lazy_kills.rounds(t, ROUNDS, SEED))


def test_queue_between_devices_survives_what_happens_at_its_failpoints(t):
    for pair in ("plain", "windows", "mixed"):
        t.note(kills.queue_rounds(t, pair, ROUNDS, SEED))


def test_sessions_survive_what_happens_at_the_failpoints_of_an_upgrade(t):
    t.note(kills.upgrade_rounds(t, ROUNDS, SEED))


def follower(hosts):
    guest = Scripted(hosts.north, "red", env={"GANTRY_DOOR": "stream:" + hosts.front})
    guest.ask("queue q")
    return guest


def test_session_that_arrives_where_no_worker_starts_waits_for_one(t):
    with Points() as points, two(south_env=points.env) as hosts:
        guest = follower(hosts)
        history = History(guest)
        history.put(20)
        # One has said what devices there are; then none starts any more.
        harness.wait_until(lambda: [row for row in hosts.south.workers() if row["state"] == "warm"], "a warm worker")
        points.arm("worker.start", DIE, times=ALWAYS)
        points.arm("attach.wait", FAIL)
        hosts.south.kill_worker(hosts.south.workers()[0]["pid"])
        points.wait_fired("worker.start")
        hosts.follow(hosts.south)
        history.put(20)
        t.code(hosts.migrate(guest.session()), 0)
        points.wait_fired("attach.wait")
        harness.wait_until(lambda: events(hosts.south, "session-waits"), "that it is told")
        t.equal([row["state"] for row in hosts.south.sessions()], ["recovering"])
        t.equal(hosts.north.sessions(), [])
        points.clear()
        harness.wait_until(lambda: hosts.south.sessions()[0]["state"] == "attached", "a worker", 60)
        history.put(20)
        history.check(t)


def test_session_that_arrives_and_is_not_taken_by_its_first_worker_gets_another(t):
    with Points() as points, two(south_env=points.env) as hosts:
        guest = follower(hosts)
        history = History(guest)
        history.put(20)
        points.arm("worker.attach", FAIL, times=2)
        hosts.follow(hosts.south)
        t.code(hosts.migrate(guest.session()), 0)
        points.wait_fired("worker.attach")
        harness.wait_until(lambda: hosts.south.sessions()[0]["state"] == "attached", "a worker", 60)
        t.equal(points.fired("worker.attach"), 2)
        history.put(20)
        history.check(t)


def test_guest_that_comes_back_while_nobody_knows_who_has_its_session_tries_again(t):
    with Points() as north, Points() as south, two(north_env=north.env, south_env=south.env) as hosts:
        guest = follower(hosts)
        history = History(guest)
        history.put(20)
        south.arm("in.commit", STALL)
        north.arm("out.sent", DIE)
        t.code(hosts.migrate(guest.session(), "--no-wait"), 0)
        south.wait_stalled("in.commit")
        north.wait_fired("out.sent")
        hosts.north.wait_ready()
        history.begin(20)
        tried = hosts.proxy.connections
        harness.wait_until(lambda: hosts.proxy.connections > tried + 1, "that it tries the old host's next agent")
        t.equal(events(hosts.north, "session-reconnected"), [])
        south.clear()
        hosts.follow(hosts.south)
        history.end()
        history.put(20)
        history.check(t)


def test_session_that_has_gone_runs_there_only_though_its_agent_died_before_it_let_go(t):
    with Points() as points, two(north_env=points.env) as hosts:
        guest = follower(hosts)
        history = History(guest)
        history.put(20)
        points.arm("out.gone", DIE)
        hosts.follow(hosts.south)
        t.code(hosts.migrate(guest.session(), "--no-wait"), 0)
        points.wait_fired("out.gone")
        hosts.north.wait_ready()
        harness.wait_until(lambda: hosts.north.sessions() == [], "that it is let go")
        t.equal(events(hosts.north, "session-recovered"), [])
        harness.wait_until(lambda: [row["state"] for row in hosts.south.sessions()] == ["attached"], "that it is there")
        history.put(20)
        history.check(t)


def test_session_whose_worker_does_not_start_again_waits_for_one(t):
    with Points() as points, harness.Agent(agent={"warm_workers": 0}, env=points.env) as agent:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        history = History(guest)
        history.put(20)
        points.arm("worker.start", DIE, times=ALWAYS)
        points.arm("attach.wait", FAIL)
        agent.kill_worker(agent.sessions()[0]["worker_pid"])
        points.wait_fired("attach.wait")
        harness.wait_until(lambda: events(agent, "session-waits"), "that it is told")
        points.clear()
        history.put(20)
        history.check(t, KILLED)


def test_session_stands_still_no_longer_than_it_may_for_a_host_that_takes_a_byte_now_and_then(t):
    with Points() as points, two(north={"migration_still": "2s"}, north_env=points.env) as hosts, Wire(hosts.south.port) as wire:
        guest = follower(hosts)
        history = History(guest)
        history.put(20)
        points.arm("send.rest", STALL)
        t.code(hosts.migrate(guest.session(), "--no-wait", to=f"127.0.0.1:{wire.port}"), 0)
        points.wait_stalled("send.rest")
        wire.trickles = True
        points.clear()
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["state"] == "failed", "that it is given up", 60)
        row = hosts.migrations(hosts.north)[0]
        t.equal(row["code"], 124, str(row))
        t.contains(row["text"], "(migration_still); the session stays here")
        history.put(20)
        history.check(t)
        wire.trickles = False
        harness.wait_until(lambda: not hosts.south.sessions(), "that the other host lets go")


def test_guest_that_never_had_a_worker_is_told_so(t):
    with Points() as points, harness.Agent(agent={"warm_workers": 0}, env=points.env) as agent:
        points.arm("worker.start", DIE, times=ALWAYS)
        points.arm("attach.wait", FAIL)
        guest = Scripted(agent, "red", opened=False)
        t.contains(guest.tell("open"), "no worker became ready in time")
        t.equal(agent.sessions(), [])


def test_goodbye_of_a_guest_is_heard_by_who_was_about_to_tell_it_something(t):
    with Points() as points, test_stream.world(agent={"vsock_grace": "100s"}, env=points.env) as agent:
        peer = test_stream.Peer(agent.vsock)
        peer.attach()
        points.arm("relay.tell", STALL)
        agent.kill_worker(agent.sessions()[0]["worker_pid"])
        points.wait_stalled("relay.tell")
        # By then there is something to tell.
        harness.wait_until(lambda: [row for row in agent.sessions() if row["epoch"] > 1 and row["state"] == "attached"],
                           "another worker")
        peer.say(test_stream.frame(BYE, b""))
        peer.sock.close()
        points.clear()
        harness.wait_until(lambda: not agent.sessions(), "the session's end")


def test_process_that_stands_still_goes_on_when_it_may(t):
    with Points() as points, two(north_env=points.env) as hosts:
        guest = follower(hosts)
        history = History(guest)
        history.put(20)
        points.arm("send.freeze", STALL)
        hosts.follow(hosts.south)
        t.code(hosts.migrate(guest.session(), "--no-wait"), 0)
        pid = points.wait_stalled("send.freeze")
        t.contains(harness.command_of(pid), "gantry-mover")
        history.put(20)
        points.clear()
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["state"] == "done", "the end", 60)
        history.put(20)
        history.check(t)


def test_every_failpoint_has_a_row_in_the_page_that_lists_them(t):
    rows = {}
    for line in (harness.SOURCE / "docs" / "failpoints.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            rows[cells[0].strip("`")] = tuple(cells[1:])
    told = {name: (program, kind, what) for name, (_, kind, program, what) in failpoints.table().items()}
    t.equal(rows, told, "docs/failpoints.md against gantryd --failpoints")


if __name__ == "__main__":
    harness.main(globals(), limit_s=120 + 15 * ROUNDS)

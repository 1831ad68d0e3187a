#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queues move between devices of a host while their program runs, by gantryctl; or stay where they are and say why."""
import json

import devices
import harness
from devices import MIB, Mover, world
from failpoints import DIE, FAIL, Points
from scripted import Scripted


def queues_of(agent):
    return agent.ctl_json("queue", "list")["queues"]


def metric(agent, name):
    return next(row["value"] for row in agent.ctl_json("stats")["metrics"] if row["name"] == name)


def test_queue_of_plain_cpus_moves_and_nothing_is_copied(t):
    with world() as agent:
        made = Mover(agent)
        made.begin_history()
        made.put(50)
        for to in ("d1", "d0", "d1"):
            made.put(50)
            t.code(made.move(to), 0)
            t.equal(made.device(), to)
            made.put(20)
        made.check_history(t)
        t.equal(metric(agent, "gantry_migrations_total"), 3)
        t.equal(metric(agent, "gantry_migration_bytes_total"), 0)
        told = [row["kind"] for row in map(json.loads, agent.ctl("--json", "events").out.splitlines())]
        t.equal(told.count("migration-done"), 3)


def test_queue_with_memory_of_its_own_moves_with_what_it_owns(t):
    with world("windows") as agent:
        made = Mover(agent)
        size = 48 * MIB
        made.guest.ask(f"buffer b {size} device")
        made.guest.ask(f"random b {size} 7", 60)
        wanted = made.guest.ask(f"expect {size} 7", 60)
        t.equal(made.guest.ask(f"sum q b {size}", 60), wanted)
        plan = agent.ctl_json("queue", "migrate", made.name, "--to", "d1", "--dry-run")["migration"]
        t.equal((plan["state"], plan["owned_bytes"], made.device()), ("possible", plan["owned_bytes"], "d0"))
        t.true(plan["owned_bytes"] >= size, f"owned: {plan}")
        moved = agent.ctl_json("queue", "migrate", made.name, "--to", "d1")["migration"]
        t.equal((moved["state"], moved["from"], moved["to"]), ("done", "d0", "d1"))
        t.equal(moved["page_bytes"], moved["owned_bytes"], "an idle queue's bytes are copied once")
        t.equal(made.guest.ask(f"sum q b {size}", 60), wanted)
        t.equal(made.device(), "d1")

        def follows():
            used = {row["name"]: row["mem_used"] for row in agent.ctl_json("device", "list")["devices"]}
            return used["d1"] >= size and used["d0"] < MIB
        harness.wait_until(follows, "memory follows")


def test_show_and_trace_tell_the_steps(t):
    with world("windows") as agent:
        made = Mover(agent)
        made.begin_history()
        made.put(5)
        t.code(made.move("d1"), 0)
        row = made.migrations()[-1]
        t.equal(row["over"], True)
        shown = agent.ctl("migration", "show", str(row["migration_id"]))
        t.code(shown, 0)
        t.contains(shown.out, "adopt")
        trace = json.loads(agent.ctl("migration", "show", str(row["migration_id"]), "--trace").out)
        spans = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
        t.equal(spans[-1], "done")
        t.true("precopy" in spans, f"spans: {spans}")
        made.check_history(t)


def test_lazy_queue_goes_at_once_and_pulls(t):
    with world("windows") as agent:
        made = Mover(agent)
        made.guest.ask(f"buffer b {16 * MIB} device")
        made.guest.ask(f"random b {16 * MIB} 3", 60)
        wanted = made.guest.ask(f"sum q b {16 * MIB}", 60)
        moved = agent.ctl_json("queue", "migrate", made.name, "--to", "d1", "--lazy")["migration"]
        t.equal([moved["page_bytes"], moved["lazy"]], [0, True])
        made.guest.ask(f"buffer c {4 * MIB} device")  # made where the queue is: nothing of it has to move
        t.equal(made.guest.ask(f"sum q b {16 * MIB}", 60), wanted)
        made.guest.ask(f"pattern q t c 0 {4 * MIB} 5")
        pulled(t, agent, made, 16 * MIB, 16 * MIB)
        metrics = {m["name"]: m["value"] for m in agent.ctl_json("stats")["metrics"]}
        t.equal(metrics["gantry_migration_pulled_bytes_total"], 16 * MIB)


def pulled(t, agent, made, moved, touched):
    harness.wait_until(lambda: made.migrations()[-1]["pulled_bytes"] >= moved, "that it is counted")
    row = made.migrations()[-1]
    t.equal([row["pulled_bytes"], row["touched_bytes"]], [moved, touched])


def test_lazy_queue_that_uses_parts_shows_how_much_was_moved_for_them(t):
    for name in ("windows", "plain"):
        with world(name) as agent:
            made = Mover(agent)
            made.guest.ask(f"buffer b {8 * MIB} device")
            made.guest.ask(f"buffer c {2 * MIB} device")
            for buffer, size in (("b", 8), ("c", 2)):
                made.guest.ask(f"random {buffer} {size * MIB} 3", 60)
                made.guest.ask(f"sum q {buffer} {size * MIB}", 60)
            t.code(made.move("d1", "--lazy"), 0)
            made.guest.ask(f"sum q b {64 * 1024}", 60)
            made.guest.ask(f"sum q b {8 * MIB}", 60)  # it is there
            t.equal(made.device(), "d1")
            pulled(t, agent, made, *((8 * MIB, 64 * 1024) if name == "windows" else (0, 0)))
            t.code(made.move("d0"), 0)
            made.guest.ask(f"sum q c {2 * MIB}", 60)
            t.equal([row["pulled_bytes"] for row in made.migrations()], [8 * MIB if name == "windows" else 0, 0])


def test_bad_requests_leave_the_queue_and_say_why(t):
    with world(more={"other": devices.PLAIN}, tenant={"devices": "d0 d1"},
               tenants={"blue": {"devices": "other"}}) as agent:
        made = Mover(agent)
        for words, code, text in (
                ((made.name, "--to", "gpu7"), 3, "no device gpu7"),
                ((made.name, "--to", "gpu7:1"), 3, "no device gpu7:1"),
                ((made.name, "--to", "d1:1"), 3, "has no lane 1, but 0 to 0"),
                ((made.name, "--to", "d1:64"), 2, "no lane"),
                ((made.name, "--to", "d1:one"), 2, "DEVICE:LANE"),
                ((f"{made.session}:0", "--to", "d1"), 2, "queue 0"),
                ((f"{made.session}:60", "--to", "d1"), 3, "no queue 60"),
                ((f"{made.session}:4000000000", "--to", "d1"), 3, "no queue"),
                ((f"{made.session + 99}:1", "--to", "d1"), 3, "no session"),
                (("nonsense", "--to", "d1"), 2, "SESSION:SLOT"),
                ((made.name,), 2, "--to"),
                ((made.name, "--to", "other"), 8, "may not use"),
                ((made.name, "--to", "d0"), 7, "already")):
            ended = agent.ctl("queue", "migrate", *words)
            t.code(ended, code, " ".join(words))
            t.contains(ended.err, text, " ".join(words))
            t.equal(made.device(), "d0")
        t.code(agent.ctl("migration", "cancel", "999"), 3)
        t.code(agent.ctl("migration", "show", "999"), 3)
        t.code(agent.ctl("migration", "cancel", "x"), 2)
        t.code(agent.ctl("device", "disable", "d1"), 0)
        ended = made.move("d1")
        t.code(ended, 8)
        t.contains(ended.err, "not in service")
        made.begin_history()
        made.put(5)
        made.check_history(t)


def test_queue_goes_from_lane_to_lane_and_keeps_it(t):
    wide = {"backend": "cpu", "cores": 4, "mem": "1G"}
    with world(more={"d0": wide, "d1": wide}) as agent:
        made = Mover(agent)

        def lane():
            return agent.ctl_json("queue", "show", made.name)["queue"]["lane"]
        t.equal(lane(), None)
        made.begin_history()
        made.put(20)
        plan = agent.ctl_json("queue", "migrate", made.name, "--to", "d0:2", "--dry-run")["migration"]
        t.equal((plan["state"], plan["from"], plan["to"], lane()), ("possible", "d0", "d0:2", None))
        for to in ("d0:2", "d0:0", "d1:3", "d1:1"):
            made.put(50)
            t.code(made.move(to), 0, to)
            t.equal((made.device(), lane()), (to[:2], int(to[3:])))
            made.put(50)
        t.equal([(row["from"], row["to"], row["state"]) for row in made.migrations() if not row["dry_run"]],
                [("d0", "d0:2", "done"), ("d0:2", "d0:0", "done"), ("d0:0", "d1:3", "done"), ("d1:3", "d1:1", "done")])
        ended = made.move("d1:1")
        t.code(ended, 7)
        t.contains(ended.err, "keeps lane 1")
        t.contains(agent.ctl("queue", "list").out, "LANE")
        # Another worker takes the same lane; without a lane in the words it may take any.
        agent.kill_worker(devices.worker_of(agent, made.guest))
        made.put(20)
        made.check_history(t, devices.KILLED)
        t.equal(lane(), 1)
        t.code(made.move("d1"), 0)
        t.equal((made.device(), lane()), ("d1", None))
        made.put(20)
        made.check_history(t, devices.KILLED)


def test_queue_keeps_the_lane_it_was_sent_to_though_the_agent_dies(t):
    wide = {"backend": "cpu", "cores": 4, "mem": "1G"}
    with Points() as points, world(more={"d0": wide, "d1": wide}, env=points.env) as agent:
        made = Mover(agent)

        def lane():
            return agent.ctl_json("queue", "show", made.name)["queue"]["lane"]
        made.begin_history()
        made.put(5)
        points.arm("queue.told", DIE)
        t.true(made.move("d1:3").code != 0, "the agent died before it knew")
        agent.wait_ready()
        harness.wait_until(lambda: made.device() == "d1", "the queue has arrived", 60)
        t.equal(lane(), 3)
        made.put(5)
        made.check_history(t)


def test_queue_that_is_called_back_keeps_its_lane(t):
    wide = {"backend": "cpu", "cores": 4, "mem": "1G"}
    with Points() as points, world(more={"d0": wide, "d1": wide}, env=points.env) as agent:
        made = Mover(agent)

        def lane():
            return agent.ctl_json("queue", "show", made.name)["queue"]["lane"]
        made.begin_history()
        t.code(made.move("d0:2"), 0)
        points.arm("move.release", FAIL)
        t.true(made.move("d1:3").code != 0, "called off")
        t.equal((made.device(), lane()), ("d0", 2))
        made.put(5)
        made.check_history(t)


def test_no_memory_at_the_destination(t):
    with world("windows", more={"d1": dict(devices.WINDOW, mem="8M")}) as agent:
        made = Mover(agent)
        made.guest.ask(f"buffer b {32 * MIB} device")
        made.guest.ask(f"pattern q t b 0 {32 * MIB} 5")
        wanted = made.guest.ask(f"sum q b {32 * MIB}", 60)
        for options in (["--dry-run"], [], ["--lazy", "--dry-run"], ["--lazy"]):
            ended = made.move("d1", *options)
            t.code(ended, 6, str(options))
            t.contains(ended.err, "MiB left")
        t.equal(made.device(), "d0")
        t.equal(made.guest.ask(f"sum q b {32 * MIB}", 60), wanted)


def test_kernel_missing_at_the_destination(t):
    with world(more={"d1": {"backend": "null", "cores": None, "mem": None}}) as agent:
        made = Mover(agent)
        made.guest.ask("run q t spin 3 1000")
        made.guest.ask("wait t 10000")
        ended = made.move("d1")
        t.code(ended, 8)
        t.contains(ended.err, "spin")
        t.equal(made.device(), "d0")


def test_queue_is_not_held_by_what_a_closed_one_used(t):
    with world(more={"d1": {"backend": "null", "cores": None, "mem": None}}) as agent:
        made = Mover(agent)
        made.guest.ask("run q t spin 3 1000")
        made.guest.ask("wait t 10000")
        made.guest.ask("close_queue q")
        # It has the closed one's place once that is free.
        harness.wait_until(lambda: not made.queues(), "the queue is closed")
        made.guest.ask("queue q")
        t.equal(list(made.queues()), [made.name])
        t.code(made.move(made.elsewhere()), 0)


def test_queue_follows_a_kernel_that_its_device_lacks(t):
    with world(more={"d0": {"backend": "null", "cores": None, "mem": None}}) as agent:
        made = Mover(agent)
        t.equal(made.device(), "d0")
        made.guest.ask("run q t spin 200 1000")
        t.equal(made.guest.ask("ends t 200", 60), "OK=200")
        t.equal(made.device(), "d1")


def test_cancel_while_a_task_runs_and_a_second_migration(t):
    with world() as agent:
        made = Mover(agent)
        made.guest.ask("run q long spin 1 8000000000")  # of processor time
        harness.wait_until(lambda: agent.ctl_json("queue", "show", made.name)["queue"]["issued"] >= 1, "it runs")
        going = made.start("d1")
        harness.wait_until(lambda: made.migrations() and made.migrations()[-1]["state"] in ("orphan", "drain"),
                           "it waits for the task")
        ended = made.move("d1")
        t.code(ended, 7, "a second migration")
        t.code(agent.ctl("migration", "cancel", str(made.migrations()[-1]["migration_id"])), 0)
        # The thread of a cpu device sees that when its task has ended.
        made.guest.ask("wait long 240000", 250)
        t.equal(going.wait(), 1)
        t.contains(going.output(), "cancelled")
        t.equal((made.device(), made.migrations()[-1]["state"]), ("d0", "cancelled"))
        made.begin_history()
        made.put(5)
        made.check_history(t)
        t.code(agent.ctl("migration", "cancel", str(made.migrations()[-1]["migration_id"])), 1, "it is over")


def test_drained_device_is_left_by_its_queues_while_they_run(t):
    with world("windows") as agent:
        movers = [Mover(agent) for _ in range(2)]
        for made in movers:
            made.begin_history()
            made.put(50)
        t.code(agent.ctl("device", "drain", "d0"), 0)
        for made in movers:
            made.put(50)
            harness.wait_until(lambda m=made: m.device() == "d1", "it has left d0")
            made.check_history(t)
        whys = {row["why"] for row in movers[0].migrations()}
        t.equal(whys, {"drain"})
        t.code(agent.ctl("device", "enable", "d0"), 0)
        t.code(movers[0].move("d0"), 0)


def test_program_that_ends_while_its_queue_moves(t):
    with world("windows") as agent:
        for number in range(4):
            made = Mover(agent)
            made.guest.ask(f"buffer b {32 * MIB} device")
            made.guest.ask(f"sum q b {32 * MIB}", 60)
            going = made.start("d1")
            if number % 2:
                made.guest.ask("close_queue q")
            made.guest.kill()
            going.wait()
        harness.wait_until(lambda: not agent.sessions(), "the sessions end")
        harness.wait_until(lambda: all(row["mem_used"] == 0 for row in agent.ctl_json("device", "list")["devices"]),
                           "all memory is back", 30)
        t.true(Scripted(agent, "red").ask("id"))


def test_worker_or_agent_killed_while_queues_move(t):
    devices.kill_rounds(t, "windows", 4, seed=1)


def test_worker_or_agent_killed_while_queues_of_plain_cpus_move(t):
    devices.kill_rounds(t, "plain", 4, seed=2)


def test_worker_killed_while_queues_move_between_unlike_memories(t):
    devices.kill_rounds(t, "mixed", 4, seed=3, victims=("worker",))


if __name__ == "__main__":
    harness.main(globals(), 120)

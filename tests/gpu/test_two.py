#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One host with two GPUs, or one that is two devices: queues on each, copies between them, and what happens to a session that uses both."""
import json
import sys
import time

import gpu
import harness
from gpu import MIB


def two(mode="isolated", tenants=None, **options):
    return gpu.world(tenants=tenants, count=2, mode=mode, **options)


def on_both(agent, tenant="red"):
    made = gpu.guest(agent, tenant, queue=False)
    made.ask("queue q0 0 1")
    made.ask("queue q1 0 2")
    return made


def rows(agent):
    return {row["name"]: row for row in agent.ctl_json("device", "list")["devices"]}


def test_queue_with_a_mask_runs_on_that_device(t):
    with two() as agent:
        made = on_both(agent)
        made.ask("run q1 t spin 20 2000000")
        made.ask("wait t 60000")
        seen = rows(agent)
        # On a GPU a task counts by the part of the processors that it fills: how much that is differs.
        t.true(seen["gpu1"]["device_ns"] > 0, "gpu1 worked")
        t.below(seen["gpu0"]["device_ns"], seen["gpu1"]["device_ns"] / 4, "ns that gpu0 worked")


def test_two_devices_work_at_the_same_time(t):
    with two(apart=True) as agent:
        made = on_both(agent)
        for queue in ("q0", "q1"):
            made.ask(f"run {queue} warm{queue} spin 1 1000")
            made.ask(f"wait warm{queue} 60000")
        start = time.monotonic()
        for queue in ("q0", "q1"):
            made.ask(f"run {queue} t{queue} spin 100 5000000")
        for queue in ("q0", "q1"):
            made.ask(f"wait t{queue} 60000")
        elapsed = time.monotonic() - start
        gpu.figure("two_devices_half_second_each", elapsed, "s")
        if gpu.REAL:
            t.below(elapsed, 0.9, "seconds for half a second of work on each")


def test_buffer_written_on_one_device_is_read_on_the_other(t):
    size = gpu.BIG // 8
    with two() as agent:
        made = on_both(agent)
        made.ask(f"buffer b {size} device")
        made.ask(f"random b {size} 4", timeout=60)
        wanted = made.ask(f"expect {size} 4", timeout=60)
        for round_number in range(3):
            for queue in ("q0", "q1"):
                t.equal(made.ask(f"sum {queue} b {size}", timeout=60), wanted, f"round {round_number}, {queue}")
            made.ask(f"pattern q{round_number % 2} t b 0 8 {round_number}")
            made.ask("wait t 30000")
            made.ask(f"random b {size} 4", timeout=60)


def test_copies_between_devices_arrive_whole(t):
    size = gpu.BIG // 4
    with two() as agent:
        made = on_both(agent)
        for name, queue, word in (("a", "q0", 11), ("b", "q1", 22)):
            made.ask(f"buffer {name} {size} device")
            made.ask(f"pattern {queue} t{name} {name} 0 {size} {word}")
            made.ask(f"wait t{name} 60000", timeout=70)
        made.ask(f"random a {size} 8", timeout=60)
        start = time.monotonic()
        made.ask(f"copy q1 t b 0 a 0 {size}")
        made.ask("wait t 60000", timeout=70)
        gpu.figure("peer_copy", size / (time.monotonic() - start) / 1e9, "GB/s")
        wanted = made.ask(f"expect {size} 8", timeout=60)
        t.equal(made.ask(f"sum q1 b {size}", timeout=60), wanted, "on the device it was copied to")
        t.equal(made.ask(f"sum q0 b {size}", timeout=60), wanted, "on the other")


def test_worker_killed_with_memory_on_both_devices(t):
    size = gpu.BIG // 4
    with two() as agent:
        made = on_both(agent)
        for name, queue, seed in (("a", "q0", 1), ("b", "q1", 2)):
            made.ask(f"buffer {name} {size} device")
            made.ask(f"random {name} {size} {seed}", timeout=60)
            t.equal(made.ask(f"sum {queue} {name} {size}", timeout=60), made.ask(f"expect {size} {seed}", timeout=60))
        for queue in ("q0", "q1"):
            made.ask(f"run {queue} t{queue} spin 40 5000000")
        agent.kill_worker(gpu.worker_of(agent, made))
        for queue in ("q0", "q1"):
            ended = gpu.ends(made, f"t{queue}", 40)
            t.equal(set(ended) - {"OK", "IN_DOUBT"}, set(), f"{queue}: {ended}")
            t.equal(sum(ended.values()), 40, f"{queue}: tasks accounted for")
        for name, queue, seed in (("a", "q0", 1), ("b", "q1", 2)):
            t.equal(made.ask(f"sum {queue} {name} {size}", timeout=60), made.ask(f"expect {size} {seed}", timeout=60),
                    f"contents of {name}")


def test_fault_on_one_device_leaves_tenants_of_the_other_alone(t):
    with two(tenants={"red": {"devices": "gpu0"}, "blue": {"devices": "gpu1"}}) as agent:
        other = gpu.neighbour(agent, "blue")
        culprit = gpu.guest(agent, "red")
        gpu.misbehave(culprit, "crash", "bad")
        culprit.refused("wait bad 60000", "DEVICE_FAULT", 90)
        pause = gpu.unharmed(t, other)
        gpu.figure("pause_other_device", pause / 1e9, "s")
        t.equal(gpu.session_of(agent, other)["worker_restarts"], 0, "restarts of the worker on the other device")


def test_drained_device_hands_its_queues_to_the_other(t):
    with two() as agent:
        made = gpu.guest(agent)
        made.ask(f"buffer b {8 * MIB} device")
        made.ask(f"random b {8 * MIB} 6")
        wanted = made.ask(f"expect {8 * MIB} 6")
        for name in ("gpu0", "gpu1"):
            t.code(agent.ctl("device", "drain", name), 0)
            t.equal(made.ask(f"sum q b {8 * MIB}", timeout=60), wanted, f"while {name} is drained")
            t.code(agent.ctl("device", "enable", name), 0)


# --- queues that move ----------------------------------------------------------------------------------------

class Mover:
    """A guest with a queue q that owns a buffer b of random contents, and gantryctl."""

    def __init__(self, agent, size, seed=7):
        self.agent, self.size = agent, size
        self.guest = gpu.guest(agent)
        self.guest.ask(f"buffer b {size} device")
        self.guest.ask(f"random b {size} {seed}", timeout=60)
        self.wanted = self.guest.ask(f"expect {size} {seed}", timeout=60)
        self.session = gpu.session_of(agent, self.guest)["session_id"]
        self.name = f"{self.session}:{self.queues()[0]['slot']}"
        self.ask_sum()

    def ask_sum(self):
        return self.guest.ask(f"sum q b {self.size}", timeout=60)

    def queues(self):
        return self.agent.ctl_json("queue", "list", "--session", str(self.session))["queues"]

    def device(self):
        return self.queues()[0]["device"]

    def elsewhere(self):
        return "gpu1" if self.device() == "gpu0" else "gpu0"

    def move(self, *options, to=None, name=None):
        """What gantryctl says of it; a refusal as it ended."""
        to = to or self.elsewhere()
        ended = self.agent.ctl("--json", "queue", "migrate", name or self.name, "--to", to, *options)
        return json.loads(ended.out) if ended.code == 0 else ended


def test_queue_goes_to_the_other_gpu_and_takes_its_bytes_along(t):
    size = gpu.BIG
    with two() as agent:
        made = Mover(agent, size)
        first = made.device()
        plan = made.move("--dry-run")["migration"]
        t.equal((plan["state"], plan["owned_bytes"], made.device()), ("possible", size, first))
        for _ in range(4):
            source, to = made.device(), made.elsewhere()
            moved = made.move()["migration"]
            t.equal((moved["state"], moved["to"], made.device()), ("done", to, to))
            t.equal(moved["page_bytes"], size, "each byte goes once")
            t.equal(made.ask_sum(), made.wanted, f"bytes at {to}")

            def follows(source=source, to=to):
                seen = rows(agent)
                return seen[to]["mem_used"] == size and seen[source]["mem_used"] == 0
            harness.wait_until(follows, "its memory follows", 30)
        gpu.figure("queue_move", moved["elapsed_ns"] / 1e6, "ms")
        gpu.figure("queue_move_pause", moved["downtime_ns"] / 1e6, "ms")

        def clean():
            return not any(row["value"] for row in agent.ctl_json("stats")["metrics"] if row["name"] == "gantry_slab_dirty_bytes")
        harness.wait_until(clean, "what it left is cleared", 30)


def test_queue_that_owns_nearly_all_that_its_tenant_may_have_moves(t):
    size = 2 * gpu.BIG
    with two(tenants={"red": {"mem": f"{size * 9 // 8 // MIB}M"}}) as agent:
        made = Mover(agent, size)
        moved = made.move()["migration"]
        t.equal((moved["state"], moved["page_bytes"]), ("done", size))
        t.equal(made.ask_sum(), made.wanted)


def test_queue_moves_between_gpus_that_cannot_reach_each_other(t):
    if gpu.BACKEND != "fakecuda":
        raise harness.Skip("the fake driver alone has GPUs without a link on demand")
    with two(env={"FAKECUDA_PEERS": "0"}) as agent:
        made = Mover(agent, gpu.BIG // 4)
        for _ in range(2):
            t.equal(made.move()["migration"]["state"], "done")
            t.equal(made.ask_sum(), made.wanted)


def test_queue_with_work_under_way_moves_to_and_fro(t):
    with two() as agent:
        made = gpu.neighbour(agent, "red")
        name = f"{gpu.session_of(agent, made)['session_id']}"
        for number in range(6):
            ended = agent.ctl("queue", "migrate", name, "--to", f"gpu{(number + 1) % 2}")
            t.code(ended, 0, ended.err)
            made.ask("deep check", timeout=90)
        gpu.unharmed(t, made)


def test_all_queues_of_a_session_go_together(t):
    with two() as agent:
        made = Mover(agent, gpu.BIG // 8)
        made.guest.ask("queue other 0 0")
        made.guest.ask("queue bound 0 1")
        name = str(made.session)
        before = [row["device"] for row in made.queues()]  # the library's own is among them
        t.code(made.move(name=name, to="gpu1"), 8, "one of them may use gpu0 only")
        t.equal([row["device"] for row in made.queues()], before, "so none has moved")
        made.guest.ask("close_queue bound")
        number = [row["device"] for row in made.queues()].count("gpu0")
        t.true(number >= 1, f"queues on gpu0: {number}")
        t.equal(len(made.move("--dry-run", name=name, to="gpu1")["migrations"]), number)
        moved = made.move(name=name, to="gpu1")["migrations"]
        t.equal([row["state"] for row in moved], ["done"] * number)
        t.equal({row["device"] for row in made.queues()}, {"gpu1"})
        t.equal(made.ask_sum(), made.wanted)
        t.code(made.move(name=name, to="gpu1"), 7, "they are there")
        t.code(made.move(name=str(made.session + 50), to="gpu1"), 3)
        t.code(made.move(name=name, to="gpu9"), 3)


def test_kernel_of_an_image_runs_where_its_queue_has_gone(t):
    gpu.needs_images()
    with two() as agent:
        made = Mover(agent, 4 * MIB)
        gpu.load(made.guest)
        made.guest.ask("kernel affine probe affine rw:u64*,u64,u64", timeout=60)
        sums = []
        for number in range(3):
            made.guest.ask(f"buffer data{number} 65536 device")
            made.guest.ask(f"pattern q t data{number} 0 65536 3")
            t.equal(made.move()["migration"]["state"], "done", f"move {number}")
            made.guest.ask(f"launch q t affine 1 16 128 0 rw:data{number} u64=8192 u64=5")
            made.guest.ask("wait t 30000", timeout=40)
            sums.append(made.guest.ask(f"sum q data{number} 65536", timeout=40))
        t.equal(set(sums), {sums[0]}, "what it computes on either")


def test_move_that_fails_at_any_step_leaves_the_queue_where_it_was(t):
    points = failpoints()
    with points, two(env=points.env) as agent:
        made = Mover(agent, gpu.BIG // 4)
        for name in ("move.round", "move.copy", "move.release"):
            before = made.device()
            points.arm(name, points.FAIL)
            t.code(made.move(), 1, name)
            t.equal((points.fired(name), made.device()), (1, before), name)
            t.equal(made.ask_sum(), made.wanted, f"bytes after {name}")
            harness.wait_until(lambda at=made.elsewhere(): rows(agent)[at]["mem_used"] == 0, "what was begun is undone", 30)
            t.equal(made.move()["migration"]["state"], "done", f"the next try after {name}")
            t.equal(made.ask_sum(), made.wanted)


def test_steward_that_dies_while_it_makes_room_for_a_move(t):
    points = failpoints()
    with points, two(env=points.env) as agent:
        made = Mover(agent, gpu.BIG // 4)
        for name in ("steward.make", "steward.made"):
            points.arm(name, points.DIE)
            t.equal(made.move()["migration"]["state"], "done", f"its successor makes it: {name}")
            t.equal(made.ask_sum(), made.wanted)


def slabs_on(agent, device):
    """Bytes of sessions' slabs there."""
    return sum(row["value"] for row in agent.ctl_json("stats")["metrics"]
               if row["name"] == "gantry_slab_session_bytes" and f'device="{device}"' in row["labels"])


def test_move_that_is_called_off_gives_slabs_back_that_come_late(t):
    points = failpoints()
    with points, two(env=points.env) as agent:
        made = Mover(agent, 256 * MIB)  # larger than any slab that the pool would keep
        source, to = made.device(), made.elsewhere()
        points.arm("steward.make", points.STALL)
        argv = [harness.program("gantryctl"), "--socket", agent.admin, "queue", "migrate", made.name, "--to", to]
        going = harness.Guest(argv, env=agent.env)
        points.wait_stalled("steward.make")
        harness.wait_until(lambda: agent.ctl_json("migration", "list")["migrations"], "it has begun")
        t.code(agent.ctl("migration", "cancel", "1"), 0)
        t.equal(going.wait(60), 1, "no steward is waited for")
        points.clear()
        harness.wait_until(lambda: slabs_on(agent, to) <= 16 * MIB, "slabs that came are given back", 30)
        t.equal((made.device(), made.ask_sum()), (source, made.wanted))
        t.equal(made.move()["migration"]["state"], "done")


def test_move_that_gets_no_memory_leaves_no_refusals_for_the_next(t):
    points = failpoints()
    with points, two(env=points.env) as agent:
        made = Mover(agent, 48 * MIB)
        for name in ("c", "d", "e"):
            made.guest.ask(f"buffer {name} {48 * MIB} device")
            made.guest.ask(f"pattern q t {name} 0 {48 * MIB} 5")
            made.guest.ask("wait t 60000", timeout=70)
        source, to = made.device(), made.elsewhere()
        points.arm("steward.make", points.FAIL, times=points.ALWAYS)
        t.code(made.move(), 1, "the steward makes nothing")
        t.equal(made.device(), source)
        points.clear()

        harness.wait_until(lambda: slabs_on(agent, to) <= 16 * MIB, "slabs that had come are given back", 30)
        moved = made.move()["migration"]
        t.equal((moved["state"], moved["page_bytes"]), ("done", 4 * 48 * MIB), "the first try afterwards")
        t.equal(made.ask_sum(), made.wanted)


def test_worker_that_dies_at_any_step_of_a_move(t):
    points = failpoints()
    with points, two(env=points.env) as agent:
        made = Mover(agent, gpu.BIG // 4)
        for name in ("move.round", "move.orphan", "move.copy", "move.release", "move.released", "move.adopt", "move.end"):
            points.arm(name, points.DIE)
            made.move()  # there or not: its bytes are whole either way
            t.equal(points.fired(name), 1, name)
            harness.wait_until(lambda: agent.sessions()[0]["state"] == "attached", "a worker", 60)
            t.equal(made.ask_sum(), made.wanted, f"bytes after a death at {name}")

            def one_place(at=made.size):
                return sum(row["mem_used"] for row in rows(agent).values()) == at
            harness.wait_until(one_place, f"memory is charged once after {name}", 30)


def failpoints():
    sys.path.insert(0, str(gpu.HERE.parent / "migration"))
    import failpoints as module  # pylint: disable=import-outside-toplevel

    class Points(module.Points):
        ALWAYS, DIE, FAIL, STALL = module.ALWAYS, module.DIE, module.FAIL, module.STALL
    return Points()


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of CUDA that go from one GPU to another while they run: gantryctl session migrate SESSION --to DEVICE."""
import contextlib
import json
import os
import tempfile
import threading
import time

import gpu
import harness
import test_calls as calls
import test_cuda_guest as cuda_guest
import test_two as two_gpus

failpoints = two_gpus.failpoints


class Program:
    """A guest that works on its device 0 until it is told to end, and checks every result."""

    def __init__(self, agent, program, *args, image=None, tenant="red", folders=()):
        folder = ":".join([cuda_guest.library_folder(), *folders])
        self.agent = agent
        self.folder = tempfile.TemporaryDirectory()
        fifo = os.path.join(self.folder.name, "until")
        os.mkfifo(fifo)
        self.held = os.open(fifo, os.O_RDWR)
        self.guest = agent.guest(tenant, [harness.program(program), image or cuda_guest.image(), fifo, *args],
                                 env={"LD_LIBRARY_PATH": folder})
        self.guest.read_until("working", timeout=gpu.LIMIT_S)
        self.session = gpu.session_of(agent, self.guest)["session_id"]

    def devices(self):
        rows = self.agent.ctl_json("queue", "list", "--session", str(self.session))["queues"]
        return {row["device"] for row in rows if row["slot"]}

    def move(self, to, *options):
        return self.agent.ctl("--json", "session", "migrate", str(self.session), "--to", to, *options)

    def moved(self, t, to, *options):
        ended = self.move(to, *options)
        t.code(ended, 0, ended.err)
        return json.loads(ended.out)["migration"]

    def passed(self, t, part="moves"):
        self.let_go()
        code = self.guest.wait(gpu.LIMIT_S)
        t.equal(self.guest.output().split("\n")[-1], f"ok {part}", self.guest.output())
        t.equal(code, 0, "exit status")

    def let_go(self):
        if self.held is not None:
            os.close(self.held)
        self.held = None

    def close(self):
        self.let_go()
        self.folder.cleanup()


@contextlib.contextmanager
def working(agent, *args, **keys):
    program = Program(agent, "cuda-driver-moves", *args, **keys)
    try:
        yield program
    finally:
        program.close()


@gpu.each_mode(globals(), "isolated", "pooled")
def test_program_goes_to_and_fro_while_it_works(t, mode):
    with two_gpus.two(mode=mode) as agent, working(agent) as program:
        source = program.devices()
        t.equal(len(source), 1, "it works on one device")
        for number in range(4):
            source = program.devices().pop()
            to = "gpu1" if source == "gpu0" else "gpu0"
            plan = program.moved(t, to, "--dry-run")
            t.equal((plan["state"], plan["from"], plan["to"]), ("possible", source, to))
            t.true(plan["owned_bytes"] >= 3 * 65536 * 4, plan)
            moved = program.moved(t, to)
            t.equal((moved["state"], moved["kind"], moved["from"], moved["to"]), ("done", "session", source, to))
            t.true(moved["page_bytes"] >= 3 * 65536 * 4 and moved["downtime_ns"] > 0, moved)
            t.equal(program.devices(), {to}, f"its queues after move {number}")

            def follows(source=source, to=to):
                seen = two_gpus.rows(agent)
                return seen[to]["mem_used"] > 0 and seen[source]["mem_used"] == 0
            harness.wait_until(follows, "its memory follows", 30)
        gpu.figure("session_move_pause", moved["downtime_ns"] / 1e6, "ms")
        gpu.figure("session_move", moved["elapsed_ns"] / 1e6, "ms")
        t.contains(agent.log(), "migration-done")
        t.code(program.move(to), 7, "it is there")
        program.passed(t)
        harness.wait_until(lambda: all(row["mem_used"] == 0 for row in two_gpus.rows(agent).values()), "nothing is left", 30)


def library_world(**options):
    return calls.calls_world(count=2, **options)


def test_program_with_objects_of_libraries_goes_to_and_fro(t):
    with library_world() as agent:
        program = Program(agent, "cuda-library-moves", folders=[calls.forwarding_folder()])
        try:
            for _ in range(3):
                to = "gpu1" if program.devices() == {"gpu0"} else "gpu0"
                moved = program.moved(t, to)
                t.equal((moved["state"], program.devices()), ("done", {to}))
                time.sleep(0.3)  # it works there
            program.passed(t, "products")
        finally:
            program.close()


def test_generator_of_random_numbers_keeps_a_program_where_it_is(t):
    with library_world() as agent:
        program = Program(agent, "cuda-library-moves", "generator", folders=[calls.forwarding_folder()])
        try:
            ended = program.move("gpu1")
            t.code(ended, 8, ended.err)
            t.contains(ended.err, "curandGenerateUniform")
            program.passed(t, "products")
        finally:
            program.close()


def test_communicator_of_nccl_keeps_a_program_where_it_is(t):
    with library_world(tenants={"red": {"communicators": "yes"}}) as agent:
        try:
            program = Program(agent, "cuda-library-moves", "communicator", folders=[calls.forwarding_folder()])
        except harness.Failure as why:
            if gpu.REAL and "none" in str(why):
                raise harness.Skip("this machine has no NCCL (GANTRY_CUDA_LIBRARIES)") from why
            raise
        try:
            before = program.devices()
            for options in (("--dry-run",), ()):
                ended = program.move("gpu1" if before == {"gpu0"} else "gpu0", *options)
                t.code(ended, 8, ended.err)
                t.contains(ended.err, "its program has used ncclCommInitRank: what that left in a library of NVIDIA's cannot be made anew on another device")
            t.equal(program.devices(), before)
            program.passed(t, "products")
        finally:
            program.close()


def worker_dies(t, program, *args, part="products", count=1, told=(), **options):
    """A program that does nothing meanwhile; then it works on with what it had. @told: what gantryctl is told of the tenant before."""
    with calls.calls_world(count=count, **options) as agent:
        if told:
            t.code(agent.ctl("tenant", "set", "red", *told), 0)
        program = Program(agent, program, *args, folders=[calls.forwarding_folder()])
        try:
            for number in range(2):
                agent.kill_worker(agent.sessions()[0]["worker_pid"])
                harness.wait_until(lambda n=number: agent.log().count("session-recovered") == n + 1, "the session", gpu.LIMIT_S)
            program.passed(t, part)
        finally:
            program.close()


@gpu.each_mode(globals(), "isolated", "pooled")
def test_objects_of_libraries_outlive_their_worker_where_the_tenant_wants_it(t, mode):
    worker_dies(t, "cuda-library-moves", "still", mode=mode, tenants={"red": {"recipes": "always"}})


def test_objects_of_libraries_outlive_their_worker_as_gantryctl_was_told(t):
    worker_dies(t, "cuda-library-moves", "still", told=("--recipes", "always"))
    worker_dies(t, "cuda-library-moves", "lost", part="lost", told=("--recipes", "no"), tenants={"red": {"recipes": "always"}})


def test_objects_of_libraries_outlive_their_worker_where_they_could_go_elsewhere(t):
    worker_dies(t, "cuda-library-moves", "still", count=2)


def test_objects_of_libraries_end_with_their_worker_where_nothing_is_written_down(t):
    worker_dies(t, "cuda-library-moves", "lost", part="lost")
    worker_dies(t, "cuda-library-moves", "lost", part="lost", count=2, tenants={"red": {"recipes": "no"}})


def test_objects_of_libraries_end_with_their_worker_where_one_cannot_be_made_anew(t):
    worker_dies(t, "cuda-library-moves", "generator", "lost", part="lost", tenants={"red": {"recipes": "always"}})


def test_program_whose_tenant_has_no_recipes_stays_where_it_is(t):
    with calls.calls_world(count=2, tenants={"red": {"recipes": "no"}}) as agent:
        program = Program(agent, "cuda-library-moves", folders=[calls.forwarding_folder()])
        try:
            ended = program.move("gpu1")
            t.code(ended, 8, ended.err)
            t.contains(ended.err, "recipes = no")
            program.passed(t, "products")
        finally:
            program.close()


def test_what_stays_where_it_is_says_why(t):
    cases = [("variable", "address of a variable"), ("reserved", "reserved addresses"), ("array", "arrays or textures"),
             ("conditions", "graphs with conditions"), ("shared", "processes share"), ("both", "works on devices")]
    with two_gpus.two() as agent:
        for has, why in cases:
            with working(agent, has) as program:
                before = program.devices()
                for options in ((), ("--dry-run",)):
                    ended = program.move("gpu1", *options)
                    t.code(ended, 8, f"{has}: {ended.err}")
                    t.contains(ended.err, why, has)
                t.equal(program.devices(), before, has)
                program.passed(t)


def reason(agent):
    """Of the latest migration: its state, and what it says."""
    latest = agent.ctl_json("migration", "list")["migrations"][-1:]
    return (latest[0]["state"], latest[0]["text"]) if latest else ("", "")


@contextlib.contextmanager
def waiting(t, agent, program, to):
    """A move that waits for a kernel; the command's outcome is in what this gives, once it has ended."""
    outcome = []
    command = threading.Thread(target=lambda: outcome.append(agent.ctl("session", "migrate", str(program.session), "--to", to)))
    command.start()
    try:
        harness.wait_until(lambda: "run for more than 5 s" in reason(agent)[1], "says what it waits for", 30)
        t.equal(reason(agent)[0], "precopy", "holds nothing yet")
        yield outcome
    finally:
        command.join(gpu.LIMIT_S)


def test_move_beside_a_long_kernel_waits_and_can_be_called_back(t):
    with two_gpus.two() as agent, working(agent, "long", gpu.image(gpu.WHOLE)) as program:
        before, worker = program.devices(), gpu.worker_of(agent, program.guest)
        with waiting(t, agent, program, "gpu1") as outcome:
            move = agent.ctl_json("migration", "list")["migrations"][-1]["migration_id"]
            t.contains(agent.ctl("migration", "show", str(move)).out, "its program runs meanwhile")
            t.code(agent.ctl("migration", "cancel", str(move)), 0)
        t.code(outcome[0], 1, "called back")
        t.contains(outcome[0].err, "cancelled")
        t.equal((program.devices(), gpu.worker_of(agent, program.guest)), (before, worker), "where it is, and by whom")
        program.passed(t)


def test_move_beside_a_long_kernel_goes_when_that_has_ended(t):
    with two_gpus.two() as agent, working(agent, "long", gpu.image(gpu.WHOLE)) as program:
        worker = gpu.worker_of(agent, program.guest)
        with waiting(t, agent, program, "gpu1") as outcome:
            pass
        t.code(outcome[0], 0, outcome[0].err)
        t.equal(outcome[0].err.count("waits for a task that has run for more than 5 s"), 1, outcome[0].err)
        moved = agent.ctl_json("migration", "list")["migrations"][-1]
        t.equal((moved["state"], moved["text"]), ("done", ""))
        t.below(moved["downtime_ns"], 5e9, "held for what was left only")
        t.equal((program.devices(), gpu.worker_of(agent, program.guest)), ({"gpu1"}, worker))
        program.passed(t)


def test_program_whose_work_waits_for_what_is_held_goes_on_where_it_is(t):
    with two_gpus.two() as agent, working(agent, "turns", gpu.image(gpu.WHOLE)) as program:
        worker = gpu.worker_of(agent, program.guest)
        before = program.devices()
        ended = program.move("gpu1" if "gpu0" in before else "gpu0")
        t.contains(ended.err, "a task of its program has run for more than 10 s while it was held", "why")
        t.equal((program.devices(), gpu.worker_of(agent, program.guest)), (before, worker), "where it is, and by whom")
        program.passed(t)


def test_words_that_are_wrong(t):
    with two_gpus.two(tenants={"red": {}, "blue": {"devices": "gpu0"}}) as agent:
        with working(agent) as program:
            t.code(agent.ctl("session", "migrate", "999", "--to", "gpu1"), 3, "no such session")
            t.code(program.move("gpu1", "--lazy"), 2, "lazily")
            begun = program.moved(t, "gpu1", "--no-wait")
            t.equal((begun["kind"], begun["to"]), ("session", "gpu1"), "JSON, though nobody waits")
            harness.wait_until(lambda: program.devices() == {"gpu1"}, "it has gone")
            program.moved(t, "gpu0")
            t.code(agent.ctl("session", "migrate", str(program.session), "--to", "gpu1", "--bandwidth", "1M"), 2)
            t.code(agent.ctl("queue", "migrate", f"{program.session}:0", "--to", "gpu1"), 2, "queue 0")
            t.code(agent.ctl("device", "disable", "gpu1"), 0)
            t.code(program.move("gpu1"), 8, "out of service")
            t.code(agent.ctl("device", "enable", "gpu1"), 0)
            program.passed(t)
        with working(agent, tenant="blue") as program:
            ended = program.move("gpu1")
            t.code(ended, 8, "not the tenant's")
            t.contains(ended.err, "may not use")
            program.passed(t)


def test_move_that_fails_at_any_step_leaves_the_program_where_it_was(t):
    points = failpoints()
    with points, two_gpus.two(env=points.env) as agent, working(agent) as program:
        for name in ("move.copy", "move.release"):
            before = program.devices().pop()
            to = "gpu1" if before == "gpu0" else "gpu0"
            points.arm(name, points.FAIL)
            t.code(program.move(to), 1, name)
            t.equal((points.fired(name), program.devices()), (1, {before}), name)
            harness.wait_until(lambda at=to: two_gpus.rows(agent)[at]["mem_used"] == 0, f"what was begun is undone: {name}", 30)
            program.moved(t, to)
        program.passed(t)


def test_worker_that_dies_at_any_step_of_a_move(t):
    points = failpoints()
    with points, two_gpus.two(env=points.env) as agent:
        for name in ("move.begin", "move.orphan", "move.drained", "move.copy", "move.release", "move.released", "move.adopt", "move.end"):
            with working(agent) as program:
                before = program.devices().pop()
                points.arm(name, points.DIE)
                program.move("gpu1" if before == "gpu0" else "gpu0")  # there or not: its bytes are whole either way
                t.equal(points.fired(name), 1, name)
                if name in ("move.begin", "move.orphan"):
                    # What is in flight when a worker dies may be in doubt, and then the program ends: what moves has nothing in flight.
                    points.clear()
                    program.let_go()
                    program.guest.wait(gpu.LIMIT_S)
                    continue
                harness.wait_until(lambda: agent.sessions()[0]["state"] == "attached", f"a worker after {name}", 60)
                points.clear()
                now = program.devices()
                t.equal(len(now), 1, f"all of it is in one place after {name}: {now}")
                t.equal(now == {before}, name not in ("move.released", "move.adopt", "move.end"), f"where it is after {name}")

                def charged_once(at=now.pop()):
                    return all((row["mem_used"] > 0) == (device == at) for device, row in two_gpus.rows(agent).items())
                harness.wait_until(charged_once, f"memory is charged where it is after {name}", 30)
                program.moved(t, "gpu0" if program.devices() == {"gpu1"} else "gpu1")
                program.passed(t)


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

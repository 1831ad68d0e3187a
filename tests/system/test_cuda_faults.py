#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Contexts that fail, on the cuda backend over the fake driver: who gets the fault, and what everybody else loses.

Kernels are those of cuda/faults.manifest. In packed groups the fake driver (FAKECUDA_MPS_GROUP) spreads faults as MPS
does. tests/gpu/test_faults.py does the same on GPUs, with memory and pauses.
"""
import json
import os
import pathlib
import shutil
import signal
import tempfile

import harness
from test_failures import Actor, OK, IN_DOUBT, DEVICE_FAULT, DEADLINE

MS = 1000000
MPS = pathlib.Path(__file__).resolve().parent / "mps" / "nvidia-cuda-mps-control"
BAD = ("gpu_fault", "gpu_trap", "gpu_assert")


def fake(name):
    found = harness.find_in_build(name, lambda path: "fakecuda" in path)
    if not found:
        raise harness.Skip("the build has no fake driver: there was no cuda.h")
    return found


def world(mode="isolated", devices=1, tenants=("red", "blue", "green"), env=None, agent=None, **keys):
    driver = {"backend": "cuda", "mem": "512M", "driver": fake("libcuda.so.1"), "nvml": fake("libnvidia-ml.so.1")}
    tenant = {"isolation": mode, **({"trust_group": "lab"} if mode != "isolated" else {}), **keys}
    return harness.Agent(devices={f"gpu{i}": {**driver, "gpu": i} for i in range(devices)},
                         tenants={name: dict(tenant) for name in tenants}, agent=agent,
                         env={"FAKECUDA_DEVICES": str(devices), "FAKECUDA_MEM": str(1 << 30), **(env or {})})


def guest(agent, name):
    actor = Actor(agent, name, call_timeout_ms=30000)
    actor.do("queue 0")
    for kernel in ("gpu_empty", "gpu_spin", "gpu_again", "gpu_endless") + BAD:
        actor.do(f"find {kernel}")
    actor.do("put 0 gpu_empty")
    actor.statuses(0)
    return actor


def events(agent, kind):
    lines = [json.loads(line) for line in agent.ctl("--json", "events").out.splitlines()]
    return [event for event in lines if event["kind"] == kind]


def metric(agent, name, label=""):
    for sample in agent.ctl_json("stats")["metrics"]:
        if sample["name"] == name and label in json.dumps(sample.get("labels", "")):
            return sample["value"]
    return None


def works(t, actor, what="the session works on"):
    """On a queue of its own, for the tickets of another may hold a failure."""
    actor.do("queue 9")
    actor.do("put 9 gpu_empty 0 20")
    t.equal(actor.statuses(9), {OK: 20}, what)


def test_isolated_culprit_gets_the_fault_and_nobody_else_notices(t):
    with world() as agent:
        red, blue = guest(agent, "red"), guest(agent, "blue")
        for number, bad in enumerate(BAD, 1):
            worker, neighbours = red.worker(), blue.worker()
            blue.do(f"queue {number}")
            blue.do(f"put {number} gpu_spin {5 * MS} 40")
            red.do(f"queue {number}")
            red.do(f"put {number} gpu_empty 0 5")
            t.equal(red.statuses(number), {OK: 5}, "before the fault")
            red.do(f"put {number} {bad}")
            red.do(f"put {number} gpu_empty 0 7")
            ended = red.statuses(number)
            t.equal(ended[DEVICE_FAULT], 1, f"{bad}: the faulting task: {ended}")
            t.equal(sum(ended.values()), 13, f"{bad}: every task has an end: {ended}")
            t.equal(set(ended) - {OK, DEVICE_FAULT, IN_DOUBT}, set(), f"{bad}: how tasks ended: {ended}")
            works(t, red)
            t.true(red.worker() != worker, "a successor serves it")
            t.equal(blue.statuses(number), {OK: 40}, "the neighbour's tasks")
            t.equal((blue.worker(), blue.row()["worker_restarts"]), (neighbours, 0), "the neighbour's worker")
        told = events(agent, "device-fault")
        t.equal([event["tenant"] for event in told], ["red"] * 3, f"events: {told}")
        t.equal(metric(agent, "gantry_context_faults_total"), 3, "faults counted")
        t.equal(metric(agent, "gantry_tenant_context_faults_total", "red"), 3, "of red")
        t.equal(metric(agent, "gantry_tenant_context_faults_total", "blue"), 0, "of blue")
        t.equal(metric(agent, "gantry_device_context_faults_total"), 3, "on the device")


def test_finished_tasks_stay_finished_and_accepted_ones_go_on(t):
    with world(tenants=("red",)) as agent:
        red = guest(agent, "red")
        red.do("queue 1")
        red.do("put 1 gpu_empty 0 300")
        t.equal(red.statuses(1), {OK: 300})
        red.do("put 1 gpu_fault")
        red.do(f"put 1 gpu_spin {MS} 300")  # more than a window: most were never issued
        ended = red.statuses(1)
        t.equal((ended[DEVICE_FAULT], sum(ended.values())), (1, 601), f"{ended}")
        t.true(ended[OK] > 300, f"what was only accepted ran: {ended}")


def behind_a_nap(actor, number, *orders):
    """Tasks of one batch: they are put while one before them runs."""
    actor.do(f"queue {number}")
    actor.do(f"put {number} gpu_spin {MS}")
    actor.statuses(number)
    for order in (f"gpu_spin {100 * MS}",) + orders:
        actor.do(f"put {number} {order}")
    return actor.statuses(number)


def test_launch_that_faults_is_told_from_the_others_of_its_batch(t):
    with world(tenants=("red",)) as agent:
        red = guest(agent, "red")
        for number, bad in enumerate(BAD, 1):
            ended = behind_a_nap(red, number, "gpu_empty 0 5", bad, "gpu_empty 0 7")
            t.equal(ended, {OK: 2 + 5 + 7, DEVICE_FAULT: 1}, f"{bad}: those before have finished, those behind run")
            t.equal(red.do(f"status {number} {2 + 5}"), str(DEVICE_FAULT), "which one it is")


def test_kernel_that_went_well_before_and_may_run_twice_is_found_by_trying_again(t):
    with world(tenants=("red",)) as agent:
        red = guest(agent, "red")
        red.do("find gpu_code_again")
        for number in (1, 2):
            red.do("queue 8")
            red.do("put 8 gpu_code_again 0 5")
            t.equal(red.statuses(8), {OK: 5}, "it goes well")
            ended = behind_a_nap(red, number, "gpu_code_again 0 5", "gpu_code_again 700", "gpu_code_again 0 7")
            t.equal(ended, {OK: 2 + 5 + 7, DEVICE_FAULT: 1}, "the one launch that faults")
            t.equal(red.do(f"status {number} {2 + 5}"), str(DEVICE_FAULT), "which one it is")


def test_kernel_that_went_well_before_and_may_not_run_twice_is_among_those_that_are_told(t):
    with world(tenants=("red",)) as agent:
        red = guest(agent, "red")
        red.do("find gpu_code")
        red.do("queue 8")
        red.do("put 8 gpu_code 0 5")
        t.equal(red.statuses(8), {OK: 5}, "it goes well")
        ended = behind_a_nap(red, 1, "gpu_code 0 5", "gpu_code 700", "gpu_code 0 7")
        t.equal(red.do(f"status 1 {2 + 5}"), str(DEVICE_FAULT), f"the launch that faulted: {ended}")
        t.equal(set(ended), {OK, DEVICE_FAULT}, f"nobody can tell it from others of its batch: {ended}")
        # Once bitten: from now on each launch is told apart.
        red.do("put 8 gpu_code 0 5")
        red.statuses(8)
        ended = behind_a_nap(red, 2, "gpu_code 0 5", "gpu_code 700", "gpu_code 0 7")
        t.equal(ended, {OK: 2 + 5 + 7, DEVICE_FAULT: 1}, "the one launch that faults")


def test_fault_in_one_of_two_queues_is_told_to_its_launch(t):
    with world(tenants=("red",)) as agent:
        red = guest(agent, "red")
        red.do("queue 1")
        red.do("queue 2")
        red.do(f"put 1 gpu_again {50 * MS} 3")
        red.do(f"put 2 gpu_spin {20 * MS}")
        red.do("put 2 gpu_fault")
        ended = red.statuses(1)
        t.equal(ended, {OK: 3}, "the other queue, whose tasks may run twice")
        ended = red.statuses(2)
        t.equal(ended, {OK: 1, DEVICE_FAULT: 1}, "the queue of the fault")


class Packed:
    """A world of packed tenants: a fake MPS control program; the fake driver spreads faults among its clients."""

    def __init__(self, **keys):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-mps-"))
        os.chmod(self.folder, 0o777)
        shutil.copy2(MPS, self.folder / MPS.name)
        try:
            self.agent = world("packed", env={"FAKECUDA_MPS_GROUP": "pipes"},
                               agent={"mps": self.folder / MPS.name, "confine": "no", "worker_user": "none"}, **keys)
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def __enter__(self):
        return self.agent.__enter__()

    def __exit__(self, *what):
        self.agent.__exit__(*what)
        shutil.rmtree(self.folder, ignore_errors=True)


def shared(mode):
    return Packed() if mode == "packed" else world(mode)


def alone_in_flight(t, mode):
    """Nobody else works: there is no doubt whose fault it is. Three such, and the tenant is isolated."""
    with shared(mode) as agent:
        red, blue = guest(agent, "red"), guest(agent, "blue")
        for number in (1, 2, 3):
            red.do(f"queue {number}")
            red.do(f"put {number} gpu_fault")
            t.equal(red.statuses(number), {DEVICE_FAULT: 1}, "the culprit's task")
            works(t, red)
            works(t, blue, "the other member works on")
        harness.wait_until(lambda: events(agent, "tenant-isolated"), "the tenant is isolated")
        t.equal([event["tenant"] for event in events(agent, "tenant-isolated")], ["red"])
        t.equal(metric(agent, "gantry_tenant_context_faults_total", "blue"), 0, "nothing is held against blue")


class LostFile:
    """While it is there, the devices named in it are gone."""

    def __enter__(self):
        handle, self.path = tempfile.mkstemp(prefix="gantry-lost-")
        os.close(handle)
        os.chmod(self.path, 0o644)
        return self.path

    def __exit__(self, *what):
        if os.path.exists(self.path):
            os.unlink(self.path)


def test_pooled_fault_of_the_only_session_at_work_is_its_own(t):
    alone_in_flight(t, "pooled")


def test_packed_fault_of_the_only_session_at_work_is_its_own(t):
    alone_in_flight(t, "packed")


def fault_beside(t, agent, number, actors):
    """One more fault of red's beside others' work. How each of red's, blue's and green's tasks ended."""
    red, blue, green = actors
    for actor, kernel in ((blue, "gpu_again"), (green, "gpu_spin")):
        actor.do(f"queue {number}")
        actor.do(f"put {number} {kernel} {20 * MS} 30")
    red.do(f"queue {number}")
    red.do(f"put {number} gpu_fault")
    ended = [actor.statuses(number) for actor in actors]
    t.true(ended[0] in ({IN_DOUBT: 1}, {DEVICE_FAULT: 1}), f"the culprit's task: {ended[0]}")
    t.equal(ended[1], {OK: 30}, "tasks that may run twice")
    t.equal((sum(ended[2].values()), set(ended[2]) <= {OK, IN_DOUBT}), (30, True), f"tasks that may not: {ended[2]}")
    for actor in actors:
        works(t, actor)
    return ended


def among_others(t, mode):
    """Innocents' tasks run again if they may, and are in doubt if not; a second time shows who it is."""
    with shared(mode) as agent:
        actors = [guest(agent, name) for name in ("red", "blue", "green")]
        # Twice at least; more often where the others had nothing in flight just then, and red was known at once.
        rounds = 0
        while rounds < 5 and (rounds < 2 or not events(agent, "session-apart")):
            rounds += 1
            fault_beside(t, agent, rounds, actors)
        t.true(events(agent, "session-apart"), "suspects get workers of their own")
        # Kept apart since: the next is told to whom it belongs, and hurts nobody.
        ended = fault_beside(t, agent, rounds + 1, actors)
        t.equal(ended[0], {DEVICE_FAULT: 1}, "the culprit is known by now")
        t.equal(ended[2], {OK: 30}, "and its neighbours have no part in it")


def test_pooled_fault_among_others_blames_nobody_until_it_is_known(t):
    among_others(t, "pooled")


def test_packed_fault_among_others_blames_nobody_until_it_is_known(t):
    among_others(t, "packed")


def test_worker_killed_with_a_healthy_kernel_in_flight(t):
    with world() as agent:
        red, blue = guest(agent, "red"), guest(agent, "blue")
        for actor in (red, blue):
            actor.do("queue 1")
            actor.do(f"put 1 gpu_spin {20 * MS} 30")
        agent.kill_worker(red.worker(), signal.SIGKILL)
        ended = red.statuses(1)
        t.equal((sum(ended.values()), set(ended) <= {OK, IN_DOUBT}), (30, True), f"{ended}")
        t.equal(blue.statuses(1), {OK: 30}, "the neighbour's tasks")
        works(t, red)


def test_packed_worker_killed_by_others_takes_contexts_but_no_blame(t):
    with Packed() as agent:
        red, blue = guest(agent, "red"), guest(agent, "blue")
        red.do("queue 1")
        red.do(f"put 1 gpu_spin {500 * MS} 3")
        blue.do("queue 1")
        blue.do(f"put 1 gpu_again {20 * MS} 50")
        red.say("wait 1 40000")
        number = blue.row()["session_id"]
        harness.wait_until(lambda: any(row["session_id"] == number and row["done"] < row["taken"]
                                       for row in agent.ctl_json("queue", "list")["queues"]), "the neighbour's worker is occupied")
        agent.kill_worker(red.worker(), signal.SIGKILL)
        t.true("-200=" not in red.answer(60), "killed, not at fault")
        t.equal(blue.statuses(1), {OK: 50}, "the neighbour's tasks ran, some of them again")
        t.equal([actor.row()["worker_restarts"] for actor in (red, blue)], [1, 1], "none was served by a context that was lost")
        works(t, red)
        works(t, blue)


def test_endless_kernel_ends_at_the_deadline(t):
    with world(deadline="500ms") as agent:
        red, blue = guest(agent, "red"), guest(agent, "blue")
        blue.do("queue 1")
        blue.do(f"put 1 gpu_spin {20 * MS} 60")
        red.do("queue 1")
        red.do("put 1 gpu_endless")
        red.do("put 1 gpu_empty 0 5")
        ended = red.statuses(1)
        t.equal(ended[DEADLINE], 1, f"the endless one: {ended}")
        t.equal(set(ended) - {DEADLINE, OK, IN_DOUBT}, set(), f"those behind it: {ended}")
        t.equal(blue.statuses(1), {OK: 60}, "the neighbour's tasks")
        works(t, red)


def test_gpu_that_falls_off_the_bus_is_failed_and_tells_its_tasks(t):
    with LostFile() as path:
        os.unlink(path)
        with world(env={"FAKECUDA_LOST": path}, tenants=("red",)) as agent:
            red = guest(agent, "red")
            red.do("queue 1")
            red.do(f"put 1 gpu_spin {200 * MS} 3")
            with open(path, "w", encoding="ascii") as file:
                file.write("0\n")
            try:
                answer = str(red.statuses(1))
            except harness.Failure as failure:
                answer = str(failure)
            t.true("its device is gone" in answer, f"what the guest hears: {answer}")
            harness.wait_until(lambda: agent.ctl_json("device", "show", "gpu0")["device"]["state"] == "failed",
                               "the device is shown as failed")
            t.equal(metric(agent, "gantry_tenant_context_faults_total", "red"), 0, "no fault of the tenant's")


def test_gpu_that_is_gone_at_open_is_failed_and_the_other_serves(t):
    with LostFile() as path:
        with open(path, "w", encoding="ascii") as file:
            file.write("1\n")
        with world(devices=2, env={"FAKECUDA_LOST": path}, tenants=("red",)) as agent:
            red = guest(agent, "red")
            works(t, red)
            states = {row["name"]: row["state"] for row in agent.ctl_json("device", "list")["devices"]}
            t.equal(states, {"gpu0": "enabled", "gpu1": "failed"})


if __name__ == "__main__":
    harness.main(globals())

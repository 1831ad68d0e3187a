#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One host with two GPUs: queues on each, copies between them, and what happens to a session that uses both."""
import time

import gpu
import harness
from gpu import MIB


def two(mode="isolated", tenants=None):
    return gpu.world(tenants=tenants, count=2, mode=mode)


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
    with two() as agent:
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


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tenants side by side on one GPU, in each mode; attaching to it; and the agent that comes and goes meanwhile."""
import os
import statistics

import gpu
import harness

TENANTS = ("red", "blue", "green")


def side_by_side(mode, agent=None):
    return gpu.world(tenants={name: {} for name in TENANTS}, mode=mode, agent=agent)


@gpu.each_mode(globals())
def test_three_tenants_work_at_once_and_every_sum_is_right(t, mode):
    with side_by_side(mode) as agent:
        everybody = [gpu.neighbour(agent, name) for name in TENANTS]
        for made in everybody:
            gpu.unharmed(t, made)
        workers = {gpu.worker_of(agent, made) for made in everybody}
        t.equal(len(workers), 1 if mode == "pooled" else 3, f"workers of three sessions, {mode}")
        t.equal({row["mode"] for row in agent.sessions()}, {mode})
        for made in everybody:
            t.equal(gpu.rounds(made.ask("deep stop", timeout=60))["doubt"], 0)


@gpu.each_mode(globals())
def test_device_time_of_each_tenant_is_measured(t, mode):
    with side_by_side(mode) as agent:
        everybody = [gpu.guest(agent, name) for name in TENANTS]
        for made in everybody:
            made.ask("run q t spin 40 2000000")
        for made in everybody:
            made.ask("wait t 60000", timeout=70)
        used = {row["name"]: row["device_ns"] for row in agent.ctl_json("tenant", "list")["tenants"]}
        t.note(used)
        for name in TENANTS:
            # Where three run at once, each is charged a third of the time that they overlap.
            t.true(0.2 * 80e6 < used[name] < 4 * 80e6, f"{name} used {used[name] / 1e6:.1f} ms, 80 were asked for: {used}")


def test_isolated_tenants_have_the_same_window_and_other_memory(t):
    gpu.needs_images()
    with side_by_side("isolated") as agent:
        seen = []
        for name in ("red", "blue"):
            made = gpu.load(gpu.guest(agent, name))
            made.ask("kernel where probe where w:u64*")
            made.ask("buffer b 4096 device")
            made.ask("launch q t where 1 1 1 0 w:b")
            made.ask("wait t 30000")
            seen.append((made, made.ask("word b 0")))
        t.equal(int(seen[0][1]) >> 40, int(seen[1][1]) >> 40, "the window of two sessions")
        seen[0][0].ask("pattern q t b 0 4096 5")
        seen[0][0].ask("wait t 30000")
        t.equal(seen[1][0].ask("count b 4096 5"), "0", "words of one tenant in the other's buffer")


def test_packed_sessions_run_under_mps_of_their_own(t):
    with side_by_side("packed") as agent:
        made = gpu.neighbour(agent, "red")
        told = {row["worker_id"]: row for row in agent.workers()}
        row = told[gpu.session_of(agent, made)["worker_id"]]
        t.equal((row["mode"], row["trust_group"]), ("packed", "lab"))
        servers = [pid for pid in agent.pids() if "mps" in harness.command_of(pid)]
        t.true(servers or not gpu.REAL, "an MPS control daemon or server runs below the agent")
        gpu.unharmed(t, made)


def test_mps_ends_with_the_agent(t):
    with side_by_side("packed") as agent:
        gpu.neighbour(agent, "red")
        pids = [pid for pid in agent.pids() if "mps" in harness.command_of(pid)]
        t.equal(agent.stop(timeout=30), [], "processes that outlived gantryd")
        harness.wait_until(lambda: not [pid for pid in pids if harness.alive(pid)], "MPS has ended", 20)


def attach(agent, name="red"):
    """(ns to attach, ns to the first kernel done), of a fresh program."""
    made = gpu.guest_without_session(agent, name)
    opened, total = made.ask("first empty", timeout=60).split()
    made.ask("close")
    made.process.end()
    return int(opened), int(total)


@gpu.each_mode(globals())
def test_warm_attach_to_the_first_kernel_done(t, mode):
    with gpu.world(mode=mode, agent={"warm_workers": 2}) as agent:
        attach(agent)
        times = []
        for _ in range(8):
            # A steward is ready too, but serves nobody.
            harness.wait_until(lambda: any((w["mode"], w["state"]) in ((mode, "warm"), ("pooled", "busy"))
                                           for w in agent.workers()), "a warm worker of the tenant's kind", 60)
            times.append(attach(agent))
        gpu.figure(f"attach_{mode}_p50", statistics.median(opened for opened, _ in times) / 1e6, "ms")
        gpu.figure(f"attach_to_first_kernel_{mode}_p50", statistics.median(total for _, total in times) / 1e6, "ms")
        gpu.figure(f"attach_to_first_kernel_{mode}_max", max(total for _, total in times) / 1e6, "ms")
        if gpu.REAL:
            t.below(statistics.median(total for _, total in times) / 1e6, 50, "ms from nothing to the first kernel done")


@gpu.each_mode(globals(), "isolated", "packed")
def test_programs_that_come_at_once_find_warm_workers(t, mode):
    with gpu.world(mode=mode, agent={"warm_workers": 3, "warm_packed": 3}) as agent:
        def warm():
            return {row["pid"] for row in agent.workers() if (row["mode"], row["state"]) == (mode, "warm")}
        ready = harness.wait_until(lambda: warm() if len(warm()) == 3 else None, "three warm workers", 60)
        programs = [gpu.guest_without_session(agent) for _ in range(3)]
        for made in programs:
            made.start("first empty")
        times = [[int(word) for word in made.answer(60).split()[1:]] for made in programs]
        t.equal({gpu.worker_of(agent, made) for made in programs}, ready, "who serves them")
        gpu.figure(f"attach_three_at_once_{mode}_max", max(opened for opened, _ in times) / 1e6, "ms")
        gpu.figure(f"attach_three_at_once_to_first_kernel_{mode}_max", max(total for _, total in times) / 1e6, "ms")
        harness.wait_until(lambda: len(warm()) == 3, "three others are warm", 60)


@gpu.each_mode(globals())
def test_agent_killed_and_started_again_with_everybody_at_work(t, mode):
    with side_by_side(mode) as agent:
        everybody = [gpu.neighbour(agent, name) for name in TENANTS]
        before = {row["session_id"]: row["worker_pid"] for row in agent.sessions()}
        for _ in range(2):
            old = agent.agent_pid()
            agent.kill_agent()
            harness.wait_until(lambda old=old: agent.ctl("--timeout", "2s", "version").code == 0 and
                               agent.agent_pid() != old, "another agent answers", 30)
            for made in everybody:
                gpu.unharmed(t, made)
        t.equal({row["session_id"]: row["worker_pid"] for row in agent.sessions()}, before, "sessions and their workers")
        late = gpu.guest(agent, "red")
        late.ask("run q t spin 3 1000")
        late.ask("wait t 30000")


def test_gantryd_leaves_no_process_and_no_device_memory(t):
    memory = gpu.used_bytes()
    with side_by_side("isolated") as agent:
        for name in TENANTS:
            gpu.neighbour(agent, name)
        t.equal(agent.stop(timeout=30), [], "processes that outlived gantryd")
    left = [pid for pid in harness.descendants(os.getpid()) if "gantry" in harness.command_of(pid)]
    t.equal(left, [], "processes")
    if memory:
        harness.wait_until(lambda: all(now <= then + gpu.Leaks.SLACK_BYTES for now, then in
                                       zip(gpu.used_bytes(), memory)), "device memory is free again", 30)


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A hip device over the stand-in for AMD's runtime that works on the CPU: code of sessions, memory that outlives a worker, and a
bad access, at which the runtime ends the process. Where the build has no backend hip, all of it is skipped by name."""
import harness
from scripted import Scripted, honest, still_honest, worker_of

HIP = 3
SLOW_S = 60


def found(name):
    path = harness.find_in_build(name, lambda path: True)
    if not path:
        raise harness.Skip(f"the build has no {name}: backend hip was left out")
    return str(path)


def world(red=None, hip=None):
    """cpu0 and hip0, tenants red and blue."""
    device = {"backend": "hip", "library": found("libamdhip64.so.6"), "mem": "256M", **(hip or {})}
    return harness.Agent(devices={"cpu0": {}, "hip0": device},
                         tenants={"red": {"mem": "64M", **(red or {})}, "blue": {"mem": "64M"}})


def opened(agent, tenant):
    """A guest with a queue on the device, a buffer of two words, 1 and 7, and kernels of its own image."""
    guest = Scripted(agent, tenant)
    guest.ask(f"queue q 0 0 {HIP}")
    guest.ask(f"image own {HIP} {found('probe-fakehip.bundle')}", SLOW_S)
    guest.ask("kernel step own probe_step rw:u32*")
    guest.ask("kernel set own probe_set w:u32*,u32,u64")
    guest.ask("buffer a 4096 device")
    guest.ask(f"fill a 4096 {7 << 32 | 1}")
    return guest


def steps(guest, n):
    for _ in range(n):
        guest.ask("launch q done step 1 1 1 0 rw:a", SLOW_S)
    guest.ask(f"wait done {SLOW_S * 1000}", SLOW_S)


def first(guest, value):
    """Whether the first word is @value, with the second beside it."""
    return int(guest.ask(f"count a 8 {7 << 32 | value}")) == 1


def test_sessions_own_code_runs_and_its_memory_outlives_the_worker(t):
    for keys in ({}, {"memory": "staged"}, {"processes": "beside", "graphs": "no"}):
        with world(hip=keys) as agent:
            guest = opened(agent, "red")
            steps(guest, 3)
            t.true(first(guest, 40), f"three steps, {keys}")
            pid = worker_of(agent, guest)
            agent.kill_worker(pid)
            steps(guest, 1)
            t.true(first(guest, 121), f"the fourth, after the worker's death, {keys}")
            t.true(worker_of(agent, guest) != pid, "another worker")


def test_tenants_of_a_hip_device_are_isolated_whatever_they_are_configured_as(t):
    with world(red={"isolation": "pooled", "trust_group": "lab"}) as agent:
        one, two = opened(agent, "red"), opened(agent, "red")
        t.true(worker_of(agent, one) != worker_of(agent, two), "a worker for each session")


def device_ns(agent):
    return {tenant["name"]: tenant["device_ns"] for tenant in agent.ctl_json("tenant", "list")["tenants"]}


def test_tenants_take_turns_on_the_gpu_by_weight(t):
    # While every worker had work there at once, whatever a runtime makes of that, each of two got a half.
    with world(red={"weight": 300}) as agent:
        guests = [opened(agent, tenant) for tenant in ("red", "blue")]
        for guest in guests:
            guest.ask("buffer big 4194304 device")
            guest.ask("launch q warm set 4 1 1 0 w:big u32=5 u64=1048576", SLOW_S)
            guest.ask(f"wait warm {SLOW_S * 1000}", SLOW_S)
        for guest in guests:
            guest.start("launch q done set 100000 1 1 0 w:big u32=5 u64=1048576")
        ratios = []
        # Others use the machine too, and keep a guest from putting more for a while: who does not ask gets no share.
        while len(ratios) < 6 and not (ratios and 2.5 <= ratios[-1] <= 3.5):
            before = device_ns(agent)
            used = harness.wait_until(lambda before=before: (lambda used: used if sum(used.values()) >= 1e9 else None)(
                {name: ns - before[name] for name, ns in device_ns(agent).items()}), "a second of the GPU")
            ratios.append(used["red"] / used["blue"])
            t.note(f"device time at weights 3:1: {ratios[-1]:.2f}")
        t.true(2.5 <= ratios[-1] <= 3.5, f"device time at weights 3:1: {ratios}")
        for guest in guests:
            guest.kill()


def test_bad_access_ends_its_own_session_s_worker_only(t):
    with world() as agent:
        neighbour = honest(agent)
        beside = opened(agent, "blue")
        guest = opened(agent, "red")
        guest.ask("kernel fault own fault void")
        untouched = worker_of(agent, beside)
        guest.ask("launch q bad fault 1 1 1 0", SLOW_S)
        answer = guest.tell(f"wait bad {SLOW_S * 1000}", SLOW_S)
        t.true(answer.startswith("error"), f"the culprit hears of it: {answer}")
        steps(beside, 3)
        t.true(first(beside, 40), "blue's results")
        t.equal(worker_of(agent, beside), untouched, "blue's worker")
        still_honest(neighbour)


if __name__ == "__main__":
    harness.main(globals())

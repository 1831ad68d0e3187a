# SPDX-License-Identifier: Apache-2.0
"""Backend hip beside backend cuda on one GPU: the same guests and programs, by turns, alone and four tenants at once.

The hip device works over the stand-in for AMD's runtime on NVIDIA's driver (tests/fakehip/cuda.c), so what differs is the backend.
Both have isolated tenants: hip knows no others.
"""
import os
import statistics

from gpu_figures import APPS, CLIENTS, Figure, geometric_mean, together
from gpu_machine import harness
from programs import Commanded, Unable

ROUNDS = 9
MIXES = {"B": ("gaussian",) * 4, "D": ("hotspot",) * 4, "F": ("lavamd",) * 4, "H": ("particle",) * 4,
         "K": ("gaussian", "gaussian", "hotspot", "hotspot"), "P": ("gaussian", "hotspot", "lavamd", "particle")}
TARGET = ("<=", 1.02)


def found(name):
    path = harness.find_in_build(name, os.path.exists)
    if not path:
        raise Unable(f"the build has no {name}: it was made without CUDA's compiler or headers")
    return path


def agent_of(bench):
    """cuda0 and hip0 are the same GPU; tenants c0 to c3 have the one, h0 to h3 the other."""
    devices = {
        "cuda0": {"backend": "cuda", "gpu": "0", "driver": bench.driver, "cores": None, "mem": None},
        "hip0": {"backend": "hip", "gpu": "0", "library": found("libamdhip64-cuda.so.6"), "cores": None, "mem": "48G"},
    }
    tenants = {f"{kind[0]}{i}": {"isolation": "isolated", "devices": device}
               for kind, device in (("cuda", "cuda0"), ("hip", "hip0")) for i in range(CLIENTS)}
    env = {"HIPCUDA_DRIVER": bench.driver} if bench.driver else None  # what the workers' stand-in loads
    return bench.agent(tenants, devices=devices, env=env)


def guest(bench, agent, tenant, kind, image):
    env = {"BENCH_GPU_KIND": kind}
    program = Commanded(agent.guest(tenant, [harness.program("bench-gpu-guest")], env=env))
    program.opened = program.ask("open", image)
    for name in APPS:
        program.ask("prepare", name, bench.scale)
        program.ask("run", name)
    return program


def by_turns(both, turn):
    """What one leaves behind (memory that is cleared and given back) the next has beside it: each comes first as often."""
    return both if turn % 2 == 0 else both[::-1]


def alone(cuda, hip):
    """Ratios of medians by program, taken by turns; the results are compared."""
    ratios = {}
    for name in APPS:
        took = {cuda: [], hip: []}
        sums = set()
        for turn in range(ROUNDS):
            for program in by_turns((cuda, hip), turn):
                answer = program.ask("run", name)
                took[program].append(answer["ns"])
                sums.add(answer["checksum"])
        if len(sums) > 1:
            raise Unable(f"{name}: hip has other results than cuda")
        ratios[name] = tuple(statistics.median(times) for times in (took[cuda], took[hip]))
    return ratios


def mixed(sides):
    """What each mix takes, from the common start to the last end, by turns."""
    took = {}
    for letter, mix in MIXES.items():
        times = ([], [])
        for turn in range(ROUNDS):
            for side, clients in by_turns(tuple(zip(times, sides)), turn):
                answers, at = together(clients, lambda i, at, mix=mix: ("run", mix[i], at), after_ms=50)
                side.append(max(answer["end_ns"] for answer in answers) - at)
        took[letter] = tuple(statistics.median(side) for side in times)
    return took


def figures(prefix, took, what):
    for name, (cuda, hip) in took.items():
        yield Figure(f"{prefix}_{name}", hip / cuda, "", f"{what}: hip {hip / 1e6:.2f} ms over cuda {cuda / 1e6:.2f} ms")


def hip_over_cuda(bench):
    images = {"cuda": bench.image, "hip": bench.hip_image or found("bench-gpu-hip.bundle")}
    with agent_of(bench) as agent:
        sides = [[guest(bench, agent, f"{kind[0]}{i}", kind, images[kind]) for i in range(CLIENTS)]
                 for kind in ("cuda", "hip")]
        apart = alone(sides[0][0], sides[1][0])
        yield from figures("hip_app", apart, "alone")
        together_took = mixed(sides)
        yield from figures("hip_mix", together_took, "four tenants at once")
    ratios = [[hip / cuda for cuda, hip in took.values()] for took in (apart, together_took)]
    yield Figure("hip_apps_alone", geometric_mean(ratios[0]), "", "geometric mean over cuda, nine programs alone")
    yield Figure("hip_apps_shared", geometric_mean(ratios[1]), "", "geometric mean over cuda, six mixes of four tenants")
    yield Figure("hip_apps_overhead", geometric_mean(ratios[0] + ratios[1]), "", "geometric mean over cuda, all of them", TARGET)

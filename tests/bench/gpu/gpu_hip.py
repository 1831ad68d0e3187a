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

# Of each figure: rounds at least, until each side has run for so long, and rounds at most.
LEAST, ENOUGH_NS, MOST = 8, 600_000_000, 200
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


def rounds(sides, run):
    """Rounds of both sides, until each has run for long enough, as short ones differ more: what @run says that it took, by side.

    What one leaves behind (memory that is cleared and given back) the next has beside it: each comes first as often.
    """
    took = ([], [])
    for turn in range(MOST):
        if turn >= LEAST and min(map(sum, took)) >= ENOUGH_NS:
            break
        order = (turn + turn // CLIENTS) % 2
        for side in (order, 1 - order):
            took[side].append(run(sides[side], turn))
    return took


def by_client(times):
    """The mean of clients' medians: a process keeps the luck that it had with its pages and processors."""
    return statistics.mean(statistics.median(times[i::CLIENTS]) for i in range(CLIENTS))


def alone(sides):
    """What each program takes by itself, with one client after the other; the results are compared."""
    took = {}
    for name in APPS:
        sums = set()

        def run(side, turn, name=name, sums=sums):
            answer = side[turn % CLIENTS].ask("run", name)
            sums.add(answer["checksum"])
            return answer["ns"]

        took[name] = tuple(by_client(times) for times in rounds(sides, run))
        if len(sums) > 1:
            raise Unable(f"{name}: hip has other results than cuda")
    return took


def mixed(sides):
    """What each mix takes, from the common start to the last end."""
    def run(side, mix):
        answers, at = together(side, lambda i, at: ("run", mix[i], at), after_ms=20)
        return max(answer["end_ns"] for answer in answers) - at

    return {letter: tuple(statistics.median(times) for times in rounds(sides, lambda side, _, mix=mix: run(side, mix)))
            for letter, mix in MIXES.items()}


def figures(prefix, took, what):
    for name, (cuda, hip) in took.items():
        yield Figure(f"{prefix}_{name}", hip / cuda, "", f"{what}: hip {hip / 1e6:.2f} ms over cuda {cuda / 1e6:.2f} ms")


def hip_over_cuda(bench):
    images = {"cuda": bench.image, "hip": bench.hip_image or found("bench-gpu-hip.bundle")}
    with agent_of(bench) as agent:
        sides = [[guest(bench, agent, f"{kind[0]}{i}", kind, images[kind]) for i in range(CLIENTS)]
                 for kind in ("cuda", "hip")]
        apart = alone(sides)
        yield from figures("hip_app", apart, "alone")
        together_took = mixed(sides)
        yield from figures("hip_mix", together_took, "four tenants at once")
    ratios = [[hip / cuda for cuda, hip in took.values()] for took in (apart, together_took)]
    yield Figure("hip_apps_alone", geometric_mean(ratios[0]), "", "geometric mean over cuda, nine programs alone")
    yield Figure("hip_apps_shared", geometric_mean(ratios[1]), "", "geometric mean over cuda, six mixes of four tenants")
    yield Figure("hip_apps_overhead", geometric_mean(ratios[0] + ratios[1]), "", "geometric mean over cuda, all of them", TARGET)

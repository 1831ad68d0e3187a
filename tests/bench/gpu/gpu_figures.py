# SPDX-License-Identifier: Apache-2.0
"""The figures of GPU benchmarks. FIGURES lists the measurements by name; each is a generator of Figure objects."""
import collections
import math
import statistics
import time

from gpu_machine import harness
from programs import Unable, in_ms

Figure = collections.namedtuple("Figure", "name value unit how target", defaults=("", None))

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
APPS = ("hotspot", "hotspot3d", "pathfinder", "gaussian", "nn", "bfs", "nw", "lavamd", "particle")
ROUNDS = 3


def median(values):
    return statistics.median(values)


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def by_turns(native, guest, *words, rounds=ROUNDS):
    """Both answers, round by round: A B A B."""
    pairs = [(native.ask(*words), guest.ask(*words)) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def medians(native, guest, key, *words, rounds=ROUNDS):
    ours = by_turns(native, guest, *words, rounds=rounds)
    return tuple(median([answer[key] for answer in answers]) for answers in ours)


# --- launches ------------------------------------------------------------------------------------------

def launch(bench):
    with bench.agent() as agent:
        native, guest = bench.native(), bench.guest(agent)
        for name, words, key, scale, unit in (
                ("submit", ("submit", bench.count(400), 64), "ns", 1e-3, "us"),
                ("launches_per_s", ("rate", bench.count(200000)), "per_s", 1, "1/s"),
                ("launch_and_wait", ("trip", bench.count(10000)), "p50", 1e-3, "us"),
                ("launch_and_wait_p99", ("trip", bench.count(10000)), "p99", 1e-3, "us")):
            theirs, ours = medians(native, guest, key, *words)
            yield Figure(f"{name}_native", theirs * scale, unit)
            yield Figure(name, ours * scale, unit, "", ("<=", 0.3) if name == "submit" else None)
            if name == "launches_per_s":
                yield Figure("launches_ratio", ours / theirs, "", "Gantry over native, sustained", (">=", 0.95))
            if name == "launch_and_wait":
                yield Figure("launch_and_wait_extra", (ours - theirs) * scale, unit, "more than native", ("<=", 1.0))
        theirs, ours = by_turns(native, guest, "submit", bench.count(400), 64, rounds=1)
        yield Figure("guest_cycles_per_launch", ours[0]["cycles"], "cycles",
                     f"native {theirs[0]['cycles']:.0f}; the Arax paper says 1500")
        yield from host_cycles(bench, agent, guest)


def host_cycles(bench, agent, guest):
    """Processor time of the worker's device thread for each launch, while it is never idle."""
    import programs  # pylint: disable=import-outside-toplevel
    worker = programs.worker_of(agent, guest)
    before = programs.cpu_ns(worker)
    n = bench.count(200000)
    guest.ask("rate", n)
    yield Figure("host_ns_per_launch", (programs.cpu_ns(worker) - before) / n, "ns", "processor time of the worker")


# --- copies --------------------------------------------------------------------------------------------

def copies(bench):
    with bench.agent() as agent:
        native, guest = bench.native(), bench.guest(agent)
        for way in ("in", "out"):
            for size, n in ((4 * KIB, 500), (64 * KIB, 200)):
                theirs, ours = medians(native, guest, "ns", "pinned", way, size, n)
                yield Figure(f"small_{way}_{size // KIB}k_extra", (ours - theirs) / 1000, "us",
                             f"native {theirs / 1000:.2f} us", ("<=", 1.5))
            for size in (4 * MIB, 64 * MIB, 512 * MIB):
                size = max(size // bench.scale, 4 * KIB)
                theirs, ours = medians(native, guest, "bytes_per_s", "pinned", way, size, 20)
                yield Figure(f"pinned_{way}_{size // MIB}m", ours / 1e9, "GB/s", f"native {theirs / 1e9:.2f}")
                yield Figure(f"pinned_{way}_{size // MIB}m_ratio", ours / theirs, "", "over native", (">=", 0.98))
            for size in (64 * MIB, 256 * MIB, GIB):
                size = max(size // bench.scale, 4 * KIB)
                theirs, ours = by_turns(native, guest, "pageable", way, size, 5)
                native_rate = median([answer["bytes_per_s"] for answer in theirs])
                rate = median([answer["bytes_per_s"] for answer in ours])
                yield Figure(f"pageable_{way}_{size // MIB}m", rate / 1e9, "GB/s",
                             f"native {native_rate / 1e9:.2f}; processor time a copy {ours[-1]['cpu_ns'] / 1e6:.1f} ms, "
                             f"native {theirs[-1]['cpu_ns'] / 1e6:.1f} ms")
                yield Figure(f"pageable_{way}_{size // MIB}m_ratio", rate / native_rate, "", "over native",
                             (">=", 2 if way == "in" else 1.3))


# --- memory and attach ---------------------------------------------------------------------------------

def memory(bench):
    with bench.agent() as agent:
        native, guest = bench.native(), bench.guest(agent)
        words = ("alloc", 2 * MIB, 200)
        native_call = median([native.ask(*words)["call_ns"] for _ in range(ROUNDS)])
        answers = [guest.ask(*words) for _ in range(ROUNDS)]
        extra = max(median([answer["used_ns"] - answer["trip_ns"] for answer in answers]), 1)
        yield Figure("alloc_2m_native", native_call / 1000, "us", "cuMemAlloc alone")
        yield Figure("alloc_2m", extra / 1000, "us", f"until a kernel has used it, less the same launch on memory that was there; the call alone "
                     f"{median([answer['call_ns'] for answer in answers]) / 1000:.2f} us")
        yield Figure("alloc_2m_speedup", native_call / extra, "", "over cuMemAlloc", (">=", 10))


def attach(bench):
    cold = [bench.native().opened["first_kernel_ns"] for _ in range(2)]
    times = []
    with bench.agent() as agent:
        for _ in range(5):
            time.sleep(1.5)  # for the next warm worker
            guest = bench.guest(agent)
            times.append(guest.opened["first_kernel_ns"])
            guest.ask("close")
            guest.end()
    yield Figure("first_kernel_native", median(cold) / 1e6, "ms", "cuInit to the end of the first kernel")
    yield Figure("first_kernel", median(times) / 1e6, "ms", "gantry_open() to the same, with a warm worker", ("<=", 10))


# --- whole programs ------------------------------------------------------------------------------------

def apps(bench):
    ratios = []
    with bench.agent() as agent:
        native, guest = bench.native(), bench.guest(agent)
        for name in APPS:
            for program in (native, guest):
                program.ask("prepare", name, bench.scale)
                program.ask("run", name)
            theirs, ours = by_turns(native, guest, "run", name, rounds=5)
            if theirs[0]["checksum"] != ours[0]["checksum"]:
                raise Unable(f"{name}: other results than native")
            a, b = median([t["ns"] for t in theirs]), median([o["ns"] for o in ours])
            ratios.append(b / a)
            yield Figure(f"app_{name}", b / 1e6, "ms", f"native {a / 1e6:.2f} ms")
            yield Figure(f"app_{name}_ratio", b / a, "", "Gantry over native", ("<=", 1.05))
    yield Figure("apps_overhead", geometric_mean(ratios), "", "geometric mean over native", ("<=", 1.02))


# --- sharing -------------------------------------------------------------------------------------------

# Ours, from the paper's text (its Table 5 is an image): the same program 2 and 4 times, and mixes.
MIXES = {
    "A": ("gaussian",) * 2, "B": ("gaussian",) * 4, "C": ("hotspot",) * 2, "D": ("hotspot",) * 4,
    "E": ("lavamd",) * 2, "F": ("lavamd",) * 4, "G": ("particle",) * 2, "H": ("particle",) * 4,
    "I": ("gaussian", "hotspot"), "J": ("gaussian", "lavamd"), "K": ("gaussian", "gaussian", "hotspot", "hotspot"),
    "L": ("gaussian", "particle"), "M": ("hotspot", "lavamd"), "N": ("lavamd", "particle"),
    "O": ("hotspot", "particle"), "P": ("gaussian", "hotspot", "lavamd", "particle"),
}
CLIENTS = 4


def together(clients, words_of, after_ms=300):
    """All at the same moment. Returns the answers and when they began."""
    at = in_ms(after_ms)
    for index, client in enumerate(clients):
        client.tell(*words_of(index, at))
    return [client.hear() for client in clients], at


def native_clients(bench, env=None):
    return [bench.native(env) for _ in range(CLIENTS)]


def guests_of(bench, isolation):
    tenants = {f"t{i}": {"isolation": isolation, "trust_group": "bench" if isolation != "isolated" else None}
               for i in range(CLIENTS)}
    agent = bench.agent(tenants)
    return agent, [bench.guest(agent, f"t{i}") for i in range(CLIENTS)]


def small_kernels(clients, n):
    """Kernels of 8 blocks and 90 us a second, over all of @n clients."""
    run_ns = 1_000_000_000
    answers, _ = together(clients[:n], lambda i, at: ("load", at, run_ns, 8, 90, 16))
    return sum(answer["ended"] for answer in answers)


def mixes(clients, bench):
    """How long each mix takes from the common start to the last end, the median of some rounds."""
    for client in clients:
        for name in sorted({app for mix in MIXES.values() for app in mix}):
            client.ask("prepare", name, bench.scale)
            client.ask("run", name)
    took = {}
    for letter, mix in MIXES.items():
        times = []
        for _ in range(ROUNDS):
            answers, at = together(clients[:len(mix)], lambda i, at, mix=mix: ("run", mix[i], at), after_ms=100)
            times.append(max(answer["end_ns"] for answer in answers) - at)
        took[letter] = median(times)
    return took


def measure_clients(clients, bench):
    rates = {n: median([small_kernels(clients, n) for _ in range(ROUNDS)]) for n in (1, 2, 4)}
    return rates, mixes(clients, bench)


def sharing(bench):
    results = {}
    with bench.mps() as env:
        clients = native_clients(bench, env)
        results["mps"] = measure_clients(clients, bench)
        for client in clients:
            client.end()
    clients = native_clients(bench)
    results["sliced"] = measure_clients(clients, bench)
    for client in clients:
        client.end()
    for mode in ("packed", "pooled", "isolated"):
        try:
            agent, clients = guests_of(bench, mode)
        except (harness.Failure, Unable) as why:
            yield Figure(f"sharing_{mode}_failed", None, "", str(why))
            continue
        with agent:
            results[mode] = measure_clients(clients, bench)
    for name, (rates, took) in results.items():
        for n, rate in rates.items():
            yield Figure(f"small_{name}_{n}", rate, "1/s", f"kernels of 8 blocks and 90 us, {n} clients")
        yield Figure(f"mix_{name}", sum(took.values()) / 1e9, "s",
                     " ".join(f"{letter}:{ns / 1e6:.0f}" for letter, ns in took.items()) + " ms")
    for mode in ("packed", "pooled"):
        if mode not in results:
            continue
        ours, (mps_rates, mps_took), (cut_rates, cut_took) = results[mode], results["mps"], results["sliced"]
        for n in (2, 4):
            yield Figure(f"small_{mode}_{n}_over_mps", mps_rates[n] / ours[0][n], "", "time; MPS with native clients is 1",
                         ("<=", 1.02))
            yield Figure(f"small_{mode}_{n}_over_sliced", ours[0][n] / cut_rates[n], "", "times as fast as time slicing",
                         (">=", 3) if n == 4 else None)
        yield Figure(f"mix_{mode}_over_mps", geometric_mean([ours[1][k] / mps_took[k] for k in MIXES]), "",
                     "geometric mean of times", ("<=", 1.02))
        yield Figure(f"mix_{mode}_over_sliced", geometric_mean([cut_took[k] / ours[1][k] for k in MIXES]), "",
                     "geometric mean, times as fast as time slicing", (">=", 1.45))


def lanes(bench):
    """Eight clients' worth of small kernels over lanes (and devices), as the paper's elasticity figure."""
    for gpus in range(1, min(bench.gpus, 2) + 1):
        for nlanes in (1, 2, 4) if gpus == 1 else (1, 2):
            devices = {f"cuda{i}": {"backend": "cuda", "gpu": str(i), "lanes": nlanes, "cores": None, "mem": None,
                                    "driver": bench.driver} for i in range(gpus)}
            tenants = {f"t{i}": {"isolation": "pooled", "trust_group": "bench", "devices": f"cuda{i % gpus}"}
                       for i in range(8)}
            with bench.agent(tenants, devices=devices) as agent:
                guests = [bench.guest(agent, f"t{i}") for i in range(8)]
                answers, _ = together(guests, lambda i, at: ("load", at, 1_000_000_000, 8, 90, 16))
            yield Figure(f"grid_{gpus}gpu_{nlanes}lanes", sum(answer["ended"] for answer in answers), "1/s",
                         "small kernels, 8 clients")


# --- weights and priorities ----------------------------------------------------------------------------

FULL = 132 * 16  # blocks that fill a Hopper GPU


def weights(bench):
    for mode in ("isolated", "packed", "pooled"):
        group = "bench" if mode != "isolated" else None
        try:
            with bench.agent({"a": {"isolation": mode, "trust_group": group, "weight": 300},
                              "b": {"isolation": mode, "trust_group": group, "weight": 100}}) as agent:
                guests = [bench.guest(agent, name) for name in ("a", "b")]
                answers, _ = together(guests, lambda i, at: ("load", at, 4_000_000_000, FULL, 100, 64))
            yield Figure(f"weights_{mode}", answers[0]["ended"] / max(answers[1]["ended"], 1), "",
                         "device time of weights 3:1, kernels that fill the GPU", None)
            yield Figure(f"weights_{mode}_error", abs(answers[0]["ended"] / max(answers[1]["ended"], 1) / 3 - 1), "",
                         "away from 3", ("<=", 0.05))
        except (harness.Failure, Unable) as why:
            yield Figure(f"weights_{mode}_failed", None, "", str(why))


def priority(bench):
    for mode, limit in (("packed", 1.2), ("isolated", 2.0)):
        group = "bench" if mode != "isolated" else None
        try:
            with bench.agent({"high": {"isolation": mode, "trust_group": group, "priority": 10},
                              "low": {"isolation": mode, "trust_group": group}}) as agent:
                high, low = bench.guest(agent, "high", priority=10), bench.guest(agent, "low")
                alone = high.ask("request", 0, 2_000_000_000, 8, 100, 500)
                at = in_ms(300)
                low.tell("load", at, 3_500_000_000, 64, 100, 64)
                high.tell("request", at + 500_000_000, 2_500_000_000, 8, 100, 500)
                beside = high.hear()
                low.hear()
            yield Figure(f"priority_{mode}_alone_p99", alone["p99"] / 1000, "us", f"p50 {alone['p50'] / 1000:.1f}")
            yield Figure(f"priority_{mode}_p99", beside["p99"] / 1000, "us", f"p50 {beside['p50'] / 1000:.1f}")
            yield Figure(f"priority_{mode}_ratio", beside["p99"] / alone["p99"], "",
                         "p99 beside a flood over p99 alone", ("<=", limit))
        except (harness.Failure, Unable) as why:
            yield Figure(f"priority_{mode}_failed", None, "", str(why))


# --- queues that move from one GPU to the other --------------------------------------------------------------

def moves(bench):
    import gpu_moves  # pylint: disable=import-outside-toplevel
    for figure in gpu_moves.moves(bench):
        yield Figure(*figure)


# --- backend hip, on the same GPU ---------------------------------------------------------------------------

def hip(bench):
    import gpu_hip  # pylint: disable=import-outside-toplevel
    yield from gpu_hip.hip_over_cuda(bench)


FIGURES = {
    "launch": launch, "copies": copies, "memory": memory, "attach": attach, "apps": apps, "weights": weights,
    "priority": priority, "sharing": sharing, "lanes": lanes, "moves": moves, "hip": hip,
}

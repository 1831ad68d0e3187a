# SPDX-License-Identifier: Apache-2.0
"""What came out natively beside what came out over our libraries: curves, operations, and what a library has inside."""
import collections
import concurrent.futures
import json
import pathlib

import harness
import torch_world

HERE = pathlib.Path(__file__).resolve().parent
SHARDS = 4
SHARD_S = 150
# What is left to chance in an algorithm that is not deterministic grows with the steps.
TOLERANCE, EXACT_TOLERANCE = 5e-2, 1e-3
CLOSE = 1e-3


def figure(*words):
    # They import each other: torch_figures has the type, this file what it compares with.
    import torch_figures  # pylint: disable=import-outside-toplevel,cyclic-import
    return torch_figures.Figure(*words)


def curve(name, native, ours, exact):
    """Figures: how far apart two lists of values are, as a part of the largest."""
    count = min(len(native), len(ours))
    scale = max((abs(value) for value in native), default=0) or 1
    apart = [abs(a - b) / scale for a, b in zip(native, ours)]
    same = sum(a == b for a, b in zip(native, ours))
    # NaN compares with nothing.
    worst = max(apart) if apart and all(value == value for value in apart) else float("inf")
    yield figure(f"{name}_{'exact' if exact else 'free'}_curve", worst, "",
                 f"largest difference of {count} values, of {scale:.4g}; {same} are equal bit by bit; "
                 f"first {native[0]:.6g}, last {native[-1]:.6g} natively, {ours[-1]:.6g} here",
                 ("<=", EXACT_TOLERANCE if exact else TOLERANCE))


# --- operations -----------------------------------------------------------------------------------------

def shard(bench, agent, index):
    """{operation: line} of one part of the table. A process that dies costs the operation it was at."""
    found, tried = {}, []
    for _ in range(12):
        argv = [torch_world.PYTHON, str(HERE / "torch_ops.py"), str(index), str(SHARDS)]
        if agent:
            env = {**agent.guest_env("red"), **bench.place.guest_env}
        else:
            env = torch_world.native_environment()
        done = run_with_input(argv, env, "\n".join(tried), bench)
        begun, ended = None, False
        for text in done.out.splitlines():
            if not text.startswith("{"):
                continue
            line = json.loads(text)
            if "begins" in line:
                begun = line["begins"]
                tried.append(begun)
            elif "op" in line:
                found[line["op"]] = line
                begun = None
            ended = ended or "end" in line
        if begun:
            found[begun] = {"op": begun, "error": f"the process ended, status {done.code}: {done.err.strip()[-200:]}"}
        if ended or not tried or done.code == 124:
            if not tried:
                raise harness.Failure(f"no operation was tried: {done.err.strip()[-300:]}")
            break
    return found


def run_with_input(argv, env, text, bench):
    path = bench.place.folder / f"passed-over-{abs(hash((tuple(argv), text, env.get('GANTRY_DOOR'))))}"
    path.write_text(text)
    return harness.run(["sh", "-c", 'exec "$@" <"$0"', str(path), *argv], env=env, timeout=SHARD_S)


def all_operations(bench, agent):
    with concurrent.futures.ThreadPoolExecutor(2 * SHARDS) as pool:
        sides = [[pool.submit(shard, bench, side, index) for index in range(SHARDS)] for side in (None, agent)]
        merged = []
        for side in sides:
            merged.append({})
            for one in side:
                merged[-1].update(one.result())
    return merged


def agree(native, ours):
    """"equal", "close", or what differs."""
    if "error" in ours:
        return ours["error"]
    verdict = "equal"
    if len(native["results"]) != len(ours["results"]):
        return "another number of samples"
    for theirs, mine in zip(native["results"], ours["results"]):
        if [row[0] for row in theirs] != [row[0] for row in mine]:
            return f"other types or shapes: {mine}"
        for (shape, digest, total), (_, other_digest, other_total) in zip(theirs, mine):
            if digest != other_digest:
                verdict = "close"
                if not abs(total - other_total) <= CLOSE * max(abs(total), 1e-3):
                    return f"differs: {total:.6g} and {other_total:.6g} of {shape}"
    return verdict


def operations(native, ours):
    """Figures: of the operations that pass natively, how many pass here with the same result."""
    counts, bad = collections.Counter(), []
    passing = {name for name, line in native.items() if "results" in line}
    for name in sorted(passing & set(ours)):
        verdict = agree(native[name], ours[name])
        counts[verdict if verdict in ("equal", "close") else "other"] += 1
        if verdict not in ("equal", "close"):
            bad.append(f"{name}: {verdict}")
    for line in bad:
        print(f"## operation {line}", flush=True)
    tried = sum(counts.values())
    how = (f"{counts['equal']} equal bit by bit, {counts['close']} close, {counts['other']} not, of {tried} that pass natively; "
           f"{len(native) - len(passing)} fail natively, {len(passing - set(ours))} were not reached here")
    if not tried:
        raise harness.Failure(f"no operation was tried on both sides: {how}")
    yield figure("operations_passed", 100 * (1 - counts["other"] / tried), "%", how, (">=", 95))


# --- what a library has inside -------------------------------------------------------------------------

WHEELS = {"cupy": ("cupy", "cupy_backends"), "numba": ("numba", "numba_cuda"), "jax": ("jaxlib", "jax_plugins")}


def static_runtimes(bench, agent):
    """What gantryctl doctor says of the libraries of other frameworks."""
    for name, folders in WHEELS.items():
        paths = [path for folder in folders for path in (bench.place.site / folder).rglob("*.so*") if path.is_file()]
        if not paths:
            continue
        done = agent.ctl("doctor", *map(str, paths))
        lines = [line for line in (done.out + done.err).splitlines() if "static" in line]
        for line in lines[:6]:
            print(f"## doctor {line[:400]}", flush=True)
        yield figure(f"static_runtime_{name}", len(lines), "libraries", f"of {len(paths)} that the wheels have")

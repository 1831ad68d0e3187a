#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""run-gpu-torch itself, without PyTorch: an interpreter that plays its part over the fake driver, and comparisons."""
import ctypes
import glob
import json
import os
import pathlib
import stat
import sys
import tempfile

import gpu
import harness

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench" / "torch"
sys.path.insert(0, str(BENCH))
import torch_compare  # pylint: disable=wrong-import-position
import torch_trace  # pylint: disable=wrong-import-position

# Answers as torch_jobs.py and the other programs do. Natively one operation fails, with a door another one ends the
# process, a third differs, and so do the values of steps.
PLAYER = '''#!/bin/sh
case "$1" in -c) echo SITE; exit;; esac
exec PYTHON - "$@" 3<&0 <<'END'
import ctypes, json, os, sys, time
job, door = os.path.basename(sys.argv[1]), "GANTRY_DOOR" in os.environ
lines = os.fdopen(3)
def say(**what):
    print(json.dumps(what), flush=True)
if job == "torch_jobs.py":
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    print("ready", json.dumps({"seconds": 0.1, "values": [2.0]}), flush=True)
    for line in iter(lines.readline, ""):
        print("something else", flush=True)
        say(seconds=0.001 * int(line) * (2 if door else 1), values=[1.0 + 0.5 * door] * int(line))
elif job == "torch_suites.py":
    names = [name for name in lines.read().split("\\n") if name] or [f"test{number}" for number in range(10)]
    for name in names:
        say(begins=name)
        if name == "test5" and door:
            os._exit(9)
        verdict = "skipped" if name == "test3" else "failed" if name == "test7" and door else "ok"
        say(test=name, verdict=verdict, why="")
    say(end=True)
elif job == "torch_parts.py":
    say(values={"norm": 10.0 + 5 * door, "copy": 4.0})
else:
    over = set(lines.read().split("\\n"))
    for number in range(40):
        name = f"op{number}"
        if number % int(sys.argv[3]) != int(sys.argv[2]) or name in over:
            continue
        say(begins=name)
        if number == 5 and door:
            os._exit(9)
        if number == 6 and not door:
            say(op=name, error="no")
        else:
            say(op=name, results=[[["shape", str(number + (number == 9 and door)), 1.0 + (number == 9 and door)]]])
    say(end=True)
END
'''


def player(folder):
    site = folder / "site"
    (site / "torch" / "lib").mkdir(parents=True)
    (site / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    path = folder / "python"
    path.write_text(PLAYER.replace("SITE", str(site)).replace("PYTHON", sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def measured(folder, *names):
    """{name: record} of a run."""
    if gpu.BACKEND != "fakecuda":
        raise harness.Skip("the part of PyTorch is played over the fake driver")
    out = folder / "figures.json"
    env = dict(os.environ, GANTRY_TORCH_PYTHON=player(folder), GANTRY_BUILD=str(harness.build_dir()),
               LD_LIBRARY_PATH=os.path.dirname(gpu.fake_libraries()["driver"]))
    words = [word for name in names for word in ("--only", name)]
    done = harness.run([sys.executable, str(BENCH / "run"), "--scale", "10", "--json", str(out), "--log", str(folder / "log"), *words],
                       env=env, timeout=gpu.LIMIT_S)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    return done, {record["name"]: record for record in records}


def test_figures_are_taken_by_turns_and_misses_are_told(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        done, found = measured(pathlib.Path(folder), "inference", "curve_streams")
        t.code(done, 0)
        t.equal(round(found["inference_overhead"]["value"]), 100, str(done))
        t.equal(found["inference_overhead"]["met"], False, "a target that is missed")
        t.equal((found["streams_exact_curve"]["value"], found["streams_exact_curve"]["met"]), (0.25, False), "a curve that is another")
        t.contains(done.out, "missed: inference_overhead")


def test_operations_are_counted_against_those_that_pass_natively(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        done, found = measured(pathlib.Path(folder), "operations")
        t.code(done, 0)
        t.equal(found["operations_passed"]["how"], "37 equal bit by bit, 0 close, 2 not, of 39 that pass natively; "
                "1 fail natively, 0 were not reached here", str(done))
        log = pathlib.Path(folder, "log").read_text()
        t.contains(log, "op5: the process ended, status 9")
        t.contains(log, "op9: differs")


def test_single_operations_are_compared(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        done, found = measured(pathlib.Path(folder), "parts")
        t.code(done, 0)
        t.equal({name: found[name]["value"] for name in ("part_norm", "part_copy")}, {"part_norm": 50, "part_copy": 0}, str(done))


def test_tests_of_numba_are_counted_against_those_that_pass_natively(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        done, found = measured(pathlib.Path(folder), "numba_tests")
        t.code(done, 0)
        t.equal(found["numba_tests_passed"]["how"], "7 of 9 tests of Numba's that pass natively; 1 do not, 0 were not reached here", str(done))
        t.equal(found["numba_tests_passed"]["met"], False)
        t.contains(pathlib.Path(folder, "log").read_text(), "test5: failed: the process ended, status 9")


def test_a_driver_that_loads_no_tracer_is_told(t):
    need_tracer()
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        done, found = measured(pathlib.Path(folder), "trace_transformer")
        t.code(done, 1)
        t.contains(found["trace_transformer_failed"]["how"], "no process has loaded the tracer")


def need_tracer():
    path = harness.find_in_build("libgpu-trace.so", os.path.exists)
    if not path:
        raise harness.Skip("the build has no libgpu-trace.so")
    return path


# Kernels that overlap, a copy after a gap, and a call that made one of them.
TRACE = """A 500 900 - cuLaunchKernel
K 2500 4000 7 void second<int, float>(int *)
C 9000 9500 7 64
K 1000 3000 7 first
K 1 2
"""


def test_a_trace_tells_what_the_device_did(t):
    told = torch_trace.told(torch_trace.events_of(TRACE), 2)
    t.equal((told.counts, told.busy_us, told.idle_us, told.gaps), ({"kernels": 1, "copies": 0.5}, 1.75, 2.5, 0.5))
    t.equal(told.events["void second<int, float>(int *)"], [0.5, 0.75])
    t.equal(told.calls, {"cuLaunchKernel": [0.5, 0.2]})
    rows = torch_trace.differences({"a": [1, 5.0], "b": [1, 1.0]}, {"a": [1, 5.5], "c": [2, 3.0]})
    t.equal([row[:2] for row in rows], [(3.0, "c"), (-1.0, "b"), (0.5, "a")])


def test_a_trace_that_tells_nothing_is_a_failure(t):
    for text, why in (("E kind 10: CUPTI error 35", "CUPTI error 35"), ("A 1 2 - cuInit", "no work of a device"), ("", "no work of a device")):
        try:
            torch_trace.told(torch_trace.events_of(text), 1)
        except harness.Failure as failure:
            t.contains(str(failure), why)
        else:
            raise harness.Failure(f"a trace of {text!r} was taken")


def test_tracer_says_what_it_could_not_load(t):
    library = ctypes.CDLL(need_tracer())
    with tempfile.TemporaryDirectory(prefix="gantry-trace-") as folder:
        t.equal(library.InitializeInjection(), 1, "nobody has said where to")
        os.environ.update(GPU_TRACE=folder + "/trace", GPU_TRACE_CUPTI=folder + "/none.so")
        t.equal(library.InitializeInjection(), 1)
        (path,) = glob.glob(folder + "/trace.*")
        text = pathlib.Path(path).read_text()
        t.contains(text, "E ")
        t.contains(text, "none.so")


def test_an_interpreter_without_pytorch_is_told(t):
    done = harness.run([sys.executable, str(BENCH / "run")],
                       env=dict(os.environ, GANTRY_TORCH_PYTHON="/bin/false", GANTRY_BUILD=str(harness.build_dir())))
    t.equal(done.code, 1, str(done))
    t.contains(done.err, "has no PyTorch")


def test_results_agree_only_where_types_shapes_and_numbers_do(t):
    one = {"results": [[["float32 [2]", "aa", 5.0]]]}

    def told(row):
        return torch_compare.agree(one, {"results": [[row]]})
    t.equal(told(["float32 [2]", "aa", 5.0]), "equal")
    t.equal(told(["float32 [2]", "bb", 5.0001]), "close")
    t.contains(told(["float32 [2]", "bb", 5.1]), "differs")
    t.contains(told(["float32 [3]", "aa", 5.0]), "other types")
    t.contains(told(["float32 [2]", "bb", float("nan")]), "differs")
    t.equal(torch_compare.agree(one, {"error": "no"}), "no")


def test_curves_with_what_is_no_number_are_not_equal(t):
    found = list(torch_compare.curve("x", [1.0, float("nan")], [1.0, float("nan")], True))
    t.equal(found[0].value, float("inf"))


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

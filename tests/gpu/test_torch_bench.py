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
import torch_world  # pylint: disable=wrong-import-position

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
        wrong = ("test7",) + ("test6",) * ("test1" in names)
        verdict = "skipped" if name == "test3" else "failed" if name in wrong and door else "ok"
        say(test=name, verdict=verdict, why="")
    say(end=True)
elif job == "torch_moves.py":
    cuda, context, place, word = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
    assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1 << 20)) == 0
    assert cuda.cuMemsetD32_v2(place, 3, ctypes.c_size_t(1 << 18)) == 0
    for number in range(int(sys.argv[2])):
        assert cuda.cuMemsetD32_v2(ctypes.c_uint64(place.value + 4096 * number), 7 * number, ctypes.c_size_t(1024)) == 0
        assert cuda.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(place.value + 4096 * (number // 2)), ctypes.c_size_t(4)) == 0
        print("step", number, word.value, flush=True)
        if number == 5:
            print("working", flush=True)
        time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 0)
    print("ok training", flush=True)
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


def moved(folder, gpus):
    before = os.environ.get("GANTRY_GPUS")
    os.environ["GANTRY_GPUS"] = gpus
    try:
        return measured(pathlib.Path(folder), "moves")
    finally:
        os.environ.pop("GANTRY_GPUS")
        os.environ.update({"GANTRY_GPUS": before} if before else {})


def test_training_goes_between_gpus_or_parts_of_one_and_figures_say_which(t):
    for gpus, name in (("2", "moves"), ("1", "moves_one_gpu")):
        with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
            done, found = moved(folder, gpus)
            t.equal((found[f"{name}_losses_unlike"]["value"], found[f"{name}_losses_unlike_native"]["value"]), (0, 0), str(done))
            t.true(found[f"{name}_pause"]["value"] > 0 and found[f"{name}_8g_pause"]["value"] > 0, str(found))
            # It has no communicator, so it goes: that is told as a failure, which it would be.
            t.contains(found["moves_communicator_failed"]["how"], "with a communicator, session migrate: exit status 0")


def test_tests_of_numba_are_counted_against_those_that_pass_natively(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        done, found = measured(pathlib.Path(folder), "numba_tests")
        t.code(done, 0)
        t.equal(found["numba_tests_passed"]["how"], "7 of 9 tests of Numba's that pass natively, 1 of them when they ran again; "
                "natively 1 are skipped and 0 fail, 0 were not reached here", str(done))
        t.equal(found["numba_tests_passed"]["met"], False)
        log = pathlib.Path(folder, "log").read_text()
        t.contains(log, "test5: failed: the process ended, status 9")
        t.contains(log, "test6: passes when it runs again")


def test_tests_of_pytorch_and_cupy_want_their_sources(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        more = pathlib.Path(folder, "more")
        (more / "tests" / "torch").mkdir(parents=True)
        (more / "relinked" / "cupy").mkdir(parents=True)
        (more / "relinked" / "VERSION").write_text("1.2.3\n")
        os.environ["GANTRY_TORCH_MORE"] = str(more)
        try:
            done, found = measured(pathlib.Path(folder), "torch_test_cuda", "cupy_tests")
        finally:
            del os.environ["GANTRY_TORCH_MORE"]
        t.code(done, 1)
        t.contains(found["torch_tests_passed"]["how"], "7 of 9 tests of PyTorch's test_cuda.py that pass natively")
        t.contains(found["cupy_tests_failed"]["how"], "has not the CuPy 1.2.3")


def test_packages_are_laid_over_those_of_the_environment(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        site, replaced, target = (pathlib.Path(folder, name) for name in ("site", "replaced", "target"))
        for path, text in ((site / "a" / "b" / "c.so", "old"), (site / "a" / "b" / "d.so", "kept"), (site / "a" / ".data" / "e", "kept"),
                           (site / "a" / "f" / "c.so", "kept"), (site / "g" / "h", "kept"), (replaced / "a" / "b" / "c.so", "new"),
                           (replaced / "g" / "i.so", "new"), (replaced / "VERSION", "1")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        torch_world.overlay(site, replaced, target)
        t.equal({str(path.relative_to(target)): path.read_text() for path in (target / name for name in (
            "a/b/c.so", "a/b/d.so", "a/.data/e", "a/f/c.so", "g/h", "g/i.so"))},
            {"a/b/c.so": "new", "a/b/d.so": "kept", "a/.data/e": "kept", "a/f/c.so": "kept", "g/h": "kept", "g/i.so": "new"})
        t.equal((site / "a" / "b" / "c.so").read_text(), "old", "the environment is as it was")


def test_a_guests_interpreter_has_our_packages_as_its_own(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        place = pathlib.Path(folder)
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        real = os.path.realpath(sys.executable)
        (place / "venv" / "bin").mkdir(parents=True)
        (place / "venv" / "lib" / name / "site-packages").mkdir(parents=True)
        (place / "venv" / "pyvenv.cfg").write_text(f"home = {os.path.dirname(real)}\ninclude-system-site-packages = false\n")
        (place / "venv" / "bin" / "python").symlink_to(real)
        (place / "ours").mkdir()
        (place / "ours" / "of_ours.py").write_text("")
        before = torch_world.PYTHON
        try:
            torch_world.PYTHON = str(place / "venv" / "bin" / "python")
            python = torch_world.guest_python(place / "ours", place / "guest")
            torch_world.PYTHON = "/bin/sh"
            t.equal(torch_world.guest_python(place / "ours", place / "none"), "/bin/sh", "of no virtual environment")
        finally:
            torch_world.PYTHON = before
        done = harness.run([python, "-c", "import site, of_ours; print(site.getsitepackages()[0])"])
        t.code(done, 0)
        t.equal(done.out.strip(), str(place / "guest" / "lib" / name / "site-packages"))


SUITE = '''import os, time, unittest, pytest
class Some(unittest.TestCase):
    def test_prints(self): print("{no"); os.system("echo {no")
    def test_fails(self): self.assertEqual(1, 2)
    @unittest.skip("for a reason")
    def test_skipped(self): pass
    def test_hangs(self): time.sleep(60)
    def test_ends(self): os._exit(7)
    def test_spoils(self): raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.parametrize("x", [1, 2])
def test_numbers(x): assert x
'''


def suite(folder, text, each=20, part="0/1"):
    (folder / "names").write_text(text)
    argv = [sys.executable, str(BENCH / "torch_suites.py"), "torch", "30", str(each), part, str(folder)]
    done = harness.run(["sh", "-c", 'exec "$@" <"$0"', str(folder / "names"), *argv], timeout=60)
    return done, [json.loads(line) for line in done.out.splitlines()]


def test_a_suite_tells_each_test_and_survives_what_tests_do(t):
    try:
        import pytest  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
    except ImportError as why:
        raise harness.Skip("no pytest") from why
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as name:
        folder, some = pathlib.Path(name), "test_cuda.py::Some::test_"
        (folder / "test_cuda.py").write_text(SUITE)
        done, lines = suite(folder, f"-{some}hangs\n-{some}ends\n-{some}spoils\n")
        t.code(done, 0)
        t.equal({line["test"].rpartition("::")[2]: line["verdict"] for line in lines if "test" in line},
                {"test_prints": "ok", "test_fails": "failed", "test_skipped": "skipped", "test_numbers[1]": "ok", "test_numbers[2]": "ok"})
        t.contains(str(lines), "1 != 2")
        t.contains(str(lines), "for a reason")
        parts = [suite(folder, f"-{some}hangs\n-{some}ends\n-{some}spoils\n", part=part)[1] for part in ("0/2", "1/2")]
        t.equal(sum("test" in line for part in parts for line in part), 5, "each test is in one part")
        done, lines = suite(folder, f"{some}ends\n{some}prints")
        t.equal((done.code, lines), (7, [{"begins": some + "ends"}]))
        done, lines = suite(folder, f"{some}prints\n{some}hangs", each=2)
        t.equal((done.code, lines[-1]), (1, {"begins": some + "hangs"}))
        t.contains(done.err, "Timeout")
        # The context is gone: what comes next has another process.
        done, lines = suite(folder, f"{some}spoils\n{some}prints")
        t.equal((done.code, lines[-1]["test"], lines[-1]["verdict"]), (3, some + "spoils", "failed"))


def test_sources_are_taken_with_the_hash_that_is_listed_alone(t):
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        archives = pathlib.Path(folder, "archives")
        archives.mkdir()
        (archives / "cupy-14.2.0.tar.gz").write_text("another")
        done = harness.run([sys.executable, str(BENCH / "torch_gather.py"), folder + "/more", str(archives)])
        t.equal(done.code, 1)
        t.contains(done.err, "cupy-14.2.0.tar.gz is another: its SHA-256 is not")
        t.contains(done.err, "keras-3.15.1-py3-none-any.whl is missing: PyPI")
        t.equal(os.path.exists(folder + "/more"), False)


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

# SPDX-License-Identifier: Apache-2.0
"""Tests of CUDA that others have written: torch_suites.py SUITE SECONDS EACH PART/PARTS [FOLDER]. Runs in PyTorch's environment.

numba: those that numba-cuda's wheel brings. torch, cupy: those of PyTorch and CuPy, whose sources lie in FOLDER. In an order that depends
on nothing, as many as begin within SECONDS, of PARTS equal parts one. Standard input names tests, one a line: these and no others, or,
with a "-" before it, not this one. One line for each, flushed, so that after a death it is known where: {"begins": name}, then
{"test": name, "verdict": "ok", "skipped" or "failed", "why": ..}; {"end": true} at the end. A test that takes longer than EACH seconds
ends the process, as does one that leaves the context of the process failed: what came after it would fail with it.
"""
import contextlib
import faulthandler
import hashlib
import importlib
import io
import json
import os
import pathlib
import pkgutil
import re
import sys
import time
import unittest

NUMBA = ("numba.cuda.tests.cudapy", "numba.cuda.tests.cudadrv")
# Of CuPy's some hundred files those about the device, its memory and each of its libraries.
CUPY = [f"cupy_tests/{path}.py" for path in (
    "cuda_tests/test_device", "cuda_tests/test_driver", "cuda_tests/test_graph", "cuda_tests/test_memory", "cuda_tests/test_pinned_memory",
    "cuda_tests/test_runtime", "cuda_tests/test_stream", "cuda_tests/test_texture", "cuda_tests/test_cusolver", "cuda_tests/test_curand",
    "core_tests/test_raw", "core_tests/test_scan", "core_tests/test_userkernel", "core_tests/test_ndarray_reduction",
    "core_tests/test_ndarray_copy_and_view", "linalg_tests/test_solve", "linalg_tests/test_decomposition", "math_tests/test_matmul",
    "random_tests/test_generator_api", "sorting_tests/test_sort", "statistics_tests/test_histogram", "test_cublas")]
FILES = {"torch": ["test_cuda.py", "test_cuda_trace.py", "test_cuda_sanitizer.py"], "cupy": CUPY}
# What tests print is no line of ours, be it C that prints it.
OUT, ERRORS = (os.fdopen(os.dup(number), "w", encoding="utf-8") for number in (1, 2))


def say(**what):
    print(json.dumps(what), file=OUT, flush=True)


class Choice:
    """Which tests run, in which order, and until when."""

    def __init__(self, seconds, each, part, text):
        self.seconds, self.each, self.part = seconds, each, part
        names = [name for name in text.split("\n") if name]
        self.over = {name[1:] for name in names if name[0] == "-"}
        self.wanted = [name for name in names if name[0] != "-"]
        self.until = None

    def order(self, tests):
        """Of the names in @tests."""
        if self.wanted:
            return [name for name in self.wanted if name in tests]
        index, count = self.part
        places = {name: int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") for name in tests}
        return [name for name in sorted(tests, key=places.get) if places[name] % count == index and name not in self.over]

    def begins(self, name):
        """Whether there is time for one more."""
        self.until = self.until or time.monotonic() + self.seconds
        if time.monotonic() > self.until:
            return False
        say(begins=name)
        faulthandler.dump_traceback_later(self.each, exit=True, file=ERRORS)
        return True


# Errors of CUDA after which a process has nothing more of the device.
STICKY = re.compile(r"illegal ?(memory|address|instruction)|launch_?fail|unspecified launch failure|misaligned ?address|device-side assert|"
                    r"cudaErrorAssert|cudaErrorContextIsDestroyed|context is destroyed", re.IGNORECASE)
SPOILT = 3


def ended(name, verdict, why):
    faulthandler.cancel_dump_traceback_later()
    say(test=name, verdict=verdict, why=why[:300])
    if verdict == "failed" and STICKY.search(why):
        os._exit(SPOILT)


# --- unittest -------------------------------------------------------------------------------------------

def tests_of(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests_of(one)
        else:
            yield one


def tests_of_numba():
    """{name: test}; modules that cannot be imported, for want of another package mostly, have none."""
    found = {}
    for package in NUMBA:
        folder = importlib.import_module(package)
        for module in pkgutil.iter_modules(folder.__path__):
            if not module.name.startswith("test_"):
                continue
            with contextlib.suppress(Exception):
                loaded = importlib.import_module(f"{package}.{module.name}")
                found.update((test.id(), test) for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(loaded)))
    return found


def verdict_of(test):
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        test.run(result)
    wrong = result.errors + result.failures
    if wrong:
        return "failed", wrong[0][1].strip().splitlines()[-1]
    return ("skipped", result.skipped[0][1]) if result.skipped else ("ok", "")


def run_numba(choice, folder):
    if folder:
        sys.path.insert(0, folder)
    import numpy  # pylint: disable=import-outside-toplevel,import-error
    # numba-cuda wants a name that NumPy 2.5 no longer has.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    tests = tests_of_numba()
    for name in choice.order(tests):
        if not choice.begins(name):
            break
        ended(name, *verdict_of(tests[name]))


# --- pytest ---------------------------------------------------------------------------------------------

class Plugin:
    """pytest's hooks."""

    def __init__(self, choice):
        self.choice, self.told = choice, ("ok", "")

    def pytest_collection_modifyitems(self, items):
        known = {item.nodeid: item for item in items}
        items[:] = [known[name] for name in self.choice.order(known)]

    def pytest_runtest_protocol(self, item):
        self.told = ("ok", "")
        # A hook that answers something is the last that is asked: the test does not run.
        return None if self.choice.begins(item.nodeid) else True

    def pytest_runtest_logreport(self, report):
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.told = ("failed", crash.message if crash else str(report.longrepr)[-300:])
        elif report.skipped and self.told[0] == "ok":
            self.told = ("skipped", str(report.longrepr)[-300:])
        if report.when == "teardown":
            ended(report.nodeid, *self.told)


def run_pytest(choice, folder, files):
    import pytest  # pylint: disable=import-outside-toplevel,import-error
    os.chdir(folder)
    sys.path.insert(0, folder)
    options = ["-q", "--noconftest", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-m",
               "not slow and not multi_gpu"]
    pytest.main(options + [name for name in files if pathlib.Path(name).exists()], plugins=[Plugin(choice)])


def main():
    name, seconds, each, part = sys.argv[1:5]
    choice = Choice(float(seconds), float(each), [int(number) for number in part.split("/")], sys.stdin.read())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if name == "numba":
        run_numba(choice, *(sys.argv[5:] or [None]))
    else:
        run_pytest(choice, sys.argv[5], FILES[name])
    say(end=True)
    # What ends a library is not what is looked at here.
    if os.environ.get("GANTRY_TORCH_QUICK_END"):
        os._exit(0)


if __name__ == "__main__":
    main()

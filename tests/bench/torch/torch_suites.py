# SPDX-License-Identifier: Apache-2.0
"""The tests of CUDA that another framework's wheel brings: torch_suites.py SECONDS [FOLDER]. Runs in PyTorch's environment.

Of numba-cuda (CuPy's wheel has none). In an order that depends on nothing, as many as begin within SECONDS; of the names on standard
input, one a line, these and no others. One line for each, flushed, so that after a death it is known where: {"begins": name}, then
{"test": name, "verdict": "ok", "skipped" or "failed", "why": ..}; {"end": true} at the end. FOLDER: its packages come before others.
"""
import contextlib
import hashlib
import importlib
import io
import json
import os
import pkgutil
import sys
import time
import unittest

PACKAGES = ("numba.cuda.tests.cudapy", "numba.cuda.tests.cudadrv")


def say(**what):
    print(json.dumps(what), file=sys.__stdout__, flush=True)


def tests_of(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests_of(one)
        else:
            yield one


def all_tests():
    """{name: test}; modules that cannot be imported, for want of another package mostly, have none."""
    found = {}
    for package in PACKAGES:
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
    # What a test prints is no line of ours.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        test.run(result)
    wrong = result.errors + result.failures
    if wrong:
        return "failed", wrong[0][1].strip().splitlines()[-1][:300]
    return ("skipped", result.skipped[0][1][:300]) if result.skipped else ("ok", "")


def main():
    seconds, names = float(sys.argv[1]), sys.stdin.read().split("\n")
    sys.path[:0] = sys.argv[2:]
    import numpy  # pylint: disable=import-outside-toplevel
    # numba-cuda wants a name that NumPy 2.5 no longer has.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    tests = all_tests()
    wanted = [name for name in names if name]
    order = [name for name in wanted if name in tests] or sorted(tests, key=lambda name: hashlib.sha256(name.encode()).digest())
    until = time.monotonic() + seconds
    for name in order:
        if time.monotonic() > until:
            break
        say(begins=name)
        verdict, why = verdict_of(tests[name])
        say(test=name, verdict=verdict, why=why)
    say(end=True)
    # What ends a library is not what is looked at here.
    if os.environ.get("GANTRY_TORCH_QUICK_END"):
        os._exit(0)


if __name__ == "__main__":
    main()

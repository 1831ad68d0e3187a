# SPDX-License-Identifier: Apache-2.0
"""The tests of CUDA that Numba, PyTorch and CuPy have written, natively and over our libraries.

GANTRY_TORCH_MORE names a folder with the tests' sources, tests/torch and tests/cupy, and with relinked/, CuPy's libraries that its wheel
has NVIDIA's static runtime in, built from CuPy's sources with the shared one; torch_gather.py makes it.
"""
import collections
import concurrent.futures
import json
import pathlib
import time

import torch_compare
import torch_world
from torch_figures import HERE, Figure, TENANT, harness
from torch_two import MORE, with_more

DEATHS = 40
# A second look at what failed here, one after the other.
AGAIN_S = 25
LARGE = dict(TENANT, mem="100G", virtual="120G", host_mem="16G", sessions="64")
# SECONDS, EACH and PARTS as torch_suites.py takes them; the folder of the sources below GANTRY_TORCH_MORE.
Suite = collections.namedtuple("Suite", "name whose seconds each parts folder packages")


class Side:
    """A suite over one side's libraries: processes that run it."""

    def __init__(self, bench, agent, suite):
        self.bench, self.agent, self.suite = bench, agent, suite
        self.python = bench.place.python if agent else torch_world.PYTHON
        env = {**agent.guest_env("red"), **bench.place.guest_env} if agent else torch_world.native_environment()
        env = with_more({**env, **bench.scratch(suite.name, agent is not None)})
        if suite.packages:
            env["PYTHONPATH"] = f"{suite.packages}:{env['PYTHONPATH']}"
            # Those that were built say no folder of the runtime's. A guest's are ours.
            if not agent:
                env["LD_LIBRARY_PATH"] = ":".join(part for part in (bench.place.vendor, env.get("LD_LIBRARY_PATH")) if part)
        self.env = env

    def all(self, names):
        """{test: (verdict, why)} of @names, or of as many as there is time for."""
        parts = range(self.suite.parts)
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            found = {}
            for one in pool.map(lambda index: self.part(index, names[index::len(parts)], self.suite.seconds), parts):
                found.update(one)
        return found

    def part(self, index, names, seconds):
        """A death costs the test it was at."""
        found, until = {}, time.monotonic() + self.bench.count(seconds)
        if names == [] and self.agent:
            return found
        for _ in range(DEATHS):
            words = [name for name in names if name not in found] if names else ["-" + name for name in found]
            argv = [self.python, str(HERE / "torch_suites.py"), self.suite.name, str(max(until - time.monotonic(), 1)), str(self.suite.each),
                    f"{index}/{self.suite.parts}", *([self.suite.folder] if self.suite.folder else [])]
            done = torch_compare.run_with_input(argv, self.env, "\n".join(words), self.bench)
            lines = [json.loads(text) for text in done.out.splitlines() if text.startswith("{")]
            found.update((line["test"], (line["verdict"], line["why"])) for line in lines if "test" in line)
            if not lines:
                raise harness.Failure(f"no test was tried: {(done.out + done.err).strip()[-300:]}")
            if "begins" in lines[-1]:
                found[lines[-1]["begins"]] = ("failed", f"the process ended, status {done.code}: {done.err.strip()[-200:]}")
            if "end" in lines[-1] or done.code == 124 or time.monotonic() > until or (names and set(names) <= set(found)):
                break
        return found


def passed(suite, native, ours, again):
    """Of the tests that pass natively, how many pass here. again: tests that failed here and passed when they ran once more."""
    wanted = [name for name, (verdict, _) in native.items() if verdict == "ok"]
    told = {name: ours[name] for name in wanted if name in ours}
    bad = {name: row for name, row in told.items() if row[0] != "ok" and name not in again}
    for name, (verdict, why) in bad.items():
        print(f"## {suite.name} {name}: {verdict}: {why}", flush=True)
    for name in again:
        print(f"## {suite.name} {name}: passes when it runs again; first {told[name][0]}: {told[name][1]}", flush=True)
    failing = collections.Counter(verdict for verdict, _ in native.values())
    how = f"{len(told) - len(bad)} of {len(told)} tests of {suite.whose} that pass natively, {len(again)} of them when they ran again; " \
          f"natively {failing['skipped']} are skipped and {failing['failed']} fail, {len(wanted) - len(told)} were not reached here"
    if not told:
        raise harness.Failure(f"no test was tried on both sides: {how}")
    yield Figure(f"{suite.name}_tests_passed", 100 * (1 - len(bad) / len(told)), "%", how, (">=", 95))


def compared(bench, suite):
    native = Side(bench, None, suite).all([])
    print(f"## {suite.name}: natively {json.dumps({name: row for name, row in native.items() if row[0] == 'failed'})[:20000]}", flush=True)
    with bench.place.world({"red": LARGE}) as agent:
        side = Side(bench, agent, suite)
        ours = side.all([name for name, (verdict, _) in native.items() if verdict == "ok"])
        bad = [name for name, (verdict, _) in ours.items() if verdict != "ok"]
        again = side.part(0, bad, AGAIN_S) if bad else {}
        yield from passed(suite, native, ours, [name for name in bad if again.get(name, ("",))[0] == "ok"])


def more(*names):
    """A folder of GANTRY_TORCH_MORE's."""
    path = pathlib.Path(MORE, *names)
    if not MORE or not path.is_dir():
        raise harness.Skip(f"GANTRY_TORCH_MORE names no folder with {'/'.join(names)}: torch_gather.py makes one")
    return path


def numba_tests(bench):
    yield from compared(bench, Suite("numba", "Numba's", 50, 30, 4, MORE, None))


def torch_test_cuda(bench):
    yield from compared(bench, Suite("torch", "PyTorch's test_cuda.py", 70, 30, 3, str(more("tests", "torch")), None))


def cupy_tests(bench):
    """CuPy of the environment, but for the libraries that were built with the shared runtime, on both sides."""
    relinked = more("relinked")
    said = (relinked / "VERSION").read_text(encoding="utf-8").strip()
    if not list(bench.place.site.glob(f"cupy_cuda13x-{said}.dist-info")):
        raise harness.Skip(f"the environment has not the CuPy {said} that {relinked} was built for")
    packages = bench.place.folder / "relinked"
    if not packages.exists():
        torch_world.overlay(bench.place.site, relinked, packages)
    yield from compared(bench, Suite("cupy", "CuPy's", 60, 30, 4, str(more("tests", "cupy")), str(packages)))

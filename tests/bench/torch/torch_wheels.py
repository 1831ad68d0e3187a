# SPDX-License-Identifier: Apache-2.0
"""The tests of CUDA that Numba's wheel brings, natively and over our libraries."""
import json

import torch_compare
import torch_world
from torch_figures import HERE, Figure, TENANT, harness
from torch_two import MORE, with_more

SUITE_S = 60
DEATHS = 6


def suite(bench, agent, names):
    """{test: (verdict, why)} of @names, or of as many as there is time for. Of @names a death costs the one it was at."""
    found, left = {}, list(names)
    for _ in range(DEATHS):
        env = {**agent.guest_env("red"), **bench.place.guest_env} if agent else torch_world.native_environment()
        argv = [torch_world.PYTHON, str(HERE / "torch_suites.py"), str(bench.count(SUITE_S)), *([MORE] if MORE else [])]
        done = torch_compare.run_with_input(argv, with_more(env), "\n".join(left), bench)
        lines = [json.loads(text) for text in done.out.splitlines() if text.startswith("{")]
        found.update((line["test"], (line["verdict"], line["why"])) for line in lines if "test" in line)
        if not lines:
            raise harness.Failure(f"no test was tried: {done.err.strip()[-300:]}")
        if "end" in lines[-1] or done.code == 124:
            break
        if "begins" in lines[-1]:
            found[lines[-1]["begins"]] = ("failed", f"the process ended, status {done.code}: {done.err.strip()[-200:]}")
        left = [name for name in left if name not in found]
        if not left:
            break
    return found


def passed(native, ours):
    """Of the tests that pass natively, how many pass here."""
    wanted = [name for name, (verdict, _) in native.items() if verdict == "ok"]
    told = {name: ours[name] for name in wanted if name in ours}
    bad = {name: row for name, row in told.items() if row[0] != "ok"}
    for name, (verdict, why) in bad.items():
        print(f"## numba {name}: {verdict}: {why}", flush=True)
    how = f"{len(told) - len(bad)} of {len(told)} tests of Numba's that pass natively; {len(native) - len(wanted)} do not, " \
          f"{len(wanted) - len(told)} were not reached here"
    if not told:
        raise harness.Failure(f"no test was tried on both sides: {how}")
    yield Figure("numba_tests_passed", 100 * (1 - len(bad) / len(told)), "%", how, (">=", 95))


def numba_tests(bench):
    native = suite(bench, None, [])
    with bench.place.world({"red": TENANT}) as agent:
        yield from passed(native, suite(bench, agent, [name for name, (verdict, _) in native.items() if verdict == "ok"]))

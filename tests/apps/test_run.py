#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The runner of public programs, with programs of our own over the fake driver, ours on both sides."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]
import harness  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position

NAME = "cuda-runtime-basics-fake"


def load_run():
    loader = importlib.machinery.SourceFileLoader("apps_run", str(HERE / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("apps_run", loader))
    loader.exec_module(module)
    return module


def put(apps, name, text=None):
    """A program in a folder of its own: a copy of the build's, or a script."""
    folder = pathlib.Path(apps, name)
    folder.mkdir()
    if text is None:
        shutil.copy2(harness.program(NAME), folder / name)
    else:
        (folder / name).write_text(text, encoding="ascii")
        (folder / name).chmod(0o755)


def run_all(listed, apps, *options):
    """(exit status, the results file, what was printed)"""
    kept = programs.PROGRAMS, sys.argv, dict(os.environ)
    results = pathlib.Path(apps, "results.json")
    programs.PROGRAMS = listed
    sys.argv = ["run", "--backend", "fakecuda", "--self", "--apps", str(apps), "--json", str(results), *options]
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = load_run().main()
    finally:
        programs.PROGRAMS, sys.argv, environment = kept
        os.environ.clear()
        os.environ.update(environment)
    if not results.exists():
        raise harness.Skip(out.getvalue().strip())
    return code, json.loads(results.read_text(encoding="utf-8")), out.getvalue()


def row(name, **how):
    return programs.Program(name, "rodinia", ("kernels",), **how)


def test_program_that_says_the_same_passes_and_is_timed(t):
    with tempfile.TemporaryDirectory(prefix="gantry-apps-test-") as apps:
        os.chmod(apps, 0o755)
        put(apps, NAME)
        code, results, _ = run_all([row(NAME, sums=True, timed=True), row("absent")], apps, "--rounds", "1")
    t.equal(code, 0, "exit status")
    seen, absent = results["programs"]
    t.equal([seen["verdict"], absent["verdict"], absent["why"]], ["same", "skipped", "absent"], "verdicts")
    for name in ("wall_s", "after_first_launch_s", "first_kernel_s"):
        t.true(all(seen[name][side] > 0 for side in ("native", "guest")), name)
    t.equal(results["summary"]["wall_s"]["programs"], 1, "timed programs")


def test_program_that_says_something_else_or_fails_on_one_side_is_told(t):
    # The second run of each finds what the first has left.
    twice = "#!/bin/sh\nif mkdir {mark} 2>/dev/null; then echo first; exit 0; fi\necho {word}; exit {code}\n"
    with tempfile.TemporaryDirectory(prefix="gantry-apps-test-") as apps:
        os.chmod(apps, 0o755)
        put(apps, "other", twice.format(mark=os.path.join(apps, "m1"), word="second", code=0))
        put(apps, "failing", twice.format(mark=os.path.join(apps, "m2"), word="first", code=3))
        put(apps, "writing", f"#!/bin/sh\nmkdir {apps}/m3 2>/dev/null && echo 1 >result || echo 2 >result\n")
        code, results, said = run_all([row("other"), row("failing"), row("writing")], apps)
    t.equal(code, 1, "exit status")
    t.equal([one["verdict"] for one in results["programs"]], ["differs", "failed", "differs"], "verdicts")
    t.contains(results["programs"][0]["why"], "'second', natively 'first'")
    t.contains(results["programs"][2]["why"], "the file result")
    t.contains(said, "0 passed, 3 failed, 0 skipped")


if __name__ == "__main__":
    harness.main(globals(), limit_s=90)

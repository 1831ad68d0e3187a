#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs: one short measurement through a private agent. What it measures is nobody's business here."""
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
import harness  # pylint: disable=wrong-import-position


def test_placement_is_measured_beside_its_baseline(t):
    harness.program("bench-fleet")
    env = dict(os.environ, GANTRY_BUILD=str(harness.build_dir()))
    ended = subprocess.run([sys.executable, str(HERE / "elastic" / "run"), "--quick"], env=env, capture_output=True,
                           text=True, check=False)
    t.equal(ended.returncode, 0, ended.stderr)
    for name in ("elastic_1_over_native", "elastic_2_over_native", "urgent_pace_over_native", "others_over_one_device"):
        t.contains(ended.stdout, name)


def test_moves_between_kinds_are_forced_and_nothing_is_lost(t):
    harness.program("bench-kinds")
    env = dict(os.environ, GANTRY_BUILD=str(harness.build_dir()))
    ended = subprocess.run([sys.executable, str(HERE / "kinds" / "run"), "--quick", "--only", "cpu_window", "--only", "sim_fpga"],
                           env=env, capture_output=True, text=True, check=False)
    t.equal(ended.returncode, 0, ended.stdout + ended.stderr)
    figures = {figure["name"]: figure for figure in map(json.loads, ended.stdout.splitlines())}
    t.equal(figures["forced_kinds_lost"]["value"], 0)
    t.equal(figures["forced_kinds_moves"]["value"], 804)


def bench(*words):
    env = dict(os.environ, GANTRY_BUILD=str(harness.build_dir()))
    return subprocess.run([sys.executable, str(HERE / "run"), "--quick", *words], env=env, capture_output=True, text=True,
                          check=False)


def test_json_has_a_figure_a_line_beside_its_baseline(t):
    harness.program("gantryd")
    ended = bench("--json", "--only", "attach_ms")
    t.equal(ended.returncode, 0, ended.stderr)
    figures = {figure["name"]: figure for figure in map(json.loads, ended.stdout.splitlines())}
    for name in ("environment", "attach_raw_ms", "attach_ms", "attach_open_ms"):
        t.true(name in figures, f"no {name} in {sorted(figures)}")
    t.true(figures["attach_ms"]["value"] > 0)
    t.equal(figures["attach_ms"]["unit"], "ms")
    t.equal(figures["attach_ms"]["target"], "<= 5")


def test_report_is_written_and_names_the_machine(t):
    harness.program("gantryd")
    with harness.Agent(start=False) as folders:
        path = folders.root / "report.html"
        ended = bench("--only", "submit", "--report", str(path))
        t.equal(ended.returncode, 0, ended.stderr)
        t.contains(path.read_text(encoding="utf-8"), "submit_ns")


def test_unknown_measurement_is_refused(t):
    ended = bench("--only", "nothing")
    t.equal(ended.returncode, 2)
    t.contains(ended.stderr, "no measurement nothing")


if __name__ == "__main__":
    harness.main(globals())

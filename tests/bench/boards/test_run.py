#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of boards runs, and its figures are of what it was to measure: one workload of milliseconds, once. How fast that was is no test."""
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parents[1] / "system"))
import harness  # pylint: disable=wrong-import-position


def run(*words):
    return harness.run([sys.executable, HERE / "run"] + list(words), timeout=150)


def test_workload_is_measured_with_its_baselines(t):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        ended = run("--only", "A", "--repeat", "1", "--json", report)
        t.code(ended, 0)
        if ended.out.startswith("skipped: "):
            raise harness.Skip(ended.out[len("skipped: "):].strip())
        found = json.loads(report.read_text())
    row, = found["workloads"]
    t.equal((row["workload"], row["programs"]), ("A", "hotspot:3 hotspot:3"))
    # Six launches of 5 ms: one after the other in one process, two at a time through gantryd, and none from nothing.
    t.true(row["single_ms"] >= 30 and row["shared_ms"] >= 30, f"the baselines: {row}")
    t.true(row["manager_ms"] >= 15 and row["spatial_ms"] >= 15, f"through gantryd: {row}")
    t.equal(row["best_fixed_ms"], min(row["single_ms"], row["shared_ms"], row["spatial_ms"]))
    t.true(row["loadings"] >= 1, f"loadings: {row}")
    t.equal(sorted(found["figures"]), ["less_than_shared_most_pct", "less_than_single_most_pct", "over_best_fixed_worst_pct",
                                       "over_shared_worst_pct", "over_single_worst_pct"])
    t.true(abs(found["figures"]["over_shared_worst_pct"] - 100 * (row["manager_ms"] / row["shared_ms"] - 1)) < 1e-6, "a figure")


def test_workload_that_there_is_not_is_refused(t):
    ended = run("--only", "AZ")
    t.code(ended, 2)
    t.contains(ended.err, "no workload Z")


if __name__ == "__main__":
    harness.main(globals(), limit_s=200)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The test runner counts points, and no way of ending badly passes for success."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import threading
import unittest
from unittest import mock

import tap

sys.dont_write_bytecode = True
TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
LOADER = importlib.machinery.SourceFileLoader("run_tests", os.path.join(TOP, "tools", "run-tests"))
run_tests = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", LOADER))
LOADER.exec_module(run_tests)


def run(script, protocol="tap", timeout=10):
    test = {"name": "t", "cmd": ["/bin/sh", "-c", script], "env": {}, "workdir": None, "timeout": timeout,
            "protocol": protocol}
    return run_tests.run_test(test, 1.0)


def counts(result):
    return result.passed, len(result.failures), result.skipped


class RunTests(unittest.TestCase):
    def test_tap_points_are_counted_one_by_one(self):
        result = run("echo 'ok 1 - a'; echo noise; echo 'ok 2 - b # SKIP no gpu'; echo 'not ok 3 - c'; echo 1..3; exit 1")
        self.assertEqual(counts(result), (1, 1, 1))
        self.assertEqual(result.failures, ["c"])

    def test_tap_failure_comes_with_what_was_said_last(self):
        result = run("echo '# x.py:3: 1 is not 2'; echo 'not ok 1 - sum'; echo 'not ok 2 - next'; echo 1..2; exit 1")
        self.assertEqual(result.failures, ["sum: x.py:3: 1 is not 2", "next"])

    def test_tap_plan_in_front_is_fine(self):
        self.assertEqual(counts(run("printf '1..2\\nok 1\\nok 2\\n'")), (2, 0, 0))

    def test_tap_fewer_points_than_planned_fails(self):
        self.assertEqual(counts(run("printf '1..3\\nok 1\\n'")), (1, 1, 0))

    def test_tap_without_plan_fails(self):
        self.assertEqual(counts(run("echo ok 1")), (1, 1, 0))

    def test_tap_silence_fails(self):
        self.assertEqual(counts(run("true")), (0, 1, 0))

    def test_tap_bad_exit_status_fails_though_points_passed(self):
        self.assertEqual(counts(run("printf '1..1\\nok 1\\n'; exit 3")), (1, 1, 0))

    def test_tap_bail_out_fails(self):
        self.assertEqual(counts(run("printf '1..1\\nBail out! no memory\\n'")), (0, 1, 0))

    def test_tap_plan_of_zero_is_a_skip(self):
        self.assertEqual(counts(run("echo '1..0 # SKIP no device'")), (0, 0, 1))

    def test_death_by_signal_fails_and_names_it(self):
        result = run("printf '1..1\\nok 1\\n'; kill -SEGV $$")
        self.assertEqual(result.failures, ["ended by SIGSEGV"])

    def test_time_limit_ends_the_test_and_its_children(self):
        result = run("sleep 60 & sleep 60", timeout=0.2)
        self.assertEqual(result.failures, ["took too long"])
        self.assertLess(result.seconds, 30)

    def test_child_left_behind_does_not_hold_the_runner(self):
        result = run("printf '1..1\\nok 1\\n'; sleep 60 >/dev/null 2>&1 &")
        self.assertEqual(counts(result), (1, 0, 0))
        self.assertLess(result.seconds, 30)

    def test_exit_code_protocol_counts_one_point(self):
        self.assertEqual(counts(run("exit 0", "exitcode")), (1, 0, 0))
        self.assertEqual(counts(run("exit 1", "exitcode")), (0, 1, 0))
        self.assertEqual(counts(run("echo no vm; exit 77", "exitcode")), (0, 0, 1))

    def test_program_that_is_not_there_fails(self):
        test = {"name": "t", "cmd": ["/nonexistent"], "env": {}, "workdir": None, "timeout": 1, "protocol": "tap"}
        self.assertEqual(counts(run_tests.run_test(test, 1.0)), (0, 1, 0))

    def under_way(self, tests, jobs=3):
        """The sets of names that were seen to run at one time, in the order of their beginnings."""
        lock, running, seen = threading.Lock(), set(), []
        here = threading.Barrier(2)

        def run_one(test, _factor):
            with lock:
                running.add(test["name"])
                seen.append(set(running))
            if test.get("meets"):
                here.wait(60)   # two that others may run beside do run at one time
            with lock:
                running.remove(test["name"])
            result = run_tests.Result()
            result.passed = 1
            return result

        report = run_tests.Report(False)
        with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(run_tests, "run_test", run_one):
            run_tests.run_all([("suite", test) for test in tests], jobs, 1.0, report)
        self.assertEqual(report.passed, len(tests))
        return seen

    @staticmethod
    def a_test(name, lane=None, parallel=True, priority=0, meets=False):
        return {"name": name, "env": {"GANTRY_TEST_LANE": lane} if lane else {}, "is_parallel": parallel,
                "priority": priority, "meets": meets}

    def test_tests_run_beside_each_other_and_alone_where_they_say_so(self):
        seen = self.under_way([self.a_test("alone", parallel=False), self.a_test("a", meets=True), self.a_test("b", meets=True)])
        self.assertIn({"a", "b"}, seen)
        self.assertEqual(seen[-1], {"alone"})

    def test_of_a_lane_one_runs_at_a_time_and_holds_up_no_other(self):
        tests = [self.a_test(f"lane{n}", lane="x") for n in range(20)] + [self.a_test(f"free{n}") for n in range(20)]
        for running in self.under_way(tests):
            self.assertLessEqual(sum(name.startswith("lane") for name in running), 1, running)
        seen = self.under_way([self.a_test("one", lane="x", meets=True), self.a_test("two", lane="x"),
                               self.a_test("free", meets=True)], jobs=2)
        self.assertIn({"one", "free"}, seen)

    def test_what_takes_long_begins_first(self):
        seen = self.under_way([self.a_test("a"), self.a_test("b"), self.a_test("long", priority=5)], jobs=1)
        self.assertEqual(seen, [{"long"}, {"a"}, {"b"}])

    def test_a_name_that_a_suite_has_twice_is_told(self):
        tests = [self.a_test(name) for name in ("a", "b", "c", "b", "a", "b")]
        self.assertEqual(run_tests.named_twice(tests), ["a", "b"])
        with mock.patch.object(run_tests, "load_tests", lambda build: {"suite": tests}), \
                mock.patch.object(run_tests, "run_test", lambda test, factor: run_tests.Result()), \
                mock.patch.object(sys, "argv", ["run-tests", "build"]), \
                contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(run_tests.main(), 1)
        self.assertIn("FAIL  suite: b is defined twice", printed.getvalue())
        self.assertIn("0 passed, 2 failed", printed.getvalue())

    def retried(self, script, most):
        """What the report says after tests of @script, which may tell its runs apart by the file $SEEN."""
        with tempfile.TemporaryDirectory() as folder:
            test = {"name": "t", "cmd": ["/bin/sh", "-c", script], "env": {"SEEN": os.path.join(folder, "seen")},
                    "workdir": None, "timeout": 10, "protocol": "tap"}
            report, printed = run_tests.Report(False), io.StringIO()
            with contextlib.redirect_stdout(printed):
                report.add("suite", test, run_tests.run_test(test, 1.0))
                report.retry(1.0, most)
            return (report.passed, report.failed, report.skipped), printed.getvalue()

    ONCE = "if [ -e $SEEN ]; then echo 'ok 1 - a'; else touch $SEEN; echo 'not ok 1 - a'; fi; echo 'ok 2 - b'; echo 1..2"

    def test_what_fails_once_is_named_flaky(self):
        seen, printed = self.retried(self.ONCE, 1)
        self.assertEqual(seen, (2, 0, 0))
        self.assertIn("flaky suite     t: failed once, and not when it ran alone: a", printed)

    def test_what_fails_twice_fails(self):
        seen, printed = self.retried("echo 'not ok 1 - a'; echo 1..1; exit 1", 1)
        self.assertEqual(seen, (0, 1, 0))
        self.assertNotIn("flaky", printed)

    def test_nothing_is_retried_unasked_or_when_too_much_failed(self):
        self.assertEqual(self.retried(self.ONCE, 0)[0], (1, 1, 0))


if __name__ == "__main__":
    tap.main()

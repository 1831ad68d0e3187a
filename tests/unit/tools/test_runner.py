#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The unit test runner notices everything that test_runner.c does wrong: test_runner.py BINARY."""
import subprocess
import sys
import unittest

import tap


class Runner(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = subprocess.run([BINARY], capture_output=True, text=True, check=False, timeout=60)
        cls.status = done.returncode
        cls.lines = done.stdout.splitlines()

    def line_of(self, name):
        found = [line for line in self.lines if f":{name}: " in line]
        self.assertEqual(len(found), 1, self.lines)
        return found[0]

    def test_failure_makes_the_exit_status_bad(self):
        self.assertEqual(self.status, 1)

    def test_plan_counts_every_test(self):
        self.assertIn("1..10", self.lines)

    def test_good_test_is_ok(self):
        self.assertTrue(self.line_of("good").startswith("ok "))

    def test_skipped_test_is_ok_with_its_reason(self):
        line = self.line_of("skips")
        self.assertTrue(line.startswith("ok "))
        self.assertTrue(line.endswith("# SKIP no such device"))

    def test_each_way_to_go_wrong_is_not_ok(self):
        for name in ("fails", "leaks_descriptor", "keeps_more_than_is_allowed", "keeps_another_kind", "leaks_thread",
                     "crashes", "hangs"):
            self.assertTrue(self.line_of(name).startswith("not ok "), name)

    def test_leaks_are_named(self):
        self.assertIn("leaked 1 descriptors", self.line_of("leaks_descriptor"))
        self.assertIn("=/dev/null", self.line_of("leaks_descriptor"))
        self.assertIn("leaked 1 descriptors", self.line_of("keeps_more_than_is_allowed"))

    def test_what_a_library_may_keep_is_no_leak(self):
        self.assertTrue(self.line_of("keeps_what_is_allowed").startswith("ok "))
        self.assertRegex(self.line_of("leaks_thread"), "leaked [12] threads")


if __name__ == "__main__":
    BINARY = sys.argv.pop()
    tap.main()

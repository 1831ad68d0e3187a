# SPDX-License-Identifier: Apache-2.0
"""Runs a unittest module and prints TAP: `tap.main()` instead of `unittest.main()`."""
import sys
import unittest


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.number = 0

    def point(self, test, passed, note=""):
        self.number += 1
        print(f"{'ok' if passed else 'not ok'} {self.number} - {test.id().split('.')[-1]}{note}", flush=True)

    def complain(self, test, failure):
        self.point(test, False)
        for line in self._exc_info_to_string(failure, test).splitlines():
            print(f"# {line}")

    def addSuccess(self, test):
        super().addSuccess(test)
        self.point(test, True)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.complain(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self.complain(test, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.point(test, True, f" # SKIP {reason}")


def main():
    result = Result()
    unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]).run(result)
    print(f"1..{result.number}")
    sys.exit(0 if result.wasSuccessful() else 1)

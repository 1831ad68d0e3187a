# SPDX-License-Identifier: Apache-2.0
"""tools/gdb-gantry.py: test_gdb.py GDB PROGRAM"""
import os
import subprocess
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.append(os.path.join(TOP, "tests", "unit", "tools"))

import tap  # noqa: E402

GDB, PROGRAM = sys.argv[1:3]


def run_gdb(*commands):
    args = [GDB, "-nx", "-batch", "-ex", "source " + os.path.join(TOP, "tools", "gdb-gantry.py")]
    for command in commands:
        args += ["-ex", command]
    result = subprocess.run([*args, PROGRAM], capture_output=True, text=True, timeout=40)
    return result.stdout


class Gdb(unittest.TestCase):
    def test_handles_and_tickets_print_in_words(self):
        out = run_gdb("print buffer", "print ticket")
        self.assertIn("(buffer 3, generation 9)", out)
        self.assertIn("(queue 2, sequence number 17)", out)

    def test_commands_take_any_number(self):
        out = run_gdb("gantry-handle 0", "gantry-ticket 0", "gantry-handle buffer", "gantry-status status",
                      "gantry-status -9999")
        self.assertEqual(out.splitlines(), ["none", "finished", "buffer 3, generation 9", "GANTRY_E_SPAN (-3)",
                                            "unknown (-9999)"])


if __name__ == "__main__":
    tap.main()

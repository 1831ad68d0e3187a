#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The room checker refuses what the table forbids, and the tree itself obeys the table."""
import os
import subprocess
import tempfile
import unittest

import tap

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
CHECK_ROOMS = os.path.join(TOP, "tools", "check-rooms")
TABLE = os.path.join(TOP, "tools", "rooms.deps")


class CheckRooms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for header in ("base/err.h", "proto/vocab.h", "proto/ring.h", "devices/device.h", "devices/inner.h"):
            self.write(header, "")

    def write(self, path, text):
        path = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def check(self, root=None, table=TABLE):
        done = subprocess.run([CHECK_ROOMS, "--root", root or self.folder.name, "--deps", table],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_the_tree_obeys_its_table(self):
        self.assertEqual(self.check(root=TOP), (0, ""))

    def test_planted_include_of_forbidden_header_is_named_with_its_line(self):
        self.write("devices/null/null.c", '#include <stdio.h>\n\n#include "proto/ring.h"\n')
        self.assertEqual(self.check(), (1, "devices/null/null.c:3: devices may not include proto/ring.h\n"))

    def test_planted_relative_include_is_not_missed(self):
        self.write("devices/null/null.c", '#  include "../../proto/ring.h"\n')
        self.assertEqual(self.check(), (1, "devices/null/null.c:1: devices may not include proto/ring.h\n"))

    def test_include_of_generated_header_is_judged_by_its_name(self):
        self.write("base/log.c", '#include "proto/generated.h"\n')
        self.assertEqual(self.check(), (1, "base/log.c:1: base may not include proto/generated.h\n"))

    def test_single_header_grant_does_not_open_its_room(self):
        self.write("migration/save.c", '#include "devices/device.h"\n')
        self.assertEqual(self.check()[0], 0)
        self.write("migration/load.c", '#include "devices/inner.h"\n')
        self.assertEqual(self.check(), (1, "migration/load.c:1: migration may not include devices/inner.h\n"))

    def test_own_room_and_rooms_above_are_allowed(self):
        self.write("devices/null/null.c", '#include "base/err.h"\n#include "devices/inner.h"\n#include "local.h"\n')
        self.write("devices/null/local.h", '#include "proto/vocab.h"\n')
        self.assertEqual(self.check(), (0, ""))

    def test_tests_may_include_anything(self):
        self.write("tests/unit/x.c", '#include "devices/inner.h"\n#include "proto/ring.h"\n')
        self.assertEqual(self.check(), (0, ""))

    def test_table_that_names_a_room_below_is_refused(self):
        table = self.write("rooms.deps", "base: proto\nproto:\n")
        status, output = self.check(table=table)
        self.assertEqual(status, 2)
        self.assertIn("proto is no room above this line", output)


if __name__ == "__main__":
    tap.main()

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Configurations resolve, and a choice that cannot be granted is refused."""
import glob
import os
import subprocess
import tempfile
import unittest

import tap

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))


class Kconfig(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def resolve(self, choices_path):
        output = os.path.join(self.folder.name, "resolved")
        done = subprocess.run([os.path.join(TOP, "tools/kconfig"), os.path.join(TOP, "Kconfig"), choices_path, output],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.returncode, done.stderr
        with open(output, encoding="utf-8") as file:
            return 0, file.read()

    def resolve_text(self, choices):
        path = os.path.join(self.folder.name, "choices")
        with open(path, "w", encoding="utf-8") as file:
            file.write(choices)
        return self.resolve(path)

    def test_every_configuration_resolves(self):
        for path in glob.glob(os.path.join(TOP, "configs/*.config")):
            self.assertEqual(self.resolve(path)[0], 0, path)

    def test_guest_configuration_builds_nothing_of_the_host(self):
        resolved = self.resolve(os.path.join(TOP, "configs/guest.config"))[1]
        self.assertIn("CONFIG_GUEST_SHIM=y", resolved)
        for symbol in ("AGENT", "CTL", "MIGRATION", "BACKEND_CUDA", "TESTS"):
            self.assertNotIn(f"CONFIG_{symbol}=y", resolved)

    def test_unknown_symbol_is_refused_by_name(self):
        status, output = self.resolve_text("CONFIG_BACKEND_ABACUS=y\n")
        self.assertEqual(status, 1)
        self.assertIn("BACKEND_ABACUS", output)

    def test_choice_against_its_dependency_is_refused(self):
        status, output = self.resolve_text("# CONFIG_GUEST_SHIM is not set\nCONFIG_GUEST_CUDA=y\n")
        self.assertEqual(status, 1)
        self.assertIn("GUEST_CUDA", output)


if __name__ == "__main__":
    tap.main()

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What goes into a bundle, and how a run from it chooses and counts its steps."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import tap

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.dont_write_bytecode = True


def load(path, name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(TOP, path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


bundle = load("tools/make-bundle", "make_bundle")
runner = load("tests/gpu/run", "gpu_run")
TARGETS = {"a/b/guest": False, "k/probe.so": False, "x/gantryd": True}


class List(unittest.TestCase):
    def test_program_is_found_in_the_build_by_its_name(self):
        wanted = bundle.Wanted(TARGETS, ["# why", "program guest", "module probe.so # because"])
        self.assertEqual(wanted.built, [("a/b/guest", "tests/bin"), ("k/probe.so", "tests/test-kernels")])
        self.assertEqual(wanted.missing, [])

    def test_program_that_the_build_lacks_ends_it(self):
        with self.assertRaises(SystemExit) as caught:
            bundle.Wanted(TARGETS, ["", "program nobody"])
        self.assertIn(":2:", str(caught.exception))
        self.assertIn("nobody", str(caught.exception))

    def test_optional_program_that_the_build_lacks_is_left_out_by_name(self):
        wanted = bundle.Wanted(TARGETS, ["program? nobody"])
        self.assertEqual((wanted.built, wanted.missing), ([], ["nobody"]))

    def test_name_that_several_targets_have_wants_more_of_the_path(self):
        targets = {"a/one.so": False, "b/one.so": False}
        with self.assertRaises(SystemExit):
            bundle.Wanted(targets, ["module one.so"])
        self.assertEqual(bundle.Wanted(targets, ["module b/one.so"]).built, [("b/one.so", "tests/test-kernels")])

    def test_unknown_kind_is_refused(self):
        with self.assertRaises(SystemExit):
            bundle.Wanted(TARGETS, ["programme guest"])

    def test_every_source_of_the_list_is_in_the_tree(self):
        for line in bundle.LIST.read_text(encoding="utf-8").splitlines():
            kind, _, name = line.partition("#")[0].strip().partition(" ")
            if kind == "source":
                self.assertTrue(list(bundle.TREE.glob(name)), name)

    def test_libc_stays_and_other_libraries_go_along(self):
        self.assertTrue(bundle.OF_LIBC.match("libc.so.6"))
        self.assertTrue(bundle.OF_LIBC.match("ld-linux-x86-64.so.2"))
        self.assertFalse(bundle.OF_LIBC.match("libcap-ng.so.0"))
        self.assertFalse(bundle.OF_LIBC.match("libevent_core-2.1.so.7"))


class Run(unittest.TestCase):
    def run_gpu_tests(self, *args, build):
        return subprocess.run([os.path.join(TOP, "tests/gpu/run"), "--backend", "cpu", *args], capture_output=True,
                              text=True, env=dict(os.environ, GANTRY_BUILD=build), check=False)

    def test_step_that_the_build_lacks_is_skipped_and_nothing_passed_is_a_failure(self):
        with tempfile.TemporaryDirectory() as build:
            ended = self.run_gpu_tests("contract", build=build)
        self.assertEqual(ended.stdout.splitlines()[-1], "0 passed, 0 failed, 1 skipped")
        self.assertIn("no contract-devices-suite", ended.stdout)
        self.assertEqual(ended.returncode, 1)

    def test_step_beyond_the_budget_is_skipped_by_name(self):
        with tempfile.TemporaryDirectory() as build:
            ended = self.run_gpu_tests("--budget", "1", "contract", build=build)
        self.assertIn("of the budget are left", ended.stdout)
        self.assertEqual(ended.stdout.splitlines()[-1], "0 passed, 0 failed, 1 skipped")

    def test_unknown_step_is_refused_and_the_known_ones_are_named(self):
        with tempfile.TemporaryDirectory() as build:
            ended = self.run_gpu_tests("nonesuch", build=build)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("contract", ended.stderr)

    def test_skips_are_gathered_by_reason(self):
        self.assertEqual(runner.gathered(["a:b: # SKIP no GPU", "c:d: # SKIP no GPU", "other"]),
                         ["2 x no GPU", "other"])

    def test_figures_are_read_from_the_output(self):
        text = "ok 1 - x\n# figure attach_ms 8.5 ms\n# figure bad\n"
        self.assertEqual(runner.steps.figures_of(text), {"attach_ms": [8.5, "ms"]})


tap.main()

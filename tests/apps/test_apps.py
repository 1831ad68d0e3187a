#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What decides whether two runs of a program are the same, and the list of programs."""
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit" / "tools")]
import compare  # pylint: disable=wrong-import-position
import inputs  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position

SOURCES = json.loads((HERE / "sources.json").read_text(encoding="utf-8"))


def load_run():
    loader = importlib.machinery.SourceFileLoader("apps_run", str(HERE / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("apps_run", loader))
    loader.exec_module(module)
    return module


RUN = load_run()


def ran(code=0, out="", err="", report=None, outputs=None):
    return types.SimpleNamespace(code=code, out=out, err=err, report=report or {}, outputs=outputs or {},
                                 last_words=lambda: out.strip()[-80:])


def program(**how):
    return programs.Program("one", "rodinia", ("kernels",), **how)


class Texts(unittest.TestCase):
    def test_equal_texts_do_not_differ(self):
        self.assertEqual(compare.difference("a 1\nb 2\n", "a 1\nb 2\n"), "")

    def test_another_number_differs_and_the_line_is_named(self):
        self.assertIn("line 2: 'b 3', natively 'b 2'", compare.difference("a 1\nb 3", "a 1\nb 2"))

    def test_numbers_within_the_tolerance_are_equal_and_beyond_it_are_not(self):
        self.assertEqual(compare.difference("x = 1.0000001", "x = 1.0", tolerance=1e-6), "")
        self.assertNotEqual(compare.difference("x = 1.1", "x = 1.0", tolerance=1e-6), "")
        self.assertNotEqual(compare.difference("y = 1.0", "x = 1.0", tolerance=1e-6), "")

    def test_no_number_is_no_other_number_however_large_the_tolerance(self):
        self.assertNotEqual(compare.difference("x nan", "x 1.0", tolerance=1e9), "")
        self.assertEqual(compare.difference("x nan", "x nan", tolerance=1e-9), "")

    def test_timings_and_addresses_are_masked_but_words_are_not(self):
        self.assertEqual(compare.difference("Time = 3.1 ms at 0x7fff12345678", "Time = 9 ms at 0x7ffe00000000"), "")
        self.assertNotEqual(compare.difference("Time = 3.1 ms, FAILED", "Time = 3.1 ms, passed"), "")

    def test_a_timing_may_have_its_unit_behind_it(self):
        self.assertEqual(compare.difference("took 0.084s", "took 12s"), "")
        self.assertEqual(compare.difference("Time: 1e-3ms", "Time: 0.25ms"), "")

    def test_a_result_is_not_taken_for_a_timing(self):
        self.assertNotEqual(compare.difference("result 5", "result 6"), "")
        self.assertNotEqual(compare.difference("sum: 5.5", "sum: 6.5"), "")

    def test_a_line_too_few_differs(self):
        self.assertIn("1 lines, natively 2", compare.difference("a", "a\nb"))
        self.assertIn("2 lines, natively 1", compare.difference("a\nb", "a"))

    def test_order_counts_unless_the_program_has_none(self):
        self.assertNotEqual(compare.difference("b\na", "a\nb"), "")
        self.assertEqual(compare.difference("b\na", "a\nb", in_any_order=True), "")

    def test_masks_and_drops_are_of_lines(self):
        self.assertEqual(compare.difference("seed 4\nx", "seed 5\nx", masks=("seed",)), "")
        self.assertEqual(compare.difference("note\nx", "x", drop=("^note",)), "")


class Verdicts(unittest.TestCase):
    def test_same_exit_status_and_text_is_the_same(self):
        self.assertEqual(RUN.judge(program(), ran(out="ok"), ran(out="ok")), ("same", ""))

    def test_another_exit_status_fails(self):
        self.assertEqual(RUN.judge(program(), ran(), ran(code=1, out="no such call"))[0], "failed")

    def test_what_fails_on_both_sides_counts_for_nothing(self):
        self.assertEqual(RUN.judge(program(), ran(code=2, out="no"), ran(code=2, out="no"))[0], "skipped")

    def test_files_that_a_program_writes_are_compared(self):
        of_files = program(own_files=("log",))
        self.assertEqual(RUN.judge(of_files, ran(outputs={"result": b"1"}), ran(outputs={"result": b"1"}))[0], "same")
        self.assertEqual(RUN.judge(of_files, ran(outputs={"result": b"1"}), ran(outputs={"result": b"2"}))[0], "differs")
        self.assertEqual(RUN.judge(of_files, ran(outputs={"result": b"1"}), ran())[0], "differs")
        self.assertEqual(RUN.judge(of_files, ran(outputs={"log": b"1"}), ran(outputs={"log": b"2"}))[0], "same")

    def test_bytes_that_copies_brought_are_compared(self):
        summed = program(sums=True)
        told = {"launches": 1, "copies": 1, "bytes": 4, "sum": "aa"}
        self.assertEqual(RUN.judge(summed, ran(report=told), ran(report=told))[0], "same")
        self.assertEqual(RUN.judge(summed, ran(report=told), ran(report=dict(told, sum="ab")))[0], "differs")

    def test_functions_that_are_not_there_are_told_of_the_program_that_called_them(self):
        log = ["gantryd: session-attached tenant=red session=4 worker=2: simpleTexture pid 21482 uid 0 in 16245 us",
               "gantryd: call-missing tenant=red session=4 worker=2: cudaMallocArray is not there; gantryctl session show has all",
               "gantryd: session-attached tenant=red session=5 worker=3: other pid 3 uid 0 in 2 us"]
        self.assertEqual(RUN.missing_functions(log), {"simpleTexture": {"cudaMallocArray"}})

    def test_means_of_ratios(self):
        rows = []
        for name, guest in (("a", 2.0), ("b", 0.5), ("c", 4.0)):
            rows.append(RUN.Row(programs.Program(name, "rodinia", ("kernels",))))
            rows[-1].verdict, rows[-1].figures = "same", {"wall_s": {"native": 1.0, "guest": guest}}
        seen = RUN.summary(rows)["wall_s"]
        self.assertEqual((seen["programs"], seen["worst"], seen["worst_program"]), (3, 4.0, "c"))
        self.assertAlmostEqual(seen["geometric_mean"], 4.0 ** (1 / 3), places=3)


class Lists(unittest.TestCase):
    def test_names_are_unique_and_words_are_known(self):
        names = [one.name for one in programs.PROGRAMS]
        self.assertEqual(sorted(names), sorted(set(names)))
        for one in programs.PROGRAMS:
            self.assertIn(one.suite, programs.SUITES, one.name)
            self.assertLessEqual(set(one.covers), set(programs.COVERED), one.name)

    def test_every_word_has_a_program(self):
        self.assertEqual(set(programs.COVERED) - {word for one in programs.PROGRAMS for word in one.covers}, set())

    def test_timings_without_a_word_of_time_are_masked(self):
        how = {one.name: one for one in programs.PROGRAMS}
        for name, seen, other in (("simpleStreams", "memcopy:\t2.11\n4 streams:\t1.28", "memcopy:\t1.25\n4 streams:\t1.32"),
                                  ("immaTensorCoreGemm", "TOPS: 30.24", "TOPS: 206.76"),
                                  ("UnifiedMemoryStreams", "Task [1], thread [3] executing on device (500)\nAll Done!",
                                   "Task [1], thread [2] executing on host (91)\nAll Done!")):
            self.assertEqual(compare.difference(seen, other, masks=how[name].masks, drop=how[name].drop), "", name)
            self.assertNotEqual(compare.difference(seen, other + "\nFAILED", masks=how[name].masks, drop=how[name].drop), "", name)

    def test_every_input_has_a_maker(self):
        for one in programs.PROGRAMS:
            for name in one.inputs.values():
                self.assertTrue(name in inputs.MAKERS or name == "places.db", f"{one.name}: {name}")

    def test_every_program_has_hashes_of_its_sources_and_none_else(self):
        self.assertEqual(set(SOURCES["programs"]), {one.name for one in programs.PROGRAMS})
        for name, about in SOURCES["programs"].items():
            self.assertTrue(about["sources"], name)
            for kind in ("sources", "kernel", "beside"):
                for path, digest in about.get(kind, {}).items():
                    self.assertRegex(digest, re.compile("^[0-9a-f]{64}$"), path)
        self.assertEqual(set(SOURCES["commits"]), set(programs.SUITES))


class Build(unittest.TestCase):
    """tests/apps/build, with a compiler that writes down its words."""

    SAYS = "#!/bin/sh\nwhile [ $# -gt 0 ]; do echo \"$1\"; [ \"$1\" = -o ] && out=$2; shift; done > words\ncp words \"$out\"\n"

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        tools = self.folder / "toolkit" / "bin"
        tools.mkdir(parents=True)
        for name, text in (("nvcc", self.SAYS), ("strip", "#!/bin/sh\n")):
            (tools / name).write_text(text, encoding="ascii")
            (tools / name).chmod(0o755)
        self.env = {**os.environ, "CUDA_HOME": str(tools.parent), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        # The builder, with a list of its own: the suite's real files are not here.
        self.here = self.folder / "apps"
        self.here.mkdir()
        for name in ("build", "programs.py"):
            shutil.copy(HERE / name, self.here / name)
        about = {name: {"folder": "none", "sources": {"none.cu": "0" * 64}} for name in SOURCES["programs"]}
        about["matrixMulDrv"] = {"folder": "Samples/drv", "libraries": ["cuda"], "flags": ["-I{folder}/inc"],
                                 "sources": {"main.cpp": self.file("Samples/drv/main.cpp", b"host")},
                                 "kernel": {"kernel.cu": self.file("Samples/drv/kernel.cu", b"device")},
                                 "beside": {"words.h": self.file("Samples/drv/words.h", b"header")}}
        self.file("Samples/drv/data/picture.pgm", b"P5")
        (self.here / "sources.json").write_text(json.dumps({"programs": about}), encoding="ascii")

    def file(self, name, content):
        path = self.folder / "suites" / "cuda-samples" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def run_build(self, *words):
        return subprocess.run([str(self.here / "build"), str(self.folder / "suites"), str(self.folder / "out"), *words],
                              env=self.env, capture_output=True, text=True, check=False)

    def test_builds_a_program_its_kernel_and_what_lies_beside(self):
        ended = self.run_build("--only", "matrixMulDrv")
        self.assertEqual((ended.returncode, ended.stdout), (0, "matrixMulDrv\n1 built, 0 failed\n"), ended.stderr)
        out = self.folder / "out" / "matrixMulDrv"
        words = (out / "matrixMulDrv").read_text(encoding="utf-8").split("\n")
        inside = self.folder.resolve() / "suites" / "cuda-samples" / "Samples" / "drv"
        for word in ("-cudart", "shared", "-lcuda", f"-I{inside}/inc", str(inside / "main.cpp")):
            self.assertIn(word, words)
        self.assertIn("-fatbin", (out / "kernel64.fatbin").read_text(encoding="utf-8").split("\n"))
        self.assertEqual((out / "words.h").read_bytes(), b"header")
        self.assertEqual((out / "data" / "picture.pgm").read_bytes(), b"P5")

    def test_another_file_than_the_listed_one_is_refused(self):
        self.file("Samples/drv/main.cpp", b"changed")
        ended = self.run_build("--only", "matrixMulDrv")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("main.cpp is another file than the one of sources.json", ended.stdout)
        self.assertFalse((self.folder / "out" / "matrixMulDrv").exists())

    def test_absent_sources_and_programs_are_named(self):
        ended = self.run_build("--only", "asyncAPI")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("none.cu is missing", ended.stdout)
        ended = self.run_build("--only", "nothing-like-it")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("no such programs", ended.stderr)


class Inputs(unittest.TestCase):
    def test_inputs_are_the_same_bytes_each_time(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            for name in ("command.txt", "image.pgm"):
                self.assertEqual(inputs.make(name, one).read_bytes(), inputs.make(name, two).read_bytes())

    def test_commands_end_as_a_string_does(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(inputs.make("command.txt", folder).read_bytes(), b"j 6000 3000\nk 10000\n\0")

    def test_records_of_places_are_as_long_as_their_reader_wants(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "list.txt")
            inputs.places(path, 500)
            rows = (path.parent / "places.db").read_text(encoding="ascii").splitlines()
            self.assertEqual({len(row) for row in rows}, {48})
            for row in rows:
                self.assertTrue(7 <= float(row[28:33]) <= 64 and 10 <= float(row[33:38]) <= 350, row)

    def test_a_mesh_names_each_neighbour_from_both_sides(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "mesh")
            inputs.mesh(path, 4)
            rows = [row.split() for row in path.read_text(encoding="ascii").splitlines()]
            self.assertEqual(int(rows[0][0]), len(rows) - 1)
            near = [{int(row[1 + 4 * face]) for face in range(4)} - {-2} for row in rows[1:]]
            for cell, neighbours in enumerate(near, 1):
                for other in neighbours:
                    self.assertIn(cell, near[other - 1])


if __name__ == "__main__":
    tap.main()

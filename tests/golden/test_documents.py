# SPDX-License-Identifier: Apache-2.0
"""Documents that must say what the sources say."""
import os
import re
import subprocess
import sys
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(TOP, "tools"), os.path.join(TOP, "tests", "unit", "tools")]

import opsdef  # noqa: E402
import tap  # noqa: E402


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as file:
        return file.read()


def run_tool(name, *args):
    return subprocess.run([sys.executable, os.path.join(TOP, "tools", name), *args], capture_output=True, text=True)


class Spec(unittest.TestCase):
    def test_spec_generated_tables_are_up_to_date(self):
        result = run_tool("gen-spec", "--check")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_spec_names_every_door_message(self):
        kinds = re.findall(r"GANTRY_DOOR_(\w+) = \d+", read("proto", "door.h"))
        text = read("proto", "SPEC.md")
        self.assertEqual([kind for kind in kinds if kind not in text], [])

    def test_gen_spec_notices_an_outdated_table(self):
        stale = read("proto", "SPEC.md").replace("| GANTRY_E_ARG | -1 |", "| GANTRY_E_ARG | -99 |")
        with self.subTest("in a copy"):
            import shutil
            import tempfile
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(os.path.join(TOP, "proto"), os.path.join(folder, "proto"))
                with open(os.path.join(folder, "proto", "SPEC.md"), "w", encoding="utf-8") as file:
                    file.write(stale)
                self.assertEqual(run_tool("gen-spec", "--check", "--root", folder).returncode, 1)
                self.assertEqual(run_tool("gen-spec", "--root", folder).returncode, 0)
                self.assertEqual(run_tool("gen-spec", "--check", "--root", folder).returncode, 0)


class KeptNames(unittest.TestCase):
    def test_names_of_kept_descriptors_are_those_of_their_version(self):
        """Another build reads them: who changes one raises GANTRY_KEEP_VERSION, and then this list."""
        version = re.search(r"#define GANTRY_KEEP_VERSION (\d+)u", read("host-agent", "agent", "build.h"))[1]
        names = re.findall(r'#define (GANTRY_KEPT_\w+)\s+"([^"]*)"', read("host-agent", "agent", "keep.h"))
        listed = [f"version {version}"] + [f"{name} {value}" for name, value in names]
        self.assertEqual(listed, read("tests", "golden", "kept-names.txt").splitlines())


class Dictionary(unittest.TestCase):
    def test_dictionary_has_every_operation_in_the_fuzzers_format(self):
        lines = run_tool("gen-dict").stdout.splitlines()
        entries = [line for line in lines if not line.startswith("#")]
        for entry in entries:
            self.assertRegex(entry, r'^\w+="(\\x[0-9a-f]{2})+"$')
        names = {entry.split("=")[0] for entry in entries}
        for op in opsdef.read_operations(os.path.join(TOP, "proto", "ops.def")):
            self.assertIn("op_" + op.name, names)
            self.assertIn("desc_" + op.name, names)


class ErrorsPage(unittest.TestCase):
    def setUp(self):
        self.statuses = opsdef.read_statuses(os.path.join(TOP, "proto", "vocab.h"))
        self.rows = re.findall(r"^\| GANTRY_E_(\w+) \| (-\d+) \| (.+?) \| (.+?) \|$", read("docs", "errors.md"), re.M)

    def test_errors_page_has_every_status_in_order_with_its_text(self):
        expected = [(s.name, str(s.value), s.text) for s in self.statuses]
        self.assertEqual([row[:3] for row in self.rows], expected)

    def test_errors_page_says_what_to_do_about_each(self):
        self.assertEqual([row[0] for row in self.rows if len(row[3]) < 20], [])


class CudaPage(unittest.TestCase):
    def test_cuda_page_lists_the_functions_there_are(self):
        include = os.path.join(os.environ.get("CUDA_HOME") or "/usr/local/cuda", "include")
        header = os.path.join(include, "cuda.h")
        if not os.path.exists(header) or "#define CUDA_VERSION 13000" not in read(header):
            self.skipTest("there are no headers of CUDA 13.0")
        page = os.path.join(TOP, "docs", "cuda.md")
        result = run_tool("gen-cuda", "table", "--include", include, "--write", page, "--check")
        self.assertEqual(result.returncode, 0, "stale: tools/gen-cuda table --include ... --write docs/cuda.md")


class Promises(unittest.TestCase):
    """SPECIFICATION.md: what keeps a promise must exist, or be said to be planned."""

    def test_promises_name_tests_that_exist(self):
        missing = []
        for path in re.findall(r"`((?:tests|tools|proto|docs)/[^`\s*]+)`", read("SPECIFICATION.md")):
            if not os.path.exists(os.path.join(TOP, path)):
                missing.append(path)
        self.assertEqual(missing, [])


if __name__ == "__main__":
    tap.main()

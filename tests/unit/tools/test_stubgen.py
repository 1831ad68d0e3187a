#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/stubgen: what it makes of headers of our own, and of the toolkit's where they are."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import tap

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
TOOL = os.path.join(TOP, "tools/stubgen/stubgen")
FIXTURE = os.path.join(TOP, "tests/unit/tools/stubgen")
HOME = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
HAVE_PARSER = importlib.util.find_spec("pycparser") is not None
HAVE_HEADERS = os.path.exists(os.path.join(HOME, "include", "cublas_v2.h"))
# Of cuFFT's functions a fourth are of plans over two GPUs at least, and callbacks that a program links.
LEAST_PERCENT = {"libcufft.so.12": 73}


def stubgen(*args):
    return subprocess.run([sys.executable, TOOL, *args], capture_output=True, text=True, check=False)


def fixture(command, *args, apis=None):
    return stubgen(command, "--home", FIXTURE, "--apis", apis or os.path.join(FIXTURE, "apis"), *args)


@unittest.skipUnless(HAVE_PARSER, "python3-pycparser is not installed")
class Fixture(unittest.TestCase):
    def setUp(self):
        self.functions = {f["name"]: f for f in json.loads(fixture("describe", "fix").stdout)}

    def kinds(self, name):
        return [p["kind"] for p in self.functions[name]["params"]]

    def test_functions_of_the_header_are_described_and_inline_ones_not(self):
        self.assertIn("fixCreate", self.functions)
        self.assertNotIn("fixInline", self.functions)
        self.assertEqual(len(self.functions), 16)

    def test_handles_are_made_used_and_ended(self):
        self.assertEqual(self.kinds("fixCreate"), ["new"])
        self.assertEqual(self.kinds("fixDestroy"), ["drop"])
        self.assertEqual(self.kinds("fixFinalize"), ["handle"], "an object that is finalized goes on")
        self.assertEqual(self.kinds("fixPlanCreate"), ["new", "value"])

    def test_scalars_arrays_structs_and_answers_have_their_kinds(self):
        self.assertEqual(self.kinds("fixScale"), ["handle", "value", "either[1]", "device"])
        self.assertEqual(self.kinds("fixGetVersion"), ["handle", "out[1]"])
        self.assertEqual(self.kinds("fixShape"), ["handle", "value", "in[nbDims]"])
        self.assertEqual(self.kinds("fixPairs"), ["handle", "in[1]", "out[1]"])
        self.assertEqual(self.kinds("fixBuffer"), ["handle", "out[bytes]", "value"])

    def test_an_object_may_stand_for_another_but_not_end_it(self):
        server = fixture("emit", "--part", "server", "fix").stdout
        self.assertNotIn("take_handle_or", server)
        with tempfile.TemporaryDirectory() as apis:
            with open(os.path.join(FIXTURE, "apis", "fix.api"), encoding="utf-8") as file:
                text = file.read()
            with open(os.path.join(apis, "fix.api"), "w", encoding="utf-8") as file:
                file.write(text + "stands fixOther fixHandle\n")
            stands = fixture("emit", "--part", "server", "fix", apis=apis).stdout
        self.assertIn("take_handle_or(run, ", stands.split("serve_fixScale(")[1].split("\n}\n")[0])
        self.assertNotIn("take_handle_or(run, ", stands.split("serve_fixDestroy(")[1].split("\n}\n")[0])

    def test_a_line_for_a_function_makes_it_annotated(self):
        self.assertEqual(self.functions["fixSum"]["how"], "annotated")
        self.assertEqual(self.kinds("fixSum"), ["handle", "value", "in[n]"])

    def test_what_nobody_says_is_unsupported_and_says_why(self):
        for name in ("fixSetCallback", "fixNamedOne", "fixSecret", "fixLog"):
            self.assertEqual(self.functions[name]["how"], "unsupported", name)
        self.assertIn("fixCallback callback", self.functions["fixSetCallback"]["why"])
        self.assertEqual(self.functions["fixLog"]["why"], "a file of the program's")

    def test_coverage_counts_them(self):
        line = fixture("coverage").stdout
        self.assertIn("16 functions", line)
        self.assertIn("11 automatic", line)
        self.assertIn("6 unsupported", line, "those without a declaration too")

    def test_names_that_no_header_has_are_exported_and_answer_their_number(self):
        stubs, script = (fixture("emit", "--part", part, "fix").stdout for part in ("stubs", "map"))
        for name in ("fixHidden", "fixLost"):
            self.assertIn("__asm__(\"%s\")" % name, stubs)
            self.assertIn("\t%s;\n" % name, script)
        self.assertIn("return -2;", stubs)

    def test_a_library_may_be_of_names_alone(self):
        words = "library bare\nsoname libbare.so.1\nrefused 1\nunsupported 2\nfailed 3\nloads only\nalso 7 bareOne\n"
        with tempfile.TemporaryDirectory() as apis:
            with open(os.path.join(apis, "bare.api"), "w", encoding="utf-8") as file:
                file.write(words)
            stubs = fixture("emit", "--part", "stubs", "bare", apis=apis)
            self.assertEqual(stubs.returncode, 0, stubs.stderr)
            self.assertIn("return 7;", stubs.stdout)
            self.assertEqual(fixture("present", apis=apis).stdout.split(), ["bare", "libbare.so.1", "only"])

    def test_every_part_compiles(self):
        with tempfile.TemporaryDirectory() as folder:
            for part in ("stubs", "server"):
                path = os.path.join(folder, part + ".c")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(fixture("emit", "--part", part, "fix").stdout)
                done = subprocess.run(["cc", "-std=gnu11", "-Wall", "-Werror", "-D_GNU_SOURCE", "-fsyntax-only", "-I", TOP,
                                       "-I", os.path.join(FIXTURE, "include"), path], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_numbers_of_functions_change_with_their_description(self):
        before = fixture("emit", "--part", "dict", "fix").stdout
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(FIXTURE, "apis", "fix.api"), encoding="utf-8") as file:
                text = file.read()
            with open(os.path.join(folder, "fix.api"), "w", encoding="utf-8") as file:
                file.write(text.replace("weights=in[n]", "weights=in[n+1]"))
            after = fixture("emit", "--part", "dict", "fix", apis=folder).stdout
        changed = set(before.splitlines()) ^ set(after.splitlines())
        self.assertEqual(len(changed), 2)

    def refused(self, text):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "bad.api"), "w", encoding="utf-8") as file:
                file.write(text)
            done = fixture("coverage", apis=folder)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_an_annotation_that_makes_no_sense_is_refused_with_its_line(self):
        self.assertIn("bad.api:1: no such line", self.refused("liberry x\n"))
        self.assertIn("no kind of parameter: sideways", self.refused("rule x: sideways\n"))
        self.assertIn("has no size", self.refused("rule x: device[3]\n"))
        self.assertIn("no line soname", self.refused("library x\n"))

    def test_headers_that_are_not_there_are_skipped_by_name(self):
        with tempfile.TemporaryDirectory() as home:
            done = stubgen("coverage", "--home", home, "cublas")
        self.assertEqual(done.returncode, 0)
        self.assertIn("cublas       skipped", done.stdout)
        self.assertIn("cublas_v2.h", done.stdout)

    def test_headers_that_do_not_compile_are_named(self):
        with tempfile.TemporaryDirectory() as home:
            os.mkdir(os.path.join(home, "include"))
            with open(os.path.join(home, "include", "fix.h"), "w", encoding="utf-8") as file:
                file.write("int (;\n")
            done = stubgen("coverage", "--home", home, "--apis", os.path.join(FIXTURE, "apis"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("fix.h", done.stderr)


@unittest.skipUnless(HAVE_PARSER and HAVE_HEADERS, f"{HOME} has no headers of the toolkit, or there is no python3-pycparser")
class Toolkit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = stubgen("table").stdout.strip() # it takes a while

    def rows(self):
        """{soname: (functions, automatic, annotated, by hand, unsupported)}"""
        lines = [line.split("|") for line in self.table.splitlines() if line.startswith("| lib")]
        return {row[1].strip(): [int(cell) for cell in row[2:7]] for row in lines[1:]}

    def test_nine_of_ten_functions_need_no_line_of_their_own(self):
        rows = self.rows()
        self.assertGreater(sum(row[0] for row in rows.values()), 1000)
        automatic = 100 * sum(row[1] for row in rows.values()) / sum(row[0] for row in rows.values())
        self.assertGreaterEqual(automatic, 90)
        for name, row in rows.items():
            self.assertGreaterEqual(100 * row[1] / row[0], LEAST_PERCENT.get(name, 90), name)

    def test_no_function_is_undecided(self):
        self.assertNotIn("Nobody says", self.table)

    def test_the_documents_table_is_of_these_headers_or_of_another_version(self):
        made = self.table
        with open(os.path.join(TOP, "docs/cuda-libraries.md"), encoding="utf-8") as file:
            table = file.read().split("<!-- generated: coverage -->\n")[1].split("<!-- end -->")[0].strip()
        if table.splitlines()[0] != made.splitlines()[0]:
            self.skipTest(f"the table is \"{table.splitlines()[0]}\", these headers are \"{made.splitlines()[0]}\"")
        self.assertEqual(table, made, "docs/cuda-libraries.md is stale: tools/stubgen/stubgen table makes its table")

    def test_functions_that_open_files_by_name_are_not_forwarded(self):
        name = "cublasLtLoggerOpenFile"
        self.assertNotIn('"%s"' % name, stubgen("emit", "--part", "server", "cublasLt").stdout)
        self.assertIn(name, stubgen("emit", "--part", "stubs", "cublasLt").stdout)

    def test_functions_of_nvrtcs_programs_are_our_own_in_the_worker(self):
        """The library's would run a compiler there, which opens any file that a program names. Each that takes a program has a stand-in."""
        with open(os.path.join(TOP, "devices/cuda/calls/nvrtc.c"), encoding="utf-8") as file:
            own = set(re.findall(r'FUNCTION\("(nvrtc\w+)"', file.read()))
        served = stubgen("emit", "--part", "server", "nvrtc").stdout
        taking = {match[1] for match in re.finditer(r"static void serve_(nvrtc\w+)\(.*?\n}\n", served, re.S) if " prog" in match[0]}
        self.assertIn("nvrtcAddNameExpression", taking)
        with open(os.path.join(TOP, "devices/cuda/calls/hand/nvrtc.c"), encoding="utf-8") as file:
            taking |= set(re.findall(r'gantry_calls_symbol\(run, "(nvrtc\w+)"\)', file.read()))
        self.assertIn("nvrtcCompileProgram", taking)
        self.assertEqual(taking - own, set())

    def test_what_a_rule_calls_by_its_name_ends_where_the_function_ends_it(self):
        kinds = {f["name"]: [p.get("kind") for p in f["params"]] for f in json.loads(stubgen("describe", "cudnn").stdout)}
        for name, of_it in kinds.items():
            if name.startswith("cudnnDestroy") or name == "cudnnBackendDestroyDescriptor":
                self.assertEqual(of_it, ["drop"], name)

    def test_getters_and_sizes_of_cusparse_lie_on_the_host(self):
        kinds = {f["name"]: {p["name"]: p.get("kind") for p in f["params"]} for f in json.loads(stubgen("describe", "cusparse").stdout)}
        self.assertEqual(kinds["cusparseCsrGet"]["csrColInd"], "out[1]")
        self.assertEqual(kinds["cusparseSpMatSetAttribute"]["data"], "in[dataSize]")
        self.assertEqual(kinds["cusparseSpMatGetAttribute"]["data"], "out[dataSize]")
        self.assertEqual(kinds["cusparseSpGEMM_compute"]["bufferSize2"], "inout[1]")
        self.assertEqual(kinds["cusparseSpVV_bufferSize"]["result"], "either[gantry_bytes_of(computeType)]")
        self.assertEqual(kinds["cusparseCreateCsr"]["csrColInd"], "device")

    def kinds(self, library):
        """{function: {parameter: its kind}}"""
        described = json.loads(stubgen("describe", library).stdout)
        return {f["name"]: {p["name"]: p.get("kind") for p in f["params"]} for f in described}

    def test_copies_of_cublas_send_what_lies_on_the_host(self):
        kinds = self.kinds("cublas")
        for ending in ("", "_64", "Async", "Async_64"):
            hosts = ("hostPtr", "hostPtr") if "Async" in ending else ("x", "y")
            self.assertEqual(kinds["cublasSetVector" + ending][hosts[0]], "in[gantry_span(n,incx,elemSize)]")
            self.assertEqual(kinds["cublasSetVector" + ending]["devicePtr"], "device")
            self.assertEqual(kinds["cublasGetVector" + ending][hosts[1]], "inout[gantry_span(n,incy,elemSize)]")
            self.assertEqual(kinds["cublasSetMatrix" + ending]["A"], "in[gantry_matrix_span(rows,cols,lda,elemSize)]")
            self.assertEqual(kinds["cublasSetMatrix" + ending]["B"], "device")
            self.assertEqual(kinds["cublasGetMatrix" + ending]["A"], "device")
            self.assertEqual(kinds["cublasGetMatrix" + ending]["B"], "inout[gantry_matrix_span(rows,cols,ldb,elemSize)]")

    def test_single_steps_on_the_host_are_looked_at_before_the_library_is_called(self):
        kinds = self.kinds("cusolver")
        self.assertEqual(kinds["cusolverSpDcsrluFactorHost"]["csrRowPtrA"], "in[n+1]")
        self.assertEqual(kinds["cusolverSpDcsrluFactorHost"]["pBuffer"], "work")
        self.assertIn("cusolverSpXcsrperm_bufferSizeHost(handle, ", kinds["cusolverSpXcsrpermHost"]["pBuffer"])
        self.assertEqual(kinds["cusolverRfSetupHost"]["h_csrValL"], "in[nnzL]")
        self.assertEqual(kinds["cusolverRfSetupDevice"]["csrColIndL"], "device")
        server = stubgen("emit", "--part", "server", "cusolver").stdout
        for name, matrices, steps in (("cusolverSpZcsrqrBufferInfoHost", 1, 1), ("cusolverSpCcsrcholSolveHost", 0, 1),
                                      ("cusolverSpDcsrlsvluHost", 1, 0), ("cusolverRfSetupHost", 3, 0)):
            body = server.split("serve_%s(" % name)[1].split("\n}\n")[0]
            self.assertEqual(body.count("gantry_calls_need_matrix(run, "), matrices, name)
            self.assertEqual(body.count("gantry_calls_need_step(run, "), steps, name)
            # Before it is asked for anything, too.
            self.assertNotIn("take_scratch", body.split("gantry_calls_need_")[0])
        factor = server.split("serve_cusolverSpDcsrqrFactorHost(")[1].split("\n}\n")[0]
        self.assertIn(".wants_setup = true", factor)

    def test_what_says_or_asks_something_of_objects_is_no_part_of_a_stream(self):
        stubs = stubgen("emit", "--part", "stubs", "cusparse").stdout + stubgen("emit", "--part", "stubs", "cublas").stdout
        for name, flag in (("cusparseCreate", "APART"), ("cusparseCreateDnMat", "APART"), ("cusparseSpMatGetSize", "APART"),
                           ("cusparseSetMatIndexBase", "APART"), ("cusparseSpMM_bufferSize", "ASKS"), ("cusparseGetVersion", "ASKS"),
                           ("cublasGetProperty", "APART"), ("cusparseSpMM", ""), ("cusparseDestroy", ""), ("cublasSetVector", ""),
                           ("cublasGetMatrix", ""), ("cublasGetVectorAsync", ""), ("cublasSdot_v2", "")):
            begin = stubs.split(" %s(" % name)[1].split("gantry_call_begin(")[1].split(";")[0]
            self.assertEqual([f for f in ("APART", "ASKS") if "GANTRY_CALL_" + f in begin], [flag] if flag else [], name)

    def test_whoever_names_devices_has_one(self):
        kinds = self.kinds("cusolverMg")
        self.assertEqual(kinds["cusolverMgDeviceSelect"]["deviceId"], "devices[nbDevices]")
        self.assertEqual(kinds["cusolverMgCreateDeviceGrid"]["deviceId"], "devices[numRowDevices*numColDevices]")
        self.assertEqual(kinds["cusolverMgGetrf"]["array_d_IPIV"], "addresses[1]")
        self.assertEqual(kinds["cusolverMgPotrf"]["h_info"], "out[1]")
        stub = stubgen("emit", "--part", "stubs", "cusolverMg").stdout.split("cusolverMgDeviceSelect(")[1].split("\n}\n")[0]
        self.assertIn("gantry_call_is_own_device(deviceId, ", stub)
        self.assertIn("gantry_call_unsupported(", stub)

    def test_the_driver_and_the_runtime_can_be_read_too(self):
        code = ("import sys; sys.path.insert(0, %r); import headers; print(len(headers.parse(%r, [sys.argv[1]], sys.argv[1])))"
                % (os.path.dirname(TOOL), HOME))
        for header, least in (("cuda.h", 300), ("cuda_runtime_api.h", 200)):
            done = subprocess.run([sys.executable, "-c", code, header], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(int(done.stdout), least)


if __name__ == "__main__":
    tap.main()

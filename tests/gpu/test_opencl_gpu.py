#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The opencl backend on a GPU: the contract of devices, installed kernels, and what tests/system/test_opencl.py and test_opencl_programs.py ask of PoCL, asked of NVIDIA's OpenCL.
Skipped by name where there is none. Natively the same driver is what results are compared with."""
import ctypes
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import harness  # pylint: disable=wrong-import-position

PLATFORM, LIBRARY = "NVIDIA CUDA", "libnvidia-opencl.so.1"
# What other tests ask of the system, of PoCL's own, or of processors.
LEFT_OUT = {
    "test_programs_in_spirv_give_what_they_give_on_a_device_that_takes_them": "NVIDIA's OpenCL takes no SPIR-V",
    "test_images_and_samplers_give_what_they_give_on_pocl_itself": "NVIDIA's OpenCL refuses a copy to an image that the program makes",
    "test_sub_devices_are_what_they_are_on_pocl_itself_and_run_there": "a GPU is not divided",
    "test_programs_run_on_what_looks_like_a_gpu": "this is one",
    "test_device_with_domains_is_divided_by_them": "a GPU is not divided",
    "test_launch_on_a_part_of_the_device_costs_that_part_of_its_time": "a GPU is not divided",
}


def prepare():
    """The environment of a machine whose loader is told of NVIDIA's driver and of no other."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return f"no {LIBRARY}: {error}"
    folder = tempfile.mkdtemp(prefix="gantry-test-opencl-gpu-")
    harness.atexit.register(harness.shutil.rmtree, folder, True)
    vendors = pathlib.Path(folder, "vendors")
    vendors.mkdir()
    (vendors / "nvidia.icd").write_text(f"{LIBRARY}\n", encoding="utf-8")
    os.environ.pop("OCL_ICD_FILENAMES", None)
    os.environ.update(OCL_ICD_VENDORS=f"{vendors}/", GANTRY_TEST_OPENCL_PLATFORM=PLATFORM)
    return None


def skipped(why):
    def test(_):
        raise harness.Skip(why)
    return test


def judged(t, program, env):
    """A program of the build that prints TAP, in one process: a driver takes its time to start. Nothing of it fails, and something passes."""
    result = harness.run([harness.program(program)], env=dict(os.environ, CK_FORK="no", **env), timeout=300)
    lines = [line for line in result.out.splitlines() if "other rows were asked for" not in line]
    print(f"# {program}: {sum(line.startswith('ok') and 'SKIP' not in line for line in lines)} passed, "
          f"{sum('SKIP' in line for line in lines)} skipped")
    t.equal([line for line in lines if line.startswith("not ok")], [], f"exit {result.code}: {result.err[-600:]}")
    t.true(any(line.startswith("ok") and "SKIP" not in line for line in lines), f"something ran: {result.out[-300:]}")


def test_contract_of_a_device_is_kept(t):
    with tempfile.TemporaryDirectory() as cache:
        for case in ("life", "data", "order", "kernels"):
            judged(t, "contract-devices-suite",
                   {"GANTRY_TEST_ROWS": "opencl", "CK_RUN_CASE": case, "GANTRY_TEST_OPENCL_CACHE": cache})


def test_installed_kernels_do_what_plain_c_does(t):
    module = harness.find_in_build("core-opencl.so", lambda found: True)
    if not module:
        raise harness.Skip("the build has no core-opencl: there were no OpenCL headers")
    judged(t, "test-kernels-device", {"GANTRY_TEST_DEVICE": "opencl filters=contract platform=NVIDIA",
                                      "GANTRY_TEST_KERNELS": os.path.dirname(module), "GANTRY_TEST_MANIFEST": "core-opencl"})


def tests():
    why = prepare()
    import test_opencl  # pylint: disable=import-outside-toplevel
    import test_opencl_programs  # pylint: disable=import-outside-toplevel
    found = {name: skipped(why) if why else value for name, value in globals().items() if name.startswith("test_")}
    for module in (test_opencl, test_opencl_programs):
        for name, value in vars(module).items():
            if name.startswith("test_") and callable(value):
                left_out = why or LEFT_OUT.get(name)
                found[name] = skipped(left_out) if left_out else value
    return found


if __name__ == "__main__":
    harness.main(tests())

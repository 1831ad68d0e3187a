# SPDX-License-Identifier: Apache-2.0
"""OpenCL programs in containers that have an ICD loader and our client driver, and no vendor's OpenCL: runc and podman."""
import atexit
import functools
import os
import shutil
import tempfile

import containers
import harness
import test_container
import test_opencl_programs

WAIT_S = 280


@functools.lru_cache(None)
def root():
    """The other tests' root file system, with the loader, the driver, and programs of OpenCL."""
    driver = harness.find_in_build("libgantry-opencl.so.1", lambda found: True)
    if not driver:
        raise harness.Skip("the build has no libgantry-opencl: there were no OpenCL headers")
    loader = shutil.which("clinfo") and dict(containers.libraries_of(shutil.which("clinfo")))
    found = [path for path in loader or {} if "libOpenCL.so.1" in path]
    if not found:
        raise harness.Skip("no clinfo with an ICD loader (packages clinfo, ocl-icd-libopencl1)")
    folder = tempfile.mkdtemp(prefix="gantry-root-opencl-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    shutil.copytree(test_container.root_fs(), folder, symlinks=True, dirs_exist_ok=True)
    programs = {"clinfo": shutil.which("clinfo"), "opencl-probe": harness.program("opencl-probe")}
    for name, path in programs.items():
        shutil.copy(path, f"{folder}/bin/{name}")
    # The probe looks the loader up when it runs.
    for path in [*programs.values(), driver, found[0]]:
        for name, source in [*containers.libraries_of(path), (found[0], os.path.realpath(found[0]))]:
            os.makedirs(os.path.dirname(folder + name), exist_ok=True)
            shutil.copy(source, folder + name)
    shutil.copy(driver, folder + "/usr/lib/libgantry-opencl.so.1")
    os.makedirs(folder + "/etc/OpenCL/vendors")
    with open(folder + "/etc/OpenCL/vendors/gantry.icd", "w", encoding="ascii") as file:
        file.write("/usr/lib/libgantry-opencl.so.1\n")
    return folder


def files_of(folder):
    return [name for _, _, names in os.walk(folder) for name in names]


def world():
    containers.need_root()
    red = {"mem": "256M", "isolation": "isolated", "door_mode": "0666"}
    return harness.Agent(devices={"cpu0": {}, "opencl0": test_opencl_programs.test_opencl.device(guest_code="yes")},
                         tenants={"red": red})


def run(argv):
    ended = harness.run(argv, timeout=WAIT_S)
    if ended.out.startswith("skip") or "Landlock" in ended.out:
        raise harness.Skip(ended.out.strip().splitlines()[-1])
    return ended


def test_clinfo_in_a_container_shows_our_platform_and_no_other(t):
    with world() as agent:
        ended = run(test_container.Runc(agent, root()).argv("red", ["/bin/clinfo", "-l"]))
        t.code(ended, 0)
        t.contains(ended.out, "Gantry")
        t.equal(ended.out.count("Platform #"), 1, ended.out)
        t.equal([name for name in files_of(root()) if "pocl" in name.lower()], [], "no vendor's OpenCL is inside")


def test_opencl_program_in_a_container_gives_what_it_gives_on_pocl(t):
    want = test_opencl_programs.lines(test_opencl_programs.native("work").out)
    with world() as agent:
        ended = run(test_container.Runc(agent, root()).argv("red", ["/bin/opencl-probe", "Gantry", "work"]))
        t.equal(test_opencl_programs.lines(ended.out), want, f"every line; {ended.err[-400:]}")
        t.code(ended, 0)


def test_opencl_program_in_podman_runs(t):
    with world() as agent:
        argv = test_container.Podman(agent, root()).with_flags("red", ["/bin/opencl-probe", "Gantry", "misuse"])
        ended = run(argv)
        t.code(ended, 0)
        t.equal([line for line in ended.out.splitlines() if not line.startswith("ok ")][-1:], ["done"],
                "the last line that is not ok")


if __name__ == "__main__":
    harness.main(globals())

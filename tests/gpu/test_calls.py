#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of the toolkit's libraries from a guest, to the worker's: real ones on GPUs, stand-ins over the fake driver."""
import atexit
import functools
import os
import shutil
import tempfile

import gpu
import harness


@functools.lru_cache(maxsize=None)
def module_folder():
    """A folder with the module calls alone: what lies beside it in the build is for real devices."""
    folder = tempfile.mkdtemp(prefix="gantry-calls-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    for name in ("calls.manifest", "calls-cuda.so"):
        found = harness.find_in_build(name, os.path.exists)
        if not found:
            raise harness.Skip(f"the build has no {name}: it had no CUDA headers, or no python3-pycparser")
        shutil.copy2(found, folder)
    return folder


def forwarding_folder():
    found = harness.find_in_build("libcublasLt.so.13", os.path.exists)
    if not found:
        raise harness.Skip("the build has no forwarding libraries")
    return os.path.dirname(found)


def vendor_folder():
    """Stand-ins, or None: the system's own."""
    if gpu.BACKEND != "fakecuda":
        return os.environ.get("GANTRY_CUDA_LIBRARIES")
    found = os.path.join(os.path.dirname(gpu.fake_libraries()["nvml"]), "libraries")
    if not os.path.isdir(found):
        raise harness.Skip("the build has no stand-ins for the toolkit's libraries")
    return found


def calls_world(**options):
    gpu.needs_images()
    folders = [module_folder()] + list(gpu.fake_modules().values())
    libraries = vendor_folder()
    return gpu.world(device={"libraries": libraries} if libraries else {}, agent={"module_dirs": " ".join(folders)}, **options)


def run(agent, *words):
    done = agent.run_guest("red", [harness.program("calls-guest"), forwarding_folder(), gpu.image(gpu.WHOLE), *words], timeout=120)
    return done.code, done.out.splitlines() + done.err.splitlines()


def check(t, agent, *words):
    code, lines = run(agent, *words)
    bad = [line for line in lines if not line.startswith("ok ") and line != "done"]
    t.equal(bad, [], "what failed")
    t.equal(lines[-1:], ["done"], "it came to its end")
    t.equal(code, 0)


def test_cublas_cufft_and_curand_of_a_guest(t):
    with calls_world() as agent:
        check(t, agent, "busy")


def test_program_with_our_runtime_calls_cublas(t):
    runtime = harness.find_in_build("libcudart.so.13", os.path.exists)
    if not runtime:
        raise harness.Skip("the build has no libcudart for guests")
    folders = {os.path.dirname(runtime), forwarding_folder()}
    with calls_world() as agent:
        guest = agent.guest("red", [harness.program("cuda-library-basics")], env={"LD_LIBRARY_PATH": ":".join(folders)})
        code = guest.wait(gpu.LIMIT_S)
        lines = [line for line in guest.output().split("\n") if line.startswith(("ok ", "FAILED"))]
    t.equal(lines, [f"ok {part}" for part in
                    ("handle", "memory", "default stream", "stream", "graph", "result on the host", "end")])
    t.equal(code, 0, "exit status")


def test_a_second_guest_finds_its_own(t):
    with calls_world() as agent:
        check(t, agent)
        check(t, agent)


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

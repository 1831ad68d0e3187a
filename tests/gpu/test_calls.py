#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of the toolkit's libraries from a guest, to the worker's: real ones on GPUs, stand-ins over the fake driver."""
import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import time

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


def calls_world(tenants=None, device=None, agent=None, **options):
    gpu.needs_images()
    folders = [module_folder()] + list(gpu.fake_modules().values())
    libraries = vendor_folder()
    return gpu.world(tenants, device=({"libraries": libraries} if libraries else {}) | (device or {}), agent={"module_dirs": " ".join(folders), **(agent or {})}, **options)


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


def parts_of(t, program, parts, agent=None, **env):
    """A program with our runtime prints a line for each of its parts; in a world of its own, or of @agent's."""
    runtime = harness.find_in_build("libcudart.so.13", os.path.exists)
    if not runtime:
        raise harness.Skip("the build has no libcudart for guests")
    folders = {os.path.dirname(runtime), forwarding_folder()}
    with contextlib.nullcontext(agent) if agent else calls_world() as serving:
        guest = serving.guest("red", [harness.program(program)], env={"LD_LIBRARY_PATH": ":".join(folders), **env})
        code = guest.wait(gpu.LIMIT_S)
        lines = [line for line in guest.output().split("\n") if line.startswith(("ok ", "FAILED"))]
    t.equal(lines, [f"ok {part}" for part in parts])
    t.equal(code, 0, "exit status")


def gpu_libcuda():
    found = harness.find_in_build("libcuda.so.1", lambda path: "fakecuda" not in path)
    if not found:
        raise harness.Skip("the build has no libcuda for guests")
    return found


BASICS = ("handle", "memory", "default stream", "stream", "graph", "result on the host", "end")
SPARSE = ("vectors", "at once", "on a stream", "graph, result on the host", "graph, result on the device", "end")


def test_program_with_our_runtime_calls_cublas(t):
    parts_of(t, "cuda-library-basics", BASICS)


def test_scalars_in_memory_of_both_sides_are_where_the_pointer_mode_says(t):
    parts_of(t, "cuda-library-sides", ("made", "pinned", "managed", "registered", "end"))


def test_data_over_one_gpu_several_times_is_transformed(t):
    parts_of(t, "cuda-library-spread", ("made", "whole", "shuffled", "uneven", "work area", "own", "limits", "end"))


def test_call_captured_behind_one_that_waits_for_the_program_is_a_node_behind_it(t):
    parts_of(t, "cuda-library-late", ("made", "captured", "launched", "again", "end"))


def test_values_of_cudnn_are_read_on_the_host_wherever_they_lie(t):
    parts_of(t, "cuda-library-tensors", ("made", "own", "pinned", "managed", "device", "end"))


def test_product_of_cusparse_whose_result_comes_to_the_host_is_captured(t):
    parts_of(t, "cuda-library-sparse", SPARSE)


def test_call_of_a_library_comes_before_a_graph_of_another_thread_or_behind_it(t):
    parts_of(t, "cuda-library-threads", ("made", "whole", "end"))


SAXPY = '''#include "step.h"
extern "C" __global__ void saxpy(int n, float a, const float *x, float *y)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += STEP * gridDim.x * blockDim.x)
        y[i] += a * x[i];
}
'''


INCLUDED = {
    "include/sums/all.h": '#pragma once\n#include "part.h"\n#include <part.h>\n#if !HAS(<sums/none.h>) && HAS(<part.h>)\n#define HERE 4\n#endif\n'
                          '#define FOLDER sums\n#define MADE <FOLDER/made.h>\n#include MADE\n',
    "include/sums/made.h": "#define BY_MACRO 8\n",
    "include/sums/part.h": "#define BESIDE 1\n",
    "include/part.h": "#define APART 2\n",
    "outside.h": "#define OUTSIDE 1\n",
}
INCLUDES = """#define HAS(x) __has_include(x)
#include <sums/all.h>
static_assert(BESIDE + APART + HERE + BY_MACRO == 15, "each was found where it is");
extern "C" __global__ void nothing(void)
{
}
"""


def nvrtc_source(folder, name, text):
    """Its path; the fake NVRTC makes kernels of a file out of a line in a comment."""
    if gpu.BACKEND == "fakecuda":
        text += f"// FAKECUDA so={harness.find_in_build('cuda-fake-kernels.so', os.path.exists)}\n"
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def test_program_compiles_its_kernels_with_nvrtc_of_the_host(t):
    with tempfile.TemporaryDirectory(prefix="gantry-nvrtc-") as folder, calls_world() as agent:
        os.chmod(folder, 0o755)
        libraries = {os.path.dirname(gpu_libcuda()), forwarding_folder()}
        for name, text in INCLUDED.items():
            nvrtc_source(folder, name, text)
        sources = [nvrtc_source(folder, "saxpy.cu", SAXPY), os.path.join(folder, "include"), nvrtc_source(folder, "includes.cu", INCLUDES)]
        guest = agent.guest("red", [harness.program("cuda-library-nvrtc"), *sources],
                            env={"LD_LIBRARY_PATH": ":".join(libraries)})
        code = guest.wait(gpu.LIMIT_S)
        lines = guest.output().split("\n")
        t.equal([line for line in lines if line.startswith(("ok ", "FAILED"))], ["ok compile", "ok run", "ok include", "ok errors"], guest.output())
        t.contains(guest.output(), 'source file "../outside.h"')
        t.contains(guest.output(), "bad.cu(1): catastrophic error: #error directive: nonsense\n")
        t.equal(code, 0, "exit status")


def test_program_includes_headers_of_the_toolkit(t):
    """The compiler is NVIDIA's own, which needs no GPU."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    include, nvrtc = os.path.join(home, "include"), os.path.realpath(os.path.join(home, "lib64", "libnvrtc.so.13"))
    if not os.path.exists(nvrtc) or not os.path.exists(os.path.join(include, "cuda_fp16.h")):
        raise harness.Skip("there is no toolkit of CUDA 13 with NVRTC and its headers")
    source = '#include <cuda_fp16.h>\n#include <mma.h>\nextern "C" __global__ void twice(__half *x)\n{\n    x[threadIdx.x] += x[threadIdx.x];\n}\n'
    with tempfile.TemporaryDirectory(prefix="gantry-nvrtc-") as folder, calls_world(device={} if gpu.REAL else {"nvrtc": nvrtc}) as agent:
        os.chmod(folder, 0o755)
        guest = agent.guest("red", [harness.program("cuda-library-nvrtc"), nvrtc_source(folder, "toolkit.cu", source), include],
                            env={"LD_LIBRARY_PATH": ":".join({os.path.dirname(gpu_libcuda()), forwarding_folder()})})
        code = guest.wait(gpu.LIMIT_S)
        t.contains(guest.output(), "ok toolkit")
        t.equal(code, 0, guest.output())


def test_programs_behind_a_stream_call_cublas_and_cusparse(t):
    with gpu.far_world(calls_world) as agent:
        for program, parts in (("cuda-library-basics", BASICS), ("cuda-library-sparse", SPARSE)):
            parts_of(t, program, parts, agent, GANTRY_DOOR="stream:" + agent.vsock)


def where_it_was():
    """What a recording was made with."""
    if gpu.BACKEND == "fakecuda":
        return "stand-ins over the fake driver"
    with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
        return file.readline().strip()


def replayed(tape):
    """Without an agent, a device or a session."""
    return subprocess.run([harness.program("calls-tape"), "replay", forwarding_folder(), tape],
                          capture_output=True, text=True, timeout=gpu.LIMIT_S, check=False)


def test_calls_are_recorded_and_replayed(t):
    """GANTRY_CALLS_TAPE=FILE keeps the recording there."""
    runtime = harness.find_in_build("libcudart.so.13", os.path.exists)
    if not runtime:
        raise harness.Skip("the build has no libcudart for guests")
    path = ":".join({os.path.dirname(runtime), forwarding_folder()})
    with tempfile.TemporaryDirectory(prefix="gantry-tape-") as folder:
        tape = os.path.join(folder, "tape")
        with calls_world() as agent:
            done = agent.run_guest("red", [harness.program("calls-tape"), "record", forwarding_folder(), tape, where_it_was()],
                                   env={"LD_LIBRARY_PATH": path}, timeout=gpu.LIMIT_S)
        t.equal(done.code, 0, done.out + done.err)
        again = replayed(tape)
        t.equal(again.returncode, 0, again.stdout)
        t.equal(again.stdout.splitlines()[-1], done.out.splitlines()[-1], "as many requests")
        if os.environ.get("GANTRY_CALLS_TAPE"):
            shutil.copy(tape, os.environ["GANTRY_CALLS_TAPE"])
        with open(tape, "rb") as file:
            whole = file.read()
        # Another answer is seen, and so is a recording that ends early or is none.
        at = whole.index(b"a product of vectors") + len(b"a product of vectors") + 4
        other = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]
        for wrong in (other, whole[:len(whole) // 16 * 8], whole[:-16], whole[8:], b""):
            with open(tape, "wb") as file:
                file.write(wrong)
            bad = replayed(tape)
            t.equal(bad.returncode, 1, bad.stdout)
            t.true("not ok 1 - " in bad.stdout, bad.stdout)


def test_a_second_guest_finds_its_own(t):
    with calls_world() as agent:
        check(t, agent)
        check(t, agent)


NAP_MS = 3000    # longer than all that another session does here, on a busy machine


def calls_guest(agent, tenant, *words):
    return agent.guest(tenant, [harness.program("calls-guest"), forwarding_folder(), gpu.image(gpu.WHOLE), *map(str, words)])


def test_what_a_call_costs(t):
    """Figures only: of a call that is answered, and of one of many that are sent."""
    for mode in ("isolated", "pooled"):
        with calls_world(mode=mode) as agent:
            guest = calls_guest(agent, "red", "measure", 2000)
            t.equal(guest.wait(gpu.LIMIT_S), 0)
            for line in guest.lines:
                if line.startswith(("answered ", "sent ")):
                    what, microseconds, _ = line.split()
                    gpu.figure(f"library_call_{what}_{mode}", float(microseconds), "us")


def test_calls_that_nobody_waits_for_go_with_the_next(t):
    needs_stand_ins()
    for mode in ("isolated", "pooled"):
        with calls_world(mode=mode) as agent:
            check(t, agent, "tensors")


def test_what_the_calls_of_a_layer_cost(t):
    """Figures only, but for the tasks: of nine calls two are answered and one has work for the device."""
    needs_stand_ins()
    for mode in ("isolated", "pooled"):
        with calls_world(mode=mode) as agent:
            guest = calls_guest(agent, "red", "normalize", 2000)
            t.equal(guest.wait(gpu.LIMIT_S), 0)
            said = dict(line.split()[:2] for line in guest.lines if line.startswith(("normalized ", "tasks ")))
            if said:
                gpu.figure(f"library_layer_{mode}", float(said["normalized"]), "us")
                t.true(float(said["tasks"]) < 3.1, f"{said['tasks']} tasks for a layer")


def needs_stand_ins():
    if gpu.BACKEND != "fakecuda":
        raise harness.Skip("stand-ins for the toolkit's libraries play this")


def long_call(t, mode, how="nap"):
    """One session's call takes seconds of the host, longer than its deadline; another session on the same GPU does all it wants.
    In a crowd the session's next commands lie behind it."""
    needs_stand_ins()
    tenants = {"red": {"deadline": "1s"}, "blue": {}}
    with calls_world(tenants=tenants, mode=mode) as agent:
        napping = calls_guest(agent, "red", how, NAP_MS)
        napping.read_until("napping")
        began = time.monotonic()
        other = calls_guest(agent, "blue")
        other.read_until("done", timeout=gpu.LIMIT_S)
        t.equal([line for line in other.lines if line.startswith("not ok")], [])
        took_ms = 1000 * (time.monotonic() - began)
        gpu.figure(f"calls_beside_a_long_one_{how}_{mode}", took_ms, "ms")
        t.true(not napping.has_line(), f"the long call was over before the others, which took {took_ms:.0f} ms")
        t.equal(napping.read_line(timeout=gpu.LIMIT_S), "ok a long call", "its deadline is one of the device's time")
        t.equal(napping.wait(gpu.LIMIT_S), 0)


def test_long_call_holds_up_no_other_session_of_a_pooled_worker(t):
    long_call(t, "pooled")


def test_long_call_leaves_the_gpu_to_other_workers(t):
    long_call(t, "isolated")


def test_long_call_with_work_behind_it_holds_up_no_other_session_of_a_pooled_worker(t):
    long_call(t, "pooled", "crowd")


def test_long_call_with_work_behind_it_leaves_the_gpu_to_other_workers(t):
    long_call(t, "isolated", "crowd")


def test_objects_of_a_session_end_with_it_where_the_worker_goes_on(t):
    needs_stand_ins()
    with calls_world(tenants={"red": {}, "blue": {}}, mode="pooled") as agent:
        watching = calls_guest(agent, "blue", "watch")

        def alive():
            watching.write_line("?")
            return int(watching.read_until("alive").split()[1])
        t.equal(alive(), 0)
        for count in (3, 5):
            littering = calls_guest(agent, "red", "litter", count)
            t.equal(littering.wait(gpu.LIMIT_S), 0)
            harness.wait_until(lambda: alive() == 0, "the handles of the session that ended to end", timeout=gpu.LIMIT_S)


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

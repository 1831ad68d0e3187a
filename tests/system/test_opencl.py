#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An OpenCL device beside a cpu device, over PoCL: the same kernels with the same results, two tenants, code of a session's
own, and workers that die. Where there is no OpenCL in the build or no PoCL on the machine, all of it is skipped by name."""
import os
import shutil
import tempfile

import harness
from scripted import Scripted, honest, session_of, still_honest, worker_of

CPU, OPENCL = 1, 4
N = 20000
SLOW_S = 200  # the first use of a kernel compiles the module, on whatever else the machine does
SOURCE = """__kernel void triple(__global uint *x, uint n)
{
    uint i = get_global_id(0);
    if (i < n)
        x[i] = 3 * x[i] + 1;
}
"""
POCL = "Portable Computing Language"
# Another one is tried where a machine has it: a GPU's (tests/gpu/test_opencl_gpu.py).
PLATFORM = os.environ.get("GANTRY_TEST_OPENCL_PLATFORM", POCL)
FOLDER = tempfile.mkdtemp(prefix="gantry-test-opencl-")
harness.atexit.register(shutil.rmtree, FOLDER, True)


def device(**keys):
    return {"backend": "opencl", "platform": PLATFORM, "cache": FOLDER, "mem": "512M", **keys}


def world(opencl=None, red=None, **more):
    """cpu0 and opencl0, tenants red and blue; Skip where no OpenCL device can be had."""
    if not harness.find_in_build("core-opencl.so", lambda path: True):
        raise harness.Skip("the build has no backend opencl: there were no OpenCL headers")
    agent = harness.Agent(devices={"cpu0": {}, "opencl0": device(**(opencl or {}))},
                          tenants={"red": {"mem": "256M", **(red or {})}, "blue": {"mem": "256M"}}, **more)
    return agent


def opened(agent, tenant):
    """A guest; Skip where its tenant's opencl device is not there."""
    guest = Scripted(agent, tenant)
    answer = guest.tell("queue probe 0 0 4")
    if answer.startswith("error NO_DEVICE"):
        raise harness.Skip(f"this machine has no OpenCL device that works: {answer}")
    return guest


FLOATS, WORDS = 4 * N, 8 * N
PIXELS = 120 * 80


def runs():
    """Kernel, arguments, and which buffer to compare with its length."""
    yield "random_uniform", ["w:x", f"u64={N}", "u64=7", "u64=3", "f32=0.5", "f32=2"], ("x", FLOATS)
    yield "random_uniform", ["w:y", f"u64={N}", "u64=8", "u64=0", "f32=-1", "f32=1"], ("y", FLOATS)
    yield "random_u32", ["w:bytes", f"u64={PIXELS}", "u64=9", "u64=1"], ("bytes", 4 * PIXELS)
    yield "vadd", ["r:x", "r:y", "w:z", f"u64={N}"], ("z", FLOATS)
    yield "vscale", ["f32=1.25", "r:x", "w:z", f"u64={N}"], ("z", FLOATS)
    yield "saxpy", ["f32=0.75", "r:y", "rw:z", f"u64={N}"], ("z", FLOATS)
    yield "vsquare", ["r:z", "w:v", f"u64={N}"], ("v", FLOATS)
    yield "dot", ["r:x", "r:v", "w:one", f"u64={N}"], ("one", 4)
    yield "sum", ["r:v", "w:one", f"u64={N}"], ("one", 4)
    yield "vreduce_diff", ["r:x", "r:v", "rw:one", f"u64={N}"], ("one", 4)
    yield "gemm_plain", ["r:x", "r:y", "w:z", "u32=90", "u32=70", "u32=110"], ("z", 4 * 90 * 70)
    yield "gaussian_fan1", ["r:x", "rw:z", "u32=60", "u32=3"], ("z", 4 * 3600)
    yield "grayscale", ["r:bytes", "w:gray", f"u64={PIXELS}"], ("gray", PIXELS)
    yield "sobel", ["r:gray", "w:edges", "u32=120", "u32=80"], ("edges", PIXELS)
    yield "unsharp", ["r:gray", "r:edges", "w:sharp", f"u64={PIXELS}", "f32=0.5"], ("sharp", PIXELS)
    yield "combine", ["r:gray", "r:edges", "r:sharp", "w:mix", f"u64={PIXELS}", "u32=1"], ("mix", PIXELS)
    yield ("hotspot", ["r:x", "r:y", "w:z", "u32=100", "u32=100", "u32=5", "f32=0.1", "f32=2", "f32=3", "f32=4",
                       "f32=0.5"], ("z", 40000))
    yield "nearest_neighbors", ["r:x", "w:z", "w:v", "u32=9000", "u32=300", "f32=1", "f32=1.5"], ("z", 1200)
    yield "nearest_neighbors", ["r:x", "w:z", "w:v", "u32=9000", "u32=300", "f32=1", "f32=1.5"], ("v", 1200)
    yield "pathfinder", ["r:bytes", "w:z", "u32=40", "u32=200"], ("z", 800)


SIZES = {"x": WORDS, "y": WORDS, "z": WORDS, "v": WORDS, "one": 64, "bytes": 4 * PIXELS, "gray": PIXELS, "edges": PIXELS,
         "sharp": PIXELS, "mix": PIXELS}


def results(guest, kind):
    """What all the kernels leave, as sums that the cpu device makes of them."""
    guest.ask("queue sums 0 0 1")
    guest.ask(f"queue q{kind} 0 0 {kind}")
    for name, size in SIZES.items():
        guest.ask(f"buffer {name} {size} device")
        guest.ask(f"fill {name} {size} 0")
    found = []
    for step, (kernel, args, (name, nbytes)) in enumerate(runs()):
        guest.ask(f"find k{kernel} {kernel}")
        guest.ask(f"launch q{kind} t{step} k{kernel} 1 - - 0 " + " ".join(args), SLOW_S)
        guest.ask(f"wait t{step} {SLOW_S * 1000}", SLOW_S)
        found.append((kernel, guest.ask(f"sum sums {name} {nbytes}", SLOW_S)))
    for name in SIZES:
        guest.ask(f"free {name}")
    return found


def test_kernels_of_core_give_the_same_on_cpu_and_opencl(t):
    with world() as agent:
        guest = opened(agent, "red")
        want, got = results(guest, CPU), results(guest, OPENCL)
        for (kernel, expected), (_, seen) in zip(want, got):
            t.equal(seen, expected, kernel)


def test_two_tenants_share_an_opencl_device(t):
    with world() as agent:
        red, blue = opened(agent, "red"), opened(agent, "blue")
        want = results(red, CPU)
        for guest in (red, blue):
            guest.ask("queue both 0 0 4")
            guest.ask(f"buffer a {WORDS} device")
            guest.ask("find kfill fill")
        for round_ in range(20):
            for number, guest in enumerate((red, blue)):
                guest.ask(f"launch both last kfill 1 - - 0 w:a u64={2 * N} u32={100 * round_ + number + 1}", SLOW_S)
        for number, guest in enumerate((red, blue)):
            guest.ask(f"wait last {SLOW_S * 1000}", SLOW_S)
            word = 1900 + number + 1
            t.equal(int(guest.ask(f"count a {WORDS} {word << 32 | word}")), N, "words of the last fill")
        t.equal(results(blue, OPENCL), want, "blue's results beside red")


def test_worker_with_opencl_is_confined_and_may_die(t):
    with world() as agent:
        neighbour = honest(agent)
        guest = opened(agent, "red")
        want = results(guest, OPENCL)
        pid = session_of(agent, guest)["worker_pid"]
        worker = next(row for row in agent.workers() if row["pid"] == pid)
        t.true("seccomp" in worker["confined"], f"held: {worker['confined']}, not: {worker['unconfined']}")
        agent.kill_worker(pid)
        t.equal(results(guest, OPENCL), want, "after the worker's death")
        t.true(worker_of(agent, guest) != pid, "another worker")
        still_honest(neighbour)


def own_code(guest, source=SOURCE):
    with tempfile.NamedTemporaryFile("w", suffix=".cl") as file:
        file.write(source)
        file.flush()
        return guest.tell(f"image own {OPENCL} {file.name}", SLOW_S)


def test_sessions_own_code_runs_for_isolated_tenants_only(t):
    with world(opencl={"guest_code": "yes"}, red={"isolation": "isolated"}) as agent:
        guest = opened(agent, "red")
        answer = own_code(guest)
        if "Landlock" in answer:
            raise harness.Skip(answer)
        t.true(answer.startswith("ok"), answer)
        guest.ask("kernel triple own triple rw:u32*,u32")
        guest.refused("kernel wrong own triple rw:u32*,f32", "SIGNATURE")
        guest.ask("queue q 0 0 4")
        guest.ask("buffer a 4096 device")
        guest.ask(f"fill a 4096 {5 << 32 | 2}")
        guest.ask("launch q done triple 1 16 64 0 rw:a u32=1024", SLOW_S)
        guest.ask("wait done 60000", 60)
        t.equal(int(guest.ask(f"count a 4096 {16 << 32 | 7}")), 512, "words")
        agent.kill_worker(worker_of(agent, guest))
        guest.ask("launch q done triple 1 16 64 0 rw:a u32=1024", SLOW_S)
        guest.ask(f"wait done {SLOW_S * 1000}", SLOW_S)
        t.equal(int(guest.ask(f"count a 4096 {49 << 32 | 22}")), 512, "words")
    with world(opencl={"guest_code": "yes"}, red={"isolation": "pooled", "trust_group": "lab"}) as agent:
        answer = own_code(opened(agent, "red"))
        # On a processor it is host code; on a GPU it is the GPU's alone.
        t.true("isolated" in answer if PLATFORM == POCL else answer.startswith("ok"), answer)
    with world() as agent:
        answer = own_code(opened(agent, "red"))
        t.true(answer.startswith("error UNSUPPORTED") and "installed" in answer, answer)


def test_what_kernels_print_for_a_session_that_does_not_take_it_is_dropped_and_told(t):
    source = '__kernel void say(__global uint *out) { printf("words of a kernel\\n"); out[0] = 3; }'
    with world(opencl={"guest_code": "yes"}, red={"isolation": "isolated"}) as agent:
        guest = opened(agent, "red")
        answer = own_code(guest, source)
        if "Landlock" in answer:
            raise harness.Skip(answer)
        t.true(answer.startswith("ok"), answer)
        guest.ask("kernel say own say rw:u32*")
        guest.ask("queue q 0 0 4")
        guest.ask("buffer a 4096 device")
        guest.ask("launch q done say 1 1 1 0 rw:a", SLOW_S)
        guest.ask(f"wait done {SLOW_S * 1000}", SLOW_S)
        harness.wait_until(lambda: "what kernels print is dropped, 18 bytes so far" in agent.log(), "the log's line")
        t.true("words of a kernel" not in agent.log(), "what a tenant's kernel prints is in the log")


if __name__ == "__main__":
    harness.main(globals())

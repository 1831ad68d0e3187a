#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of OpenCL that know nothing of Gantry, through libgantry-opencl and an ICD loader: they give what they give on
PoCL, wrong calls get the result that the standard names, and two tenants' programs do not meet. Where a package is absent,
its tests are skipped by name."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import harness
import test_opencl

WAIT_S = 280  # each text is compiled, on whatever else the machine does
FOLDER = tempfile.mkdtemp(prefix="gantry-test-icd-")
harness.atexit.register(shutil.rmtree, FOLDER, True)
PYTHON3 = "/usr/bin/python3"  # the one that packages of the system are for
PLATFORM, POCL = test_opencl.PLATFORM, test_opencl.POCL

# A GPU has memory of its own.
MEMORIES = ("direct", "staged") if PLATFORM == POCL else ("staged",)

PYTHON = """
import numpy, pyopencl as cl
platform, = [p for p in cl.get_platforms() if p.name == "Gantry"]
context = cl.Context(platform.get_devices())
queue = cl.CommandQueue(context)
a = numpy.arange(5000, dtype=numpy.float32)
b = numpy.full(5000, 0.5, dtype=numpy.float32)
flags = cl.mem_flags
a_buf = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=a)
b_buf = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=b)
out_buf = cl.Buffer(context, flags.WRITE_ONLY, a.nbytes)
program = cl.Program(context, '''__kernel void sum(__global const float *a, __global const float *b, __global float *c)
{ int i = get_global_id(0); c[i] = a[i] + b[i]; }''').build()
program.sum(queue, a.shape, None, a_buf, b_buf, out_buf)
out = numpy.empty_like(a)
cl.enqueue_copy(queue, out, out_buf)
assert (out == a + b).all()
print("pyopencl is content")
"""


def driver():
    path = harness.find_in_build("libgantry-opencl.so.1", lambda found: True)
    if not path:
        raise harness.Skip("the build has no libgantry-opencl: there were no OpenCL headers")
    vendors = pathlib.Path(FOLDER, "vendors")
    vendors.mkdir(exist_ok=True)
    (vendors / "gantry.icd").write_text(f"{path}\n", encoding="utf-8")
    # The loader of CUDA's toolkit puts folder and name together as they are.
    return {"OCL_ICD_VENDORS": f"{vendors}/"}


def world(**more):
    isolated = {"mem": "256M", "isolation": "isolated"}
    driver()
    return harness.Agent(devices={"cpu0": {}, "opencl0": test_opencl.device(guest_code="yes")},
                         tenants={"red": isolated, "blue": isolated}, **more)


def probe(agent, tenant, *words, platform="Gantry"):
    """What the program prints; Skip where its platform or a device is not there."""
    result = agent.run_guest(tenant, [harness.program("opencl-probe"), platform, *words], env=driver(), timeout=WAIT_S)
    if result.out.startswith("skip"):
        raise harness.Skip(result.out.strip())
    if "Landlock" in result.out:
        raise harness.Skip(result.out.strip())
    return result


def lines(text):
    """Without what PoCL's compiler prints by itself."""
    return [line for line in text.splitlines() if not line.endswith("generated.")]


def native(*words):
    result = harness.run([harness.program("opencl-probe"), PLATFORM, *words],
                         env=dict(os.environ, POCL_CACHE_DIR=FOLDER), timeout=WAIT_S)
    if result.out.startswith("skip"):
        raise harness.Skip(result.out.strip())
    return result


def test_programs_of_two_tenants_at_once_give_what_they_give_on_pocl_itself(t):
    want = lines(native("work").out)
    t.equal(want[-1:], ["done"], "on PoCL")
    with world() as agent:
        guests = [agent.guest(tenant, [harness.program("opencl-probe"), "Gantry", "work"], env=driver())
                  for tenant in ("red", "blue")]
        for guest in guests:
            code = guest.wait(WAIT_S)
            if guest.lines and (guest.lines[0].startswith("skip") or any("Landlock" in line for line in guest.lines)):
                raise harness.Skip(guest.lines[-1])
            t.equal(lines("\n".join(guest.lines)), want, "every line")
            t.equal(code, 0, "exit status")


def test_programs_where_memory_is_apart_give_what_they_give_on_pocl_itself(t):
    """With room for some of what they use: it stays on the device between launches, and makes way."""
    want = lines(native("work").out)
    device = test_opencl.device(guest_code="yes", memory="staged", keep="64K")
    driver()
    with harness.Agent(devices={"opencl0": device}, tenants={"red": {"mem": "256M", "isolation": "isolated"}}) as agent:
        t.equal(lines(probe(agent, "red", "work").out), want, "every line")


def test_wrong_calls_get_the_result_that_the_standard_names(t):
    with world() as agent:
        got = probe(agent, "red", "misuse")
        t.equal([line for line in lines(got.out) if not line.startswith("ok ")], ["done"], "lines that are not ok")


def test_images_and_samplers_give_what_they_give_on_pocl_itself(t):
    want = lines(native("images").out)
    t.equal(want[-1:], ["done"], "on PoCL")
    # Images in the session's heap, where PoCL works on them as they are; without room there, and copied to images of the device's.
    for heap, memory in (("64M", MEMORIES[0]), ("1M", "staged")):
        device = test_opencl.device(guest_code="yes", memory=memory)
        tenants = {"red": {"mem": "256M", "isolation": "isolated", "heap": heap}}
        driver()
        with harness.Agent(devices={"opencl0": device}, tenants=tenants) as agent:
            t.equal(lines(probe(agent, "red", "images").out), want, f"heap {heap}, memory {memory}")


def test_sub_devices_are_what_they_are_on_pocl_itself_and_run_there(t):
    want = lines(native("parts").out)
    if want[:1] and want[0].startswith("skip"):
        raise harness.Skip(want[0])
    t.equal(want[-1:], ["done"], "on PoCL")
    for memory in MEMORIES:
        driver()
        with harness.Agent(devices={"opencl0": test_opencl.device(guest_code="yes", memory=memory)},
                           tenants={"red": {"mem": "256M", "isolation": "isolated"}}) as agent:
            t.equal(lines(probe(agent, "red", "parts").out), want, f"memory {memory}")


IL = """
__attribute__((overloadable)) int __spirv_SpecConstant(int, int);
__kernel void reverse(__global int *x, __local int *part)
{ size_t i = get_global_id(0), l = get_local_id(0); part[l] = x[i]; barrier(CLK_LOCAL_MEM_FENCE);
  x[i] = part[get_local_size(0) - 1 - l]; }
__kernel void shifted(__global int *x, int n)
{ size_t i = get_global_id(0); if (i < n) x[i] += __spirv_SpecConstant(7, 100); }
"""


def spirv():
    """A module with two kernels and a constant, number 7; Skip without what translates."""
    clang = shutil.which("clang-15") or shutil.which("clang")
    translator = shutil.which("llvm-spirv-15") or shutil.which("llvm-spirv")
    if not clang or not translator:
        raise harness.Skip("no clang, or no llvm-spirv (Debian: llvm-spirv-15)")
    module = pathlib.Path(FOLDER, "kernels.spv")
    if not module.exists():
        text, code = pathlib.Path(FOLDER, "kernels.cl"), pathlib.Path(FOLDER, "kernels.bc")
        text.write_text(IL, encoding="utf-8")
        for words in ([clang, "-c", "-target", "spir64", "-x", "cl", "-cl-std=CL1.2", "-O1", "-emit-llvm", "-Xclang",
                       "-finclude-default-header", "-o", code, text], [translator, code, "-o", module]):
            made = harness.run(words)
            if made.code != 0:
                raise harness.Skip(f"{words[0]} makes no SPIR-V: {made.err[:200]}")
    return module


def layer(words):
    """What the tests' layer of the loader adds to PoCL, for programs and for gantryd."""
    path = harness.find_in_build("opencl-more.so", lambda found: True)
    if not path:
        raise harness.Skip("the build has no layer: there was no CL/cl_layer.h")
    # Also where a guest's code is compiled: what the loader is told of can be read there.
    return {"OPENCL_LAYERS": str(path), "OPENCL_MORE": words}


def one_device(env, tenant=None, **keys):
    driver()
    return harness.Agent(devices={"opencl0": test_opencl.device(guest_code="yes", **keys)},
                         tenants={"red": {"mem": "256M", "isolation": "isolated", **(tenant or {})}}, env=env)


def guests_own(env):
    """The layer is the host's: the program is to see what the host's device says, and nothing beside it."""
    return {name: "" for name in env}


def test_programs_in_spirv_give_what_they_give_on_a_device_that_takes_them(t):
    module, env = spirv(), layer("il")
    result = harness.run([harness.program("opencl-probe"), PLATFORM, "il", module],
                         env=dict(os.environ, POCL_CACHE_DIR=FOLDER, **env), timeout=WAIT_S)
    want = lines(result.out)
    t.equal(want[-1:], ["done"], f"on PoCL with the layer: {result.err[-300:]}")
    with one_device(env) as agent:
        got = agent.run_guest("red", [harness.program("opencl-probe"), "Gantry", "il", module],
                              env=dict(guests_own(env), **driver()), timeout=WAIT_S)
        if "Landlock" in got.out:
            raise harness.Skip(got.out.strip())
        t.equal(lines(got.out), want, f"through the driver: {got.err[-300:]}")
        got = agent.run_guest("red", [harness.program("opencl-probe"), "Gantry", "il-misuse", module],
                              env=dict(guests_own(env), **driver()), timeout=WAIT_S)
        said = [line for line in lines(got.out) if not line.startswith("ok ")]
        t.equal(said, [want[3], "done"], "and of its binary the same, with its constant")


def test_device_with_domains_is_divided_by_them(t):
    env = layer("domains")
    with one_device(dict(env, POCL_MAX_PTHREAD_COUNT="4")) as agent:
        got = agent.run_guest("red", [harness.program("opencl-probe"), "Gantry", "domains"],
                              env=dict(guests_own(env), **driver()), timeout=WAIT_S)
        if "Landlock" in got.out:
            raise harness.Skip(got.out.strip())
        said = [line for line in lines(got.out) if not line.startswith("ok ")]
        t.equal(said, ["second node of 3 units: itself 1, met 3, one more 0",
                       "part of it of 2 units: itself 1, met 2, one more 0", "done"], f"lines that are not ok: {got.err[-300:]}")


def test_launch_on_a_part_of_the_device_costs_that_part_of_its_time(t):
    def spent(agent):
        return (agent.ctl_json("device", "show", "opencl0")["device"]["device_ns"],
                agent.ctl_json("tenant", "show", "red")["tenant"]["device_ns"])

    with one_device({"POCL_MAX_PTHREAD_COUNT": "4"}) as agent:
        for units, part in (("0", 1), ("1", 0.25), ("3", 0.75)):
            before = spent(agent)
            got = probe(agent, "red", "cost", units)
            t.equal(lines(got.out), ["done"], f"the program on {units} units: {got.err[-300:]}")
            harness.wait_until(lambda: not agent.sessions(), "its session is over")
            charged, took = (now - old for now, old in zip(spent(agent), before))
            t.true(took > 0 and abs(charged / took - part) < 0.02, f"{units} of 4 units: {charged} ns charged of {took}")


def test_device_that_takes_no_spirv_says_so(t):
    module = pathlib.Path(FOLDER, "any.spv")
    module.write_bytes(bytes.fromhex("0302230700000100000000000100000000000000" "1100020006000000"))
    with one_device({}) as agent:
        got = probe(agent, "red", "il-misuse", module)
        t.equal([line for line in lines(got.out) if not line.startswith("ok ")], ["done"], "lines that are not ok")


def test_programs_run_on_what_looks_like_a_gpu(t):
    """NVIDIA's OpenCL as it was seen, over PoCL: other binaries, memory apart, no parts, and addresses that are the device's alone."""
    env = layer("gpu")
    want = {words: lines(native(words).out) for words in ("work", "images")}
    for tenant in ({}, {"isolation": "pooled", "trust_group": "lab"}):
        with one_device(env, tenant, platform="Stand-in GPU") as agent:
            for words, expected in want.items():
                got = agent.run_guest("red", [harness.program("opencl-probe"), "Gantry", words],
                                      env=dict(guests_own(env), **driver()), timeout=WAIT_S)
                if "Landlock" in got.out or got.out.startswith("skip"):
                    raise harness.Skip(got.out.strip())
                t.equal(lines(got.out), expected, f"{words} {tenant}: {got.err[-300:]}")


SAID = "words of a kernel"


def test_what_a_kernel_prints_is_the_programs_output_and_no_line_of_the_agents_log(t):
    with world() as agent:
        want = [*[SAID] * 5, "finished", SAID, "waited", SAID, "said 3", "done"]
        t.equal(lines(native("say", "5").out), want, "on PoCL itself")
        t.equal(lines(probe(agent, "red", "say", "5").out), want, "each line, before what waits for it returns")
        # Of more than is kept for it the newest comes, and nothing is held up.
        many = 100000
        got = lines(probe(agent, "blue", "say", str(many)).out)
        at = got.index("finished")
        t.true(2000 < at < many, f"{at} lines of {many}")
        t.equal(set(got[1:at]), {SAID}, "whole lines, but the first")
        t.equal(got[at + 1:], [SAID, "waited", SAID, "said 3", "done"], "and what is printed later is there")
        t.true(SAID not in agent.log(), "what a tenant's kernel prints is in the log")


def test_threads_that_misuse_each_others_objects_break_nothing(t):
    with world() as agent:
        got = probe(agent, "red", "storm", "150")
        t.equal(lines(got.out), ["ok work after the storm", "done"], f"exit {got.code}: {got.err[-300:]}")
        got = probe(agent, "blue", "builtin", "vsquare")
        t.equal(len(lines(got.out)), 4, "the other tenant works on")


def test_a_program_that_takes_every_queue_reads_and_writes_where_memory_is_apart(t):
    device = test_opencl.device(guest_code="yes", memory="staged")
    driver()
    with harness.Agent(devices={"opencl0": device}, tenants={"red": {"mem": "256M", "isolation": "isolated"}}) as agent:
        got = probe(agent, "red", "storm", "150")
        t.equal(lines(got.out), ["ok work after the storm", "done"], f"exit {got.code}: {got.err[-300:]}")


def test_installed_kernels_run_by_name_on_a_cpu_device(t):
    with world() as agent:
        got = probe(agent, "red", "builtin", "vsquare")
        t.equal(lines(got.out), ["out0 1", "out1 4", "out2 9", "out3 16"], "squares")


def test_program_that_waits_when_the_agent_ends_gets_an_error(t):
    with world() as agent:
        guest = agent.guest("red", [harness.program("opencl-probe"), "Gantry", "hold"], env=driver())
        first = guest.read_line(WAIT_S)
        if first.startswith("skip"):
            raise harness.Skip(first)
        t.equal([first, guest.read_line(WAIT_S)], ["ready", "working"], "it works")
        agent.stop()
        line = guest.read_until("ended", WAIT_S)
        t.true(line.startswith("ended -"), f"the error: {line}")
        t.equal(guest.wait(WAIT_S), 0, "it ends by itself")


def test_worker_that_dies_is_not_the_end_of_a_program(t):
    with world() as agent:
        # Launches of some 100 ms: one is under way nearly always.
        guest = agent.guest("red", [harness.program("opencl-probe"), "Gantry", "hold", "100000000"], env=driver())
        first = guest.read_line(WAIT_S)
        if first.startswith("skip"):
            raise harness.Skip(first)
        t.equal([first, guest.read_line(WAIT_S)], ["ready", "working"], "it works")
        for _ in range(8):
            session = next((row for row in agent.sessions() if row["tenant"] == "red"), None)
            if not session or guest.lines[-1].startswith("ended"):
                break
            agent.kill_worker(session["worker_pid"])
            try:
                guest.read_line(10)
                break
            except harness.Failure:
                continue  # between two launches: the program goes on, and hears of nothing
        # The launch that was under way is in doubt: its event fails, and the program hears of it.
        t.true(guest.lines[-1].startswith("ended -"), f"an error, and no hang: {guest.lines}")
        got = probe(agent, "blue", "builtin", "vsquare")
        t.equal(len(lines(got.out)), 4, "the other tenant works on")


def test_clinfo_shows_the_platform(t):
    if not shutil.which("clinfo"):
        raise harness.Skip("clinfo is not installed")
    with world() as agent:
        got = agent.run_guest("red", ["clinfo"], env=driver(), timeout=WAIT_S)
        t.equal(got.code, 0, got.err)
        t.true("Gantry" in got.out and "OpenCL 1.2" in got.out, got.out[:400])
        without = harness.run(["clinfo"], env=dict(os.environ, **driver(), GANTRY_DOOR="unix:/nowhere/door"), timeout=60)
        t.true("Number of platforms" in without.out and "Gantry" not in without.out, without.out[:200])


def test_pyopencl_program_runs(t):
    if subprocess.run([PYTHON3, "-c", "import pyopencl"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                      check=False).returncode:
        raise harness.Skip("python3-pyopencl is not installed")
    with world() as agent:
        home = pathlib.Path(FOLDER, "home")
        home.mkdir(exist_ok=True)
        got = agent.run_guest("red", [PYTHON3, "-c", PYTHON],
                              env=dict(driver(), HOME=str(home), PYOPENCL_NO_CACHE="1"), timeout=WAIT_S)
        t.equal(got.out.strip().splitlines()[-1:], ["pyopencl is content"], got.err[-600:])


if __name__ == "__main__":
    harness.main(globals())

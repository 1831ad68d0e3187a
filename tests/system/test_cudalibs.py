#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The forwarding libraries load, under the vendor's names and symbol versions, and without a session say so."""
import ctypes
import os
import re
import shutil
import subprocess
import tempfile

import harness

HOME = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
IMPORTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cuda/pytorch-2.11.imports")
FAILED = 13  # CUBLAS_STATUS_EXECUTION_FAILED


def folder():
    found = harness.find_in_build("libcublasLt.so.13", os.path.exists)
    if not found:
        raise harness.Skip("the build has no forwarding libraries: it had no CUDA headers, or no python3-pycparser")
    return os.path.dirname(found)


def ours():
    """Paths of the libraries that have a vendor's name."""
    return sorted(os.path.join(folder(), name) for name in os.listdir(folder())
                  if re.fullmatch(r"lib\w+\.so\.\d+", name) and not name.startswith("libgantry"))


def output(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def symbols(path):
    """{name: version} of what it exports."""
    found = {}
    for line in output("readelf", "--wide", "--dyn-syms", path).splitlines():
        words = line.split()
        if len(words) > 7 and words[3] == "FUNC" and words[4] in ("GLOBAL", "WEAK") and words[6] != "UND":
            name, _, version = words[7].partition("@")
            found[name] = version.lstrip("@")
    return found


def soname(path):
    match = re.search(r"Library soname: \[(.*)\]", output("readelf", "--wide", "--dynamic", path))
    return match.group(1) if match else ""


def vendors(path):
    """NVIDIA's own, or None."""
    for sub in ("lib64", "lib"):
        own = os.path.join(HOME, sub, os.path.basename(path))
        if os.path.exists(own) and os.path.getsize(own) > 1 << 16:
            return own
    return None


def test_every_library_has_its_soname_and_loads(t):
    paths = ours()
    t.true(len(paths) >= 1, "there are libraries")
    for path in paths:
        t.equal(soname(path), os.path.basename(path))
        loader = f"import ctypes, os; ctypes.CDLL({path!r}, mode=os.RTLD_NOW)"
        done = harness.run(["/usr/bin/python3", "-c", loader], env=dict(os.environ, LD_LIBRARY_PATH=harness.library_dir()))
        t.equal(done.code, 0, f"{path}: {done.err}")


def test_what_they_need_is_ours_or_the_systems(t):
    for path in ours():
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--wide", "--dynamic", path))
        strange = [name for name in needed if not re.match(r"lib(gantry|c\.|m\.|dl\.|pthread)|ld-linux", name)]
        t.equal(strange, [], path)


def test_symbols_have_the_versions_of_the_vendors(t):
    compared = 0
    for path in ours():
        own = vendors(path)
        if not own:
            continue
        theirs = symbols(own)
        for name, version in symbols(path).items():
            if name in theirs:
                compared += 1
                t.equal(version, theirs[name], f"{path}: {name}")
    if not compared:
        raise harness.Skip(f"{HOME} has none of NVIDIA's libraries to compare with")


def imports():
    """{(soname, version): names} of the libraries of PyTorch's wheel."""
    wanted, now = {}, None
    with open(IMPORTS, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words and words[0].startswith("["):
                soname_, version = line.strip("[]\n").split()
                now = wanted.setdefault((soname_, "" if version == "-" else version), [])
            elif words:
                now += words
    return wanted


def test_all_that_pytorch_imports_is_there_with_its_version(t):
    where = {os.path.basename(path): path for path in ours()}
    for name in ("libcuda.so.1", "libcudart.so.13"):
        found = harness.find_in_build(name, os.path.exists)
        if found:
            where[name] = found
    looked = 0
    for (name, version), wanted in imports().items():
        if name not in where:
            t.note(f"the build has no {name}")
            continue
        have = symbols(where[name])
        t.equal([n for n in wanted if n not in have], [], f"{name} lacks nothing")
        # One that was linked against a library without versions takes any.
        t.equal([n for n in wanted if version and have.get(n) != version], [], f"{name} has version {version}")
        looked += len(wanted)
    t.true(looked > 0, "there was something to compare")


def test_without_a_session_calls_fail_and_nothing_else_happens(t):
    path = os.path.join(folder(), "libcublas.so.13")
    if not os.path.exists(path):
        raise harness.Skip("the build has no libcublas.so.13")
    library = ctypes.CDLL(path)
    handle, version = ctypes.c_void_p(), ctypes.c_int(77)
    t.equal(library.cublasCreate_v2(ctypes.byref(handle)), FAILED)
    t.equal(handle.value, None, "no handle")
    t.equal(library.cublasGetVersion_v2(None, ctypes.byref(version)), FAILED)
    t.equal(version.value, 77, "what was there stays")
    library.cublasGetStatusString.restype = ctypes.c_char_p
    t.equal(library.cublasGetStatusString(0), b"")


def with_runtime(folder):
    """A program that has among its constants what the static runtime has."""
    path, constants = os.path.join(folder, "with-runtime"), os.path.join(folder, "constants")
    shutil.copy2(shutil.which("true"), path)
    with open(constants, "wb") as out:
        out.write(b"libcuda.so.1\0cudaErrorInsufficientDriver\0CUDA driver version is insufficient for CUDA runtime version\0")
    done = subprocess.run(["objcopy", "--add-section", f".rodata.runtime={constants}", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise harness.Skip(f"objcopy does not work here: {done.stderr.strip()}")
    return path


def test_a_program_with_the_static_runtime_is_told_to_be_linked_again(t):
    folder()
    with tempfile.TemporaryDirectory() as place, harness.Agent(tenants={"red": {}}) as agent:
        program = with_runtime(place)
        done = agent.ctl("run", "red", "--", program)
        t.equal(done.code, 0, "it runs all the same")
        t.true("nvcc -cudart shared" in done.err and program in done.err, done.err)
        t.equal(agent.ctl("run", "red", "--", "true").err, "", "of others nothing is said")
        looked = agent.ctl("doctor", program, harness.program("gantryctl"), __file__).out
        t.true(re.search(r"program +fail +" + re.escape(program), looked), looked)
        t.true(re.search(r"program +ok +\S+gantryctl takes CUDA", looked), looked)
        t.true("is no ELF file" in looked, looked)


def test_doctor_says_something_of_every_file_that_it_is_given(t):
    with tempfile.TemporaryDirectory() as place, harness.Agent() as agent:
        names = [os.path.join(place, f"{number}.so") for number in range(600)]
        for name in names:
            os.symlink(shutil.which("true"), name)
        told = re.findall(r"^program +ok +(\S+) takes CUDA", agent.ctl("doctor", *names).out, re.M)
        t.equal(told, names)


def test_the_toolkits_runtime_is_found_inside_and_code_over_the_shared_one_passes(t):
    """Libraries without code for GPUs, which nvcc or the compiler made: what the toolkit puts in is what is looked for."""
    inside, without = (harness.program(name) for name in ("cuda-runtime-inside.so", "cuda-runtime-shared.so"))
    with harness.Agent() as agent:
        done = agent.ctl("doctor", inside, without)
        t.true(re.search(r"program +fail +" + re.escape(inside) + " has NVIDIA's static runtime", done.out), done.out)
        t.true(re.search(r"program +ok +" + re.escape(without) + " takes CUDA", done.out), done.out)


if __name__ == "__main__":
    harness.main(globals())

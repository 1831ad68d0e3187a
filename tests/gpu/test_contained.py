#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of CUDA, and PyTorch, in containers that have no device of NVIDIA's, no driver and no library of NVIDIA's.

What a container has comes from `gantryctl cdi generate --cuda ... --wheels ...` alone: the folder of a door, our libraries, two
variables. PyTorch's environment (GANTRY_TORCH_PYTHON) is mounted read-only, its folder of NVIDIA's wheels replaced by one that
has NVRTC and nvJitLink, which compile and touch no GPU, and ours.
"""
import json
import os
import pathlib
import shutil

import containers
import gpu
import harness
import test_cuda_guest
import torch_world

STEPS = ("device", "arithmetic", "matmul", "convolution_training", "transformer", "graph", "memory")
STEPS_AT = "/app/torch_steps.py"
# Devices, and libraries that have something in them.
LOOK = r"ls /dev; find / \( -path /proc -o -path /sys \) -prune -o -name 'lib*.so*' -type f -size +0 -print"


def library_folder(agent):
    """One folder with all of ours, as an installation has it. Mounts want files, not links."""
    test_cuda_guest.library_folder()
    folder = agent.root / "cuda"
    folder.mkdir()
    for name, path in torch_world.our_libraries().items():
        shutil.copy(path, folder / name)
    return str(folder)


def seen(text):
    """(devices, libraries of NVIDIA's names)"""
    lines = text.splitlines()
    devices = [line for line in lines if "/" not in line]
    return devices, {line for line in lines if containers.VENDOR.match(os.path.basename(line))}


def destinations(engine):
    return [mount["destination"] for mount in engine.edits("red", False)[1]]


def check_nothing_of_nvidia(t, engine, kept=()):
    """Whatever has one of NVIDIA's names is ours, mounted there, or one of @kept."""
    ended = harness.run(engine.argv("red", ["/bin/sh", "-c", LOOK]))
    t.code(ended, 0)
    devices, found = seen(ended.out)
    t.equal([name for name in devices if name.startswith("nvidia")], [], "devices")
    ours = set(destinations(engine)) - {to for _, to in engine.mounts}
    folders = tuple(path + "/" for path in ours)
    # A place for one of ours, where it is mounted, is ours; so is what lies in a folder of ours.
    others = sorted(path for path in found if path not in ours and not path.startswith(folders) and path not in kept)
    t.equal(others, [], "libraries of NVIDIA's")
    t.true(found, "our libraries are not there")


def program_name():
    return "cuda-runtime-basics" if gpu.REAL else "cuda-runtime-basics-fake"


def test_program_of_cuda_in_a_container(t):
    containers.need_root()
    test_cuda_guest.library_folder()
    path = harness.program(program_name())
    with gpu.world({"red": {"door_mode": "0666"}}) as agent:
        root = containers.Root()
        root.add_program(path, "/bin/program")
        engine = containers.engine(agent, root.path, more=["--cuda", library_folder(agent)])
        check_nothing_of_nvidia(t, engine)
        ended = harness.run(engine.argv("red", ["/bin/program"]), timeout=gpu.LIMIT_S)
        test_cuda_guest.passed(t, ended.code, ended.out.splitlines(),
                               test_cuda_guest.PARTS["runtime"] + (test_cuda_guest.PARTS["runtime on a GPU"] if gpu.REAL else []))
        print(f"# served by {type(engine).__name__}", flush=True)


def test_program_of_cuda_in_namespaces_without_an_engine(t):
    containers.need_root()
    test_cuda_guest.library_folder()
    with gpu.world({"red": {"door_mode": "0666"}}) as agent:
        root = containers.Root()
        root.add_program(harness.program(program_name()), "/bin/program")
        engine = containers.Unshare(agent, root.path, more=["--cuda", library_folder(agent)])
        check_nothing_of_nvidia(t, engine)
        ended = harness.run(engine.argv("red", ["/bin/program"]), timeout=gpu.LIMIT_S)
        t.code(ended, 0)


# --- PyTorch ------------------------------------------------------------------------------------------

def about_python():
    """Where the interpreter's parts are."""
    code = ("import json, os, sys, sysconfig; print(json.dumps({'real': os.path.realpath(sys.executable), 'prefix': sys.prefix, "
            "'base': sys.base_prefix, 'stdlib': sysconfig.get_path('stdlib')}))")
    return json.loads(harness.run([torch_world.PYTHON, "-c", code], env=torch_world.native_environment()).out)


def links_to(path):
    """Every name on the way from @path to the file."""
    yield path
    while os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
        yield path


def add_python(root, about, site):
    """The interpreter, and the libraries of the host that it and PyTorch load; its own folders are mounted."""
    if about["base"].startswith(("/usr", "/bin")):
        for name in links_to(torch_world.PYTHON):
            root.copy(about["real"], name)
    loaders = [about["real"], *pathlib.Path(about["stdlib"], "lib-dynload").glob("*.so"), *(site / "torch" / "lib").glob("*.so*")]
    root.add_libraries(*loaders)
    root.copy(str(gpu.HERE / "torch_steps.py"), STEPS_AT)


def mounts_of(about, site, nvidia):
    """(source, destination): the interpreter's folders, the environment, and another folder in the place of NVIDIA's wheels."""
    base = about["stdlib"] if about["base"].startswith(("/usr", "/bin")) else about["base"]
    kept = [path for path in site.glob("nvidia/*/lib/*.so*") if path.name.startswith(torch_world.KEPT)]
    return [(base, base), (about["prefix"], about["prefix"]), (str(nvidia), str(site / "nvidia")),
            *((str(path), str(path)) for path in kept), *hidden(pathlib.Path(about["prefix"]), site / "nvidia", nvidia)]


def hidden(prefix, wheels, nvidia):
    """Other wheels bring some of NVIDIA's along (Triton's a profiler): an empty file is mounted over each."""
    nothing = nvidia / "nothing"
    nothing.touch()
    return [(str(nothing), str(path)) for path in prefix.rglob("lib*.so*")
            if path.is_file() and not path.is_relative_to(wheels) and containers.VENDOR.match(path.name)]


def places(folder, site, ours):
    """NVIDIA's folder of wheels with nothing in it but places for mounts: ours, and the compilers."""
    nvidia = folder / "nvidia"
    for path in site.glob("nvidia/*/lib/*.so*"):
        if path.name.startswith(torch_world.KEPT) or (ours / path.name).exists():
            place = nvidia / path.relative_to(site / "nvidia")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    return nvidia


@gpu.takes_limit(300)
def test_pytorch_in_a_container(t):
    containers.need_root()
    site, about = torch_world.site_packages(), about_python()
    with gpu.world({"red": {"door_mode": "0666"}}, device={"libraries": ""}, start=False) as agent:
        agent.sections["devices"]["gpu0"]["libraries"] = torch_world.vendor_libraries(site, agent.root / "vendor")
        agent.write_config()
        agent.start()
        root = containers.Root()
        add_python(root, about, site)
        ours = pathlib.Path(library_folder(agent))
        nvidia = places(agent.root, site, ours)
        mounts = mounts_of(about, site, nvidia)
        engine = containers.engine(agent, root.path, more=["--cuda", str(ours), "--wheels", str(site)], mounts=mounts,
                                   env=["PYTHONDONTWRITEBYTECODE=1", "GANTRY_TORCH_QUICK_END=1", "HOME=/tmp", "USER=app"])
        # A library of ours that NVIDIA's wheels do not have needs a place too.
        for path in map(pathlib.Path, destinations(engine)):
            if path.is_relative_to(site / "nvidia") and path.suffix != "" and ".so" in path.name:
                place = nvidia / path.relative_to(site / "nvidia")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
        check_nothing_of_nvidia(t, engine, {str(path) for path in site.glob("nvidia/*/lib/*.so*") if path.name.startswith(torch_world.KEPT)})
        failed = []
        for step in STEPS:
            ended = harness.run(engine.argv("red", [torch_world.PYTHON, STEPS_AT, step]), timeout=60)
            good = ended.code == 0 and f"ok {step}" in ended.out
            print(f"# contained {step}: {'ok' if good else (ended.code, ended.out[-300:], ended.err[-900:])}", flush=True)
            failed += [] if good else [step]
        print(f"# served by {type(engine).__name__}", flush=True)
        t.equal(failed, [], "steps")


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch from its wheel in a guest, over our libraries: each step of torch_steps.py in a process of its own.

GANTRY_TORCH_PYTHON   the interpreter of an environment that has PyTorch for CUDA 13, with NVIDIA's wheels beside it
GANTRY_TORCH_STEPS    only these steps, by name
GANTRY_TORCH_CONFINE  no: workers are not confined, to tell whether that is what is in the way

The wheel's libraries name the folders of NVIDIA's wheels themselves (DT_RPATH), before LD_LIBRARY_PATH. So the environment
is made again of links, with our libraries in the place of NVIDIA's: what bind mounts do for a container. NVRTC, nvJitLink
and the like stay NVIDIA's: they compile, and touch no GPU.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import gpu
import harness

HERE = pathlib.Path(__file__).resolve().parent
STEPS = str(HERE / "torch_steps.py")
PYTHON = os.environ.get("GANTRY_TORCH_PYTHON")
# Of NVIDIA's wheels, what does its work on the CPU alone.
KEPT = ("libnvrtc", "libnvJitLink", "libnvvm")
STEP_S = 120


def site_packages():
    if not gpu.REAL or not PYTHON:
        raise harness.Skip("GANTRY_TORCH_PYTHON names no interpreter with PyTorch, or there is no GPU")
    code = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').submodule_search_locations[0]))"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise harness.Skip(f"{PYTHON} has no PyTorch: {done.stderr.strip()[-200:]}")
    return pathlib.Path(done.stdout.strip())


def our_libraries():
    """{name: path}"""
    found = {}
    for name in ("libcublasLt.so.13", "libcudart.so.13", "libcuda.so.1", "libnvidia-ml.so.1"):
        # Of the fake driver one has the same name.
        path = harness.find_in_build(name, lambda path: os.path.exists(path) and "fakecuda" not in path)
        if not path:
            raise harness.Skip(f"the build has no {name}")
        for one in pathlib.Path(path).parent.iterdir():
            if ".so" in one.name and one.is_file():
                found.setdefault(one.name, one)
    return {name: path for name, path in found.items() if not name.startswith(KEPT)}


def link_all(source, target, but=()):
    target.mkdir(parents=True, exist_ok=True)
    for one in source.iterdir():
        if one.name not in but:
            (target / one.name).symlink_to(one)


def farm(site, root):
    """PyTorch's environment of links, with our libraries. The folders that DT_RPATH goes through are real ones."""
    link_all(site, root, but=("torch", "nvidia"))
    link_all(site / "torch", root / "torch", but=("lib",))
    link_all(site / "torch" / "lib", root / "torch" / "lib")
    libraries = root / "nvidia" / "cu13" / "lib"
    libraries.mkdir(parents=True)
    for name, path in our_libraries().items():
        (libraries / name).symlink_to(path)
    for path in site.glob("nvidia/*/lib/*.so*"):
        if path.name.startswith(KEPT):
            (libraries / path.name).symlink_to(path)
    return libraries


def vendor_libraries(site, folder):
    """All of NVIDIA's in one folder, for the worker."""
    folder.mkdir()
    for path in site.glob("nvidia/*/lib/*.so*"):
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return str(folder)


def environment(root, libraries):
    # The launcher's environment is a virtual one: its own site-packages come behind the links.
    return {"PYTHONPATH": str(root), "LD_LIBRARY_PATH": str(libraries), "TRITON_LIBCUDA_PATH": str(libraries),
            "PYTHONDONTWRITEBYTECODE": "1", "GANTRY_TORCH_QUICK_END": "1"}


def wanted_steps():
    names = subprocess.run([sys.executable, STEPS], capture_output=True, text=True, check=True).stdout.split()
    chosen = os.environ.get("GANTRY_TORCH_STEPS", "").split()
    return [name for name in names if not chosen or name in chosen]


def run_step(agent, name, env):
    """("", seconds), or what it said last."""
    begun = time.monotonic()
    done = agent.run_guest("red", [PYTHON, STEPS, name], env=env, timeout=STEP_S)
    took = time.monotonic() - begun
    lines = done.out.splitlines() + done.err.splitlines()
    for line in lines[-25:] if done.code else done.out.splitlines():
        print(f"# {name}: {line[:300]}", flush=True)
    said = (lines or ["nothing"])[-1][:200]
    return ("" if done.code == 0 and f"ok {name}" in done.out else f"exit status {done.code}: {said}"), took


def native_too(name, env):
    """Whether the step passes with NVIDIA's own libraries: what does not is no fault of ours."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY")}
    done = subprocess.run([PYTHON, STEPS, name], env=dict(own, GANTRY_TORCH_QUICK_END=env["GANTRY_TORCH_QUICK_END"]),
                          capture_output=True, text=True, timeout=STEP_S, check=False)
    return done.returncode == 0


@gpu.takes_limit(540)
def test_pytorch_step_by_step(t):
    site = site_packages()
    agent_keys = {"confine": "no"} if os.environ.get("GANTRY_TORCH_CONFINE") == "no" else {}
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        os.chmod(folder, 0o755)
        root = pathlib.Path(folder, "site")
        env = environment(root, farm(site, root))
        libraries = vendor_libraries(site, pathlib.Path(folder, "vendor"))
        with gpu.world(device={"libraries": libraries}, agent=agent_keys) as agent:
            failed = []
            for name in wanted_steps():
                said, took = run_step(agent, name, env)
                print(f"# torch {name}: {said or 'ok'} ({took:.1f} s)", flush=True)
                if said and native_too(name, env):
                    failed.append(f"{name}: {said}")
    t.equal(failed, [], "steps that fail here and pass with NVIDIA's own libraries")


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

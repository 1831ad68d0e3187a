#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch from its wheel in a guest, over our libraries: each step of torch_steps.py in a process of its own.

GANTRY_TORCH_PYTHON   the interpreter of an environment that has PyTorch for CUDA 13, with NVIDIA's wheels beside it
GANTRY_TORCH_STEPS    only these steps, by name
GANTRY_TORCH_CONFINE  no: workers are not confined, to tell whether that is what is in the way
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import gpu
import harness
import torch_travel
import torch_world

HERE = pathlib.Path(__file__).resolve().parent
STEPS = str(HERE / "torch_steps.py")
STEP_S = 120


def wanted_steps():
    names = subprocess.run([sys.executable, STEPS], capture_output=True, text=True, check=True).stdout.split()
    chosen = os.environ.get("GANTRY_TORCH_STEPS", "").split()
    return [name for name in names if not chosen or name in chosen]


def run_step(agent, name, env):
    """("", seconds), or what it said last."""
    begun = time.monotonic()
    done = agent.run_guest("red", [torch_world.PYTHON, STEPS, name], env=env, timeout=STEP_S)
    took = time.monotonic() - begun
    lines = done.out.splitlines() + done.err.splitlines()
    for line in lines[-25:] if done.code else done.out.splitlines():
        print(f"# {name}: {line[:300]}", flush=True)
    said = (lines or ["nothing"])[-1][:200]
    return ("" if done.code == 0 and f"ok {name}" in done.out else f"exit status {done.code}: {said}"), took


def native_too(name):
    """Whether the step passes with NVIDIA's own libraries: what does not is no fault of ours."""
    done = subprocess.run([torch_world.PYTHON, STEPS, name], env=torch_world.native_environment(), capture_output=True, text=True,
                          timeout=STEP_S, check=False)
    return done.returncode == 0


def failing_steps(agent, names, env):
    """Those that fail here and pass with NVIDIA's own libraries, with what they said."""
    failed = []
    for name in names:
        said, took = run_step(agent, name, env)
        print(f"# torch {name}: {said or 'ok'} ({took:.1f} s)", flush=True)
        if said and native_too(name):
            failed.append(f"{name}: {said}")
    return failed


def agent_keys():
    return {"confine": "no"} if os.environ.get("GANTRY_TORCH_CONFINE") == "no" else {}


@gpu.takes_limit(540)
def test_pytorch_step_by_step(t):
    torch_world.site_packages()
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        place = torch_world.Place(folder)
        with place.world(agent=agent_keys()) as agent:
            t.equal(failing_steps(agent, wanted_steps(), place.guest_env), [], "steps that fail here and pass with NVIDIA's own libraries")


# What does its copies, launches and libraries in ways that differ there. Memory of other processes there is not.
FAR = ("device", "copies", "arithmetic", "matmul", "convolution_training", "attention", "streams", "graph", "transformer", "memory", "error")


@gpu.takes_limit(400)
def test_pytorch_behind_a_stream(t):
    torch_world.site_packages()
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        place = torch_world.Place(folder)
        with gpu.far_world(place.world, agent=agent_keys()) as agent:
            env = dict(place.guest_env, GANTRY_DOOR="stream:" + agent.vsock)
            failed = failing_steps(agent, [name for name in wanted_steps() if name in FAR], env)
            t.equal(failed, [], "steps that fail here and pass with NVIDIA's own libraries")


@gpu.takes_limit(400)
def test_pytorch_training_goes_to_another_gpu_and_back(t):
    torch_world.site_packages()
    gpu.sections(2)  # or Skip
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        place = torch_world.Place(folder)
        with place.world(count=2) as agent:
            wanted = torch_travel.stays(place, agent)
            training = torch_travel.Training(place, agent)
            for to in ("gpu1", "gpu0"):
                moved = training.move(to)
                t.equal(training.devices(), {to})
                gpu.figure(f"torch_move_pause_{to}", moved["downtime_ns"] / 1e6, "ms")
                time.sleep(3)
            t.equal(training.end(), wanted, "its losses, and those of one that stays, bit by bit")


@gpu.takes_limit(200)
def test_pytorch_training_with_a_communicator_stays(t):
    torch_world.site_packages()
    gpu.sections(2)  # or Skip
    with tempfile.TemporaryDirectory(prefix="gantry-torch-") as folder:
        place = torch_world.Place(folder)
        with place.world({"red": torch_travel.NCCL_TENANT}, count=2, env=torch_travel.NCCL) as agent:
            training = torch_travel.communicating(place, agent)
            ended = training.ask("gpu1")
            t.code(ended, 8, ended.err)
            t.contains(ended.err, "ncclComm")
            t.equal((training.devices(), len(training.end())), ({"gpu0"}, 60))


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's management library in a guest: ours, and what it tells."""
import os
import pathlib
import sys

import gpu
import harness

GUEST = str(pathlib.Path(__file__).resolve().parent / "nvml_guest.py")


def ours(name):
    if gpu.BACKEND == "cpu":
        raise harness.Skip("the library tells of devices of CUDA")
    found = harness.find_in_build(name, lambda path: os.path.exists(path) and "fakecuda" not in path)
    if not found:
        raise harness.Skip(f"the build has no {name} for guests")
    return found


def ran(t, done, parts):
    t.equal([line for line in done.out.splitlines() if line], [f"ok {part}" for part in parts], done.err[-300:])
    t.equal(done.code, 0, "exit status")


def test_a_guest_sees_its_devices_and_what_it_uses_itself(t):
    with gpu.world(count=gpu.GPUS) as agent:
        done = agent.run_guest("red", [sys.executable, GUEST, ours("libnvidia-ml.so.1"), ours("libcuda.so.1")], timeout=gpu.LIMIT_S)
    ran(t, done, ("beginning", "forks", "devices", "wrong calls", "use", "work", "end"))


def test_without_an_agent_there_is_no_driver(t):
    env = dict(os.environ, GANTRY_DOOR="unix:/nonexistent")
    ran(t, harness.run([sys.executable, GUEST, ours("libnvidia-ml.so.1")], env=env, timeout=60), ("no driver",))


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

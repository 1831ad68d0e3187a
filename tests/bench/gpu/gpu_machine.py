# SPDX-License-Identifier: Apache-2.0
"""The machine of a GPU benchmark: native programs, MPS of our own, agents with GPUs, and guests of them."""
import contextlib
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
import time

import programs
from programs import Commanded, Unable, harness

HEAP = "1536M"


class Bench:
    def __init__(self, options):
        self.scale = options.scale
        self.driver = options.driver
        self.hip_image = options.hip_image
        self.image = options.image or harness.find_in_build("bench-gpu.fatbin", os.path.exists)
        if not self.image:
            raise SystemExit("gpu-bench: the build has no bench-gpu.fatbin: it was made without CUDA's compiler")
        self.gpus = options.gpus if options.gpus is not None else len(gpu_names())

    def count(self, n):
        return max(n // self.scale, 10)

    def environment(self):
        names = gpu_names()
        return {
            "name": "environment", "value": ", ".join(names) or "no GPU", "unit": "", "driver": driver_version(),
            "cpu": cpu_model(), "cores": len(programs.ALL_CPUS), "kernel": platform.release(), "commit": commit(),
            "date": time.strftime("%Y-%m-%d"), "scale": self.scale,
        }

    # native programs

    def native(self, env=None, opened=True, priority=0):
        env = dict(env or {})
        if self.driver:
            env["GANTRY_TEST_CUDA_DRIVER"] = self.driver
        program = Commanded(harness.Guest([harness.program("bench-gpu-native")], env=dict(os.environ, **env)))
        if opened:
            program.opened = program.ask("open", self.image, priority)
        return program

    # Gantry

    def agent(self, tenants=None, agent=None, devices=None, gpus=1, env=None):
        """tenants: name -> keys; every one may use all GPUs."""
        if devices is None:
            devices = {}
            for index in range(gpus):
                devices[f"cuda{index}"] = {"backend": "cuda", "gpu": str(index), "driver": self.driver,
                                           "cores": None, "mem": None}
        keys = {"mem": "40G", "virtual": "40G", "heap": HEAP, "host_mem": "12G", "sessions": 16}
        tenants = {name: dict(keys, **more) for name, more in (tenants or {"red": {}}).items()}
        return harness.Agent(devices=devices, tenants=tenants, agent=dict({"warm_workers": 4}, **(agent or {})), env=env)

    def guest(self, agent, tenant="red", opened=True, priority=0):
        guest = Commanded(agent.guest(tenant, [harness.program("bench-gpu-guest")]))
        if opened:
            guest.opened = guest.ask("open", self.image, priority)
        return guest

    # MPS for native clients

    @contextlib.contextmanager
    def mps(self):
        """The environment of clients of an MPS server of our own, in folders of its own."""
        control = shutil.which("nvidia-cuda-mps-control")
        if not control:
            raise Unable("there is no nvidia-cuda-mps-control")
        root = pathlib.Path(tempfile.mkdtemp(prefix="gantry-mps-"))
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(root / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(root / "log")}
        for folder in env.values():
            os.mkdir(folder)
        subprocess.run([control, "-d"], env=dict(os.environ, **env), check=True, timeout=30)
        try:
            yield env
        finally:
            subprocess.run([control], input=b"quit\n", env=dict(os.environ, **env), check=False, timeout=60)
            shutil.rmtree(root, ignore_errors=True)


def smi(query):
    try:
        ended = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
                               capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return []
    return [line.strip() for line in ended.stdout.splitlines() if line.strip()] if ended.returncode == 0 else []


def gpu_names():
    return smi("name")


def driver_version():
    return (smi("driver_version") or ["none"])[0]


def cpu_model():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        for line in info:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


def commit():
    """The bundle says from what it was made; a checkout asks git."""
    for folder in pathlib.Path(__file__).resolve().parents:
        if (folder / "bundle.json").exists():
            import json  # pylint: disable=import-outside-toplevel
            return json.loads((folder / "bundle.json").read_text(encoding="utf-8")).get("commit", "unknown")
    ended = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short=12", "HEAD"],
                           capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "unknown"

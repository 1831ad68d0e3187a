# SPDX-License-Identifier: Apache-2.0
"""The steps of a run on a machine with GPUs, in the order they run: cheap ones that explain the failure of others first."""
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
EVERYWHERE = ("cuda", "fakecuda", "cpu")
FIGURE = re.compile(r"^# figure (\S+) (\S+) ?(.*)$")


def find(build, name):
    """A program of the build folder or bundle, or None."""
    for folder, subfolders, files in os.walk(build):
        subfolders[:] = sorted(sub for sub in subfolders if not sub.endswith(".p") and sub != "bundle")
        path = os.path.join(folder, name)
        if name in files and os.access(path, os.X_OK):
            return path
    return None


class Step:
    """A program of the build that prints TAP, with arguments."""

    # As long as it takes on a busy machine; with less of the budget left it is not begun.
    def __init__(self, name, what, program, limit_s, least_s=20, backends=EVERYWHERE, args=(), env=None):
        self.name, self.what, self.program = name, what, program
        self.limit_s, self.least_s = limit_s, least_s
        self.backends, self.args, self.env = backends, list(args), dict(env or {})

    @property
    def missing(self):
        return f"{self.name}: this build has no {self.program}"

    def command(self, build):
        path = find(build, self.program)
        return [path, *self.args] if path else None


class Script(Step):
    """A file of this folder, over tests/system/harness.py."""

    def command(self, build):
        path = HERE / self.program
        return [sys.executable, str(path), *self.args] if path.exists() else None


def figures_of(output):
    """{name: [value, unit]}: what tests measured, printed as "# figure NAME VALUE UNIT"."""
    found = {}
    for line in output.splitlines():
        match = FIGURE.match(line)
        if match:
            found[match.group(1)] = [float(match.group(2)), match.group(3)]
    return found


def divides(output):
    """Whether some test had one GPU as two devices."""
    return "# one GPU as two devices" in output.splitlines()


STEPS = [
    Script("discovery", "device list, doctor, drivers and GPUs that are not there", "test_discovery.py", 120),
    Step("contract", "every backend against devices/device.h", "contract-devices-suite", 240),
    Step("hip", "the hip backend over a stand-in for AMD's runtime that works on NVIDIA's driver", "contract-devices-suite", 240,
         backends=("cuda", "fakecuda"), env={"GANTRY_TEST_ROWS": "hip over CUDA"}),
    Step("kernels", "every installed kernel against plain C", "test-kernels-device", 400, least_s=120, backends=("cuda",)),
    Script("cuda_guest", "programs of CUDA over our libcuda and libcudart", "test_cuda_guest.py", 280),
    Script("programs", "the demonstration, copies, images of guests, wrong input", "test_programs.py", 240),
    Script("calls", "cuBLAS, cuFFT and cuRAND of a guest, in the worker", "test_calls.py", 240, backends=("cuda", "fakecuda")),
    Script("opencl", "the opencl backend and programs of OpenCL over the driver's own OpenCL", "test_opencl_gpu.py", 580, backends=("cuda",)),
    Script("ranks", "NCCL between workers of a tenant: two processes, one with two devices, one that leaves", "test_ranks.py", 120,
           backends=("cuda", "fakecuda")),
    Script("nvml", "our libnvidia-ml in a guest", "test_nvml.py", 120, backends=("cuda", "fakecuda")),
    Script("torch", "PyTorch's wheel over our libraries, step by step (GANTRY_TORCH_PYTHON)", "test_torch.py", 580, backends=("cuda",)),
    Script("contained", "CUDA and PyTorch in containers without anything of NVIDIA's (GANTRY_TORCH_PYTHON)", "test_contained.py", 400,
           backends=("cuda", "fakecuda")),
    Script("machine", "CUDA in a virtual machine over ivshmem and vsock (./dev machine-kit)", "../vm/test_cuda_machine.py", 580,
           least_s=200, backends=("cuda", "fakecuda")),
    Script("memory", "limits, clean memory, memory that outlives workers and agents", "test_memory.py", 300),
    Script("sharing", "tenants side by side in each mode, attaching", "test_sharing.py", 300),
    Script("divided", "one GPU as several devices: its memory, wrong configurations", "test_divided.py", 120,
           backends=("cuda", "fakecuda")),
    Script("two", "two GPUs, or one as two devices", "test_two.py", 200),
    Script("moves", "programs of CUDA that go from one GPU, or device, to another while they run", "test_moves.py", 200,
           backends=("cuda", "fakecuda")),
    Script("faults", "illegal address, trap, endless, killed; three neighbours, by mode", "test_faults.py", 420),
    Script("hundred", "faults in a row beside three neighbours, by mode", "test_hundred.py", 480),
]

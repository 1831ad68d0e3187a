# SPDX-License-Identifier: Apache-2.0
"""Programs of CUDA inside a virtual machine, which has our libraries and a door and nothing of NVIDIA's. The driver is on the
host, with the worker: the fake one, or on a machine with GPUs (tests/gpu/run) theirs, where the machine is of tools/make-machine-kit."""
import os
import sys

os.environ.setdefault("GANTRY_GPU_BACKEND", "fakecuda")
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
import doors  # pylint: disable=wrong-import-position
import gpu  # pylint: disable=wrong-import-position
import harness  # pylint: disable=wrong-import-position
import image  # pylint: disable=wrong-import-position
import shared  # pylint: disable=wrong-import-position
import test_cuda_guest  # pylint: disable=wrong-import-position

AT = "/usr/lib/gantry/cuda"
RUN_S = 240
PROGRAM = "cuda-runtime-basics" if gpu.REAL else "cuda-runtime-basics-fake"
IMAGE = "/opt/kernels.image"


class World:
    """A gantryd with a GPU, and a machine of red's at both doors."""

    def __init__(self):
        if gpu.REAL and not image.kit():
            raise harness.Skip("there is no virtual machine to run: ./dev machine-kit makes one, and GANTRY_MACHINE names its folder")
        folder = test_cuda_guest.library_folder()
        self.agent = gpu.world({"red": dict(doors.TENANT, heap="32M", ivshmem_size="128M", mem="512M", virtual="1G")}, start=False)
        self.agent.set_tenant("red", vsock_path=doors.vsock_path(self.agent, "red"))
        try:
            self.agent.start()
            libraries = {f"{AT[1:]}/{name}": os.path.join(folder, name) for name in ("libcuda.so.1", "libcudart.so.13")}
            self.machine = doors.Machine(self.agent, "red", 43, memory="768M",  # half of it holds the files
                                     programs=["gantry-guest", PROGRAM, "cuda-driver-basics", "cuda-driver-far"],
                                         files={**libraries, IMAGE[1:]: test_cuda_guest.image()})
        except BaseException:
            self.agent.close()
            raise

    def run(self, door, *argv):
        ended = self.machine.run([*argv], env={"GANTRY_DOOR": door, "LD_LIBRARY_PATH": AT}, user="guest", timeout=RUN_S)
        return ended.code, ended.out.splitlines()

    def restore(self):
        self.machine.do("gantry-guest reap >/dev/null")
        harness.wait_until(lambda: not self.agent.sessions(), "the sessions end")

    def report(self):
        self.machine.report()
        self.agent.report()

    def close(self):
        self.machine.close()
        self.agent.close()


WORLD = shared.Shared(World)


def test_program_of_nvcc_in_a_machine(t):
    with WORLD() as world:
        test_cuda_guest.passed(t, *world.run("ivshmem:", PROGRAM),
                               test_cuda_guest.PARTS["runtime"] + (test_cuda_guest.PARTS["runtime on a GPU"] if gpu.REAL else []))
        t.equal(world.machine.do("ls /dev | grep -c nvidia || true").strip(), "0")


def test_driver_api_in_a_machine(t):
    with WORLD() as world:
        test_cuda_guest.passed(t, *world.run("ivshmem:", "cuda-driver-basics", IMAGE), test_cuda_guest.PARTS["driver"])


def test_program_of_nvcc_in_a_machine_behind_vsock(t):
    if gpu.REAL:
        raise harness.Skip("for GPUs it is built with managed memory, which is not there behind vsock")
    with WORLD() as world:
        test_cuda_guest.passed(t, *world.run("vsock:", PROGRAM), test_cuda_guest.PARTS["runtime"])


def test_driver_api_in_a_machine_behind_vsock(t):
    with WORLD() as world:
        test_cuda_guest.passed(t, *world.run("vsock:", "cuda-driver-basics", IMAGE), test_cuda_guest.PARTS["driver"])


def test_pinned_memory_in_a_machine_behind_vsock(t):
    with WORLD() as world:
        test_cuda_guest.passed(t, *world.run("vsock:", "cuda-driver-far", IMAGE), test_cuda_guest.PARTS["far"])


if __name__ == "__main__":
    harness.main(globals(), limit_s=400)

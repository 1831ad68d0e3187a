# SPDX-License-Identifier: Apache-2.0
"""What others want of CUDA: torch_others.py STEP. Runs in their own environment; each step checks what it computed and prints "ok STEP"."""
import ctypes
import os
import sys
import time


def step_driver():
    """The Driver API by ctypes, from the process's start to the end of the first kernel: no framework at all."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *args):
        status = getattr(cuda, name)(*args)
        if status:
            raise SystemExit(f"{name}: CUDA error {status}")
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    function, memory = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    with open(os.environ["FIRST_IMAGE"], "rb") as file:
        image = file.read()
    call("cuModuleLoadData", ctypes.byref(module), image)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"affine")
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(8000))
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(0), ctypes.c_size_t(8000))
    values = [memory, ctypes.c_uint64(1000), ctypes.c_uint64(3)]
    pointers = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values))
    call("cuLaunchKernel", function, 8, 1, 1, 128, 1, 1, 0, None, pointers, None)
    call("cuCtxSynchronize")
    print("first", time.monotonic_ns(), flush=True)
    back = (ctypes.c_uint64 * 1000)()
    call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(8000))
    assert list(back) == list(range(1000))


def step_torch_first():
    import torch  # pylint: disable=import-outside-toplevel,import-error
    print("imported", time.monotonic_ns(), flush=True)
    x = torch.ones(1000, device="cuda") + 1
    torch.cuda.synchronize()
    print("first", time.monotonic_ns(), flush=True)
    assert x.sum().item() == 2000


def step_cupy():
    import cupy  # pylint: disable=import-outside-toplevel,import-error
    print("version", cupy.__version__, "runtime", cupy.cuda.runtime.runtimeGetVersion(), "devices", cupy.cuda.runtime.getDeviceCount())
    x = cupy.arange(1000, dtype=cupy.float64)
    assert float((x * 2 + 1).sum()) == 1000000.0
    print("elementwise")
    y = cupy.random.default_rng(1).standard_normal((64, 64))
    assert cupy.allclose(y @ cupy.linalg.inv(y), cupy.eye(64), atol=1e-6)
    print("linalg")
    assert cupy.allclose(cupy.fft.ifft(cupy.fft.fft(x)).real, x)
    print("fft")
    kernel = cupy.RawKernel('extern "C" __global__ void twice(double *x) { x[threadIdx.x] *= 2; }', "twice")
    kernel((1,), (1000,), (x,))
    assert float(x.sum()) == 999000.0
    print("raw kernel")
    assert float(cupy.sort(-x)[0]) == -1998.0


def step_numba():
    import numpy  # pylint: disable=import-outside-toplevel,import-error
    # numba-cuda wants a name that NumPy 2.5 no longer has.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    from numba import cuda  # pylint: disable=import-outside-toplevel,import-error

    print("devices", [str(device.name) for device in cuda.gpus])
    device = cuda.to_device(numpy.arange(1000, dtype=numpy.float64))
    assert device.copy_to_host().sum() == 499500

    @cuda.jit
    def twice(x):
        place = cuda.grid(1)
        if place < x.size:
            x[place] *= 2

    twice[8, 128](device)
    assert device.copy_to_host().sum() == 999000
    print("jit")

    @cuda.jit
    def total(x, out):
        part = cuda.shared.array(128, dtype=numpy.float64)
        place = cuda.grid(1)
        part[cuda.threadIdx.x] = x[place] if place < x.size else 0
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            here = 0.0
            for number in range(128):
                here += part[number]
            cuda.atomic.add(out, 0, here)

    out = cuda.to_device(numpy.zeros(1))
    total[8, 128](device, out)
    assert out.copy_to_host()[0] == 999000
    print("shared memory, atomics")
    stream = cuda.stream()
    again = cuda.to_device(numpy.ones(10), stream=stream)
    stream.synchronize()
    assert again.copy_to_host().sum() == 10


def step_numba_registered():
    """Memory of the program's own, pinned where it is (cuMemHostRegister)."""
    from numba import cuda  # pylint: disable=import-outside-toplevel,import-error
    import numpy  # pylint: disable=import-outside-toplevel,import-error

    mine = numpy.ones(1000)
    with cuda.pinned(mine):
        assert cuda.to_device(mine).copy_to_host().sum() == 1000


def step_jax():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax  # pylint: disable=import-outside-toplevel,import-error
    import jax.numpy as jnp  # pylint: disable=import-outside-toplevel,import-error
    print("version", jax.__version__, "devices", jax.devices())
    assert jax.devices()[0].platform == "gpu"
    x = jnp.arange(1000.0)
    assert float(jax.jit(lambda v: (v * 2 + 1).sum())(x)) == 1000000.0
    print("jit")
    a = jax.random.normal(jax.random.key(1), (128, 128))
    assert bool(jnp.allclose(a @ jnp.linalg.inv(a), jnp.eye(128), atol=1e-2))
    print("linalg")
    assert abs(float(jax.grad(lambda v: (v ** 3).sum())(jnp.float32(2))) - 12) < 1e-4


def step_triton():
    import torch  # pylint: disable=import-outside-toplevel,import-error
    import triton  # pylint: disable=import-outside-toplevel,import-error
    from triton import language as tl  # pylint: disable=import-outside-toplevel,import-error
    print("version", triton.__version__)
    globals()["tl"] = tl

    @triton.jit
    def add(x, y, out, n, SIZE: tl.constexpr):
        places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        inside = places < n
        tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)

    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    out = torch.empty_like(x)
    add[(8,)](x, y, out, 1000, SIZE=128)
    assert torch.equal(out, x + y)


STEPS = {name[5:]: function for name, function in list(globals().items()) if name.startswith("step_")}


def main():
    if len(sys.argv) < 2:
        print("\n".join(STEPS))
        return
    STEPS[sys.argv[1]]()
    print("ok", sys.argv[1], flush=True)
    # What ends a library is not what is looked at here.
    if os.environ.get("GANTRY_TORCH_QUICK_END"):
        os._exit(0)


if __name__ == "__main__":
    main()

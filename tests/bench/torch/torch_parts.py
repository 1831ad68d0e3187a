# SPDX-License-Identifier: Apache-2.0
"""Single operations of a ResNet-18 step and of memory, by the device's clock: torch_parts.py. Runs in PyTorch's environment.

Prints {"values": {name: microseconds, the least of five}}. Each is made many times in a row behind something long, so that all of it is
with the device before the first begins: then what is timed is the device, and not who hands it its work.
"""
import json
import os

import torch
from torch.nn import functional

TIMES, ROUNDS = 10, 5
LONG_CYCLES = 8000000  # some 4 ms
BATCH = 64
# channels in and out, size, width of the kernel, stride
CONVOLUTIONS = ((3, 64, 224, 7, 2), (64, 64, 56, 3, 1), (64, 128, 56, 3, 2), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1))
PLANES = ((64, 112), (64, 56), (256, 14), (512, 7))
MIB = 1 << 20


def timed(operation):
    for _ in range(3):
        operation()
    found = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(LONG_CYCLES)  # pylint: disable=protected-access
        begin.record()
        for _ in range(TIMES):
            operation()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e3 / TIMES)
    return min(found)


def random(*shape):
    return torch.randn(*shape, device="cuda")


def convolutions():
    for inside, outside, size, width, stride in CONVOLUTIONS:
        x, w = random(BATCH, inside, size, size), random(outside, inside, width, width)
        again = (stride, stride), (width // 2, width // 2), (1, 1), False, (0, 0), 1
        dy = torch.randn_like(functional.conv2d(x, w, None, stride, width // 2))

        def back(which, dy=dy, x=x, w=w, again=again):
            return torch.ops.aten.convolution_backward(dy, x, w, None, *again, which)
        name = f"convolution_{inside}_{outside}_{size}"
        yield name, lambda x=x, w=w, s=stride, p=width // 2: functional.conv2d(x, w, None, s, p)
        yield name + "_data", lambda back=back: back((True, False, False))
        yield name + "_filter", lambda back=back: back((False, True, False))


def planes():
    for channels, size in PLANES:
        x, norm = random(BATCH, channels, size, size), torch.nn.BatchNorm2d(channels).cuda()
        leaf = x.clone().requires_grad_()
        y = norm(leaf)
        dy, other = torch.randn_like(y), torch.empty_like(x)
        name = f"{channels}_{size}"
        yield "norm_" + name, lambda norm=norm, x=x: norm(x)
        yield f"norm_{name}_back", lambda y=y, leaf=leaf, dy=dy: torch.autograd.grad(y, leaf, dy, retain_graph=True)
        yield "relu_" + name, lambda x=x: torch.relu(x)
        yield "add_" + name, lambda x=x, dy=dy: x + dy
        yield "copy_" + name, lambda other=other, x=x: other.copy_(x)


def others():
    x = random(BATCH, 64, 112, 112)
    yield "pool", lambda: functional.max_pool2d(x, 3, 2, 1)
    weights = [random(512, 512) for _ in range(62)]
    steps = [torch.randn_like(one) for one in weights]
    yield "optimizer", lambda: torch._foreach_add_(weights, steps, alpha=1e-6)  # pylint: disable=protected-access
    # How fast its memory is, in order and out of order (addresses over 2 GiB: what finds pages has more to do).
    large, other = torch.zeros(512 * MIB, dtype=torch.float32, device="cuda"), torch.zeros(64 * MIB, dtype=torch.float32, device="cuda")
    yield "memory_copy", lambda: other.copy_(large[:64 * MIB])
    places = torch.randint(0, 512 * MIB, (4 * MIB,), device="cuda")
    yield "memory_gather", lambda: large[places]
    little = torch.zeros(16, device="cuda")
    yield "memory_little", lambda: little.add_(1)


def main():
    torch.manual_seed(11)
    values = {name: timed(operation) for part in (convolutions, planes, others) for name, operation in part()}
    print(json.dumps({"values": values}), flush=True)
    # What ends a library is not what is looked at here.
    if os.environ.get("GANTRY_TORCH_QUICK_END"):
        os._exit(0)


if __name__ == "__main__":
    main()

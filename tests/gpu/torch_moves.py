#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A training on device 0 that prints each step's loss, bit by bit: what test_torch.py moves to another GPU while it runs.

torch_moves.py STEPS [PACE_S [nccl STORE]]: with a pace no step takes less, so that whoever moves it finds it at work; with nccl it
has a communicator of one rank, through the file STORE, and sums each loss over it.
"""
import os
import struct
import sys
import time

import torch  # pylint: disable=import-error


def network():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(),
                         nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))


def summed_by(store):
    """The loss, through a communicator of one rank."""
    from torch import distributed  # pylint: disable=import-outside-toplevel,import-error
    distributed.init_process_group("nccl", init_method="file://" + store, rank=0, world_size=1, device_id=torch.device("cuda:0"))

    def summed(loss):
        whole = loss.detach().clone()
        distributed.all_reduce(whole)
        return whole
    return summed


def main():
    steps, pace = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    device = torch.device("cuda:0")
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images = torch.randn(64, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (64,), device=device)
    side = torch.cuda.Stream()
    held = torch.randint(0, 255, (int(os.environ.get("HELD_MIB", "0")) << 20,), dtype=torch.uint8, device=device)
    # As words: a sum of bytes makes all of them eight times as large first.
    sum_held = held.view(torch.int64).sum().item()
    told = summed_by(sys.argv[4]) if sys.argv[3:4] == ["nccl"] else torch.Tensor.detach
    seen = (torch.cuda.get_device_name(0), torch.cuda.device_count(), torch.cuda.get_device_properties(0).total_memory)
    for step in range(steps):
        begun = time.monotonic()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            norm = sum(p.double().square().sum() for p in model.parameters())
        side.synchronize()
        print(f"step {step} {struct.pack('>f', told(loss).item()).hex()} {struct.pack('>d', norm.item()).hex()}", flush=True)
        if step == 5:
            print("working", flush=True)
        time.sleep(max(0, pace - (time.monotonic() - begun)))
    now = (torch.cuda.get_device_name(0), torch.cuda.device_count(), torch.cuda.get_device_properties(0).total_memory)
    if held.view(torch.int64).sum().item() != sum_held:
        now = "other bytes"
    print("ok training" if now == seen else f"it saw {seen}, and now {now}", flush=True)
    # What ends a library with communicators is not what is looked at here.
    if told is not torch.Tensor.detach:
        os._exit(0)


if __name__ == "__main__":
    main()

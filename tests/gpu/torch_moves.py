#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A training on device 0 that prints each step's loss, bit by bit: what test_torch.py moves to another GPU while it runs.

torch_moves.py STEPS [PACE_S]: with a pace no step takes less, so that whoever moves it finds it at work.
"""
import struct
import sys
import time

import torch  # pylint: disable=import-error


def network():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))


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
        print(f"step {step} {struct.pack('>f', loss.item()).hex()} {struct.pack('>d', norm.item()).hex()}", flush=True)
        if step == 5:
            print("working", flush=True)
        time.sleep(max(0, pace - (time.monotonic() - begun)))
    now = (torch.cuda.get_device_name(0), torch.cuda.device_count(), torch.cuda.get_device_properties(0).total_memory)
    print("ok training" if now == seen else f"it saw {seen}, and now {now}", flush=True)


if __name__ == "__main__":
    main()

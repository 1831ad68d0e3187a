# SPDX-License-Identifier: Apache-2.0
"""Training over two GPUs, gradients summed by NCCL: torch_pair.py one_process|two_processes. Runs in PyTorch's environment.

Prints {"seconds": of 50 steps, "values": sums that have to be right, then the losses}.
"""
import json
import os
import socket
import sys
import time

import torch

import torch_jobs
import torch_models

STEPS = 50


def same_models(device):
    torch.manual_seed(17)
    model = torch_models.resnet18(10, small=True).to(device)
    return model, torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def halves():
    torch.manual_seed(19)
    x, y = torch_jobs.pictures(64, 32, 10)
    return x.cpu().split(32), y.cpu().split(32)


def one_process():
    import torch.cuda.nccl as nccl  # pylint: disable=import-outside-toplevel
    parts = [torch.full((1000,), float(number + 1), device=f"cuda:{number}") for number in range(2)]
    nccl.all_reduce(parts)
    values = [part.sum().item() for part in parts]
    sides = [same_models(f"cuda:{number}") for number in range(2)]
    xs, ys = halves()
    rows = [(x.to(f"cuda:{number}"), y.to(f"cuda:{number}")) for number, (x, y) in enumerate(zip(xs, ys))]

    def step():
        losses = []
        for (model, optimizer), (x, y) in zip(sides, rows):
            optimizer.zero_grad(set_to_none=True)
            losses.append(torch_jobs.classify(model, x, y))
            losses[-1].backward()
        for pair in zip(*([p.grad for p in model.parameters()] for model, _ in sides)):
            nccl.all_reduce(list(pair))
        for _, optimizer in sides:
            optimizer.step()
        return [loss.detach() for loss in losses]
    return values, step


def two_processes(rank, port):
    """The second of them is started by the first."""
    from torch import distributed  # pylint: disable=import-outside-toplevel
    if torch.cuda.device_count() < 2:  # natively, on one GPU: each rank says that it is a host of its own
        os.environ["NCCL_HOSTID"] = f"part{rank}"
    number = rank % torch.cuda.device_count()
    torch.cuda.set_device(number)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    distributed.init_process_group("nccl", device_id=torch.device("cuda", number))
    part = torch.full((1000,), float(rank + 1), device="cuda")
    distributed.all_reduce(part)
    model, optimizer = same_models("cuda")
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[number])
    xs, ys = halves()
    x, y = xs[rank].cuda(), ys[rank].cuda()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch_jobs.classify(model, x, y)
        loss.backward()
        optimizer.step()
        return [loss.detach()]
    return [part.sum().item()], step


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_second(port):
    return os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, __file__, "two_processes", "1", str(port)])


def main():
    torch_jobs.exactly()
    rank, port, second = int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3] if len(sys.argv) > 3 else None, None
    if sys.argv[1] == "one_process":
        values, step = one_process()
    else:
        if port is None:
            port = free_port()
            second = start_second(port)
        values, step = two_processes(rank, port)
    step()
    for number in range(torch.cuda.device_count()) if sys.argv[1] == "one_process" else [torch.cuda.current_device()]:
        torch.cuda.synchronize(number)
    begun = time.perf_counter()
    losses = [loss for _ in range(STEPS) for loss in step()]
    values += [loss.item() for loss in losses]
    if rank == 0:
        print(json.dumps({"seconds": time.perf_counter() - begun, "values": values}), flush=True)
    if second is not None and os.waitpid(second, 0)[1]:
        sys.exit("the second process failed")
    os._exit(0)


if __name__ == "__main__":
    main()

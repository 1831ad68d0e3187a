# SPDX-License-Identifier: Apache-2.0
"""Work for PyTorch that answers lines: torch_jobs.py JOB [exact]. Runs in PyTorch's own environment.

Prints "ready" when the job has been set up and warmed. For each line with a number it makes so many steps, and answers
{"seconds": of all of them, "longest": of one of them, "values": what each step gave}. "stray": a kernel writes where this
program has nothing. "greedy BYTES": they are asked for; {"given": whether}. After an error of CUDA {"error": its text}, and
the process ends. A job's values depend on nothing but its name, exact or not:
of two environments they are the same curve. exact: PyTorch's deterministic algorithms.
"""
import ctypes
import json
import os
import sys
import time

import torch
from torch.nn import functional

import torch_models


def pictures(count, size, classes):
    """Noise around one picture for each class: there is something to learn."""
    classes = min(classes, 10)
    labels = torch.randint(0, classes, (count,))
    kinds = torch.randn(classes, 3, size, size)
    return (kinds[labels] * 0.3 + torch.randn(count, 3, size, size)).cuda(), labels.cuda()


def learner(model, optimizer, batches, loss_of):
    """A step of training."""
    place = [0]

    def step():
        batch = batches[place[0] % len(batches)]
        place[0] += 1
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def classify(model, x, y):
    return functional.cross_entropy(model(x), y)


def resnet(batch, size, classes, small, batches):
    model = torch_models.resnet18(classes, small).cuda()
    x, y = pictures(batch * batches, size, classes)
    rows = list(zip(x.split(batch), y.split(batch)))
    return learner(model, torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-4), rows, classify)


def job_resnet18():
    """64 pictures of 224 x 224."""
    return resnet(64, 224, 1000, False, 2)


def job_resnet18_small():
    """32 pictures of 32 x 32: many short kernels."""
    return resnet(32, 32, 10, True, 8)


def sentences(rows, length, words):
    """Each word follows from the two before it, mostly."""
    text = torch.randint(0, words, (rows, length + 1))
    for column in range(2, length + 1):
        known = (text[:, column - 1] * 31 + text[:, column - 2] * 17 + 7) % words
        text[:, column] = torch.where(torch.rand(rows) < 0.9, known, text[:, column])
    return text.cuda()


def predict(model, x, y):
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def transformer(batch, words, length, wrap=None, **shape):
    model = torch_models.Transformer(words, length=length, **shape).cuda()
    text = sentences(batch * 4, length, words)
    rows = list(zip(text[:, :-1].split(batch), text[:, 1:].split(batch)))
    step = learner(wrap(model) if wrap else model, torch.optim.AdamW(model.parameters(), 3e-4), rows, predict)
    step.model, step.text = model, text
    return step


def job_transformer():
    """16 sentences of 256 words, 6 layers of 512."""
    return transformer(16, 4096, 256)


def job_transformer_bf16():
    step = transformer(16, 4096, 256)

    def in_bf16():
        with torch.autocast("cuda", torch.bfloat16):
            return step()
    return in_bf16


def job_transformer_compiled():
    return transformer(16, 4096, 256, wrap=torch.compile)


def job_transformer_generation():
    """Trains on 60 batches, then each step makes 32 words and gives their sum of squares."""
    step = transformer(8, 512, 64, width=128, heads=4, layers=2)
    for _ in range(60):
        step()
    place = [0]

    def generate():
        place[0] += 1
        made = step.model.generate(step.text[place[0] % len(step.text)][None, :8], 32)
        return (made.double() * torch.arange(1, made.shape[1] + 1, device="cuda")).sum()
    return generate


def inference(read):
    model = torch_models.small_network().cuda().eval()
    x = torch.randn(64, 1, 1, 28, 28, device="cuda")
    place = [0]

    @torch.inference_mode()
    def step():
        place[0] += 1
        y = model(x[place[0] % 64])
        return y.argmax().item() if read else y[0, 0]
    return step


def job_inference():
    """One picture at a time through a small network, and the answer read."""
    return inference(True)


def job_inference_queued():
    """The same, and nothing read before the end."""
    return inference(False)


def job_streams():
    """Products on four streams that wait for each other, copies of pinned memory among them."""
    a, pinned = torch.randn(256, 256, device="cuda") / 16, torch.randn(256, 256).pin_memory()
    streams = [torch.cuda.Stream() for _ in range(4)]
    place = [0]

    def step():
        place[0] += 1
        found = []
        for number, stream in enumerate(streams):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = pinned.cuda(non_blocking=True) * (number + place[0])
                found.append((a @ x).tanh())
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        return sum(found).abs().mean()
    return step


def job_graph():
    """Whole steps of training, captured once and replayed."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    rows, labels = torch.randn(16, 64, 256, device="cuda"), torch.randint(0, 10, (16, 64), device="cuda")
    x, y, side = rows[0].clone(), labels[0].clone(), torch.cuda.Stream()

    def one():
        optimizer.zero_grad(set_to_none=True)
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        return loss
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = one()
    place = [0]

    def step():
        place[0] = (place[0] + 1) % 16
        x.copy_(rows[place[0]])
        y.copy_(labels[place[0]])
        graph.replay()
        return loss.detach().clone()
    return step


def job_memory():
    """Tensors of many sizes come and go; the allocator's own numbers are the values."""
    kept = []
    names = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "active.all.allocated",
             "segment.all.allocated", "num_alloc_retries", "num_ooms")

    def step():
        kept.append(torch.empty(1 << (10 + len(kept) % 14), device="cuda"))
        if len(kept) > 40:
            del kept[::3]
        stats = torch.cuda.memory_stats()
        return float(sum((place + 1) * stats[name] for place, name in enumerate(names)))
    return step


def job_low_precision():
    """Products in bf16, half and fp8."""
    a, b = torch.randn(256, 512, device="cuda") / 8, torch.randn(512, 128, device="cuda") / 8
    one, place = torch.ones((), device="cuda"), [0]

    def step():
        place[0] += 1
        x = a * (1 + place[0] % 7)
        product = torch._scaled_mm(x.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t(),  # pylint: disable=protected-access
                                   scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return product.double().abs().sum() + (x.bfloat16() @ b.bfloat16()).double().sum() + (x.half() @ b.half()).double().sum()
    return step


JOBS = {name[4:]: function for name, function in list(globals().items()) if name.startswith("job_")}


def exactly():
    """What is left to chance in PyTorch is switched off, where it can be."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False


def numbers(values):
    """All values are read at once, behind the clock."""
    return [value if isinstance(value, (int, float)) else value.item() for value in values]


def stray():
    """A kernel of the image that FIRST_IMAGE names writes to an address that nobody has. What follows fails."""
    cuda, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    with open(os.environ["FIRST_IMAGE"], "rb") as file:
        assert cuda.cuModuleLoadData(ctypes.byref(module), file.read()) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"illegal") == 0
    address = ctypes.c_uint64(1 << 46)
    pointers = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(address), ctypes.c_void_p))
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, pointers, None) == 0
    torch.cuda.synchronize()


def greedy(size):
    try:
        return {"given": torch.empty(size, dtype=torch.uint8, device="cuda") is not None, "total": torch.cuda.mem_get_info()[1]}
    except torch.cuda.OutOfMemoryError:
        return {"given": False, "total": torch.cuda.mem_get_info()[1]}


def steps(step, count):
    """Of long jobs every step is waited for: the longest is a pause that a user sees."""
    torch.cuda.synchronize()
    begun, values, longest = time.perf_counter(), [], 0
    waits = "waits" in sys.argv[2:]
    for _ in range(count):
        before = time.perf_counter() if waits else 0
        values.append(step())
        if waits:
            torch.cuda.synchronize()
            longest = max(longest, time.perf_counter() - before)
    torch.cuda.synchronize()
    took = time.perf_counter() - begun
    return {"seconds": took, "longest": longest, "values": numbers(values)}


def answer(step, line):
    words = line.split()
    if words[0] == "stray":
        return stray() or {"strayed": True}
    return greedy(int(words[1])) if words[0] == "greedy" else steps(step, int(words[0]))


def main():
    if len(sys.argv) < 2:
        print("\n".join(JOBS))
        return
    if "exact" in sys.argv[2:]:
        exactly()
    torch.manual_seed(11)
    begun = time.perf_counter()
    step = JOBS[sys.argv[1]]()
    first = numbers([step() for _ in range(5)])
    print("ready", json.dumps({"seconds": time.perf_counter() - begun, "values": first}), flush=True)
    for line in sys.stdin:
        try:
            told = answer(step, line)
        except RuntimeError as error:
            told = {"error": str(error)[:300]}
        print(json.dumps(told), flush=True)
        if "error" in told:
            break
    # What ends a library is not what is looked at here.
    if os.environ.get("GANTRY_TORCH_QUICK_END"):
        os._exit(0)


if __name__ == "__main__":
    main()

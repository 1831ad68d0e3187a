#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch does on a GPU, step by step, each compared with the same on the CPU. Runs in PyTorch's own environment.

torch_steps.py              the names of the steps
torch_steps.py STEP         one; prints "ok STEP" at its end
"""
import contextlib
import os
import sys


def lazily():
    """torch, when the step wants it."""
    import torch  # pylint: disable=import-outside-toplevel,import-error
    torch.manual_seed(7)
    return torch


def close(torch, got, wanted, tolerance=1e-3):
    """The result of the GPU is that of the CPU."""
    error = (got.detach().cpu().double() - wanted.detach().double()).abs().max().item()
    scale = wanted.detach().double().abs().max().item() or 1
    if not error <= tolerance * scale:
        raise SystemExit(f"differs by {error:.3g}, of {scale:.3g} at most")
    torch.cuda.synchronize()


def step_import():
    print("version", lazily().__version__)


def step_device():
    torch = lazily()
    print("available", torch.cuda.is_available(), "devices", torch.cuda.device_count())
    print(torch.cuda.get_device_properties(0))
    assert torch.cuda.is_available()


def step_copies():
    torch = lazily()
    x = torch.randn(1000, 100)
    close(torch, x.cuda(), x, 0)
    close(torch, x.pin_memory().cuda(non_blocking=True), x, 0)


def step_arithmetic():
    torch = lazily()
    x, y = torch.randn(1000, 100), torch.randn(100)
    close(torch, x.cuda() * y.cuda() + 1, x * y + 1)
    close(torch, torch.softmax(x.cuda(), 1), torch.softmax(x, 1))
    close(torch, x.cuda().sort(1).values, x.sort(1).values)
    close(torch, x.cuda().cumsum(0), x.cumsum(0))
    close(torch, x.cuda()[x.cuda() > 0].sum(), x[x > 0].sum())


def step_random():
    torch = lazily()
    x = torch.randn(1 << 20, device="cuda")
    assert abs(x.mean().item()) < 0.01 and abs(x.std().item() - 1) < 0.01
    assert torch.nn.functional.dropout(x, 0.5).count_nonzero().item() < (1 << 20)


def step_matmul():
    torch = lazily()
    a, b = torch.randn(256, 300), torch.randn(300, 128)
    close(torch, a.cuda() @ b.cuda(), a @ b)
    close(torch, (a.cuda().half() @ b.cuda().half()).float(), a @ b, 1e-2)
    close(torch, (a.cuda().bfloat16() @ b.cuda().bfloat16()).float(), a @ b, 3e-2)
    close(torch, torch.bmm(a.cuda().expand(4, -1, -1), b.cuda().expand(4, -1, -1)), (a @ b).expand(4, -1, -1))
    close(torch, torch.dot(a.cuda().flatten(), a.cuda().flatten()), torch.dot(a.flatten(), a.flatten()))


def step_linear():
    """cuBLASLt, with the bias behind the product."""
    torch = lazily()
    layer, x = torch.nn.Linear(300, 128), torch.randn(64, 300)
    wanted = layer(x)
    close(torch, layer.cuda()(x.cuda()), wanted)
    close(torch, layer.half()(x.cuda().half()).float(), wanted, 1e-2)


def step_fp8():
    torch = lazily()
    a, b = torch.randn(64, 128, device="cuda"), torch.randn(32, 128, device="cuda")
    one = torch.ones((), device="cuda")
    got = torch._scaled_mm(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t(),  # pylint: disable=protected-access
                           scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    close(torch, got.float(), a.cpu() @ b.cpu().t(), 0.1)


def step_convolution():
    torch = lazily()
    layer, x = torch.nn.Conv2d(8, 16, 3, padding=1), torch.randn(4, 8, 32, 32)
    wanted = layer(x)
    print("cuDNN", torch.backends.cudnn.version())
    close(torch, layer.cuda()(x.cuda()), wanted)
    torch.backends.cudnn.benchmark = True
    close(torch, layer(x.cuda()), wanted)
    close(torch, layer.half()(x.cuda().half()).float(), wanted, 1e-2)


def step_convolution_training():
    torch = lazily()
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                              torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(8 * 16 * 16, 10))
    x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))

    def losses(module, device):
        module, optimizer, found = module.to(device), torch.optim.SGD(module.parameters(), 0.05), []
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return torch.tensor(found)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    wanted = losses(net, "cpu")
    net.load_state_dict(state)
    close(torch, losses(net, "cuda"), wanted, 2e-2)


def step_recurrent():
    torch = lazily()
    layer, x = torch.nn.LSTM(32, 64, 2), torch.randn(10, 4, 32)
    wanted = layer(x)[0]
    close(torch, layer.cuda()(x.cuda())[0], wanted)


def step_attention():
    torch = lazily()
    q, k, v = (torch.randn(2, 4, 64, 32) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    wanted = attend(q, k, v)
    close(torch, attend(q.cuda(), k.cuda(), v.cuda()), wanted)
    close(torch, attend(q.cuda().half(), k.cuda().half(), v.cuda().half()).float(), wanted, 1e-2)


def step_fourier():
    torch = lazily()
    x = torch.randn(64, 100)
    close(torch, torch.fft.rfft(x.cuda()).abs(), torch.fft.rfft(x).abs())
    close(torch, torch.fft.ifft2(torch.fft.fft2(x.cuda())).real, x)


def step_sparse():
    torch = lazily()
    a, b = (torch.randn(64, 64) > 1).float(), torch.randn(64, 16)
    close(torch, a.cuda().to_sparse_csr() @ b.cuda(), a @ b)
    close(torch, torch.sparse.mm(a.cuda().to_sparse(), b.cuda()), a @ b)


def step_algebra():
    torch = lazily()
    a, b = torch.randn(50, 50, dtype=torch.float64), torch.randn(50, 4, dtype=torch.float64)
    positive = a @ a.t() + torch.eye(50, dtype=torch.float64)
    close(torch, torch.linalg.solve(a.cuda(), b.cuda()), torch.linalg.solve(a, b), 1e-6)
    close(torch, torch.linalg.cholesky(positive.cuda()), torch.linalg.cholesky(positive), 1e-6)
    close(torch, torch.linalg.svdvals(a.cuda()), torch.linalg.svdvals(a), 1e-6)
    close(torch, torch.linalg.eigvalsh(positive.cuda()), torch.linalg.eigvalsh(positive), 1e-6)
    close(torch, torch.linalg.qr(a.cuda()).R.abs(), torch.linalg.qr(a).R.abs(), 1e-6)


def step_streams():
    torch = lazily()
    side, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.randn(512, 512)
    on_gpu = x.cuda()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        begin.record()
        product = on_gpu @ on_gpu
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    close(torch, product, x @ x)
    assert begin.elapsed_time(end) > 0


def step_memory():
    torch = lazily()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 24, device="cuda")
    assert torch.cuda.memory_allocated() - before >= 4 << 24
    del x
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    with contextlib.suppress(torch.cuda.OutOfMemoryError):
        torch.empty(total, dtype=torch.float64, device="cuda")
        raise SystemExit("more memory than there is was given")


def step_graph():
    torch = lazily()
    x = torch.zeros(100, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = x * 2 + 1
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    x.fill_(3)
    graph.replay()
    close(torch, y, torch.full((100,), 7.0))


def step_runtime_compiler():
    """NVRTC, through an operation that is compiled when it is used."""
    torch = lazily()
    x = torch.rand(100) + 0.5
    close(torch, torch.special.gammaln(x.cuda()), torch.special.gammaln(x))
    close(torch, torch.special.zeta(x.cuda() + 2, 1.5 + x.cuda()), torch.special.zeta(x + 2, 1.5 + x))


def step_compile():
    torch = lazily()

    @torch.compile
    def function(x, y):
        return torch.sin(x) * y + torch.relu(x)
    x, y = torch.randn(100, 100), torch.randn(100, 100)
    close(torch, function(x.cuda(), y.cuda()), torch.sin(x) * y + torch.relu(x))


def step_transformer():
    torch = lazily()
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True)
    x = torch.randn(2, 16, 64)
    wanted = layer(x)
    on_gpu = layer.cuda()
    got = on_gpu(x.cuda())
    close(torch, got, wanted)
    got.sum().backward()
    torch.cuda.synchronize()


def step_error():
    """A wrong call is an error of Python's, and the device goes on."""
    torch = lazily()
    with contextlib.suppress(RuntimeError):
        torch.randn(3, 4, device="cuda") @ torch.randn(3, 4, device="cuda")
        raise SystemExit("a wrong product was taken")
    close(torch, torch.ones(3, device="cuda") + 1, torch.full((3,), 2.0))


def other_process(given, made):
    """What it is given it doubles where it lies, and what it makes lies there until the first process has read it."""
    torch = lazily()
    x = given.get()
    x.mul_(2)
    mine = torch.arange(1000, device="cuda") * int(x[1].item())
    torch.cuda.synchronize()
    made.put(mine)
    given.get()


def step_processes():
    """Tensors of the device that two processes share (torch.multiprocessing, spawned): memory and events by their handles."""
    torch = lazily()
    context = torch.multiprocessing.get_context("spawn")
    given, made = context.Queue(), context.Queue()
    other = context.Process(target=other_process, args=(given, made))
    other.start()
    x = torch.arange(1000, device="cuda")
    given.put(x)
    theirs = made.get(timeout=90)
    assert torch.equal(x.cpu(), torch.arange(1000) * 2), "the other process wrote elsewhere"
    assert torch.equal(theirs.cpu(), torch.arange(1000) * 2), "what the other process made is not what is read"
    del theirs
    given.put("read")
    other.join(60)
    assert other.exitcode == 0, f"the other process ended with {other.exitcode}"


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

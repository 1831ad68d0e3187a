# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own table of operations (OpInfo), each on its own sample inputs: torch_ops.py INDEX OF. Runs in PyTorch's environment.

One line for each operation and type of numbers, of those whose place in the table is INDEX modulo OF:
{"op": its name, "dtype": .., "error": what was raised, or "results": for each sample, numbers that stand for what came out}.
It is forward and, where there is one, the gradient too. Lines are flushed: after a death it is known where. Of the names
on standard input, one a line, none is tried.
"""
import hashlib
import json
import os
import random
import sys
import types
import unittest

import numpy
import torch

SAMPLES = 3
# Their results are not determined: memory that nobody has written, or (attention without dropout) a seed that nobody drew.
UNDETERMINED = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "resize_", "resize_as_",
                "torch.ops.aten._efficient_attention_forward")


def table():
    """The part of PyTorch's tests that its wheel brings. What it imports for other parts may be missing."""
    try:
        import expecttest  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        stand_in.assert_expected_inline = None
        sys.modules["expecttest"] = stand_in
    # It looks at the command line, which is ours.
    sys.argv = sys.argv[:1]
    from torch.testing._internal.common_methods_invocations import op_db  # pylint: disable=import-outside-toplevel
    return op_db


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors(one)


def told(tensor):
    """[type and shape, hash, sum of sizes]: equal, or at least close."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    whole = tensor.detach().cpu().contiguous()
    if whole.is_quantized:
        whole = whole.dequantize()
    whole = whole.resolve_conj().resolve_neg()
    double = whole.abs().double() if whole.is_complex() else whole.double().abs()
    finite = torch.nan_to_num(double, nan=3.0, posinf=5.0, neginf=7.0)
    raw = (torch.view_as_real(whole) if whole.is_complex() else whole).reshape(-1).view(torch.uint8)
    return [f"{whole.dtype} {list(whole.shape)}", hashlib.sha1(raw.numpy().tobytes()).hexdigest()[:12], finite.sum().item()]


def one_sample(op, sample, with_gradient):
    torch.manual_seed(5)
    out = op(sample.input, *sample.args, **sample.kwargs)
    found = [told(tensor) for tensor in tensors(out)]
    if with_gradient:
        wanted = [t for t in tensors([sample.input, *sample.args]) if t.requires_grad]
        sources = [t for t in tensors(out) if t.requires_grad]
        if wanted and sources:
            total = sum((t.abs() if t.is_complex() else t).sum() for t in sources)
            grads = torch.autograd.grad(total, wanted, allow_unused=True)
            found += [told(grad) for grad in grads if grad is not None]
    return found


def one(op, dtype):
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    grad = dtype in (torch.float32, torch.complex64) and op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
    results = []
    for number, sample in enumerate(op.sample_inputs("cuda", dtype, requires_grad=grad)):
        if number >= SAMPLES:
            break
        results.append(one_sample(op, sample, grad))
    torch.cuda.synchronize()
    return results


def attempts():
    for op in table():
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
            if op.supports_dtype(dtype, "cuda") and op.name not in UNDETERMINED:
                yield op, dtype


def main():
    index, number = int(sys.argv[1]), int(sys.argv[2])
    passed_over = set(sys.stdin.read().split("\n"))
    for place, (op, dtype) in enumerate(attempts()):
        name = f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''} {str(dtype)[6:]}"
        if place % number != index or name in passed_over:
            continue
        print(json.dumps({"begins": name}), flush=True)
        line = {"op": name}
        try:
            line["results"] = one(op, dtype)
        except Exception as error:  # pylint: disable=broad-except
            line["error"] = f"{type(error).__name__}: {str(error)[:200]}"
            # After an error that stays nothing can be learnt here.
            try:
                torch.cuda.synchronize()
            except Exception:  # pylint: disable=broad-except
                line["fatal"] = True
        print(json.dumps(line), flush=True)
        if line.get("fatal"):
            os._exit(3)
    print(json.dumps({"end": True}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

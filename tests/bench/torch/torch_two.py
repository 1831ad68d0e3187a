# SPDX-License-Identifier: Apache-2.0
"""Two GPUs with NCCL, Keras's workloads and single operations: programs that run once, natively and over our libraries."""
import json
import os
import re

import gpu
import torch_compare
import torch_world
from torch_figures import HERE, Figure, TENANT, harness, ms
from torch_travel import NCCL

MORE = os.environ.get("GANTRY_TORCH_MORE", "")


def ended(done, what):
    """The object of its last line that is one."""
    lines = [line for line in done.out.splitlines() if line.startswith("{")]
    print(f"## {what}: exit status {done.code}\n" + "\n".join((done.out + done.err).splitlines()[-25:])[-3000:], flush=True)
    if done.code or not lines:
        raise harness.Failure(f"{what}: exit status {done.code}: {(done.out + done.err).strip()[-300:]}")
    return json.loads(lines[-1])


def both(bench, agent, argv, what, more=None, limit=120):
    """(native, ours), one after the other."""
    native = harness.run(argv, env=with_more({**torch_world.native_environment(), **(more or {})}), timeout=limit)
    ours = agent.run_guest("red", argv, env=with_more({**bench.place.guest_env, **(more or {})}), timeout=limit)
    return ended(native, what + ", native"), ended(ours, what + ", ours")


def with_more(env):
    """GANTRY_TORCH_MORE: a folder of packages that PyTorch's environment does not have."""
    return dict(env, PYTHONPATH=":".join(part for part in (env.get("PYTHONPATH"), MORE) if part))


def keras(bench):
    kinds = re.findall(r"^def kind_(\w+)", (HERE / "torch_keras.py").read_text(encoding="utf-8"), re.M)
    with bench.place.world({"red": TENANT}) as agent:
        for kind in kinds:
            native, ours = both(bench, agent, [torch_world.PYTHON, str(HERE / "torch_keras.py"), kind], f"keras {kind}")
            yield from torch_compare.curve(f"keras_{kind}", native["values"], ours["values"], exact=False)
            yield Figure(f"keras_{kind}_overhead", 100 * (ours["seconds"] / native["seconds"] - 1), "%",
                         f"four epochs in {ms(native['seconds']):.0f} ms natively, one run each")


def parts(bench):
    """What a single operation takes the device."""
    with bench.place.world({"red": TENANT}) as agent:
        native, ours = both(bench, agent, [torch_world.PYTHON, str(HERE / "torch_parts.py")], "parts")
    for name, theirs in native["values"].items():
        yield Figure(f"part_{name}", 100 * (ours["values"][name] / theirs - 1), "%", f"{theirs:.2f} us of the device natively, one run each")


def nccl(bench):
    """One process with two GPUs; two processes with one each, or, where there is one GPU, with a part of it each."""
    for way in ("one_process", "two_processes"):
        with bench.place.world({"red": dict(TENANT, sessions="8", queues="48", communicators="yes")}, count=2, env=NCCL) as agent:
            if gpu.Divided.now and way == "one_process":
                print("## nccl one_process: NCCL has no two ranks of one process on one GPU", flush=True)
                continue
            native, ours = both(bench, agent, [torch_world.PYTHON, str(HERE / "torch_pair.py"), way], f"nccl {way}", NCCL)
            where = "parts of one GPU" if gpu.Divided.now else "GPUs"
            name = f"nccl_{way}" + ("_one_gpu" if gpu.Divided.now else "")
            yield from torch_compare.curve(name, native["values"], ours["values"], exact=True)
            yield Figure(f"{name}_overhead", 100 * (ours["seconds"] / native["seconds"] - 1), "%",
                         f"training with gradients summed over two {where}, {ms(native['seconds']):.0f} ms natively, one run each")

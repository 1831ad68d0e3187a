# SPDX-License-Identifier: Apache-2.0
"""A training of PyTorch that goes to another device while it runs (torch_moves.py), for the test and the measurement of it."""
import json
import pathlib

import gpu
import harness
import torch_world

MOVES = str(pathlib.Path(__file__).resolve().parent / "torch_moves.py")
STEPS = 120
PACE_S = 0.2
LIMIT_S = 120
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
# What multicast over NVLink leaves behind harms others of a host.
NCCL = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
# It wants a network, which other confined workers have not.
NCCL_TENANT = {"communicators": "yes"}


def argv(steps=STEPS, *more):
    return [torch_world.PYTHON, MOVES, str(steps), *map(str, more)]


def losses(output):
    return [line for line in output.splitlines() if line.startswith("step ")]


def whole(done, what):
    """The losses of one that has run to its end."""
    if done.code != 0 or "ok training" not in done.out:
        raise harness.Failure(f"{what}: exit status {done.code}: {(done.out + done.err).strip()[-500:]}")
    return losses(done.out)


def native():
    return whole(harness.run(argv(), env={**torch_world.native_environment(), **SETTINGS}, timeout=LIMIT_S), "with NVIDIA's own libraries")


def stays(place, agent):
    return whole(agent.run_guest("red", argv(), env={**place.guest_env, **SETTINGS}, timeout=LIMIT_S), "a training that stays")


class Training:
    """One at work in a guest."""

    def __init__(self, place, agent, *more, env=None, steps=STEPS, pace=PACE_S):
        self.agent = agent
        self.guest = agent.guest("red", argv(steps, pace, *more), env={**place.guest_env, **SETTINGS, **(env or {})})
        self.guest.read_until("working", timeout=LIMIT_S)
        self.session = str(gpu.session_of(agent, self.guest)["session_id"])

    def devices(self):
        rows = self.agent.ctl_json("queue", "list", "--session", self.session)["queues"]
        return {row["device"] for row in rows if row["slot"]}

    def ask(self, to):
        return self.agent.ctl("--json", "session", "migrate", self.session, "--to", to)

    def move(self, to):
        """What gantryctl tells of the move."""
        ended = self.ask(to)
        if ended.code != 0:
            raise harness.Failure(f"session migrate --to {to}: exit status {ended.code}: {ended.err.strip()}")
        moved = json.loads(ended.out)["migration"]
        print(f"# moved to {to}: still for {moved['downtime_ns'] / 1e6:.1f} ms, {moved['page_bytes'] >> 20} MiB", flush=True)
        return moved

    def end(self):
        """Its losses."""
        code = self.guest.wait(LIMIT_S)
        if code != 0 or "ok training" not in self.guest.output():
            raise harness.Failure(f"a training that went: exit status {code}: {self.guest.output()[-500:]}")
        return losses(self.guest.output())


def communicating(place, agent):
    """One with a communicator of NCCL, of one rank."""
    return Training(place, agent, "nccl", place.folder / "ranks", env=NCCL, steps=60)

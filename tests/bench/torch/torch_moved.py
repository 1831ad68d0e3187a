# SPDX-License-Identifier: Apache-2.0
"""A training that goes to another device and back while it runs, beside one that stays and a native one; with a communicator it stays.

Where there is one GPU it is two devices, and the figures' names say so.
"""
import statistics
import time

import torch_travel
from torch_figures import TENANT, Figure, gpu, harness

# What goes along besides, of which the pause is made.
HELD_MIB = 8192


def unlike(losses, others):
    return abs(len(losses) - len(others)) + sum(a != b for a, b in zip(losses, others))


def to_and_fro(bench, training, number):
    """The rows of so many moves, with work between them."""
    rows = []
    for turn in range(number):
        rows.append(training.move(f"gpu{(turn + 1) % 2}"))
        time.sleep(2 / bench.scale)
    return rows


def pauses(name, rows):
    took = [row["downtime_ns"] / 1e6 for row in rows]
    size = rows[-1]["page_bytes"] >> 20
    yield Figure(f"{name}_pause", statistics.median(took), "ms", f"of {len(took)} moves, {min(took):.1f} to {max(took):.1f}; {size} MiB went")
    yield Figure(f"{name}_whole", statistics.median(row["elapsed_ns"] / 1e6 for row in rows), "ms", "from the worker's order to its end")


def named():
    return "moves_one_gpu" if gpu.Divided.now else "moves"


def moves(bench):
    """To and fro, and once more with more memory, of which the pause is made."""
    pace, held = max(torch_travel.PACE_S / bench.scale, 0.05), HELD_MIB // bench.scale
    with bench.place.world({"red": TENANT}, count=2) as agent:
        stays = torch_travel.stays(bench.place, agent)
        training = torch_travel.Training(bench.place, agent, pace=pace)
        rows = to_and_fro(bench, training, 4)
        went = training.end()
        yield from pauses(named(), rows)
        yield Figure(f"{named()}_losses_unlike", unlike(went, stays), "", f"of {len(stays)} steps, bit by bit, and one that stays", ("<=", 0))
        yield Figure(f"{named()}_losses_unlike_native", unlike(went, torch_travel.native()), "", "the same beside NVIDIA's own libraries", ("<=", 0))
        training = torch_travel.Training(bench.place, agent, env={"HELD_MIB": str(held)}, steps=60, pace=pace)
        rows = to_and_fro(bench, training, 2)
        training.end()
        yield from pauses(f"{named()}_{HELD_MIB >> 10}g", rows)


def communicator_moves(bench):
    """A training with a communicator of NCCL stays where it is, and ends as it would have."""
    with bench.place.world({"red": {**TENANT, **torch_travel.NCCL_TENANT}}, count=2, env=torch_travel.NCCL) as agent:
        training = torch_travel.communicating(bench.place, agent)
        before = training.devices()
        ended = training.ask("gpu0" if before == {"gpu1"} else "gpu1")
        if ended.code != 8 or "ncclComm" not in ended.err or training.devices() != before:
            raise harness.Failure(f"with a communicator, session migrate: exit status {ended.code}: {(ended.out + ended.err).strip()}")
        training.end()
        yield Figure(f"{named()}_communicator_stays", 1, "", ended.err.strip())

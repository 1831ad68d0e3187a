# SPDX-License-Identifier: Apache-2.0
"""Queues that move from one GPU to another: how long, how long the program stands still, and what else one could do."""
import json
import os
import statistics
import time

from gpu_machine import harness
from programs import Commanded, Unable, in_ms

GIB = 1 << 30
PARTS = 8192
MOVES = 5
# Of the bytes that the queue owns, so much is rewritten in a second.
REWRITTEN = 0.1
TARGETS_MS = {8: 60, 64: 400}


def native(bench, gpus):
    """A program of the driver API's, with contexts on so many GPUs."""
    env = dict(os.environ, **({"GANTRY_TEST_CUDA_DRIVER": bench.driver} if bench.driver else {}))
    program = Commanded(harness.Guest([harness.program("bench-gpu-moves-native")], env=env))
    program.ask("open", gpus)
    return program


def checkpoint_ms(bench, size):
    """NVIDIA's checkpoint of a native program with as much memory, and its way back, on the same GPU."""
    owner, other = native(bench, 1), native(bench, 1)
    try:
        owner.ask("own", size)
        took = other.ask("checkpoint", owner.pid)
    finally:
        owner.end()
        other.end()
    return {name: took[name + "_ns"] / 1e6 for name in ("lock", "checkpoint", "restore", "unlock")}


class Mover:
    """A guest on cuda0, and gantryctl."""

    def __init__(self, bench, agent, size):
        self.agent, self.size = agent, size
        self.guest = Commanded(agent.guest("red", [harness.program("bench-gpu-moves-guest")]))
        self.guest.ask("open", size, PARTS)
        row = agent.ctl_json("queue", "list")["queues"][0]
        self.name, self.device = f"{row['session_id']}:{row['slot']}", row["device"]

    def settle(self):
        """What the move before left was given back and cleared, so that the next finds nothing made already."""
        def quiet():
            here = f'device="{self.device}"'
            rows = self.agent.ctl_json("stats")["metrics"]
            dirty = sum(row["value"] for row in rows if row["name"] == "gantry_slab_dirty_bytes")
            elsewhere = sum(row["value"] for row in rows
                            if row["name"] == "gantry_slab_session_bytes" and here not in row["labels"])
            return dirty == 0 and elsewhere < self.size // 2
        harness.wait_until(quiet, "slabs are given back and cleared", 60)

    def move(self):
        """To the other GPU. What the agent tells of it, and how long gantryctl ran, in ms."""
        to = "cuda1" if self.device == "cuda0" else "cuda0"
        argv = [harness.program("gantryctl"), "--socket", self.agent.admin, "--json", "queue", "migrate", self.name,
                "--to", to]
        began = time.monotonic_ns()
        ended = harness.run(argv, timeout=120)
        wall = (time.monotonic_ns() - began) / 1e6
        if ended.code != 0:
            raise Unable(f"queue migrate: {ended.err.strip()}")
        self.device = to
        return json.loads(ended.out)["migration"], wall

    def move_beside_writer(self):
        """The same while tasks rewrite a tenth in a second. Also the longest time that the program saw none end, in ms."""
        at = in_ms(300)
        self.guest.tell("write", at, 2_500_000_000, int(PARTS * REWRITTEN))
        time.sleep(1.3)
        row, _ = self.move()
        return row, self.guest.hear()["longest_ns"] / 1e6

    def wrong_words(self):
        return self.guest.ask("wrong")["words"]


def one_size(bench, gib, plain_ms, checkpoint):
    size = gib * GIB // bench.scale
    room = f"{max(size * 5 // 4 >> 20, 256)}M"
    with bench.agent({"red": {"mem": room, "virtual": room, "heap": "64M"}}, gpus=2) as agent:
        mover = Mover(bench, agent, size)
        walls, inner = [], []
        for _ in range(MOVES):
            mover.settle()
            row, wall = mover.move()
            walls.append(wall)
            inner.append(row["elapsed_ns"] / 1e6)
        whole = statistics.median(walls)
        yield (f"moves_{gib}g_ms", whole, "ms", f"gantryctl queue migrate, of {min(walls):.1f} to {max(walls):.1f}",
               ("<=", TARGETS_MS[gib]))
        yield (f"moves_{gib}g_worker_ms", statistics.median(inner), "ms", "of it from the worker's order to its end")
        yield (f"moves_{gib}g_over_peer_copy", whole / plain_ms, "",
               f"a plain peer copy of the same bytes takes {plain_ms:.1f} ms")
        if checkpoint:
            yield (f"moves_{gib}g_speedup", checkpoint / whole, "", "times as fast as NVIDIA's checkpoint and restore")
        yield (f"moves_{gib}g_idle_pause_ms", row["downtime_ns"] / 1e6, "ms", "of the last, in which nobody wrote")
        pauses, seen, moved = [], [], []
        for _ in range(3):
            mover.settle()
            row, longest = mover.move_beside_writer()
            pauses.append(row["downtime_ns"] / 1e6)
            seen.append(longest)
            moved.append(row["page_bytes"] / row["owned_bytes"])
        yield (f"moves_{gib}g_pause_ms", max(pauses), "ms",
               f"the longest of {len(pauses)}, a tenth rewritten a second; {row['rounds']} rounds", ("<=", 20))
        yield (f"moves_{gib}g_seen_ms", max(seen), "ms", "the longest time in which the program saw no task end")
        yield (f"moves_{gib}g_moved_ratio", max(moved), "", "bytes moved over bytes owned")
        yield (f"moves_{gib}g_wrong_words", mover.wrong_words(), "", "of all that it owns", ("<=", 0))


def moves(bench):
    if bench.gpus < 2:
        raise Unable("a queue needs two GPUs to move between")
    plain, checkpoint = {}, None
    peer = native(bench, 2)
    for gib in TARGETS_MS:
        plain[gib] = peer.ask("peer", gib * GIB // bench.scale, 5)["ns"] / 1e6
        yield (f"moves_{gib}g_peer_copy_ms", plain[gib], "ms", "cuMemcpyPeerAsync by hand")
    peer.end()
    try:
        took = checkpoint_ms(bench, 8 * GIB // bench.scale)
        checkpoint = sum(took.values())
        yield ("moves_8g_checkpoint_ms", checkpoint, "ms",
               ", ".join(f"{name} {ms:.0f}" for name, ms in took.items()) + ": cuCheckpointProcess*, on the same GPU")
    except Unable as why:
        yield ("moves_8g_checkpoint_failed", None, "", str(why))
    for gib in TARGETS_MS:
        yield from one_size(bench, gib, plain[gib], checkpoint if gib == 8 else None)

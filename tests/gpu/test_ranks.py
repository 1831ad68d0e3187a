#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of NCCL in guests of a tenant with communicators: in two processes, in one with two devices, and where one leaves."""
import contextlib
import os
import tempfile

import gpu
import harness
import test_calls as calls
import test_cuda_guest as cuda_guest

PROGRAM = "cuda-library-ranks"
# What multicast over NVLink leaves behind harms others of a host.
NCCL = {"NCCL_NVLS_ENABLE": "0"}


@contextlib.contextmanager
def world(count=2, **keys):
    if gpu.BACKEND == "cpu":
        raise harness.Skip("NCCL wants GPUs, or stand-ins for them")
    tenant = {"communicators": "yes", "sessions": "4", **keys}
    with calls.calls_world({"red": tenant, "blue": dict(tenant)}, count=count, env=NCCL) as agent, tempfile.TemporaryDirectory() as folder:
        failed = [line for line in agent.log().splitlines() if "communicators-failed" in line]
        if failed:
            raise harness.Skip(failed[0])
        yield agent, os.path.join(folder, "id")


def libraries():
    return {"LD_LIBRARY_PATH": ":".join([cuda_guest.library_folder(), calls.forwarding_folder()])}


def ranks(agent, way, path, n=2, tenant="red", which=None):
    return [agent.guest(tenant, [harness.program(PROGRAM), way, str(rank), str(n), path], env=libraries())
            for rank in (range(n) if which is None else which)]


def ends(t, guest, *lines):
    code = guest.wait(gpu.LIMIT_S)
    if gpu.REAL and "ncclGetUniqueId" in guest.output():
        raise harness.Skip("this machine has no NCCL (GANTRY_CUDA_LIBRARIES)")
    t.equal((guest.output().splitlines()[-1:], code), (list(lines), 0), guest.output())


def test_two_processes_sum_over_two_devices(t):
    with world() as (agent, path):
        for number, guest in enumerate(ranks(agent, "rank", path)):
            ends(t, guest, f"ok rank {number}")


def test_one_process_sums_over_its_devices(t):
    with world() as (agent, _):
        guest = agent.guest("red", [harness.program(PROGRAM), "all"], env=libraries())
        if not gpu.Divided.now:
            ends(t, guest, "ok 2 ranks")
            return
        # One process is one host, and has no two ranks on one GPU.
        t.equal(guest.wait(gpu.LIMIT_S), 1)
        t.contains(guest.output(), "no ncclCommInitAll(comms, n, NULL) line")
        t.contains(guest.output(), ": 5")


def test_who_is_left_is_told_and_ends(t):
    with world() as (agent, path):
        first, last = ranks(agent, "leaves", path)
        t.equal(last.wait(gpu.LIMIT_S), 0, last.output())
        ends(t, first, "ok without the others")


def test_a_rank_that_waits_for_ever_ends_with_its_program_and_holds_up_nobody(t):
    with world() as (agent, path):
        waiting = ranks(agent, "rank", path, which=[0])[0]
        harness.wait_until(lambda: os.path.exists(path), "the first rank", gpu.LIMIT_S)
        for number, guest in enumerate(ranks(agent, "rank", path + "-blue", tenant="blue")):
            ends(t, guest, f"ok rank {number}")
        pid = gpu.session_of(agent, waiting)["worker_pid"]
        waiting.kill()
        harness.wait_until(lambda: not harness.alive(pid), "the end of its worker", gpu.LIMIT_S)
        for number, guest in enumerate(ranks(agent, "rank", path + "-again")):
            ends(t, guest, f"ok rank {number}")


def test_without_communicators_there_is_no_identifier(t):
    with world(communicators="no") as (agent, path):
        guest = ranks(agent, "rank", path, which=[0])[0]
        t.equal(guest.wait(gpu.LIMIT_S), 1, guest.output())
        t.contains(guest.output(), "ncclGetUniqueId")


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

# SPDX-License-Identifier: Apache-2.0
"""Two trainings of two tenants on one GPU: limits, and what is left of one when the other writes where it may not."""
import json

import torch_compare
from torch_figures import Figure, GIB, Job, harness, ms

STEPS = 150
LIMIT = 24 * GIB
# Of these words one is in what a program says that an error of CUDA's or of its libraries has stopped.
TOLD = ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS", "cuda")
TENANT = {"mem": "24G", "virtual": "24G", "heap": "256M", "sessions": "8"}


def alone(bench):
    """The curve that the survivor has to have: the same training over our libraries, with nobody beside it."""
    with bench.place.world({"blue": TENANT}) as agent:
        job = Job(bench, agent, "transformer", "exact", "waits", tenant="blue")
        job.ready()
        told = job.ask(bench.count(STEPS))
        if "error" in told:
            raise harness.Failure(f"alone: {told['error']}")
        return job.values + told["values"], told["longest"]


def limits(red):
    """The tenant's own limit holds, though the GPU has more."""
    refused, given = red.ask("greedy", LIMIT), red.ask("greedy", 1 << 20)
    yield Figure("shared_limit", int(not refused["given"] and given["given"]), "", f"more than {LIMIT >> 30} GiB is refused, a MiB is not; "
                 f"the program sees a GPU of {refused['total'] / GIB:.1f} GiB", (">=", 1))


def heard_or_ended(job):
    """Its answer; of a program that an error of CUDA's has ended, without Python's leave even, what it said."""
    try:
        return job.heard(120)
    except harness.Failure:
        if job.guest.process.poll() is None:
            raise
        said = [line for line in job.guest.lines if any(word in line for word in TOLD)]
        return {"error": f"it ended, status {job.guest.process.returncode}: {(said or job.guest.lines[-1:] or ['nothing'])[0]}"}


def with_fault(bench, mode, wanted, calm_longest):
    """Both train; red strays in the middle. Figures of blue."""
    keys = dict(TENANT, isolation=mode, **({} if mode == "isolated" else {"trust_group": "lab"}))
    with bench.place.world({"red": keys, "blue": keys}, mode=mode) as agent:
        red, blue = (Job(bench, agent, "transformer", "exact", "waits", tenant=tenant) for tenant in ("red", "blue"))
        for job in (red, blue):
            job.ready()
        if mode == "isolated":
            yield from limits(red)
        blue.say(bench.count(STEPS))
        calm = red.ask(bench.count(STEPS // 5))
        fault = red.ask("stray") if "error" not in calm else calm
        # Of several in one server the driver does not say who it was (docs/nvidia.md, "Faults").
        target = (">=", 1) if mode == "isolated" else None
        yield Figure(f"shared_{mode}_fault_told", int("illegal memory access" in fault.get("error", "")), "", str(fault)[:200], target)
        told = heard_or_ended(blue)
        print(f"## {mode}: {json.dumps(told)[:400]}", flush=True)
        if "error" not in told:
            yield from torch_compare.curve(f"shared_{mode}", wanted, blue.values + told["values"], True)
            yield Figure(f"shared_{mode}_longest_step", ms(told["longest"]), "ms", f"alone {ms(calm_longest):.1f} ms; with both, one strayed")
        elif mode == "isolated":
            raise harness.Failure(f"the other training ended: {told['error']}")
        else:
            # What was in flight when the group's contexts went is told as in doubt, and the libraries' objects went with them.
            yield Figure(f"shared_{mode}_in_doubt", int(any(word in told["error"] for word in TOLD)), "", told["error"][:300], (">=", 1))
        for line in agent.log().splitlines():
            if "fault" in line or "recovered" in line or "doubt" in line:
                print(f"## {line}", flush=True)


def shared(mode):
    def measure(bench):
        wanted, longest = alone(bench)
        yield from with_fault(bench, mode, wanted, longest)
    return measure

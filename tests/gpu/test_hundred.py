#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Faults in a row beside three neighbours with deep queues, by mode: no byte lost, no task of theirs in doubt, a bounded
pause each time, and at the end nothing more in use than at the beginning.

Each fault is of a session that came just before it, of another tenant each time: one that faults again and again would be
served apart, where its faults cost its group nothing. More than eight, for who has no part in them must not be
given up as one whose workers die again and again. GANTRY_FAULTS: how many in each mode (100 on a GPU). What
GANTRY_FAULTS_S seconds do not suffice for is not done, and the figure says how many there were.
"""
import os
import time

import gpu

NEIGHBOURS = ("blue", "green", "gold")
CULPRITS = [f"red{number}" for number in range(20)]
FAULTS = int(os.environ.get("GANTRY_FAULTS", "100" if gpu.REAL else "9"))
SECONDS = float(os.environ.get("GANTRY_FAULTS_S", "150"))
# What must never be passed, on any machine; targets are docs/results' to compare with.
LONGEST_PAUSE_S = 20


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def one_fault(t, agent, tenant):
    """Returns how its task ended."""
    culprit = gpu.guest(agent, tenant)
    gpu.misbehave(culprit, "crash", "bad")
    answer = culprit.tell("wait bad 60000", timeout=90)
    t.true(answer.startswith(("error DEVICE_FAULT ", "error IN_DOUBT ")), f"the culprit's task: {answer}")
    culprit.tell("close", timeout=60)
    culprit.process.end()
    return answer.split()[1]


def settle(agent):
    """The worker that a culprit was moved to ends with its session: it is not to be in the next fault's way."""
    def alone():
        return len(agent.sessions()) == len(NEIGHBOURS)
    gpu.harness.wait_until(alone, "the culprit's session has ended", 30)


@gpu.each_mode(globals())
@gpu.takes_limit(SECONDS + 60)
def test_faults_in_a_row(t, mode):
    tenants = {name: {} for name in NEIGHBOURS + tuple(CULPRITS)}
    with gpu.world(tenants=tenants, mode=mode) as agent:
        neighbours = [gpu.neighbour(agent, name, kept=gpu.BIG // 32) for name in NEIGHBOURS]
        one_fault(t, agent, CULPRITS[0])  # what a first fault leaves behind for good is no leak
        settle(agent)
        pauses, known, done = [], 0, 0
        with gpu.Leaks(t, agent):
            start = time.monotonic()
            while done < FAULTS and time.monotonic() - start < SECONDS:
                for made in neighbours:
                    made.ask("deep check", timeout=90)
                    made.ask("deep forget")
                known += one_fault(t, agent, CULPRITS[done % len(CULPRITS)]) == "DEVICE_FAULT"
                for made in neighbours:
                    pauses.append(gpu.unharmed(t, made, what=f"fault {done}") / 1e9)
                settle(agent)
                done += 1
            took = time.monotonic() - start
        t.true(done > 0, "a fault within the time")
        t.below(max(pauses), LONGEST_PAUSE_S, "seconds that a neighbour waited")
        if mode == "isolated":
            t.equal(known, done, "faults that were told to their task")
            t.equal(sum(gpu.session_of(agent, made)["worker_restarts"] for made in neighbours), 0, "neighbours' workers")
        for made in neighbours:
            t.equal(made.ask(f"same kept {made.kept_bytes} 77", timeout=60).split()[0], "0", "wrong words at the end")
        gpu.figure(f"faults_{mode}", done, "in a row")
        gpu.figure(f"faults_{mode}_each", took / done, "s")
        gpu.figure(f"faults_{mode}_told", known, "times the culprit's task got the fault, else it was in doubt")
        gpu.recovery_steps(agent, f"faults_{mode}")
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1)):
            gpu.figure(f"faults_{mode}_pause_{name}", percentile(pauses, share), "s")


if __name__ == "__main__":
    gpu.harness.main(globals(), limit_s=gpu.LIMIT_S)

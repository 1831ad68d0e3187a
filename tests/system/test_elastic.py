#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queues are placed by policies: spread over idle devices, drawn together for more urgent work, kept to groups."""
import os
import shutil
import time

import harness
import puppet
from scripted import Scripted

TWO = {"cpu0": {}, "cpu1": {}}
# Tasks of 1 ms, more than a test waits for: it ends before they do.
WORK = "1000000 100000"


def fleet(agent, tenant, n, priority=0):
    guest = puppet.Puppet(agent, tenant, queue=None)
    for q in range(n):
        guest.do(f"queue {q} {priority}")
    return guest


def places(agent, guest):
    """Slot -> device, of the guest's queues."""
    queues = agent.ctl_json("queue", "list")["queues"]
    return {q["slot"]: q["device"] for q in queues if q["session_id"] == guest.session}


def count(agent, guest, device):
    return list(places(agent, guest).values()).count(device)


def done(agent, guest):
    queues = agent.ctl_json("queue", "list")["queues"]
    return sum(q["done"] for q in queues if q["session_id"] == guest.session)


def group(agent, name="-"):
    return next(g for g in agent.ctl_json("group", "list")["groups"] if g["name"] == name)


def test_queues_spread_over_idle_devices(t):
    tenants = {"red": {"max_devices": 1}}
    with harness.Agent(devices=TWO, tenants=tenants, agent={"policy": "elastic"}) as agent:
        guest = fleet(agent, "red", 8)
        guest.start(f"fleet 8 {WORK}")
        harness.wait_until(lambda: len(set(places(agent, guest).values())) == 1, "all on the one device it may have")
        t.code(agent.ctl("tenant", "set", "red", "--max-devices", "2"), 0)
        harness.wait_until(lambda: count(agent, guest, "cpu0") == count(agent, guest, "cpu1") == 4,
                           "four queues on each device")
        moves = group(agent)["moves"]
        t.true(moves >= 4, f"{moves} moves")
        before = done(agent, guest)
        harness.wait_until(lambda: done(agent, guest) > before + 200, "some more work")
        t.below(group(agent)["moves"], moves + 8, "queues that have found their place stay there")
        t.contains(agent.log(), "queue-placed")


def test_an_urgent_arrival_has_a_device_to_itself_and_gives_it_back(t):
    tenants = {"red": {}, "blue": {"priority": 5}}
    with harness.Agent(devices=TWO, tenants=tenants, agent={"policy": "elastic"}) as agent:
        low = fleet(agent, "red", 4)
        low.start(f"fleet 4 {WORK}")
        harness.wait_until(lambda: count(agent, low, "cpu0") == 2, "two of four queues on each device")
        high = fleet(agent, "blue", 1, priority=5)
        high.start(f"fleet 1 {WORK}")

        def apart():
            mine = set(places(agent, high).values())
            return len(mine) == 1 and not mine & set(places(agent, low).values())
        harness.wait_until(apart, "the urgent one alone on a device")
        high.guest.kill()
        harness.wait_until(lambda: count(agent, low, "cpu0") == 2, "spread again")
        t.contains(agent.log(), "more urgent work is on its device")


def test_a_tenant_keeps_as_many_devices_as_it_was_promised(t):
    tenants = {"red": {"min_devices": 2}, "blue": {"priority": 5}}
    with harness.Agent(devices=TWO, tenants=tenants, agent={"policy": "elastic"}) as agent:
        low, high = fleet(agent, "red", 4), fleet(agent, "blue", 2, priority=5)
        low.start(f"fleet 4 {WORK}")
        harness.wait_until(lambda: count(agent, low, "cpu0") == 2, "two of four queues on each device")
        high.start(f"fleet 2 {WORK}")
        harness.wait_until(lambda: len(set(places(agent, high).values())) == 2, "the urgent ones on both")
        before = done(agent, high)
        harness.wait_until(lambda: done(agent, high) > before + 300, "some work of theirs")
        t.equal(set(places(agent, low).values()), {"cpu0", "cpu1"}, "two devices")
        t.code(agent.ctl("tenant", "set", "red", "--min-devices", "1"), 0)
        harness.wait_until(lambda: len(set(places(agent, low).values())) == 1, "drawn together on one")
        t.equal(len(set(places(agent, high).values())), 2)


def test_a_drained_device_is_left_and_come_back_to(t):
    with harness.Agent(devices={**TWO, "cpu2": {}}, agent={"policy": "elastic"}) as agent:
        guest = fleet(agent, "red", 6)
        guest.start(f"fleet 6 {WORK}")
        harness.wait_until(lambda: all(count(agent, guest, d) == 2 for d in ("cpu0", "cpu1", "cpu2")), "two on each")
        t.code(agent.ctl("device", "drain", "cpu1"), 0)
        harness.wait_until(lambda: count(agent, guest, "cpu0") == count(agent, guest, "cpu2") == 3, "three on each left")
        t.code(agent.ctl("device", "enable", "cpu1"), 0)
        harness.wait_until(lambda: count(agent, guest, "cpu1") == 2, "two on it again")


GROUPS = """
[group quick]
devices = cpu1,cpu2
policy = pack
options = fill=8
"""


def test_a_group_has_its_devices_and_its_policy(t):
    tenants = {"red": {"group": "quick"}, "blue": {}}
    with harness.Agent(devices={**TWO, "cpu2": {}}, tenants=tenants, agent={"policy": "elastic"}, start=False) as agent:
        agent.config.write_text(agent.config.read_text() + GROUPS)
        agent.start()
        red, blue = fleet(agent, "red", 4), fleet(agent, "blue", 3)
        red.start(f"fleet 4 {WORK}")
        blue.start(f"fleet 3 {WORK}")
        harness.wait_until(lambda: count(agent, red, "cpu1") == 4, "the group's queues packed on its first device")
        harness.wait_until(lambda: count(agent, blue, "cpu1") == 0 and count(agent, blue, "cpu0") > 0,
                           "the others' away from there")
        shown = group(agent, "quick")
        t.equal((shown["policy"], shown["decides"], shown["tenants"]), ("pack", "pack", ["red"]))
        t.equal(group(agent)["tenants"], ["blue"])
        t.contains(agent.ctl("policy", "show", "pack").out, "quick")
        refused = agent.ctl("tenant", "set", "red", "--group", "slow")
        t.code(refused, 2)
        t.contains(refused.err, "not configured")
        t.code(agent.ctl("policy", "show", "luck"), 3)


def test_an_idle_host_has_no_loop(t):
    with harness.Agent(devices=TWO, agent={"policy": "elastic"}) as agent:
        guest = fleet(agent, "red", 4)
        guest.do("fleet 4 1000000 100")

        def loops():
            return sum(m["value"] for m in agent.ctl_json("stats")["metrics"]
                       if m["name"] == "gantry_placement_looks_total")

        def at_rest():
            before = loops()
            time.sleep(0.3)  # what is awaited is that nothing happens
            return loops() == before
        t.true(loops() > 0, "it looked while there was work")
        harness.wait_until(at_rest, "no more looks")
        before = loops()
        guest.do("fleet 4 1000000 100")
        harness.wait_until(lambda: loops() > before, "it looks again when work comes")


def test_static_queues_stay(t):
    with harness.Agent(devices=TWO) as agent:
        guest = puppet.Puppet(agent, "red", queue=None)
        for q in range(4):
            guest.do(f"queue {q}")
        before = places(agent, guest)
        guest.do("fleet 4 1000000 100")
        t.equal(places(agent, guest), before)
        t.equal(group(agent)["decisions"], 0)


# A GPU as fast as the processor, and an FPGA of a third of that. What they run is right, and as slow as the processor.
MACHINE = "device gpu0 cuda 1G\ndevice fpga0 fpga 1G\nkernel * cuda 1ms\nkernel * fpga 3ms\n"
KINDS = {"cpu0": 1, "gpu0": 2, "fpga0": 5}


# For all three code of the processor, which is what simulated devices run.
MANIFEST = """module core 1
image cpu core.so
image cuda core.so
image fpga core.so
kernel spin u64
kernel saxpy f32,r:f32*,rw:f32*,u64 split
"""


def three_kinds(policy):
    """A gantryd, to be started, with a processor and simulated devices."""
    agent = harness.Agent(start=False, agent={"policy": policy})
    kernels = next(p for p in (os.path.join(folder, "core.so") for folder in harness.module_dirs()) if os.path.exists(p))
    modules = agent.root / "kinds"
    modules.mkdir()
    shutil.copyfile(kernels, modules / "core.so")
    (modules / "core.manifest").write_text(MANIFEST)
    (agent.root / "machine.txt").write_text(MACHINE)
    agent.sections["agent"]["module_dirs"] = str(modules)
    for name in ("gpu0", "fpga0"):
        agent.sections["devices"][name] = {"backend": "sim", "mem": "512M", "file": agent.root / "machine.txt", "work": "cpu"}
    agent.write_config()
    return agent


def test_queues_spread_over_devices_of_three_kinds(t):
    for policy in ("elastic", "heterogeneous"):
        with three_kinds(policy) as agent:
            agent.start()
            guest = fleet(agent, "red", 6)
            guest.start(f"fleet 6 {WORK}")
            harness.wait_until(lambda a=agent, g=guest: set(places(a, g).values()) == set(KINDS),
                               f"{policy}: queues on a GPU, an FPGA and a processor")
            before = done(agent, guest)
            harness.wait_until(lambda b=before, a=agent, g=guest: done(a, g) > b + 100, f"{policy}: more work")
            t.equal(sum(q["failed"] for q in agent.ctl_json("queue", "list")["queues"]), 0, policy)


def test_a_queue_has_the_same_results_on_each_of_three_kinds(t):
    with three_kinds("static") as agent:
        agent.start()
        guest = Scripted(agent, "red")
        guest.ask("buffer y 64 device")
        guest.ask("float y 0")
        for number, (device, kind) in enumerate(KINDS.items(), 1):
            guest.ask(f"queue q{kind} 0 0 {kind}")
            guest.ask(f"add q{kind} sums{kind} y 50")
            t.equal(float(guest.ask("float y")), 50.0 * number, device)
            queues = agent.ctl_json("queue", "list")["queues"]
            t.equal([q["device"] for q in queues if q["done"]][-1], device)


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

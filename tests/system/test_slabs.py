#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Device memory that outlives processes: slabs, their steward, their pools. The device is a cpu device that plays at
having memory of its own (window = yes)."""
import json
import os
import re
import resource
import signal

import harness
from puppet import Puppet, Refused

MIB = 1 << 20
UNIT = 2 * MIB


def windowed(tenants=None, mem="256M", agent=None, options=(), **keys):
    return harness.Agent(devices={"gpu0": {"window": "yes", "mem": mem, **keys}}, agent=agent, options=options,
                         tenants=tenants or {"red": {"mem": "128M"}, "blue": {"mem": "128M"}})


def workers(agent, mode):
    return [w for w in agent.ctl_json("worker", "list")["workers"] if w["mode"] == mode]


def steward(agent):
    """The one that is ready."""
    def ready():
        found = [w for w in workers(agent, "steward") if w["state"] == "warm"]
        return found[0] if found else None
    return harness.wait_until(ready, "a steward is ready")


def device(agent, name="gpu0"):
    return agent.ctl_json("device", "show", name)["device"]


def metric(agent, name):
    found = re.search(rf"^{name}{{[^}}]*}} (\S+)$", agent.ctl("stats", "--prometheus").out, re.M)
    return float(found.group(1)) if found else None


def events(agent, kind):
    lines = agent.ctl("--json", "events").out.splitlines()
    return [e for e in map(json.loads, lines) if e["kind"] == kind]


# --- the steward --------------------------------------------------------------------------------------

def test_steward_says_what_the_device_is_before_any_session(t):
    with windowed(agent={"warm_workers": 0}) as agent:
        steward(agent)
        t.equal(workers(agent, "isolated"), [], "workers for guests")
        shown = device(agent)
        t.true(shown["model"] != "", "the model is known")
        t.equal(shown["state"], "enabled")


def test_steward_is_confined_and_takes_no_session(t):
    with windowed() as agent:
        shown = steward(agent)
        t.equal(shown["sessions"], 0)
        t.equal(shown["trust_group"], "cpu")
        t.true("seccomp" in shown["confined"], f"it is confined: {shown['confined']}")


def test_steward_killed_is_started_again(t):
    with windowed() as agent:
        first = steward(agent)
        os.kill(first["pid"], signal.SIGKILL)
        harness.wait_until(lambda: steward(agent)["pid"] != first["pid"], "another steward is ready")


def test_machines_without_windows_have_no_steward(t):
    with harness.Agent(devices={"cpu0": {}}) as agent:
        harness.wait_until(lambda: workers(agent, "isolated"), "a worker is there")
        t.equal(workers(agent, "steward"), [])
        t.equal(metric(agent, "gantry_slab_pool_bytes"), None, "no metric of slabs")


def test_pool_grows_to_half_of_what_it_may_hold(t):
    with windowed(slab_pool="16M") as agent:
        steward(agent)
        harness.wait_until(lambda: device(agent)["slab_pool_bytes"] == 8 * MIB, "the pool is warm")
        t.equal(metric(agent, "gantry_slab_pool_bytes"), 8.0 * MIB)
        t.equal(metric(agent, "gantry_slab_made_total"), 4.0)


def test_pool_survives_the_agent(t):
    with windowed(slab_pool="16M") as agent:
        harness.wait_until(lambda: device(agent)["slab_pool_bytes"] == 8 * MIB, "the pool is warm")
        first = steward(agent)["pid"]
        agent.kill_agent()
        agent.wait_ready()
        harness.wait_until(lambda: device(agent)["slab_pool_bytes"] == 8 * MIB, "the pool is there again")
        t.equal(steward(agent)["pid"], first, "the steward")
        t.equal(metric(agent, "gantry_slab_made_total"), 0.0, "slabs made anew")


def test_removed_device_takes_pool_and_steward_along(t):
    with windowed(slab_pool="16M") as agent:
        harness.wait_until(lambda: device(agent)["slab_pool_bytes"] == 8 * MIB, "the pool is warm")
        agent.sections["devices"]["gpu0"].pop("window")
        agent.write_config()
        agent.ctl("reload")
        harness.wait_until(lambda: not workers(agent, "steward"), "the steward is gone")
        t.equal(device(agent)["slab_pool_bytes"], 0)


def test_probe_lists_what_the_machine_has(t):
    probed = harness.run([harness.program("gantry-worker"), "--probe"])
    t.code(probed, 0)
    backends = [d["backend"] for d in probed.json()["devices"]]
    t.contains(backends, "cpu")
    with harness.Agent() as agent:
        checks = json.loads(agent.ctl("--json", "doctor").out)["checks"]
        t.true(any(c["name"] == "hardware" and "backend=cpu" in c["text"] for c in checks), "doctor says so too")


# --- sessions -----------------------------------------------------------------------------------------

PATTERN = 0x5ec2e75ec2e75ec2


def hold(puppet, slot, size, pattern=PATTERN):
    """A buffer full of a pattern."""
    puppet.do(f"alloc {slot} {size}")
    puppet.do(f"fill 0 {slot} {size} {pattern}")
    puppet.do("wait 0")


def expect(t, puppet, slot, size, pattern=PATTERN):
    for off in (0, size // 2, size - 8):
        t.equal(int(puppet.do(f"peek {slot} {off}")[0]), pattern, f"the word at {off}")


def settled(agent):
    """No slab of a session, none that waits to be zeroed."""
    shown = device(agent)
    return shown["slab_bytes"] == 0 and shown["slab_dirty_bytes"] == 0


def session_worker(agent, puppet):
    found = [s for s in agent.sessions() if s["session_id"] == puppet.session]
    return found[0]["worker_pid"] if found else None


def test_session_gets_slabs_and_gives_them_back(t):
    with windowed(slab_pool="0") as agent:
        puppet = Puppet(agent, "red")
        hold(puppet, 0, 7 * UNIT)
        expect(t, puppet, 0, 7 * UNIT)
        t.true(device(agent)["slab_bytes"] >= 7 * UNIT, "slabs of the session")
        puppet.end()
        harness.wait_until(lambda: settled(agent), "all of it is zeroed and given back")
        t.equal(device(agent)["slab_pool_bytes"], 0)
        t.true(metric(agent, "gantry_slab_scrubbed_bytes_total") >= 7 * UNIT, "it was scrubbed")


def test_next_tenant_reads_zeroes(t):
    with windowed(mem="64M", slab_pool="64M") as agent:
        for _ in range(3):
            red = Puppet(agent, "red")
            hold(red, 0, 5 * UNIT)
            red.end()
            harness.wait_until(lambda: settled(agent), "red's slabs are scrubbed")
            blue = Puppet(agent, "blue")
            blue.do(f"alloc 0 {5 * UNIT}")
            blue.do("fill 0 0 8 1")
            blue.do("wait 0")
            for off in range(4096, 5 * UNIT, UNIT // 2):
                t.equal(int(blue.do(f"peek 0 {off}")[0]), 0, f"the word at {off}")
            blue.end()


def test_guest_killed_leaves_zeroes(t):
    with windowed(mem="64M", slab_pool="64M") as agent:
        red = Puppet(agent, "red")
        hold(red, 0, 5 * UNIT)
        red.guest.kill()
        harness.wait_until(lambda: settled(agent), "red's slabs are scrubbed")
        blue = Puppet(agent, "blue")
        blue.do(f"alloc 0 {5 * UNIT}")
        blue.do("fill 0 0 8 1")
        blue.do("wait 0")
        for off in range(4096, 5 * UNIT, UNIT // 2):
            t.equal(int(blue.do(f"peek 0 {off}")[0]), 0, f"the word at {off}")


def test_successor_of_a_killed_worker_has_the_same_bytes(t):
    with windowed() as agent:
        puppet = Puppet(agent, "red")
        hold(puppet, 0, 3 * UNIT)
        hold(puppet, 1, UNIT, 7)
        before = device(agent)["slab_bytes"]
        for _ in range(3):
            pid = session_worker(agent, puppet)
            agent.kill_worker(pid)
            harness.wait_until(lambda: session_worker(agent, puppet) not in (None, 0, pid), "a successor serves it")
            expect(t, puppet, 0, 3 * UNIT)
            expect(t, puppet, 1, UNIT, 7)
        # What was reserved ahead went back to the pool.
        t.true(4 * UNIT <= device(agent)["slab_bytes"] <= before, "bytes in slabs")


def test_agent_killed_knows_whose_slabs_are(t):
    with windowed(slab_pool="16M") as agent:
        puppet = Puppet(agent, "red")
        hold(puppet, 0, 3 * UNIT)
        before = device(agent)["slab_bytes"]
        agent.kill_agent()
        agent.wait_ready()
        steward(agent)
        # What was reserved ahead went back to the pool.
        t.true(4 * UNIT <= device(agent)["slab_bytes"] <= before, "bytes in slabs")
        expect(t, puppet, 0, 3 * UNIT)
        hold(puppet, 1, 9 * UNIT, 9)
        pid = session_worker(agent, puppet)
        agent.kill_worker(pid)
        harness.wait_until(lambda: session_worker(agent, puppet) not in (None, 0, pid), "a successor serves it")
        expect(t, puppet, 0, 3 * UNIT)
        expect(t, puppet, 1, 9 * UNIT, 9)
        puppet.end()
        harness.wait_until(lambda: settled(agent), "all of it is zeroed and given back")


def test_agent_and_worker_killed_together_lose_nothing(t):
    with windowed() as agent:
        puppet = Puppet(agent, "red")
        hold(puppet, 0, 3 * UNIT)
        pid = session_worker(agent, puppet)
        agent.kill_worker(pid)
        agent.kill_agent()
        agent.wait_ready()
        harness.wait_until(lambda: session_worker(agent, puppet) not in (None, 0, pid), "a successor serves it")
        expect(t, puppet, 0, 3 * UNIT)


def test_steward_killed_while_sessions_allocate(t):
    with windowed(slab_pool="0", tenants={"red": {"mem": "200M", "virtual": "256M"}}) as agent:
        puppet = Puppet(agent, "red")
        for slot in range(4):
            pid = steward(agent)["pid"]
            puppet.do(f"alloc {slot} {3 * UNIT}")
            puppet.do(f"fill 0 {slot} {3 * UNIT} {slot + 1}")
            os.kill(pid, signal.SIGKILL)
            puppet.do("wait 0")
        for slot in range(4):
            expect(t, puppet, slot, 3 * UNIT, slot + 1)


def test_agent_killed_while_sessions_allocate(t):
    with windowed(slab_pool="0", tenants={"red": {"mem": "200M", "virtual": "256M"}}) as agent:
        puppet = Puppet(agent, "red")
        for slot in range(3):
            puppet.do(f"alloc {slot} {3 * UNIT}")
            puppet.do(f"fill 0 {slot} {3 * UNIT} {slot + 1}")
            agent.kill_agent()
            puppet.do("wait 0")
            agent.wait_ready()
        for slot in range(3):
            expect(t, puppet, slot, 3 * UNIT, slot + 1)


def test_memory_of_the_device_is_bounded_and_comes_back(t):
    with windowed(mem="32M", tenants={"red": {"mem": "128M"}, "blue": {"mem": "128M"}}) as agent:
        red = Puppet(agent, "red")
        hold(red, 0, 12 * UNIT)
        blue = Puppet(agent, "blue")
        blue.do(f"alloc 0 {8 * UNIT}")
        blue.do(f"fill 0 0 {8 * UNIT} 3")
        t.true("memory" in blue.fails("wait 0", -9), "blue is told that there is no memory")
        expect(t, red, 0, 12 * UNIT)
        red.end()
        harness.wait_until(lambda: device(agent)["slab_bytes"] < 12 * UNIT, "red's slabs are back")
        blue.do(f"fill 0 0 {8 * UNIT} 3")
        blue.do("wait 0")
        expect(t, blue, 0, 8 * UNIT, 3)


def full_device(agent):
    """Red has all of it."""
    red = Puppet(agent, "red")
    hold(red, 0, 16 * UNIT)
    harness.wait_until(lambda: device(agent)["slab_bytes"] >= 32 * MIB, "the device is full")
    return red


def test_full_device_at_attach_refuses(t):
    with windowed(mem="32M", tenants={"red": {"mem": "128M"}, "blue": {"mem": "128M"}}) as agent:
        red = full_device(agent)
        blue = Puppet(agent, "blue", open_with=None)
        sentence = blue.fails("open", -106)
        t.true("no memory" in sentence, sentence)
        red.end()
        harness.wait_until(lambda: settled(agent), "there is room again")
        t.true(int(blue.do("open")[0]) > 0, "blue is served")


def test_full_device_at_attach_queues(t):
    with windowed(mem="32M", tenants={"red": {"mem": "128M"}, "blue": {"mem": "128M", "on_full": "queue"}}) as agent:
        red = full_device(agent)
        blue = Puppet(agent, "blue", open_with=None).start("open")
        harness.wait_until(lambda: len(agent.sessions()) == 1, "blue waits")
        t.true(blue.idle(), "blue waits")
        red.end()
        t.true(int(blue.finish("open")[0]) > 0, "blue is served")


def test_descriptors_run_out_for_one_and_not_for_the_others(t):
    # A shell lowers the limit for gantryd and all that it starts.
    with windowed(slab_pool="0", tenants={"red": {"mem": "200M", "virtual": "512M"}, "blue": {}}) as agent:
        blue = Puppet(agent, "blue")
        hold(blue, 0, UNIT)
        red = Puppet(agent, "red")
        pid = agent.agent_pid()
        # A quarter of the limit is for slabs: few, in a small test.
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 20, hard))
        served = []
        for slot in range(60):
            red.do(f"alloc {slot} {UNIT}")
            red.do(f"fill 0 {slot} {UNIT} 1")
            try:
                red.do("wait 0")
            except Refused:
                continue
            served.append(slot)  # where the worker has another place for it
        t.true(any("descriptor" in e["text"] for e in events(agent, "slab-refused")), "the events say why")
        for slot in served:
            expect(t, red, slot, UNIT, 1)
        expect(t, blue, 0, UNIT)
        before = device(agent)["slab_bytes"]
        red.end()
        harness.wait_until(lambda: device(agent)["slab_bytes"] < before, "red's slabs are back")
        hold(blue, 1, UNIT)
        expect(t, blue, 1, UNIT)


harness.main(globals())

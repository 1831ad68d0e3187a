#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One GPU as several devices: each with memory of its own, and configurations that promise more than there is."""
import gpu
import harness
from gpu import MIB


def parts(*mems, **keys):
    """Sections a, b, ... of GPU 0; a mem of None is not given."""
    if gpu.BACKEND == "cpu":
        raise harness.Skip("cpu devices are as many as configured")
    whole = gpu.sections()["gpu0"]
    return {name: {**whole, "gpu": 0, "mem": mem, **keys} for name, mem in zip("abcdefgh", mems)}


def board_bytes():
    return gpu.machine.find_gpus()[1][0]["mem_bytes"] if gpu.REAL else gpu.FAKE_MEM


def share(percent):
    return f"{board_bytes() * percent // 100 // MIB}M"


def divided(devices, tenants=None, **options):
    served = {name: {"virtual": "16G" if gpu.REAL else "2G", "heap": "64M", **keys} for name, keys in (tenants or {"red": {}}).items()}
    return harness.Agent(devices=devices, tenants=served, agent=gpu.fake_modules(), env=gpu.fake_environment(1), **options)


def rows(agent):
    return {row["name"]: row for row in agent.ctl_json("device", "list")["devices"]}


def in_state(agent, state, *names):
    def there():
        seen = rows(agent)
        return seen if all(seen[name]["state"] == state for name in names) else None
    return harness.wait_until(there, f"{', '.join(names)} {state}", 60)


def known(agent, *names):
    """The devices, once somebody has opened them."""
    def there():
        seen = rows(agent)
        return seen if all(seen[name]["id"] for name in names) else None
    return harness.wait_until(there, "its steward has opened them", 60)


def test_gpu_is_two_devices_with_memory_of_their_own(t):
    fits, mems = gpu.BIG // 4, (6 * gpu.BIG, 3 * gpu.BIG)
    may = {"mem": f"{6 * gpu.BIG // MIB}M", "host_mem": f"{4 * gpu.BIG // MIB}M"}
    with divided(parts(*(f"{mem // MIB}M" for mem in mems)), {"red": {"devices": "a", **may}, "blue": {"devices": "b", **may}}) as agent:
        seen = known(agent, "a", "b")
        t.equal((seen["a"]["id"], seen["a"]["model"]), (seen["b"]["id"], seen["b"]["model"]), "one GPU")
        t.equal((seen["a"]["mem_bytes"], seen["b"]["mem_bytes"]), mems)
        red, blue = gpu.guest(agent, "red"), gpu.guest(agent, "blue")
        for made in (red, blue):
            for number in range(16):
                made.ask(f"buffer b{number} {fits} device")
                made.ask(f"pattern q t b{number} 0 {fits} {number}")
                made.ask("wait t 60000", timeout=70)
        # Blue's device has no room for all of it, though its tenant may have it and the GPU has it: some goes to the host.
        used = rows(agent)
        t.equal(used["a"]["mem_used"], 16 * fits)
        t.true(mems[1] // 2 <= used["b"]["mem_used"] <= used["b"]["mem_bytes"], f"of blue on b: {used['b']['mem_used']}")
        for number in range(16):
            t.equal(blue.ask(f"sum q b{number} {fits}", timeout=60), red.ask(f"sum q b{number} {fits}", timeout=60), f"buffer {number}")


def test_faults_of_one_device_are_not_the_others(t):
    """Tenants of either are other processes, with contexts of their own."""
    with divided(parts(share(40), share(40)), {"red": {"devices": "a", "mem": share(30)}, "blue": {"devices": "b", "mem": share(30)}}) as agent:
        other, culprit = gpu.neighbour(agent, "blue"), gpu.guest(agent, "red")
        gpu.misbehave(culprit, "crash", "bad")
        culprit.refused("wait bad 60000", "DEVICE_FAULT", 90)
        gpu.unharmed(t, other)
        t.equal(gpu.session_of(agent, other)["worker_restarts"], 0)
        t.equal(rows(agent)["b"]["state"], "enabled")


def test_parts_that_add_up_to_more_than_the_gpu_serve_nobody(t):
    devices = {**parts(share(60), share(30), share(20)), "cpu0": {}}
    with divided(devices) as agent:
        seen = in_state(agent, "failed", "a", "b", "c")
        for name, other in (("a", "b"), ("b", "a"), ("c", "a")):
            t.contains(seen[name]["reason"], f"it and {other} are one board of ")
            t.contains(seen[name]["reason"], "mem adds up to")
        t.equal(rows(agent)["cpu0"]["state"], "enabled", "others do")
        agent.sections["devices"]["a"]["mem"] = share(40)
        agent.write_config()
        t.code(agent.reload(), 0)
        in_state(agent, "enabled", "a", "b", "c")
        made = gpu.guest(agent)
        made.ask("run q t spin 3 1000")
        made.ask("wait t 30000")


def test_part_that_is_more_than_the_gpu_fails_alone(t):
    with divided(parts(share(110), share(30))) as agent:
        t.contains(in_state(agent, "failed", "a")["a"]["reason"], "mem: the GPU has ")
        t.equal(known(agent, "b")["b"]["state"], "enabled")


def test_parts_by_different_names_need_memory_too(t):
    """The configuration cannot tell that a number and a UUID are one GPU; who opens it can."""
    with divided(parts(share(30))) as agent:
        uuid = known(agent, "a")["a"]["id"]
    both = parts(share(30), None)
    both["b"]["gpu"] = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    with divided(both) as agent:
        seen = in_state(agent, "failed", "a", "b")
        t.contains(seen["a"]["reason"], "it and b are one board: each needs mem, and b has none")
        t.contains(seen["b"]["reason"], "it and a are one board: each needs mem, and b has none")


def test_configuration_that_contradicts_itself_is_not_taken(t):
    with divided(parts(share(30), share(30))) as agent:
        known(agent, "a", "b")
        agent.sections["devices"]["b"]["mem"] = None
        agent.write_config()
        for ended in (agent.reload(), harness.run([harness.program("gantryctl"), "config", "check", str(agent.config)])):
            t.equal(ended.code == 0, False)
            t.contains(ended.out + ended.err, "[device a] and [device b] are one GPU, 0: each needs mem, and b has none")
        t.equal({name: row["state"] for name, row in rows(agent).items()}, {"a": "enabled", "b": "enabled"}, "what was read before holds")


def test_packed_tenant_of_both_parts_is_served_isolated(t):
    """What spans devices runs outside MPS, be they one GPU."""
    tenant = {"isolation": "packed", "trust_group": "lab", "mem": share(20)}
    with divided(parts(share(40), share(40)), {"red": tenant}) as agent:
        made = gpu.guest(agent)
        t.equal({row["mode"] for row in agent.sessions()}, {"isolated"})
        made.ask("run q t spin 3 1000")
        made.ask("wait t 30000")


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

# SPDX-License-Identifier: Apache-2.0
"""gantryctl with a real agent and real guests."""
import json
import os
import re

import harness

MIB = 1 << 20


def two_tenants(**options):
    return harness.Agent(devices={"cpu0": {}, "cpu1": {}},
                         tenants={"red": {"mem": "256M", "weight": 3}, "blue": {"mem": "256M", "weight": 1}}, **options)


def busy_guest(agent, tenant):
    guest = agent.guest(tenant, [harness.program("options"), "--loop"])
    guest.read_until("started")
    return guest


def test_version_names_agent_and_monitor(t):
    with two_tenants() as agent:
        version = agent.version()
        t.true(version["pid"] != version["monitor_pid"])
        t.true(harness.alive(version["pid"]) and harness.alive(version["monitor_pid"]))


def test_lists_show_what_is_configured(t):
    with two_tenants() as agent:
        devices = {device["name"]: device for device in agent.ctl_json("device", "list")["devices"]}
        t.equal(sorted(devices), ["cpu0", "cpu1"])
        t.equal({(d["kind"], d["state"], d["mem_bytes"]) for d in devices.values()}, {("cpu", "enabled", 1 << 30)})
        tenants = {tenant["name"]: tenant for tenant in agent.ctl_json("tenant", "list")["tenants"]}
        t.equal({name: tenant["weight"] for name, tenant in tenants.items()}, {"red": 3, "blue": 1})
        t.equal(tenants["red"]["mem_bytes"], 256 * MIB)
        t.equal(tenants["red"]["door"], agent.door("red"))
        names = {kernel["name"] for kernel in agent.ctl_json("kernel", "list")["kernels"]}
        t.true({"saxpy", "gaussian_blur", "empty"} <= names, names)
        t.equal(agent.sessions(), [])


def test_vm_args_without_a_door_names_what_gives_one(t):
    with two_tenants() as agent:
        for words, step in (([], "--ivshmem yes"), (["--transport=ivshmem"], "--ivshmem yes"),
                            (["--transport=vsock"], "vsock_cid")):
            ended = agent.ctl("vm", "args", "red", *words)
            t.equal(ended.code, 4, str(words))
            t.contains(ended.err, step)
            t.equal("ivshmem" in ended.err, "vsock" not in "".join(words), ended.err)


def test_session_and_queue_of_a_guest(t):
    with two_tenants() as agent:
        guest = busy_guest(agent, "red")
        session = agent.sessions()[0]
        t.equal((session["tenant"], session["pid"], session["state"]), ("red", guest.pid, "attached"))
        t.true(session["worker_pid"] in agent.pids())
        shown = agent.ctl_json("session", "show", str(session["session_id"]))["session"]
        t.equal(shown["session_id"], session["session_id"])
        t.equal(agent.ctl_json("session", "list", "--tenant", "blue")["sessions"], [])
        queues = agent.ctl_json("queue", "list", "--session", str(session["session_id"]))["queues"]
        t.true(queues and all(queue["tenant"] == "red" for queue in queues), queues)
        harness.wait_until(lambda: agent.ctl_json("tenant", "show", "red")["tenant"]["device_ns"] > 0, "time is counted")
        guest.process.stdin.close()
        guest.read_until("ended")
        t.equal(guest.wait(), 0)


def test_kick_ends_a_session_with_the_reason(t):
    with two_tenants() as agent:
        guest, other = busy_guest(agent, "red"), busy_guest(agent, "blue")
        ids = {session["tenant"]: str(session["session_id"]) for session in agent.sessions()}
        t.code(agent.ctl("session", "kick", ids["red"], "--reason", "night shift"), 0)
        t.equal(guest.wait(), 1)
        t.contains(guest.output(), "night shift")
        harness.wait_until(lambda: agent.ctl("session", "show", ids["red"]).code == 3, "the session is gone")
        t.code(agent.ctl("session", "kick", "999999"), 3)
        other.process.stdin.close()
        t.equal(other.wait(), 0)


def test_pause_holds_a_queue_and_resume_lets_it_go(t):
    with two_tenants() as agent:
        guest = busy_guest(agent, "red")
        session = str(agent.sessions()[0]["session_id"])

        def busiest():
            return max(agent.ctl_json("queue", "list", "--session", session)["queues"], key=lambda q: q["done"])

        name = f"{session}:{busiest()['slot']}"
        t.code(agent.ctl("queue", "pause", name), 0)
        harness.wait_until(lambda: busiest()["issued"] == busiest()["done"], "what was issued is done")
        stopped = busiest()
        t.true(stopped["paused"], stopped)
        harness.wait_until(lambda: busiest()["submitted"] > stopped["done"], "the guest goes on submitting")
        t.equal(busiest()["done"], stopped["done"], "tasks done while paused")
        t.code(agent.ctl("queue", "resume", name), 0)
        harness.wait_until(lambda: busiest()["done"] > stopped["done"], "the queue goes on")
        t.code(agent.ctl("queue", "pause", f"{session}:63"), 3)
        guest.process.stdin.close()
        t.equal(guest.wait(), 0)


def test_tenants_come_change_and_go(t):
    with two_tenants() as agent:
        t.code(agent.ctl("tenant", "create", "green", "--mem", "64M", "--weight", "5"), 0)
        harness.wait_until(lambda: os.path.exists(agent.door("green")), "green's door")
        t.code(agent.ctl("tenant", "create", "green"), 1)
        t.code(agent.run_guest("green", [harness.program("options"), "1000"]), 0)
        t.code(agent.ctl("tenant", "set", "green", "--weight", "7", "--mem", "32M"), 0)
        shown = agent.ctl_json("tenant", "show", "green")["tenant"]
        t.equal((shown["weight"], shown["mem_bytes"]), (7, 32 * MIB))
        t.code(agent.ctl("tenant", "set", "nobody", "--weight", "7"), 3)
        guest = busy_guest(agent, "green")
        t.code(agent.ctl("tenant", "remove", "green"), 0)
        t.equal(guest.wait(), 1)
        t.true(not os.path.exists(agent.door("green")), "the door is still there")
        t.code(agent.ctl("tenant", "remove", "green"), 3)


def test_made_tenants_outlive_the_agent(t):
    with two_tenants() as agent:
        t.code(agent.ctl("tenant", "create", "green", "--weight", "5"), 0)
        t.equal(agent.stop(), [], "processes that outlived the monitor")
        agent.start()
        t.equal(agent.ctl_json("tenant", "show", "green")["tenant"]["weight"], 5)


def test_drained_device_takes_nothing_new(t):
    with two_tenants() as agent:
        t.code(agent.ctl("device", "drain", "cpu1"), 0)
        t.equal(agent.ctl_json("device", "show", "cpu1")["device"]["state"], "draining")
        for tenant in ("red", "blue"):
            t.code(agent.run_guest(tenant, [harness.program("options"), "1000"]), 0)
        t.equal(agent.ctl_json("device", "show", "cpu1")["device"]["device_ns"], 0)
        t.code(agent.ctl("device", "enable", "cpu1"), 0)
        t.equal(agent.ctl_json("device", "show", "cpu1")["device"]["state"], "enabled")
        t.code(agent.ctl("device", "drain", "cpu9"), 3)


def test_events_tell_of_the_session(t):
    with two_tenants() as agent:
        follow = harness.Guest([harness.program("gantryctl"), "--socket", agent.admin, "--json", "events", "--follow",
                                "--tenant", "red"])
        t.code(agent.run_guest("red", [harness.program("options"), "1000"]), 0)
        seen = [json.loads(follow.read_until('{'))["kind"] for _ in range(2)]
        t.equal(seen, ["session-attached", "session-detached"])
        follow.end()
        kinds = [json.loads(line)["kind"] for line in agent.ctl("--json", "events").out.splitlines()]
        t.true("session-attached" in kinds, kinds)
        t.equal(agent.ctl("--json", "events", "--tenant", "blue").out.count("session-attached"), 0)


def test_reload_refuses_a_mistake_and_keeps_the_old(t):
    with two_tenants() as agent:
        good = agent.config.read_text()
        agent.write_config(good + "\n[tenant broken]\nweight = heavy\n")
        refused = agent.reload()
        t.true(refused.code not in (0, 5, 124), repr(refused))
        t.contains(refused.err, "weight")
        t.equal(len(agent.ctl_json("tenant", "list")["tenants"]), 2)
        checked = agent.ctl("config", "check", agent.config)
        t.code(checked, 1)
        t.true(re.search(r"gantryd\.conf:\d+: ", checked.out), repr(checked))
        agent.write_config(good + "\n[tenant green]\nmem = 64M\n")
        t.code(agent.ctl("config", "check", agent.config), 0)
        t.code(agent.reload(), 0)
        harness.wait_until(lambda: os.path.exists(agent.door("green")), "green's door")


def test_run_starts_a_program_at_its_door(t):
    with two_tenants() as agent:
        ended = harness.run([harness.program("gantryctl"), "--socket", agent.admin, "run", "blue", "--",
                             harness.program("options"), "1000"], env=dict(agent.guest_env("blue"), GANTRY_DOOR="x"))
        t.code(ended, 0)
        t.contains(ended.out, "wrong=0")


def test_stats_and_metrics_are_prometheus_text(t):
    with two_tenants() as agent:
        for line in agent.ctl("stats", "--prometheus").out.splitlines():
            t.true(re.fullmatch(r"# .*|[a-z_]+(\{[^{}]*\})? [-+0-9.e]+", line), line)
        t.contains(agent.ctl("stats", "--prometheus").out, 'gantry_tenant_memory_used_bytes{tenant="red"}')


def test_strangers_may_not_administer(t):
    if os.geteuid() != 0:
        t.skip("becoming another user needs root")
    with two_tenants() as agent:
        os.chmod(agent.admin, 0o666)
        for verb in (["device", "list"], ["reload"], ["tenant", "set", "red", "--weight", "9"]):
            ended = harness.run([harness.public_program("gantryctl"), "--socket", agent.admin, *verb], user=65534,
                                group=65534, extra_groups=[])
            t.code(ended, 4, " ".join(verb))
        t.equal(agent.ctl_json("tenant", "show", "red")["tenant"]["weight"], 3)


def test_doctor_finds_a_running_agent_well(t):
    with two_tenants() as agent:
        checks = agent.ctl_json("doctor", "--cdi-dir", agent.root)["checks"]
        t.equal([check for check in checks if check["state"] == "fail"], [])
        t.true(len(checks) > 10, checks)


def test_top_sees_a_busy_tenant(t):
    with two_tenants() as agent:
        busy_guest(agent, "red")

        def red():
            picture = agent.ctl_json("top", "--once", "--interval", "200ms")
            return next(tenant for tenant in picture["tenants"] if tenant["name"] == "red")

        harness.wait_until(lambda: red()["tasks_per_s"] > 0 and red()["share_percent"] == 100.0, "red is seen working")


def test_peer_ping_names_the_devices(t):
    with two_tenants() as agent:
        seen = agent.ctl_json("peer", "ping", str(agent.run_dir / "peer.sock"))
        t.equal([device["name"] for device in seen["devices"]], ["cpu0", "cpu1"])
        t.below(seen["rtt_ns"], 5 * 10**9)


def test_cdi_from_the_agent(t):
    with two_tenants() as agent:
        specs = agent.ctl_json("cdi", "generate", "--library", "none", "--output", "-")["specs"]
        t.equal(sorted(spec["devices"][0]["name"] for spec in specs), ["blue", "red"])
        mounts = [spec["devices"][0]["containerEdits"]["mounts"][0]["hostPath"] for spec in specs]
        t.equal(sorted(mounts), sorted(os.path.dirname(agent.door(name)) for name in ("red", "blue")))


if __name__ == "__main__":
    harness.main(globals())

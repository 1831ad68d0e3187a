# SPDX-License-Identifier: Apache-2.0
"""Workers in the cgroups of this machine, as far as it has them; each missing part is a named skip."""
import json
import os
import pathlib

import harness

CONTROLLERS = ("cpu", "memory", "pids")


def mount_point():
    with open("/proc/self/mountinfo", encoding="ascii", errors="replace") as mounts:
        for line in mounts:
            if " - cgroup2 " in line:
                return pathlib.Path(line.split()[4])
    raise harness.Skip("no cgroup2 file system is mounted")


def group_of(pid):
    """The folder of a process' group of version 2."""
    with open(f"/proc/{pid}/cgroup", encoding="ascii", errors="replace") as text:
        for line in text:
            if line.startswith("0::/"):
                return mount_point() / line.rstrip("\n")[4:]
    raise harness.Skip("processes here are in no cgroup of version 2")


def reasons(worker):
    return {line.partition(": ")[0]: line.partition(": ")[2] for line in worker["unconfined"]}


def hold(agent):
    guest = agent.guest("red", [harness.program("confine-guest"), "hold"])
    guest.read_until("session")
    session = next(s for s in agent.sessions() if s["pid"] == guest.pid)
    return guest, next(w for w in agent.workers() if w["pid"] == session["worker_pid"])


def need(worker, name):
    if name not in worker["confined"]:
        raise harness.Skip(f"{name}: {reasons(worker).get(name) or reasons(worker).get('cgroup', 'not said')}")


def test_what_the_list_says_is_what_the_kernel_says(t):
    with harness.Agent() as agent:
        _, worker = hold(agent)
        group = group_of(worker["pid"])
        missing = reasons(worker)
        t.note(f"worker {worker['pid']} in {group}; {worker['confined']}; {missing}")
        t.equal("cgroup" in worker["confined"], group.name == f"w-{worker['worker_id']}", "cgroup")
        t.true(("cgroup" in worker["confined"]) != ("cgroup" in missing), "held or missing, one of both")
        for name in CONTROLLERS:
            held = "cgroup." + name in worker["confined"]
            t.equal(held, "cgroup" in worker["confined"] and (group / f"{name}.max").exists(), name)
            t.true(held or missing.get("cgroup." + name) or missing.get("cgroup"), f"{name}: no reason given")
        events = [e["text"] for e in agent_events(agent) if e["kind"] == "cgroup-missing"]
        expected = ["cgroup"] if "cgroup" in missing else [n for n in CONTROLLERS if "cgroup." + n in missing]
        t.equal(len(events), len(expected), f"told once each: {events}")
        check = next(c for c in agent.ctl("--json", "doctor").json()["checks"] if c["name"] == "worker cgroups")
        t.equal(check["state"], "warn" if expected else "ok", f"doctor: {check}")


def agent_events(agent):
    ended = agent.ctl("--json", "events")
    return [event for event in map(parse, ended.out.splitlines()) if event]


def parse(line):
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event.get("event", event)


def test_a_worker_has_a_group_while_it_lives(t):
    with harness.Agent() as agent:
        guest, worker = hold(agent)
        need(worker, "cgroup")
        group = group_of(worker["pid"])
        t.contains((group / "cgroup.procs").read_text().split(), str(worker["pid"]))
        guest.kill()
        harness.wait_until(lambda: not group.exists(), "the group is removed with its worker")
        agent.kill_worker(hold(agent)[1]["pid"])
        parent = group.parent
        harness.wait_until(lambda: {f"w-{w['worker_id']}" for w in agent.workers()} ==
                           {entry.name for entry in parent.iterdir() if entry.is_dir()},
                           "there is a group for each worker and no other")
        agent.stop()
        t.true(not parent.exists(), f"{parent} is left")


def test_a_restarted_agent_goes_on_with_the_groups(t):
    with harness.Agent() as agent:
        guest, worker = hold(agent)
        need(worker, "cgroup")
        before = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.answers() and agent.ctl("version").code == 0 and agent.agent_pid() != before,
                           "another agent serves")
        again = harness.wait_until(lambda: next((w for w in agent.workers() if w["pid"] == worker["pid"] and
                                                 w["state"] == "busy"), None), "the worker is known")
        t.true("cgroup" in again["confined"], f"{again['unconfined']}")
        group = group_of(worker["pid"])
        guest.kill()
        harness.wait_until(lambda: not group.exists(), "the group is removed with its worker")


def test_limits_are_the_tenants(t):
    keys = {"worker_cpu": "1.5/200", "worker_mem": "1G", "worker_pids": "300", "mem": "256M", "host_mem": "512M",
            "heap": "64M"}
    with harness.Agent(tenants={"red": keys}) as agent:
        _, worker = hold(agent)
        group = group_of(worker["pid"])
        for name in CONTROLLERS:
            need(worker, "cgroup." + name)
        t.equal((group / "cpu.max").read_text().split(), ["150000", "100000"])
        t.equal((group / "cpu.weight").read_text().strip(), "200")
        t.equal(int((group / "memory.max").read_text()), (1024 + 256 + 512 + 64) << 20)
        t.equal((group / "pids.max").read_text().strip(), "300")
        agent.set_tenant("red", worker_pids="0", worker_mem="0", worker_cpu="0")
        t.code(agent.reload(), 0)
        t.equal((group / "pids.max").read_text().strip(), "max")
        t.equal((group / "memory.max").read_text().strip(), "max")
        t.equal((group / "cpu.max").read_text().split()[0], "max")


def test_off_and_folders_that_are_no_cgroups_start_all_the_same(t):
    for setting, reason in (("off", "switched off"), ("/proc/no-such-place", "making groups"),
                            ("/tmp", "no cgroup of version 2")):
        with harness.Agent(agent={"cgroup": setting}) as agent:
            _, worker = hold(agent)
            t.true("cgroup" not in worker["confined"], setting)
            t.contains(reasons(worker)["cgroup"], reason, setting)


def test_a_configured_folder_is_used(t):
    folder = mount_point() / f"test-of-gantry-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        t.skip(f"making a group in {mount_point()}: {error.strerror}")
    try:
        with harness.Agent(agent={"cgroup": str(folder)}) as agent:
            _, worker = hold(agent)
            t.true("cgroup" in worker["confined"], f"{worker['unconfined']}")
            t.equal(group_of(worker["pid"]).parent.parent, folder)
            agent.stop()
            t.equal([entry.name for entry in folder.iterdir() if entry.is_dir()], [], "folders left behind")
    finally:
        folder.rmdir()


def test_bad_keys_are_refused(t):
    with harness.Agent(start=False) as agent:
        for value in ("1.", ".5", "1.2345", "-1", "2/0", "2/10001", "9999999", "x", "1/", ""):
            agent.set_tenant("red", worker_cpu=value)
            ended = harness.run(agent.argv() + ["--check-config"])
            t.true(ended.code != 0 and "worker_cpu" in ended.err + ended.out, f"worker_cpu = {value}: {ended}")
        agent.set_tenant("red", worker_cpu="0.25")
        agent.sections["agent"]["cgroup"] = "somewhere"
        agent.write_config()
        t.true(harness.run(agent.argv() + ["--check-config"]).code != 0, "a cgroup that is no path")


harness.main(globals())

# SPDX-License-Identifier: Apache-2.0
"""Administration of a real agent: devices, tenants, configuration, sessions, queues, workers, modules, roles."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

import harness
from puppet import Puppet, Refused, chain_value

MIB = 1 << 20
NOBODY = 65534
TWO = {"cpu0": {}, "cpu1": {}}
ALLOC_DEVICE = 2
E_LIMIT, E_TIMEOUT, E_NO_KERNEL = -8, -11, -4
E_DETACHED, E_FULL, E_NO_AGENT, E_DEADLINE = -101, -106, -103, -202
QUEUE_PRIORITY = 1


def show(agent, noun, name):
    return agent.ctl_json(noun, "show", name)[noun]


def changed(t, agent, *verb):
    """A change that has to be answered well, and say so."""
    ended = agent.ctl(*verb)
    t.code(ended, 0)
    t.true(ended.out.strip(), "a change that says nothing")
    return ended


def sentence(t, ended, code, *parts):
    """A refusal: exit code, one line on stderr, and what that has to name."""
    t.code(ended, code)
    t.true(ended.err.startswith("gantryctl: ") and ended.err.count("\n") == 1, f"stderr is {ended.err!r}")
    for part in parts:
        t.contains(ended.err, part)


def events(agent):
    return [json.loads(line) for line in agent.ctl("--json", "events").out.splitlines()]


def seen(agent, kind, text=""):
    """Waits for an event, and returns the latest of its kind that has @text."""
    def look():
        found = [e for e in events(agent) if e["kind"] == kind and text in e["text"]]
        return found[-1] if found else None
    return harness.wait_until(look, f"event {kind} {text}")


# --- devices ------------------------------------------------------------------------------------------

def test_devices_listed_and_shown(t):
    with harness.Agent(devices=TWO) as agent:
        guest = Puppet(agent, "red")
        guest.do("spin 0 1000")
        guest.do("wait 0")
        listed = agent.ctl_json("device", "list")
        t.equal(listed["schema"], 1)
        t.equal([d["name"] for d in listed["devices"]], ["cpu0", "cpu1"])
        for name in TWO:
            device = show(agent, "device", name)
            t.equal((device["kind"], device["state"], device["mem_bytes"]), ("cpu", "enabled", 1 << 30))
            t.contains(agent.ctl("device", "show", name).out, "enabled")
        t.contains(agent.ctl("device", "list").out, "cpu1")
        sentence(t, agent.ctl("device", "show", "gpu9"), 3, "gpu9")
        sentence(t, agent.ctl("device", "disable", "gpu9"), 3, "gpu9")


def move_away(t, verb):
    """A queue in the middle of a chain of tasks, with memory, loses its device: nothing is lost but time."""
    with harness.Agent(devices=TWO) as agent:
        guest = Puppet(agent, "red")
        # What fits into the ring runs for two seconds more: some gantryctl come and go on a busy machine.
        guest.do(f"chain 0 100 25000000 {16 * MIB}")
        first = harness.wait_until(lambda: show(agent, "queue", guest.queue)["device"], "a device for the queue")
        other = "cpu1" if first == "cpu0" else "cpu0"
        harness.wait_until(lambda: show(agent, "queue", guest.queue)["done"] > 20, "some tasks to be done")
        t.true(show(agent, "device", first)["mem_used"] >= 32 * MIB, "the pool of the first device")
        changed(t, agent, "device", verb, first)
        t.equal(guest.do("wait 0"), [])
        t.equal(guest.do("value 0"), [str(chain_value(100))])
        t.equal(show(agent, "queue", guest.queue)["device"], other)
        t.equal(show(agent, "device", first)["state"], "draining" if verb == "drain" else "disabled")
        t.true(show(agent, "device", other)["mem_used"] >= 32 * MIB, "the pool of the other device")
        harness.wait_until(lambda: show(agent, "device", first)["mem_used"] < MIB, f"the pool of {first} to be free")
        harness.wait_until(lambda: show(agent, "device", first)["running"] == 0, f"{first} to be idle")
        t.true(show(agent, "tenant", "red")["mem_used"] < 34 * MIB, "the tenant pays once")
        before = show(agent, "device", first)["device_ns"]
        guest.do("chain 0 20 0")
        guest.do("wait 0")
        t.equal(show(agent, "device", first)["device_ns"], before, f"time used on {first} after {verb}")
        changed(t, agent, "device", "enable", first)
        t.equal(show(agent, "device", first)["state"], "enabled")
        t.equal(guest.do("stats")[1], "0", "failed tasks")
        guest.do("close")
        for name in TWO:
            harness.wait_until(lambda name=name: show(agent, "device", name)["mem_used"] == 0, f"{name} to be empty")


def test_disabled_device_gives_its_queues_away(t):
    move_away(t, "disable")


def test_drained_device_gives_its_queues_away(t):
    move_away(t, "drain")


def test_all_devices_off_waits_and_goes_on(t):
    with harness.Agent(devices=TWO) as agent:
        guest = Puppet(agent, "red")
        guest.do("chain 0 40 1000000")
        for name in TWO:
            changed(t, agent, "device", "disable", name)
        guest.do("chain 0 20 0")
        t.contains(guest.fails("wait 0 300", E_TIMEOUT), "time")
        other = Puppet(agent, "red")
        other.do("spin 0 1000")
        other.fails("wait 0 50", E_TIMEOUT)
        changed(t, agent, "device", "enable", "cpu1")
        guest.do("wait 0")
        other.do("wait 0")
        value = chain_value(40)
        for step in range(1, 21):
            value = step - value
        t.equal(guest.do("value 0"), [str(value)])


def test_tasks_that_are_bound_to_a_device_wait_for_it(t):
    with harness.Agent(devices=TWO) as agent:
        guest = Puppet(agent, "red", queue="queue 0 0 1")
        changed(t, agent, "device", "drain", "cpu0")
        guest.do("spin 0 1000")
        guest.fails("wait 0 200", E_TIMEOUT)
        changed(t, agent, "device", "enable", "cpu0")
        guest.do("wait 0")
        t.equal(show(agent, "queue", guest.queue)["device"], "cpu0")


# --- tenants: limits of running sessions --------------------------------------------------------------

def test_memory_limits_take_effect_at_once(t):
    with harness.Agent(tenants={"red": {"mem": "64M", "virtual": "1G"}}) as agent:
        guest = Puppet(agent, "red")
        for slot in range(3):
            guest.do(f"alloc {slot} {8 * MIB} {ALLOC_DEVICE}")
        guest.do(f"fill 0 0 {8 * MIB} 7")
        guest.do("wait 0")
        changed(t, agent, "tenant", "set", "red", "--mem", "12M")
        guest.do(f"fill 0 1 {8 * MIB} 8")
        guest.fails("wait 0", E_LIMIT)
        t.equal(guest.do("peek 0 0"), ["7"])
        changed(t, agent, "tenant", "set", "red", "--mem", "20M")
        guest.do(f"fill 0 1 {8 * MIB} 9")
        guest.do("wait 0")
        t.equal(guest.do("peek 1 64"), ["9"])
        # Less than what is in use: that stays, and nothing comes on top.
        changed(t, agent, "tenant", "set", "red", "--mem", "1M")
        guest.do(f"fill 0 2 {8 * MIB} 1")
        guest.fails("wait 0", E_LIMIT)
        t.equal(guest.do("peek 1 64"), ["9"])
        t.true(show(agent, "tenant", "red")["denied"] >= 2, "refusals are counted")
        changed(t, agent, "tenant", "set", "red", "--virtual", "30M")
        guest.fails(f"alloc 3 {8 * MIB} {ALLOC_DEVICE}", E_LIMIT)
        changed(t, agent, "tenant", "set", "red", "--virtual", "40M")
        guest.do(f"alloc 3 {8 * MIB} {ALLOC_DEVICE}")
        tenant = show(agent, "tenant", "red")
        t.equal((tenant["mem_bytes"], tenant["virtual_bytes"]), (MIB, 40 * MIB))
        # More than there was when the session began.
        changed(t, agent, "tenant", "set", "red", "--mem", "192M", "--virtual", "2G")
        guest.do(f"alloc 4 {1536 * MIB} {ALLOC_DEVICE}")
        guest.do(f"alloc 5 {96 * MIB} {ALLOC_DEVICE}")
        guest.do(f"fill 0 5 {96 * MIB} 3")
        guest.do("wait 0")
        t.equal(guest.do("peek 5 4096"), ["3"])


def test_priority_cap_takes_effect_at_once(t):
    with harness.Agent() as agent:
        guest = Puppet(agent, "red", queue="queue 0 5")
        t.equal(show(agent, "queue", guest.queue)["priority"], 0)
        changed(t, agent, "tenant", "set", "red", "--priority", "10")
        guest.do(f"set 0 {QUEUE_PRIORITY} 7")
        t.equal(show(agent, "queue", guest.queue)["priority"], 7)
        slot = guest.do("queue 1 50")[0]
        t.equal(show(agent, "queue", f"{guest.session}:{slot}")["priority"], 10)
        changed(t, agent, "tenant", "set", "red", "--priority=-3")
        harness.wait_until(lambda: show(agent, "queue", guest.queue)["priority"] == -3, "the lower cap")
        guest.do("spin 0 1000")
        guest.do("wait 0")


def test_inflight_limit_takes_effect_at_once(t):
    with harness.Agent() as agent:
        guest = Puppet(agent, "red")

        def held():
            queue = show(agent, "queue", guest.queue)
            return queue["taken"] - queue["done"]

        guest.do("spin 0 20000000 12")
        harness.wait_until(lambda: held() > 4, "tasks to be taken without a limit")
        guest.do("wait 0")
        changed(t, agent, "tenant", "set", "red", "--inflight", "2")
        guest.do("spin 0 20000000 12")
        most = 0
        while show(agent, "queue", guest.queue)["done"] < 24:
            most = max(most, held())
        t.true(0 < most <= 2, f"{most} tasks taken at once")
        guest.do("wait 0")
        guest.do("spin 0 50000000 6")
        changed(t, agent, "tenant", "set", "red", "--inflight", "0")
        harness.wait_until(lambda: held() > 2 or show(agent, "queue", guest.queue)["done"] == 30, "the limit to go")
        guest.do("wait 0")


def test_deadline_takes_effect_on_what_runs(t):
    with harness.Agent(devices={"cpu0": {}}) as agent:
        guest = Puppet(agent, "red")
        guest.do("kernel endless")
        guest.do("launch 0")
        guest.fails("wait 0 100", E_TIMEOUT)
        changed(t, agent, "tenant", "set", "red", "--deadline", "100ms")
        guest.fails("wait 0 10000", E_DEADLINE)
        guest.do("spin 0 1000")
        guest.do("wait 0 10000")
        t.equal(seen(agent, "task-deadline")["session_id"], guest.session)
        changed(t, agent, "tenant", "set", "red", "--deadline", "0s")
        guest.do("spin 0 300000000")
        guest.do("wait 0")


def test_session_limit_refuses_and_takes_effect_at_once(t):
    with harness.Agent(tenants={"red": {"sessions": 1}}) as agent:
        first = Puppet(agent, "red")
        second = Puppet(agent, "red", open_with=None)
        said = second.fails("open", E_FULL)
        t.contains(said, "1 of 1 sessions")
        changed(t, agent, "tenant", "set", "red", "--sessions", "2")
        second.do("open")
        # Fewer than there are: those stay, the next has to wait.
        changed(t, agent, "tenant", "set", "red", "--sessions", "1")
        first.do("spin 0 1000")
        first.do("wait 0")
        first.do("close")
        Puppet(agent, "red", open_with=None).fails("open", E_FULL)
        harness.wait_until(lambda: show(agent, "tenant", "red")["sessions"] == 1, "the closed session to be gone")


def test_full_tenant_can_queue_guests(t):
    with harness.Agent(tenants={"red": {"sessions": 1, "on_full": "queue"}}) as agent:
        first = Puppet(agent, "red")
        waiting = [Puppet(agent, "red", open_with=None).start("open") for _ in range(2)]
        t.equal(len(agent.sessions()), 1)
        t.true(waiting[0].idle() and waiting[1].idle(), "a guest came in though there is no room")
        first.do("close")
        pids = [guest.guest.pid for guest in waiting]
        # The first one's may still be on its way out.
        ready = harness.wait_until(lambda: [row for row in agent.sessions() if row["pid"] in pids], "the next session")
        t.equal(len(ready), 1)
        entered = next(guest for guest in waiting if guest.guest.pid == ready[0]["pid"])
        entered.finish("open")
        changed(t, agent, "tenant", "set", "red", "--sessions", "2")
        next(guest for guest in waiting if guest is not entered).finish("open")
        changed(t, agent, "tenant", "set", "red", "--on-full", "refuse")
        Puppet(agent, "red", open_with=None).fails("open", E_FULL)


def test_removed_tenant_ends_its_sessions(t):
    with harness.Agent(devices={"cpu0": {"cores": 2}}) as agent:
        changed(t, agent, "tenant", "create", "green", "--mem", "64M")
        guest, neighbour = Puppet(agent, "green"), Puppet(agent, "red")
        guest.do("kernel endless")
        guest.do("launch 0")
        neighbour.do("chain 0 200 100000")
        guest.start("wait 0")
        door = agent.door("green")
        changed(t, agent, "tenant", "remove", "green")
        try:
            guest.finish("wait 0")
            t.true(False, "a wait that goes well though the tenant is gone")
        except Refused as refused:
            t.equal(refused.status, E_DETACHED)
            t.contains(refused.sentence, "removed")
        t.true(not os.path.exists(door), "the door is still there")
        sentence(t, agent.ctl("tenant", "show", "green"), 3, "green")
        neighbour.do("wait 0")
        t.equal(neighbour.do("value 0"), [str(chain_value(200))])
        sentence(t, agent.ctl("tenant", "remove", "green"), 3, "green")


# --- tenants: files and changes -----------------------------------------------------------------------

def test_changes_outlive_a_restart_and_win_over_files(t):
    with harness.Agent(tenants={"red": {"weight": 10, "mem": "64M"}}) as agent:
        changed(t, agent, "tenant", "set", "red", "--weight", "30")
        changed(t, agent, "tenant", "create", "green", "--mem", "32M", "--deadline", "2s")
        kept = agent.state_dir / "tenants.d"
        t.equal(sorted(os.listdir(kept)), ["green.conf", "red.conf"])
        agent.sections["tenants"]["red"].update(weight=20, mem="96M")
        agent.write_config()
        for restart in (False, True):
            if restart:
                t.equal(agent.stop(), [], "processes that outlive the agent")
                agent.start()
            else:
                t.code(agent.reload(), 0)
            red, green = show(agent, "tenant", "red"), show(agent, "tenant", "green")
            t.equal((red["weight"], red["mem_bytes"]), (30, 96 * MIB), f"red, restart={restart}")
            t.equal((green["mem_bytes"], green["deadline_ns"]), (32 * MIB, 2 * 10**9))
            sentence(t, agent.ctl("tenant", "remove", "red"), 8, "reload", "gantryd.conf")
        Puppet(agent, "green").do("close")
        # Giving a key back to the file, as the manual says.
        (kept / "red.conf").unlink()
        t.code(agent.reload(), 0)
        t.equal(show(agent, "tenant", "red")["weight"], 20)
        # What gantryctl made, gantryctl can remove, also after a restart.
        changed(t, agent, "tenant", "remove", "green")
        t.equal(os.listdir(kept), [])
        agent.stop()
        agent.start()
        t.equal([tenant["name"] for tenant in agent.ctl_json("tenant", "list")["tenants"]], ["red"])


def test_bad_values_are_refused_with_a_sentence(t):
    with harness.Agent() as agent:
        before = show(agent, "tenant", "red")
        for option, value, part in (
                ("--weight", "0", "weight"), ("--weight", "10001", "weight"), ("--weight", "x", "weight"),
                ("--mem", "lots", "mem"), ("--mem", "20Q", "mem"), ("--mem", "-1", "mem"),
                ("--priority", "101", "priority"), ("--priority", "1e3", "priority"),
                ("--sessions", "1001", "sessions"), ("--queues", "64", "queues"), ("--queues", "0", "queues"),
                ("--isolation", "none", "isolat"), ("--on-full", "panic", "refuse"), ("--recipes", "sometimes", "moves"), ("--deadline", "soon", "deadline"),
                ("--devices", "gpu9", "gpu9"), ("--door-mode", "0999", "door"), ("--door-owner", "no-such-one", "no-such"),
                ("--trust-group", "A B", "trust")):
            sentence(t, agent.ctl("tenant", "set", "red", option, value), 2, part)
            as_json = agent.ctl("--json", "tenant", "set", "red", f"{option}={value}")
            t.equal((as_json.code, as_json.json()["error"]["code"]), (2, 2), f"{option} {value}")
        sentence(t, agent.ctl("tenant", "set", "blue", "--weight", "1"), 3, "blue")
        sentence(t, agent.ctl("tenant", "create", "red"), 1, "exists")
        sentence(t, agent.ctl("tenant", "create", "Not/This"), 2, "name")
        sentence(t, agent.ctl("tenant", "set", "red"), 2, "--weight")
        t.equal(show(agent, "tenant", "red"), before)
        t.true(not (agent.state_dir / "tenants.d" / "red.conf").exists(), "a refused change was kept")


def test_recipes_of_a_tenant_are_set_shown_and_kept(t):
    with harness.Agent() as agent:
        t.equal(show(agent, "tenant", "red")["recipes"], "moves")
        for value in ("always", "no", "moves", "always"):
            changed(t, agent, "tenant", "set", "red", "--recipes", value)
            t.equal(show(agent, "tenant", "red")["recipes"], value)
        changed(t, agent, "tenant", "create", "blue", "--recipes", "no")
        sentence(t, agent.ctl("tenant", "set", "red", "--recipes", "yes"), 2, "moves", "always", "no")
        words = agent.ctl("complete", "--", "--socket", str(agent.admin), "tenant", "set", "red", "--recipes", "").out.split()
        t.equal(words, ["moves", "always", "no"])
        agent.stop()
        agent.start()
        t.equal((show(agent, "tenant", "red")["recipes"], show(agent, "tenant", "blue")["recipes"]), ("always", "no"))


def test_tenants_listed_with_what_they_use(t):
    with harness.Agent(tenants={"red": {}, "blue": {"isolation": "pooled", "trust_group": "lab"}}) as agent:
        guest = Puppet(agent, "red")
        guest.do(f"alloc 0 {8 * MIB} {ALLOC_DEVICE}")
        guest.do(f"fill 0 0 {8 * MIB} 7")
        guest.do("wait 0")
        listed = agent.ctl_json("tenant", "list")
        t.equal(listed["schema"], 1)
        red, blue = (show(agent, "tenant", name) for name in ("red", "blue"))
        t.equal([tenant["name"] for tenant in listed["tenants"]], ["red", "blue"])
        t.equal((red["sessions"], blue["sessions"]), (1, 0))
        t.true(red["mem_used"] >= 8 * MIB and red["mem_peak"] >= 8 * MIB, "memory in use")
        t.equal((red["tasks_finished"] >= 1, red["source"]), (True, str(agent.config)))
        t.equal((blue["isolation"], blue["trust_group"]), ("pooled", "lab"))
        table = agent.ctl("tenant", "list").out
        t.contains(table, "blue")
        t.equal(len(table.splitlines()), 3)
        guest.do("close")
        harness.wait_until(lambda: show(agent, "tenant", "red")["mem_used"] == 0, "the memory to be given back")
        t.true(show(agent, "tenant", "red")["tasks_finished"] >= 1, "totals outlive sessions")


# --- reload -------------------------------------------------------------------------------------------

def hang_up(agent):
    """SIGHUP to the monitor; returns the event that tells how it went."""
    count = len(events(agent))
    os.kill(agent.monitor.pid, signal.SIGHUP)

    def told():
        found = [e for e in events(agent)[count:] if e["kind"] in ("reloaded", "reload-failed")]
        return found[0] if found else None
    return harness.wait_until(told, "the agent to read its configuration")


def test_reload_adds_changes_and_removes_tenants(t):
    with harness.Agent(tenants={"red": {}, "blue": {}}) as agent:
        guest, leaving = Puppet(agent, "red"), Puppet(agent, "blue")
        guest.do("chain 0 400 100000")
        del agent.sections["tenants"]["blue"]
        agent.set_tenant("red", weight=7)
        agent.set_tenant("green")
        t.equal(hang_up(agent)["kind"], "reloaded")
        t.equal([tenant["name"] for tenant in agent.ctl_json("tenant", "list")["tenants"]], ["red", "green"])
        t.equal(show(agent, "tenant", "red")["weight"], 7)
        leaving.fails("alloc 0 4096", E_DETACHED)
        Puppet(agent, "green").do("close")
        agent.set_tenant("red", weight=8)
        t.code(agent.reload(), 0)
        t.equal(show(agent, "tenant", "red")["weight"], 8)
        guest.do("wait 0")
        t.equal(guest.do("value 0"), [str(chain_value(400))])


def test_bad_configuration_is_refused_with_file_and_line(t):
    with harness.Agent(tenants={"red": {"weight": 5}}) as agent:
        guest = Puppet(agent, "red")
        good = agent.config.read_text()
        lines = len(good.splitlines())
        for extra, part in (("[tenant blue]\nwieght = 3", "wieght"), ("[tenant blue]\nmem = lots", "mem"),
                            ("[tenant blue]\nweight = 1\nweight = 2", "weight"), ("[dveice x]\nbackend = cpu", "dveice"),
                            ("[tenant blue]\nweight = 99999", "weight"), ("weight", "")):
            agent.write_config(good.replace("weight = 5", "weight = 6") + extra + "\n")
            where = f"{agent.config}:{lines + extra.count(chr(10)) + (0 if 'dveice' in extra else 1)}"
            sentence(t, agent.reload(), 1, where, part, "old configuration stays")
            event = hang_up(agent)
            t.equal(event["kind"], "reload-failed")
            t.contains(event["text"], where)
            check = agent.ctl("--json", "config", "check", str(agent.config))
            t.equal((check.code, check.json()["ok"]), (1, False))
            t.equal(f"{check.json()['problems'][0]['file']}:{check.json()['problems'][0]['line']}", where)
            t.equal(show(agent, "tenant", "red")["weight"], 5)
        agent.write_config(good)
        t.code(agent.ctl("config", "check", str(agent.config)), 0)
        t.code(agent.reload(), 0)
        guest.do("spin 0 1000")
        guest.do("wait 0")


def test_reload_changes_devices_under_running_queues(t):
    with harness.Agent(devices=TWO) as agent:
        guest = Puppet(agent, "red")
        guest.do("chain 0 2000 200000")
        gone = harness.wait_until(lambda: show(agent, "queue", guest.queue)["device"], "a device for the queue")
        del agent.sections["devices"][gone]
        agent.write_config()
        t.code(agent.reload(), 0)
        guest.do("wait 0")
        t.equal(guest.do("value 0"), [str(chain_value(2000))])
        t.equal(len(agent.ctl_json("device", "list")["devices"]), 1)


# --- sessions and queues ------------------------------------------------------------------------------

def test_kicked_guest_is_told_why(t):
    with harness.Agent() as agent:
        guest, neighbour = Puppet(agent, "red"), Puppet(agent, "red")
        t.equal(sorted(s["session_id"] for s in agent.sessions()), sorted([guest.session, neighbour.session]))
        session = show(agent, "session", str(guest.session))
        t.equal((session["tenant"], session["program"], session["pid"], session["uid"], session["state"]),
                ("red", "puppet-guest", guest.guest.pid, os.getuid(), "attached"))
        guest.do("kernel endless")
        guest.do("launch 0")
        guest.start("wait 0")
        changed(t, agent, "session", "kick", str(guest.session), "--reason", "maintenance at noon")
        try:
            guest.finish("wait 0")
            t.true(False, "the wait went well")
        except Refused as refused:
            t.equal(refused.status, E_DETACHED)
            t.contains(refused.sentence, "maintenance at noon")
        t.contains(guest.fails("alloc 0 4096", E_DETACHED), "maintenance at noon")
        # The guest is told first; the session is there until the worker with its kernel is gone.
        harness.wait_until(lambda: guest.session not in [s["session_id"] for s in agent.sessions()], "the session is gone")
        sentence(t, agent.ctl("session", "show", str(guest.session)), 3, str(guest.session))
        sentence(t, agent.ctl("session", "kick", str(guest.session)), 3, str(guest.session))
        sentence(t, agent.ctl("session", "kick", "x"), 2, "session list")
        t.equal(guest.end(), 0)
        neighbour.do("spin 0 1000")
        neighbour.do("wait 0 10000")
        t.equal(agent.ctl_json("session", "list", "--tenant", "none")["sessions"], [])


def test_paused_queue_holds_its_tasks_in_order(t):
    with harness.Agent() as agent:
        guest = Puppet(agent, "red")
        slot = guest.do("queue 1")[0]
        guest.do("chain 0 5 0")
        guest.do("wait 0")
        before = show(agent, "queue", guest.queue)
        changed(t, agent, "queue", "pause", guest.queue)
        t.equal(show(agent, "queue", guest.queue)["paused"], True)
        guest.do("chain 0 60 0")
        guest.fails("wait 0 200", E_TIMEOUT)
        after = show(agent, "queue", guest.queue)
        t.equal((after["issued"], after["done"]), (before["issued"], before["done"]))
        t.equal(after["submitted"], before["submitted"] + 120)
        guest.do("spin 1 1000")
        guest.do("wait 1 10000")
        changed(t, agent, "queue", "resume", guest.queue)
        guest.do("wait 0 10000")
        value = chain_value(5)
        for step in range(1, 61):
            value = step - value
        t.equal(guest.do("value 0"), [str(value)])
        t.contains(agent.ctl("queue", "list", "--session", str(guest.session)).out, "cpu0")
        sentence(t, agent.ctl("queue", "pause", f"{guest.session}:0"), 2, "control")
        sentence(t, agent.ctl("queue", "pause", f"{guest.session}:63"), 3, "63")
        sentence(t, agent.ctl("queue", "pause", "99:1"), 3, "99")
        sentence(t, agent.ctl("queue", "pause", "1-1"), 2, "SESSION:SLOT")
        # In the middle of work, again and again.
        guest.do("chain 0 200 100000")
        for _ in range(5):
            changed(t, agent, "queue", "pause", guest.queue)
            changed(t, agent, "queue", "resume", guest.queue)
        guest.do("wait 0 20000")
        for step in range(1, 201):
            value = step - value
        t.equal(guest.do("value 0"), [str(value)])
        t.true(show(agent, "queue", f"{guest.session}:{slot}")["done"] >= 1, "the other queue")


# --- workers ------------------------------------------------------------------------------------------

def test_workers_that_nobody_came_for_are_kept_no_longer_than_a_moment(t):
    with harness.Agent(tenants={"red": {}}, agent={"warm_workers": 3}) as agent:
        warm = lambda: [w["worker_id"] for w in agent.workers() if w["state"] == "warm"]
        harness.wait_until(lambda: len(warm()) == 3, "three that wait")
        guest = Puppet(agent, "red")
        harness.wait_until(lambda: len(warm()) == 3, "and three again")
        agent.sections["agent"]["warm_workers"] = 1
        agent.write_config()
        t.equal(agent.reload().code, 0)
        harness.wait_until(lambda: len(warm()) == 1, "one that waits")
        guest.do("alloc 0 4096")
        t.equal(len(warm()), 1, "and it stays")


def test_workers_say_how_they_are_confined(t):
    with harness.Agent(tenants={"red": {}, "pool": {"isolation": "pooled"}}, agent={"warm_workers": 2}) as agent:
        guest = Puppet(agent, "red")
        busy = harness.wait_until(lambda: [w for w in agent.workers() if w["state"] == "busy"], "a busy worker")
        t.equal(len(busy), 1)
        t.equal((busy[0]["sessions"], busy[0]["mode"]), (1, "isolated"))
        t.equal(show(agent, "session", str(guest.session))["worker_pid"], busy[0]["pid"])
        harness.wait_until(lambda: len([w for w in agent.workers() if w["state"] == "warm"]) >= 2, "warm workers")
        # One that has not begun to serve has not said yet.
        for worker in [one for one in agent.workers() if one["state"] != "starting"]:
            t.contains(worker["confined"], "seccomp")
            t.true("uid" in worker["confined"] or any(r.startswith("uid: ") for r in worker["unconfined"]),
                   f"neither a user of its own nor a reason: {worker}")
            for reason in worker["unconfined"]:
                t.true(re.match(r"[a-z_.]+: .{8,}", reason), f"no reason: {reason!r}")
        t.contains(agent.ctl("worker", "list").out, "seccomp")
        agent.sections["agent"]["confine"] = "no"
        agent.write_config()
        t.code(agent.reload(), 0)
        harness.wait_until(lambda: all("seccomp" not in w["confined"] and w["unconfined"] for w in agent.workers()
                                       if w["state"] == "warm" and w["worker_id"] > busy[0]["worker_id"]) and
                           any(w["state"] == "warm" for w in agent.workers()), "unconfined workers")
        guest.do("spin 0 1000")
        guest.do("wait 0")


def test_pooled_tenants_of_one_group_share_a_worker(t):
    pooled = {"isolation": "pooled", "mem": "64M"}
    with harness.Agent(tenants={"a": {**pooled, "trust_group": "lab"}, "b": {**pooled, "trust_group": "lab"},
                                "c": {**pooled, "trust_group": "shop"}, "d": pooled, "e": pooled,
                                "f": {"mem": "64M"}}) as agent:
        guests = {name: Puppet(agent, name) for name in "abcdef"}
        guests["a2"] = Puppet(agent, "a")
        pids = {name: show(agent, "session", str(guest.session))["worker_pid"] for name, guest in guests.items()}
        t.equal(pids["a"], pids["b"])
        t.equal(pids["a"], pids["a2"])
        t.equal(len({pids[name] for name in "acdef"}), 5, f"workers of different groups: {pids}")
        for guest in guests.values():
            guest.do("chain 0 50 0")
        for guest in guests.values():
            guest.do("wait 0")
            t.equal(guest.do("value 0"), [str(chain_value(50))])
        shared = [w for w in agent.workers() if w["pid"] == pids["a"]][0]
        t.equal((shared["mode"], shared["trust_group"], shared["sessions"]), ("pooled", "lab", 3))


# --- kernels ------------------------------------------------------------------------------------------

HOT = """#include "devices/kernels/kernel.h"
KERNEL(%s)
{
	return call->args[0].i32;
}
"""


def build_module(folder, kernel, module="hot", version=1):
    """A manifest and its shared object, complete, in @folder."""
    source, built = folder / f"{module}.c", folder / f"{module}.so"
    source.write_text(HOT % kernel)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise harness.Skip("no compiler to build a kernel module with")
    subprocess.run([compiler, "-std=gnu11", "-shared", "-fPIC", "-I", str(harness.SOURCE), "-o", str(built),
                    str(source)], check=True)
    manifest = folder / f"{module}.manifest"
    manifest.write_text(f"module {module} {version}\nimage cpu {module}.so\nkernel {kernel} i32\n")
    return built, manifest


@contextlib.contextmanager
def installing():
    """An agent with an empty module folder after those of the build, and a folder to build in."""
    with tempfile.TemporaryDirectory(prefix="gantry-") as root:
        os.chmod(root, 0o755)
        where = os.path.join(root, "modules")
        os.mkdir(where)
        with harness.Agent(agent={"module_dirs": ":".join(harness.module_dirs() + [where])}) as agent:
            yield agent, where, agent.root


def install(where, *files):
    """As a package does: the manifest last, each under its name at once."""
    for path in files:
        target = os.path.join(where, path.name)
        shutil.copy(path, target + ".new")
        os.rename(target + ".new", target)


def kernels(agent):
    return {k["name"]: k for k in agent.ctl_json("kernel", "list")["kernels"]}


def use_new(guest, name, wanted):
    """The kernel, as soon as the session's worker has it: it answers what it is told."""
    def found():
        try:
            guest.do(f"kernel {name}")
            return True
        except Refused as refused:
            if refused.status != E_NO_KERNEL:
                raise
            return False
    harness.wait_until(found, f"kernel {name} in a running session", 10)
    guest.do(f"launch 0 {wanted}")


def test_kernels_are_listed(t):
    with harness.Agent() as agent:
        found = kernels(agent)
        t.equal((found["saxpy"]["module"], found["saxpy"]["signature"], found["saxpy"]["pure"]),
                ("core", "f32,r:f32*,rw:f32*,u64", False))
        t.true(found["saxpy"]["kinds"] in (["cpu"], ["cpu", "cuda"]), "cpu, and cuda where its compiler was")
        t.equal(agent.ctl_json("kernel", "list")["problems"], [])
        t.contains(agent.ctl("kernel", "list").out, "gaussian_blur")


def test_new_module_is_usable_without_restart(t):
    with installing() as (agent, where, folder):
        guest = Puppet(agent, "red")
        worker = show(agent, "session", str(guest.session))["worker_pid"]
        guest.fails("kernel hot_answer", E_NO_KERNEL)
        install(where, *build_module(folder, "hot_answer"))
        use_new(guest, "hot_answer", 0)
        guest.do("wait 0")
        harness.wait_until(lambda: "hot_answer" in kernels(agent), "the kernel in the list")
        t.contains(seen(agent, "module-changed", "hot.manifest")["text"], "added")
        # A second one, looked for at once.
        install(where, *build_module(folder, "hotter_answer", "hotter"))
        changed(t, agent, "kernel", "rescan")
        t.contains(kernels(agent), "hotter_answer")
        use_new(guest, "hotter_answer", 0)
        guest.do("wait 0")
        Puppet(agent, "red").do("kernel hot_answer")
        t.equal(show(agent, "session", str(guest.session))["worker_pid"], worker)
        # Taken away: new sessions find none, and nobody falls.
        os.unlink(os.path.join(where, "hot.manifest"))
        harness.wait_until(lambda: "hot_answer" not in kernels(agent), "the kernel to go")
        guest.do("launch 0 0")
        guest.do("wait 0 10000")


def test_bad_manifest_is_reported_and_harms_nothing(t):
    with installing() as (agent, where, folder):
        guest = Puppet(agent, "red")
        built, manifest = build_module(folder, "hot_answer")
        for text, part in (("module hot 1\nimage cpu hot.so\nkernel hot_answer i31\n", "hot.manifest: line 3"),
                           ("kernel hot_answer i32\n", "hot.manifest"), ("\0\xff" * 50, "hot.manifest"),
                           ("module hot 1\nimage cpu ../../etc/passwd\nkernel hot_answer i32\n", "hot.manifest")):
            manifest.write_text(text)
            install(where, built, manifest)
            changed(t, agent, "kernel", "rescan")
            problems = agent.ctl_json("kernel", "list")["problems"]
            t.true(any(part in problem for problem in problems), f"{text!r}: problems are {problems}")
            t.contains(agent.ctl("kernel", "list").err, part)
            guest.fails("kernel hot_answer", E_NO_KERNEL)
            t.contains(kernels(agent), "saxpy")
        # Text instead of a shared object: workers cannot load it, and go on with the rest.
        manifest.write_text("module hot 1\nimage cpu hot.so\nkernel hot_answer i32\n")
        built.write_text("no program\n")
        install(where, built, manifest)
        changed(t, agent, "kernel", "rescan")
        guest.do("chain 0 20 0")
        guest.do("wait 0")
        fresh = Puppet(agent, "red")
        fresh.do("spin 0 1000")
        fresh.do("wait 0")
        seen(agent, "module-problem", "hot")
        install(where, *build_module(folder, "hot_answer", version=2))
        changed(t, agent, "kernel", "rescan")
        t.equal(agent.ctl_json("kernel", "list")["problems"], [])
        use_new(guest, "hot_answer", 0)
        guest.do("wait 0")


# --- roles --------------------------------------------------------------------------------------------

CHANGES = (["device", "disable", "cpu0"], ["device", "drain", "cpu0"], ["device", "enable", "cpu0"],
           ["tenant", "create", "mine"], ["tenant", "set", "red", "--weight", "9"], ["tenant", "remove", "red"],
           ["session", "kick", "1"], ["queue", "pause", "1:1"], ["queue", "resume", "1:1"], ["kernel", "rescan"],
           ["reload"])
READS = (["device", "list"], ["tenant", "list"], ["session", "list"], ["queue", "list"], ["worker", "list"],
         ["kernel", "list"], ["stats"], ["events"], ["version"])


def become(uid, groups=()):
    def change():
        os.setgroups(list(groups))
        os.setgid(uid)
        os.setuid(uid)
    return change


def as_user(agent, uid, groups, *args):
    return harness.run([harness.public_program("gantryctl"), "--socket", agent.admin, *args], env=agent.env,
                       preexec_fn=become(uid, groups))


def need_root(t):
    if os.getuid() != 0:
        t.skip("only root can be somebody else")


def test_strangers_change_nothing_and_are_named(t):
    need_root(t)
    with harness.Agent() as agent:
        guest = Puppet(agent, "red")
        before = agent.ctl_json("tenant", "list")["tenants"][0]["weight"]
        sentence(t, as_user(agent, NOBODY, (), "device", "disable", "cpu0"), 4, str(agent.admin))
        os.chmod(agent.admin, 0o666)
        for verb in CHANGES:
            sentence(t, as_user(agent, NOBODY, (), *verb), 4, "gantry-admin")
            as_json = as_user(agent, NOBODY, (), "--json", *verb)
            t.equal((as_json.code, as_json.json()["error"]["code"]), (4, 4), str(verb))
        for verb in READS:
            t.code(as_user(agent, NOBODY, (), *verb), 4, str(verb))
        harness.wait_until(lambda: agent.log().count("audit: uid=65534") >= len(CHANGES) * 2, "audit lines")
        for name in ("device_set", "tenant_create", "tenant_set", "tenant_remove", "session_kick", "queue_set", "reload"):
            t.true(re.search(rf"audit: uid=65534 pid=[1-9]\d* verb={name} code=4: ", agent.log()), f"no audit of {name}")
        t.code(agent.ctl("tenant", "set", "red", "--weight", str(before)), 0)
        harness.wait_until(lambda: re.search(r"audit: uid=0 pid=[1-9]\d* verb=tenant_set code=0", agent.log()),
                           "an audit line of root's change")
        t.equal(show(agent, "device", "cpu0")["state"], "enabled")
        guest.do("spin 0 1000")
        guest.do("wait 0")


class GroupedAgent(harness.Agent):
    """An agent that sees groups of ours: /etc/group is another file in its own mount namespace."""

    def argv(self):
        groups = self.root / "group"
        groups.write_text(open("/etc/group", encoding="utf-8").read() + "gantry:x:64001:\ngantry-admin:x:64002:\n")
        return ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/group && exec "$@"', str(groups)] + super().argv()


def test_groups_read_and_change(t):
    need_root(t)
    if harness.run(["unshare", "--mount", "mount", "--bind", "/etc/group", "/etc/group"]).code != 0:
        t.skip("group roles: no mount namespace to have groups gantry and gantry-admin in")
    with open("/etc/group", encoding="utf-8") as text:
        if re.search("^gantry(-admin)?:", text.read(), re.M):
            t.skip("group roles: this machine has groups of these names already")
    with GroupedAgent(agent={"admin_mode": "0666"}) as agent:
        guest = Puppet(agent, "red")
        t.equal(os.stat(agent.admin).st_gid, 64001)
        for verb in READS:
            t.code(as_user(agent, NOBODY, (64001,), *verb), 0, f"reader, {verb}")
            t.code(as_user(agent, NOBODY, (64002,), *verb), 0, f"changer, {verb}")
            t.code(as_user(agent, NOBODY, (), *verb), 4, f"stranger, {verb}")
        for verb in CHANGES:
            sentence(t, as_user(agent, NOBODY, (64001,), *verb), 4, "gantry-admin")
        t.code(as_user(agent, NOBODY, (64002,), "tenant", "set", "red", "--weight", "9"), 0)
        t.equal(show(agent, "tenant", "red")["weight"], 9)
        harness.wait_until(lambda: re.search(r"audit: uid=65534 pid=[1-9]\d* verb=tenant_set code=0", agent.log()),
                           "an audit line of the change")
        t.code(as_user(agent, NOBODY, (64002,), "session", "kick", str(guest.session)), 0)
        guest.fails("alloc 0 4096", E_DETACHED)


if __name__ == "__main__":
    harness.main(globals())

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The host under tenants at work: two agents, shares, modules, configuration, journal, counters, and rest."""
import os
import re
import shutil
import signal
import time

import harness
from scripted import Scripted, events, gone, honest, session_of, still_honest, two_tenants, worker_of

MS = 1000000


# --- starting -----------------------------------------------------------------------------------------

def test_second_agent_on_the_same_folders_is_refused(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        pid = agent.agent_pid()
        second = harness.run(agent.argv(), timeout=15)
        t.true(second.code not in (0, 124), repr(second))
        t.true(second.err.strip() or second.out.strip(), "it said nothing")
        t.equal(agent.agent_pid(), pid)
        still_honest(neighbour)
        Scripted(agent, "red")


def test_agent_starts_over_what_a_crash_left(t):
    with two_tenants() as agent:
        honest(agent)
        agent.remember()
        pids = agent.pids()
        for pid in sorted(pids):
            harness.send_signal(pid, signal.SIGKILL)
        agent.kill_all()
        t.true(os.path.exists(agent.door("red")) and os.path.exists(agent.admin), "a crash leaves its sockets")
        agent.start()
        t.equal(agent.sessions(), [])
        still_honest(honest(agent))


def test_garbage_journal_does_not_keep_an_agent_from_starting(t):
    with two_tenants() as agent:
        agent.stop()
        for noise in (b"\0" * 5000, b"session 1 2 zz\nnext -1\n", os.urandom(3000)):
            for name in os.listdir(agent.run_dir):
                if "journal" in name:
                    (agent.run_dir / name).write_bytes(noise)
            (agent.run_dir / "journal").write_bytes(noise)
            agent.start()
            still_honest(honest(agent))
            for guest in list(agent.guests):
                guest.end()
            agent.stop()


def test_bad_configuration_at_the_start_is_said_and_ends(t):
    with harness.Agent(start=False) as agent:
        agent.write_config("[agent]\nwarm_workers = many\n")
        ended = harness.run(agent.argv(), timeout=15)
        t.true(ended.code not in (0, 124), repr(ended))
        t.contains(ended.err + ended.out, "warm_workers")


# --- configuration ------------------------------------------------------------------------------------

def limits(agent, name):
    shown = agent.ctl_json("tenant", "show", name)["tenant"]
    return shown["weight"], shown["mem_bytes"] >> 20


def test_file_drop_in_and_command_line_in_their_order(t):
    with two_tenants(red={"weight": 2, "mem": "100M"}) as agent:
        t.equal(limits(agent, "red"), (2, 100))
        drop_in = agent.root / "gantryd.conf.d"
        drop_in.mkdir()
        (drop_in / "10-a.conf").write_text("[tenant red]\nweight = 3\n")
        (drop_in / "20-b.conf").write_text("[tenant red]\nweight = 4\n")
        t.code(agent.reload(), 0)
        t.equal(limits(agent, "red"), (4, 100))
        t.code(agent.ctl("tenant", "set", "red", "--weight", "9"), 0)
        t.equal(limits(agent, "red"), (9, 100))
        agent.set_tenant("red", mem="50M", weight=5)
        t.code(agent.reload(), 0)
        t.equal(limits(agent, "red"), (9, 50), "the command line's key stays, the file's key changes")
        agent.stop()
        agent.start()
        t.equal(limits(agent, "red"), (9, 50))


def test_sighup_reads_the_configuration_again(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        agent.set_tenant("green", mem="32M")
        agent.monitor.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: os.path.exists(agent.door("green")), "green's door")
        Scripted(agent, "green")
        agent.config.write_text(agent.config.read_text() + "[nonsense]\n")
        agent.monitor.send_signal(signal.SIGHUP)
        harness.wait_until(lambda: events(agent, "reload-failed"), "the refusal is told")
        still_honest(neighbour)
        Scripted(agent, "green")


def test_tenant_that_leaves_the_file_ends_with_a_reason(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask(f"run q t spin 200 {12 * MS}")  # all of them fit the ring: putting them waits for nothing
        del agent.sections["tenants"]["red"]
        agent.write_config()
        t.code(agent.reload(), 0)
        answer = guest.tell("wait t -1", timeout=20)
        t.true(answer.startswith(("error DETACHED", "error CANCELLED")), answer)
        harness.wait_until(lambda: not os.path.exists(agent.door("red")), "red's door is gone")
        still_honest(neighbour)


def test_guest_waits_for_a_place_where_the_tenant_says_queue(t):
    with two_tenants(red={"sessions": 1, "on_full": "queue"}) as agent:
        first = Scripted(agent, "red")
        second = Scripted(agent, "red", opened=False)
        second.start("open timeout_ms 20000")
        first.ask("close")
        t.equal(second.answer(), "ok 0")
        third = Scripted(agent, "red", opened=False)
        third.start("open timeout_ms 20000")
        t.code(agent.ctl("tenant", "set", "red", "--sessions", "2"), 0)
        t.equal(third.answer(), "ok 0", "a raised limit makes room")


# --- sharing ------------------------------------------------------------------------------------------

def flood(agent, tenant, n=60000, us=500, priority=0):
    guest = Scripted(agent, tenant)
    guest.ask(f"queue q {priority}")
    guest.ask("run q t spin 1 1000")
    guest.ask("wait t 5000")
    guest.start(f"run q t spin {n} {us * 1000}")
    return guest


def device_ns(agent, tenant):
    return agent.ctl_json("tenant", "show", tenant)["tenant"]["device_ns"]


def shares(agent, seconds):
    before = [device_ns(agent, tenant) for tenant in ("red", "blue")]
    end = time.monotonic() + seconds
    harness.wait_until(lambda: time.monotonic() > end, "the measurement", seconds + 5)
    return [device_ns(agent, tenant) - old for tenant, old in zip(("red", "blue"), before)]


def ratio_is(t, agent, low, high):
    """Red's device time by blue's. Who is kept off the machine by others does not ask for its share: so up to five looks."""
    for _ in range(5):
        red, blue = shares(agent, 1.5)
        ratio = red / max(blue, 1)
        t.note(f"red {red / MS:.0f} ms, blue {blue / MS:.0f} ms: {ratio:.2f}")
        if low < ratio < high:
            return
    t.true(False, f"{ratio:.2f} is not between {low} and {high}")


def test_weights_share_the_device(t):
    with two_tenants(red={"weight": 300}, blue={"weight": 100}) as agent:
        flood(agent, "red")
        flood(agent, "blue")
        harness.wait_until(lambda: device_ns(agent, "red") and device_ns(agent, "blue"), "both run")
        ratio_is(t, agent, 2.2, 4.0)
        t.code(agent.ctl("tenant", "set", "blue", "--weight", "300"), 0)
        ratio_is(t, agent, 0.7, 1.4)


def test_idle_tenant_costs_the_busy_one_nothing(t):
    with two_tenants(red={"weight": 1}, blue={"weight": 10000}) as agent:
        flood(agent, "red")
        harness.wait_until(lambda: device_ns(agent, "red") > 0, "red runs")
        alone, _ = shares(agent, 1)
        idle = Scripted(agent, "blue")
        idle.ask("queue q")
        beside, blue = shares(agent, 1)
        t.note(f"red got {alone / MS:.0f} ms of a second alone, {beside / MS:.0f} ms beside an idle tenant")
        t.equal(blue, 0)
        # By its weight it would get a ten-thousandth; what is left is the machine's other work.
        t.true(beside > 0.3 * alone, "an idle tenant holds device time")


def test_priority_goes_first(t):
    with two_tenants(red={"priority": 0}, blue={"priority": 10}) as agent:
        flood(agent, "red")
        high = Scripted(agent, "blue")
        high.ask("queue q 10")
        took = []
        for _ in range(20):
            began = time.monotonic()
            high.ask(f"run q t spin 10 {MS // 2}")
            high.ask("wait t 10000")
            took.append(time.monotonic() - began)
        took.sort()
        t.note(f"10 tasks of 0.5 ms took {took[10] * 1000:.1f} ms, {took[-1] * 1000:.1f} at worst, beside a flood")
        t.below(took[10], 0.5, "seconds of every other")


# --- modules ------------------------------------------------------------------------------------------

def test_module_that_is_added_can_be_used_at_once(t):
    with harness.Agent(start=False) as agent:
        source = harness.module_dirs()[0]
        folder = agent.root / "modules"
        folder.mkdir()
        for name in ("core.so", "core-cuda.so", "core.manifest"):
            if os.path.exists(os.path.join(source, name)):  # the cuda image: only where nvcc is
                shutil.copy(os.path.join(source, name), folder)
        agent.sections["agent"]["module_dirs"] = str(folder)
        agent.write_config()
        agent.start()
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask("run q t empty 1")
        guest.ask("wait t 5000")
        guest.refused("run q t fail 1 5", "NO_KERNEL")
        # A manifest that makes no sense is reported, and changes nothing else,
        (folder / "bad.manifest").write_text("kernel nonsense (((\n")
        harness.wait_until(lambda: events(agent, "module-problem"), "the bad manifest is told")
        guest.ask("run q t empty 1")
        guest.ask("wait t 5000")
        # a good one is used by sessions that are there.
        for name in ("test-kernels.so", "test.manifest"):
            shutil.copy(os.path.join(source, name), folder / (name + ".new"))
            os.rename(folder / (name + ".new"), folder / name)

        def usable():
            return guest.tell("run q t fail 1 -22").startswith("ok")
        harness.wait_until(usable, "the new kernel", 10)
        guest.refused("wait t 5000", "KERNEL")
        names = {kernel["name"] for kernel in agent.ctl_json("kernel", "list")["kernels"]}
        t.true("fail" in names and "empty" in names, names)


# --- what is told -------------------------------------------------------------------------------------

def metric(agent, name):
    text = agent.ctl("stats", "--prometheus").out
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name + r"(\{|\s)", line))


def test_counters_tell_of_deaths_refusals_and_broken_rules(t):
    with two_tenants(red={"sessions": 2}) as agent:
        guest = Scripted(agent, "red")
        names = ("gantry_worker_restarts_total", "gantry_attach_refused_total", "gantry_tenant_worker_restarts_total")
        t.equal([metric(agent, name) for name in names], [0, 0, 0])
        agent.kill_worker(worker_of(agent, guest))
        harness.wait_until(lambda: session_of(agent, guest)["worker_restarts"] == 1, "the restart is counted")
        Scripted(agent, "red")
        Scripted(agent, "red", opened=False).refused("open", "FULL")
        t.equal([metric(agent, name) for name in names], [1, 1, 1])
        kinds = [event["kind"] for event in events(agent)]
        for kind in ("session-attached", "worker-died", "session-recovered"):
            t.true(kind in kinds, f"no {kind} in {kinds}")


def test_journal_holds_what_is_alive(t):
    with two_tenants() as agent:
        guest = Scripted(agent, "red")
        number = guest.session()
        path = agent.run_dir / "journal"
        harness.wait_until(lambda: path.exists() and f"session {number} " in path.read_text(errors="replace"),
                           "the journal names the session")
        t.true(path.read_text().endswith("end\n"), "it ends with its mark")
        t.equal(path.stat().st_mode & 0o077, 0, "others may not read it")
        guest.ask("close")
        harness.wait_until(lambda: f"session {number} " not in path.read_text(errors="replace"), "and forgets it")


# --- rest ---------------------------------------------------------------------------------------------

def test_idle_sessions_use_no_processor(t):
    with two_tenants() as agent:
        guests = [Scripted(agent, "red") for _ in range(5)] + [Scripted(agent, "blue") for _ in range(5)]
        for guest in guests:
            guest.ask("queue q")
            guest.ask("run q t spin 3 1000")
            guest.ask("wait t 10000")
        pids = agent.pids() + [guest.pid for guest in guests]
        seconds = 3

        def measured():
            before, began = harness.cpu_s(*pids), time.monotonic()
            harness.wait_until(lambda: time.monotonic() > began + seconds, "the measurement", seconds + 5)
            return (harness.cpu_s(*pids) - before) / seconds * 100
        # The first look settles what is still on its way.
        for _ in range(3):
            percent = measured()
            t.note(f"{len(pids)} processes used {percent:.2f} % of a processor")
            if percent < 1:
                break
        t.below(percent, 1.0, "per cent of a processor while nothing is to do")


if __name__ == "__main__":
    harness.main(globals())

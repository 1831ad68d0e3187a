#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Another build of gantryd takes over: while tasks run, again and again, under guests at every door, with new workers;
and not at all where it could not."""
import json
import os
import shutil
import tempfile

import harness
import ivpeer
import puppet
import test_cuda_faults
import test_ivshmem
import test_mps
import test_stream
import test_windows
from builds import (FORMATS, Builds, OwnWorkerFile, begin, candidate, counted, counting, fds_of, next_build,
                    own_workers, program_of, upgrade, version_of)
from scripted import Scripted, events, honest, still_honest, two_tenants

MS = 1000000


# --- an upgrade ---------------------------------------------------------------------------------------

def test_upgrade_under_running_tasks_loses_none(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        counter = counting(agent)
        busy = Scripted(agent, "red")
        busy.ask("queue q")
        busy.ask(f"run q t spin 200 {5 * MS}")
        path = Builds(agent).copy("gantryd-next")
        before = {row["session_id"]: (row["pid"], row["worker_pid"]) for row in agent.sessions()}
        monitor, old = agent.monitor.pid, agent.agent_pid()
        ended = upgrade(agent, "--binary", path)
        t.code(ended, 0)
        t.contains(ended.out, "upgraded from version")
        t.contains(ended.out, "to 9.1.0")
        t.note(ended.out)
        t.equal(version_of(agent), "9.1.0")
        t.true(agent.agent_pid() != old, "another process")
        harness.wait_until(lambda: not harness.alive(old), "the old agent leaves")
        t.equal(agent.monitor.poll(), None, "the monitor is the same process")
        t.equal(agent.version()["monitor_pid"], monitor)
        t.equal([program_of(monitor), program_of(agent.agent_pid())], [str(path)] * 2)
        t.equal({row["session_id"]: (row["pid"], row["worker_pid"]) for row in agent.sessions()}, before)
        still_honest(neighbour)
        counted(t, counter)
        t.contains(busy.ask("ends t 200", 60), "OK=200")
        Scripted(agent, "red").ask("queue q")
        stats = agent.ctl("stats", "--prometheus").out
        t.contains(stats, "gantry_agent_upgrades_total 1")
        pause, = (float(line.split()[1]) for line in stats.splitlines()
                  if line.startswith("gantry_agent_upgrade_pause_seconds "))
        t.true(0 < pause < 60, f"a pause of {pause} s")
        t.equal(len(events(agent, "agent-upgraded")), 1)


def test_agent_that_dies_after_an_upgrade_is_started_from_the_same_build(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        path = Builds(agent).copy("gantryd-next")
        t.code(upgrade(agent, "--binary", path), 0)
        path.unlink()
        old = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.ctl("version").code == 0 and agent.agent_pid() != old, "another agent")
        t.equal(version_of(agent), "9.1.0")
        t.contains(agent.ctl("stats", "--prometheus").out, "gantry_agent_upgrades_total 1")
        still_honest(neighbour)


def test_check_says_what_would_be_and_touches_nothing(t):
    with two_tenants() as agent:
        path = Builds(agent).copy("gantryd-next")
        old = agent.agent_pid()
        ended = upgrade(agent, "--binary", path, "--check")
        t.code(ended, 0)
        t.contains(ended.out, "version 9.1.0 can take over")
        t.contains(ended.out, "the version that serves takes over again")
        for name in FORMATS:
            t.contains(ended.out, name)
        shown = json.loads(agent.ctl("--json", "agent", "upgrade", "--binary", path, "--check").out)["upgrade"]
        t.equal((shown["state"], shown["to"], len(shown["formats"])), ("possible", "9.1.0", len(FORMATS)))
        t.equal(agent.agent_pid(), old)
        t.equal(events(agent, "agent-upgraded", "upgrade-refused"), [])
        # One after the other, without waiting for the end of the candidate before.
        for _ in range(5):
            t.code(upgrade(agent, "--binary", path, "--check"), 0)
        t.code(upgrade(agent, "--binary", path), 0)
        t.equal(version_of(agent), "9.1.0")


def held(agent, monitor):
    return fds_of(monitor), fds_of(agent.agent_pid()), len(agent.pids())


def test_many_upgrades_in_a_row_leak_nothing(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        builds = Builds(agent)
        paths = [builds.copy("gantryd-next"), builds.copy("gantryd-next", "gantryd-again")]
        counter = counting(agent, n=3000)
        for path in paths:  # both have run: what is opened once is open
            t.code(upgrade(agent, "--binary", path), 0)
        monitor = agent.monitor.pid
        rows = agent.sessions()
        before = held(agent, monitor)
        pauses = []
        for number in range(100):
            ended = agent.ctl("--json", "agent", "upgrade", "--binary", paths[number % 2], timeout=90)
            t.code(ended, 0, f"upgrade {number}")
            pauses.append(ended.json()["upgrade"]["pause_ns"])
            if number % 10 == 0:
                still_honest(neighbour)
        pauses.sort()
        t.note(f"pause: median {pauses[50] / 1e6:.1f} ms, worst {pauses[-1] / 1e6:.1f} ms")
        # A warm worker more or less; what an upgrade leaves is there a hundred times.
        harness.wait_until(lambda: all(now < then + 10 for now, then in zip(held(agent, monitor), before)),
                           "descriptors of monitor and agent, processes: as many as before")
        t.note(f"descriptors of monitor and agent, processes: {before} before, {held(agent, monitor)} now")
        t.equal([(r["session_id"], r["worker_pid"]) for r in agent.sessions()],
                [(r["session_id"], r["worker_pid"]) for r in rows])
        still_honest(neighbour)
        counted(t, counter, 3000)
        t.contains(agent.ctl("stats", "--prometheus").out, "gantry_agent_upgrades_total 102")


test_many_upgrades_in_a_row_leak_nothing.limit_s = 300 * float(os.environ.get("GANTRY_TEST_SLOWDOWN", "1"))


# --- bad input ----------------------------------------------------------------------------------------

def refused(t, agent, code, part, *args):
    """It exits with @code and a sentence, and the agent that served serves."""
    old = agent.agent_pid()
    ended = upgrade(agent, *args)
    t.code(ended, code)
    t.contains(ended.err, part)
    t.equal(agent.agent_pid(), old, "the agent that serves")
    return ended


def test_programs_that_cannot_take_over_are_refused(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        builds = Builds(agent)
        refused(t, agent, 3, "No such file", "--binary", builds.folder / "nowhere")
        plain = builds.copy("gantryd-next", "plain")
        plain.chmod(0o644)
        refused(t, agent, 1, "is not executable", "--binary", plain)
        plain.chmod(0o775)
        refused(t, agent, 1, "could have been written by others", "--binary", plain)
        refused(t, agent, 8, "is no regular file", "--binary", builds.folder)
        text = builds.folder / "text"
        text.write_text("not a program\n")
        text.chmod(0o755)
        refused(t, agent, 1, "cannot be run on this host", "--binary", text)
        true = builds.folder / "true"
        shutil.copy("/bin/true", true)
        refused(t, agent, 1, "without a word of what it is", "--binary", true)
        refused(t, agent, 1, "older than", "--binary", builds.copy("gantryd-older"))
        still_honest(neighbour)
        t.code(upgrade(agent, "--binary", builds.copy("gantryd-older"), "--downgrade"), 0)
        t.equal(version_of(agent), "0.0.9")
        still_honest(neighbour)


def test_formats_that_do_not_fit_are_refused_both_ways(t):
    with two_tenants() as agent:
        builds = Builds(agent)
        ours = builds.newest("ledger")
        path = builds.liar("waits", builds.hello(ledger=f"{ours + 1} {ours + 2}"))
        ended = refused(t, agent, 1, f"writes ledgers in version {ours}, and 9.2.0 reads {ours + 1} to {ours + 2}",
                        "--binary", path)
        t.contains(ended.err, "goes on")
        # It would take sessions over whose devices have changed places, and knows of no such thing.
        before = builds.liar("waits", builds.hello(version="0.0.8", ledger="2 2"))
        refused(t, agent, 1, f"writes ledgers in version {ours}, and 0.0.8 reads 2", "--downgrade", "--binary", before)
        refused(t, agent, 1, "writes the journal", "--check", "--binary",
                builds.liar("waits", builds.hello(journal="0 0")))
        refused(t, agent, 1, "makes no sense", "--binary", builds.liar("waits", "gantryd \n"))
        refused(t, agent, 1, "makes no sense", "--binary", builds.liar("waits", builds.hello()[:-4]))
        refused(t, agent, 1, "cannot serve here: the moon is full", "--binary",
                builds.liar("waits", builds.hello(problem="the moon is full")))
        newer = builds.hello(worker=f'1 {builds.newest("worker") + 1}')
        ended = upgrade(agent, "--check", "--binary", builds.liar("waits", newer))
        t.code(ended, 0)
        t.contains(ended.out, "it is started again: the version that serves does not read what it writes")
        t.contains(agent.ctl("stats", "--prometheus").out, "gantry_agent_upgrades_refused_total 5")


def test_configuration_that_does_not_parse_is_refused(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        path = Builds(agent).copy("gantryd-next")
        good = agent.config.read_text()
        agent.write_config(good + "\n[tenant nobody]\nmem = much\n")
        refused(t, agent, 1, "cannot serve here: ", "--binary", path)
        agent.write_config(good)
        t.code(upgrade(agent, "--binary", path), 0)
        still_honest(neighbour)


def test_program_that_says_nothing_is_given_up_and_another_may_come(t):
    with two_tenants() as agent:
        builds = Builds(agent)
        silent = builds.liar("silent")
        first = harness.Guest([harness.program("gantryctl"), "--socket", str(agent.admin), "agent", "upgrade",
                               "--binary", str(silent)])
        candidate(agent, silent)
        refused(t, agent, 7, "an upgrade is under way", "--binary", builds.copy("gantryd-next"))
        t.equal(first.wait(60), 1)
        t.contains(first.output(), "does not say what it is")
        t.code(upgrade(agent, "--binary", builds.copy("gantryd-next")), 0)


def test_agent_that_is_told_to_end_during_an_upgrade_ends(t):
    with two_tenants() as agent:
        path = Builds(agent).liar("silent")
        asked = begin(agent, path)
        pid = candidate(agent, path)
        asked.end()
        t.equal(agent.stop(), [], "processes that outlived it")
        t.true(not harness.alive(pid), "the candidate has ended")


def test_without_a_monitor_there_is_no_upgrade(t):
    with two_tenants(options=["--no-monitor"]) as agent:
        refused(t, agent, 8, "no monitor", "--binary", Builds(agent).copy("gantryd-next"))


# --- workers ------------------------------------------------------------------------------------------

def test_workers_keep_their_build_until_their_sessions_end(t):
    with own_workers() as agent:
        neighbour = honest(agent)
        row = agent.sessions()[0]
        path = next_build(agent)
        t.code(upgrade(agent, "--binary", path), 0)
        harness.wait_until(lambda: [worker["pid"] for worker in agent.workers() if worker["other_build"]] ==
                           [row["worker_pid"]], "its worker is the only one of the old build")
        fresh = Scripted(agent, "red")
        fresh.ask("queue q")
        fresh.ask("run q t spin 1 1000")
        served = {row["session_id"]: row["worker_pid"] for row in agent.sessions()}
        t.equal(os.path.dirname(program_of(served[fresh.session()])), str(path.parent), "a new session's worker")
        still_honest(neighbour)


def test_restart_workers_moves_sessions_without_losing_a_task(t):
    for tenants in ({}, {"red": {"isolation": "pooled", "trust_group": "one"},
                         "blue": {"isolation": "pooled", "trust_group": "one"}}):
        with own_workers(**tenants) as agent:
            neighbour = honest(agent)
            counter = counting(agent, n=3000)
            busy = Scripted(agent, "red")
            busy.ask("queue q")
            busy.ask(f"run q t spin 300 {2 * MS}")
            paused = Scripted(agent, "red")
            paused.ask("queue q")
            paused.ask("run q t spin 1 1000")
            paused.ask("wait t 20000")
            number = paused.session()
            slot = next(row["slot"] for row in agent.ctl_json("queue", "list", "--session", str(number))["queues"]
                        if row["slot"])
            t.code(agent.ctl("queue", "pause", f"{number}:{slot}"), 0)
            path = next_build(agent)
            before = {row["session_id"] for row in agent.sessions()}
            ended = upgrade(agent, "--binary", path, "--restart-workers")
            t.code(ended, 0)
            rows = agent.sessions()
            t.equal({row["session_id"] for row in rows}, before)
            for row in rows:
                t.equal(os.path.dirname(program_of(row["worker_pid"])), str(path.parent), "the worker's program")
            still_honest(neighbour)
            counted(t, counter, 3000)
            t.contains(busy.ask("ends t 300", 60), "OK=300")
            t.true(agent.ctl_json("queue", "show", f"{number}:{slot}")["queue"]["paused"], "still paused")
            t.code(agent.ctl("queue", "resume", f"{number}:{slot}"), 0)
            paused.ask("run q t spin 1 1000")
            paused.ask("wait t 20000")
            t.equal([worker for worker in agent.workers() if worker["other_build"] and worker["sessions"]], [])
            t.true(events(agent, "worker-renewed"), "what happened is told")
            t.equal(events(agent, "worker-died"), [])


# --- doors, memory, packed workers --------------------------------------------------------------------

def test_upgrade_under_guests_behind_streams(t):
    with test_stream.world() as agent:
        guest = test_stream.stream_guest(agent)
        before = test_stream.relays(agent)
        guest.start("chain 0 400 200000")
        t.code(upgrade(agent, "--binary", Builds(agent).copy("gantryd-next")), 0)
        guest.finish()
        t.equal(float(guest.do("value 0", 60)[0]), puppet.chain_value(400))
        t.equal(test_stream.relays(agent), before)
        second = test_stream.stream_guest(agent)
        t.equal(test_stream.run_chain(second), puppet.chain_value(40))
        guest.do("close")
        second.do("close")
        harness.wait_until(lambda: not agent.sessions(), "the sessions' end")


def test_upgrade_under_virtual_machines(t):
    with test_ivshmem.world() as agent, test_ivshmem.machine(agent) as vm:
        neighbour = honest(agent)
        guest = test_ivshmem.busy(test_ivshmem.program(agent, vm), n=200)
        before = vm.heartbeat
        t.code(upgrade(agent, "--binary", Builds(agent).copy("gantryd-next")), 0)
        guest.ask("wait t 30000")
        t.equal(vm.state, ivpeer.OPEN, "still open")
        harness.wait_until(lambda: vm.heartbeat > before + 1, "the heart beats again")
        test_ivshmem.program(agent, vm)
        t.equal(len(agent.sessions()), 3, "and new ones come")
        still_honest(neighbour)


def test_upgrade_with_workers_keeps_what_lies_in_device_memory(t):
    with OwnWorkerFile() as worker, test_windows.agent_with({"gpu0": test_windows.gpu()}) as agent:
        guest = puppet.Puppet(agent, "red")
        for number in range(8):
            guest.do(f"alloc {number} {2 << 20}")
            test_windows.fill(guest, number, 2 << 20)
        guest.do("wait 0")
        before = test_windows.worker_of(agent, guest)
        worker.replace()
        ended = upgrade(agent, "--binary", Builds(agent).copy("gantryd-next"), "--restart-workers")
        t.code(ended, 0)
        pids = {row["worker_pid"] for row in agent.sessions()}
        t.true(before not in pids, "another worker")
        for number in range(8):
            test_windows.check(t, guest, number, 2 << 20)
        for number in range(8, 12):
            guest.do(f"alloc {number} {8 << 20}")
            test_windows.fill(guest, number, 8 << 20)
        guest.do("wait 0")
        harness.wait_until(lambda: not [w for w in agent.workers() if w["other_build"]], "stewards are of this build too")


def test_upgrade_with_packed_workers(t):
    with OwnWorkerFile() as worker, test_mps.World(red={}, blue={"trust_group": "lab"}) as w:
        red, blue = puppet.Puppet(w.agent, "red"), puppet.Puppet(w.agent, "blue")
        server = w.server_of(red)
        old = {w.worker_of(guest)["pid"] for guest in (red, blue)}
        t.code(upgrade(w.agent, "--binary", Builds(w.agent).copy("gantryd-next")), 0)
        t.equal({w.worker_of(guest)["pid"] for guest in (red, blue)}, old)
        t.equal(w.server_of(red), server)
        worker.replace()
        t.code(upgrade(w.agent, "--binary", Builds(w.agent).copy("gantryd-next"), "--restart-workers"), 0)
        t.true(not {w.worker_of(guest)["pid"] for guest in (red, blue)} & old, "other workers")
        for guest in (red, blue):
            guest.do("spin 0 1000")


def test_upgrade_with_workers_of_a_gpu(t):
    """Over the fake driver, whose work is under way while its workers are looked at."""
    for mode in ("isolated", "packed", "pooled"):
        with OwnWorkerFile() as worker, test_cuda_faults.world(mode, tenants=("red", "blue")) as agent:
            guests = [test_cuda_faults.guest(agent, name) for name in ("red", "blue")]
            for actor in guests:
                actor.do("queue 1")
                actor.do(f"put 1 gpu_spin {MS} 300")
            old = {row["worker_pid"] for row in agent.sessions()}
            worker.replace()
            t.code(upgrade(agent, "--binary", Builds(agent).copy("gantryd-next"), "--restart-workers"), 0, mode)
            t.true(not {row["worker_pid"] for row in agent.sessions()} & old, f"{mode}: other workers")
            for actor in guests:
                t.equal(actor.statuses(1), {0: 300}, f"{mode}: how its tasks ended")
                test_cuda_faults.works(t, actor)


def test_upgrade_leaves_a_program_the_worker_that_has_its_variables(t):
    """Of a program of CUDA; one without variables gets another, and its addresses are good there."""
    library = harness.find_in_build("libcudart.so.13", os.path.exists)
    if not library:
        raise harness.Skip("the build has no libcudart for guests: it had no headers of CUDA 13")
    image = harness.find_in_build("cuda-fake-kernels.cubin", os.path.exists)
    with OwnWorkerFile() as worker, test_cuda_faults.world(tenants=("red", "blue"), heap="64M", virtual="1G") as agent, \
            tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "until")
        os.mkfifo(fifo)
        command = [harness.program("cuda-driver-addresses"), image, fifo]
        guests = {name: agent.guest(name, command + more, env={"LD_LIBRARY_PATH": os.path.dirname(library)})
                  for name, more in (("red", ["with variables"]), ("blue", []))}
        held = os.open(fifo, os.O_RDWR)
        try:
            for guest in guests.values():
                guest.read_until("waiting", timeout=90)
            old = {row["tenant"]: row["worker_pid"] for row in agent.sessions()}
            worker.replace()
            t.code(upgrade(agent, "--binary", Builds(agent).copy("gantryd-next"), "--restart-workers"), 0)
            new = {row["tenant"]: row["worker_pid"] for row in agent.sessions()}
            t.equal(new["red"], old["red"], "the worker that has variables")
            t.true(new["blue"] != old["blue"], "another worker")
            t.equal(["variables and arrays of session" in event["text"] for event in events(agent, "worker-kept")], [True])
        finally:
            os.close(held)
        for name, guest in guests.items():
            t.equal(guest.wait(90), 0, f"{name}: {guest.output()}")


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

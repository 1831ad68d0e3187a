#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A death at every step of an upgrade, and at any moment: whoever is the agent then, no task is lost or runs twice."""
import os
import select
import signal

import harness
from builds import Builds, OwnWorkerFile, begin, candidate, counted, counting, frozen, program_of, serves, upgrade, version_of
from scripted import events, honest, still_honest, two_tenants


# --- deaths -------------------------------------------------------------------------------------------

def test_candidate_that_fails_at_each_step_makes_way(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        counter = counting(agent)
        builds = Builds(agent)
        first = agent.agent_pid()
        for does, part, same in (("ends", "status 6", True), ("waits", "status 8", True),
                                 ("grabs", "serves again", False), ("takes", "serves again", False)):
            old = agent.agent_pid()
            ended = upgrade(agent, "--binary", builds.liar(does))
            t.code(ended, 1, does)
            t.contains(ended.err, part, does)
            t.equal(agent.agent_pid() == old, same, f"{does}: the same agent")
            still_honest(neighbour)
        t.true(agent.agent_pid() != first)
        t.equal(program_of(agent.agent_pid()), harness.program("gantryd"))
        t.code(upgrade(agent, "--binary", builds.copy("gantryd-next")), 0)
        still_honest(neighbour)
        counted(t, counter)
        stats = agent.ctl("stats", "--prometheus").out
        t.contains(stats, "gantry_agent_upgrades_back_total 2")
        t.contains(stats, "gantry_agent_upgrades_total 1")


def test_monitor_killed_while_the_agent_has_yielded_leaves_the_old_one(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        counter = counting(agent)
        builds = Builds(agent)
        path = builds.liar("stalls")
        old = agent.agent_pid()
        asked = begin(agent, path)
        given = frozen(agent, path)
        agent.kill_monitor()
        t.equal(asked.wait(60), 1)
        t.contains(asked.output(), "the monitor died in between")
        t.equal(serves(agent), old)
        harness.send_signal(given, signal.SIGKILL)
        harness.wait_until(lambda: agent.version()["monitor_pid"] not in (0, agent.monitor.pid), "another monitor")
        still_honest(neighbour)
        t.code(upgrade(agent, "--binary", builds.copy("gantryd-next")), 0)
        t.equal(version_of(agent), "9.1.0")
        counted(t, counter)


def test_agent_and_candidate_killed_while_nobody_has_the_baton_start_the_old_build(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        counter = counting(agent)
        path = Builds(agent).liar("stalls")
        old = agent.agent_pid()
        asked = begin(agent, path)
        given = frozen(agent, path)
        harness.send_signal(old, signal.SIGKILL)
        harness.wait_until(lambda: not harness.alive(old), "the agent is dead")
        harness.send_signal(given, signal.SIGKILL)
        t.true(serves(agent) != old)
        t.equal(asked.wait(60), 1)
        t.contains(asked.output(), "serves again")
        t.equal(version_of(agent), agent.ctl_json("version")["client"])
        still_honest(neighbour)
        counted(t, counter)


def test_candidate_killed_while_the_agent_has_yielded_lets_it_go_on(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        path = Builds(agent).liar("stalls")
        old = agent.agent_pid()
        asked = begin(agent, path)
        harness.send_signal(frozen(agent, path), signal.SIGKILL)
        t.equal(asked.wait(60), 1)
        t.contains(asked.output(), "signal 9")
        t.equal(serves(agent), old)
        still_honest(neighbour)


def test_agent_or_monitor_killed_while_the_candidate_starts(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        path = Builds(agent).liar("silent")
        asked = begin(agent, path)
        pid = candidate(agent, path)
        old = agent.agent_pid()
        agent.kill_agent()
        t.true(serves(agent) != old)
        t.equal(asked.wait(60), 1)
        harness.wait_until(lambda: not harness.alive(pid), "the candidate ends")
        asked = begin(agent, path)
        pid = candidate(agent, path)
        old = agent.agent_pid()
        agent.kill_monitor()
        t.equal(asked.wait(60), 1)
        t.contains(asked.output(), "the monitor died in between")
        t.equal(serves(agent), old)
        harness.send_signal(pid, signal.SIGKILL)
        still_honest(neighbour)


def test_monitor_of_the_new_build_that_dies_at_once_is_one_of_the_old_build_again(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        counter = counting(agent)
        path = Builds(agent).copy("gantryd-lame")
        ended = upgrade(agent, "--binary", path)
        t.code(ended, 0)
        t.contains(ended.out, "the monitor of version 9.3.0 died at once: one of")
        t.equal(version_of(agent), "9.3.0")
        # It is a copy of the agent until it has become the program.
        harness.wait_until(lambda: agent.version()["monitor_pid"] and
                           program_of(agent.version()["monitor_pid"]) == harness.program("gantryd"),
                           "a monitor of the old build")
        old = agent.agent_pid()
        agent.kill_agent()  # what it keeps is whole
        harness.wait_until(lambda: agent.ctl("version").code == 0 and agent.agent_pid() != old, "another agent")
        # It may have written what the build before does not read.
        t.equal(version_of(agent), "9.3.0", "the next agent is of the build that ran")
        still_honest(neighbour)
        counted(t, counter)


def test_build_that_fails_is_started_again_where_the_one_before_would_not_read_what_it_wrote(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        counter = counting(agent)
        builds = Builds(agent)
        path = builds.copy("gantryd-frail")
        writes = builds.newest("journal") + 1
        builds.liar("takes", builds.hello(journal=f"1 {writes}"))
        monitor = agent.monitor.pid
        ended = upgrade(agent, "--binary", path)
        t.code(ended, 0)
        t.contains(ended.out, "its agent died meanwhile, and was started again")
        t.equal(version_of(agent), "9.2.0")
        harness.wait_until(lambda: program_of(monitor) == str(path), "the monitor becomes that build")
        t.equal(agent.version()["monitor_pid"], monitor)
        t.equal(len(events(agent, "agent-upgraded")), 1)
        t.equal(events(agent, "upgrade-failed"), [])
        stats = agent.ctl("stats", "--prometheus").out
        t.contains(stats, "gantry_agent_upgrades_back_total 0")
        t.contains(stats, "gantry_agent_upgrades_total 1")
        still_honest(neighbour)
        counted(t, counter)


def test_build_that_is_started_again_exchanges_workers_and_is_told_from_one_of_the_same_version(t):
    with OwnWorkerFile() as worker, two_tenants() as agent:
        neighbour = honest(agent)
        counter = counting(agent)
        builds = Builds(agent)
        path = builds.copy("gantryd-frail-twin")
        version = version_of(agent)
        writes = builds.newest("journal") + 1
        builds.liar("takes", builds.hello(version=version, journal=f"1 {writes}"))
        old = {row["worker_pid"] for row in agent.sessions()}
        worker.replace()
        ended = upgrade(agent, "--binary", path, "--restart-workers")
        t.code(ended, 0)
        t.contains(ended.out, "its agent died meanwhile, and was started again")
        t.equal(program_of(agent.agent_pid()), str(path))
        t.equal({row["worker_pid"] for row in agent.sessions()} & old, set(), "all have another worker")
        t.equal([len(events(agent, kind)) for kind in ("agent-upgraded", "upgrade-failed")], [1, 0])
        stats = agent.ctl("stats", "--prometheus").out
        t.contains(stats, "gantry_agent_upgrades_total 1")
        t.contains(stats, "gantry_agent_upgrades_back_total 0")
        still_honest(neighbour)
        counted(t, counter)


def test_build_that_never_serves_is_started_until_it_is_stopped_where_there_is_no_way_back(t):
    with two_tenants() as agent:
        neighbour = honest(agent)
        builds = Builds(agent)
        writes = builds.newest("journal") + 1
        path = builds.liar("takes", builds.hello(journal=f"1 {writes}"))
        first = agent.agent_pid()
        asked = begin(agent, path)
        harness.wait_until(lambda: agent.log().count("is started again until it serves") >= 3, "it is started again")
        harness.wait_until(lambda: not harness.alive(first), "the agent before leaves")
        t.true(asked.wait(90) != 0, "gantryctl does not say that it serves")
        still_honest(neighbour)  # workers go on


def test_processes_killed_at_any_moment_of_an_upgrade(t):
    """One death at a time, at moments spread over all of it; whoever is the agent then, no task is lost or runs twice."""
    with two_tenants() as agent:
        neighbour = honest(agent)
        builds = Builds(agent)
        paths = [builds.copy("gantryd-next"), builds.copy("gantryd-next", "gantryd-again")]
        counter = counting(agent, n=3000)
        seen = {"upgraded": 0, "not": 0}
        for number in range(int(os.environ.get("GANTRY_UPGRADE_KILLS", "36"))):
            victim = ("old", "new", "monitor")[number % 3]
            path = paths[number % 2]
            before = agent.version()
            asked = begin(agent, path)
            pid = {"old": before["pid"], "monitor": before["monitor_pid"]}.get(victim) or candidate(agent, path, asked)
            # Spread over the some 10 ms that it takes.
            select_pause((number * 7 % 24) / 1000)
            if pid:
                harness.send_signal(pid, signal.SIGKILL)
            asked.wait(90)
            agent.monitor.poll()
            serves(agent)
            harness.wait_until(lambda: agent.version()["monitor_pid"], "a monitor")
            seen["upgraded" if "upgraded from" in asked.output() else "not"] += 1
            if number % 6 == 5:
                still_honest(neighbour)
        t.note(f"of these upgrades: {seen}")
        still_honest(neighbour)
        counted(t, counter, 3000)
        t.equal(len(agent.sessions()), 2)
        t.code(upgrade(agent, "--binary", paths[0]), 0)


test_processes_killed_at_any_moment_of_an_upgrade.limit_s = 300 * float(os.environ.get("GANTRY_TEST_SLOWDOWN", "1"))


def select_pause(seconds):
    """The moment of a death is what is varied: not waiting for anything."""
    select.select([], [], [], seconds)


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

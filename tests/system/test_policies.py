#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Policies of shared objects: in a process of their own, which may crash, hang and lie; the agent and its guests go on."""
import os
import shutil

import harness
import puppet

THREE = {"cpu0": {}, "cpu1": {}, "cpu2": {}}


def module(agent, name):
    """A copy of the object, as an administrator installs one: nobody else can write it."""
    found = harness.find_in_build(f"{name}.so", os.path.isfile)
    if not found:
        raise harness.Skip(f"the build has no {name}.so")
    path = agent.root / f"{name}.so"
    shutil.copyfile(found, path)
    path.chmod(0o644)
    return path


class World:
    """An agent whose tenants without a group are placed by an object, and a guest with work for a while."""

    def __init__(self, name="policy-example", fault=None, timeout="2s", mode=None, path=None, tenants=None):
        options = {"policy": "mine"}
        if fault:
            options["policy_options"] = f"fault={fault}"
        self.agent = harness.Agent(devices=THREE, agent=options, tenants=tenants or {"red": {}}, start=False)
        self.path = path or module(self.agent, name)
        if mode:
            self.path.chmod(mode)
        section = f"\n[policy mine]\npath = {self.path}\nfallback = spread\ntimeout = {timeout}\n"
        self.agent.config.write_text(self.agent.config.read_text() + section)

    def __enter__(self):
        self.agent.__enter__()
        self.agent.start()
        self.guest = puppet.Puppet(self.agent, "red", queue=None)
        for q in range(3):
            self.guest.do(f"queue {q}")
        self.guest.start("fleet 3 1000000 100000")  # more than a test waits for
        return self

    def __exit__(self, *args):
        return self.agent.__exit__(*args)

    def places(self):
        queues = self.agent.ctl_json("queue", "list")["queues"]
        return sorted(q["device"] for q in queues if q["session_id"] == self.guest.session)

    def policy(self):
        return next(p for p in self.agent.ctl_json("policy", "list")["policies"] if p["name"] == "mine")

    def group(self):
        return self.agent.ctl_json("group", "list")["groups"][0]

    def wait_failed(self, sentence):
        harness.wait_until(lambda: sentence in self.policy()["reason"] or sentence in self.agent.log(),
                           f"a failure with {sentence!r}")
        harness.wait_until(lambda: self.places() == ["cpu0", "cpu1", "cpu2"], "the fallback's placement")
        if "policy mine: " not in self.agent.log():
            raise harness.Failure("no event tells of the failure")


def test_an_object_places_queues(t):
    with World() as w:
        harness.wait_until(lambda: w.places() == ["cpu2"] * 3, "all queues on the last device")
        shown = w.policy()
        t.equal((shown["state"], shown["source"], shown["groups"]), ("ready", str(w.path), ["-"]))
        t.equal(w.group()["decides"], "mine")
        pid = shown["pid"]
        t.true(pid and harness.alive(pid), "it has a process")
        t.true(pid in harness.descendants(w.agent.agent_pid()), "of the agent")
        # Where the device is taken away it is asked at once.
        t.code(w.agent.ctl("device", "drain", "cpu2"), 0)
        harness.wait_until(lambda: w.places() == ["cpu1"] * 3, "the last that is left")


def test_the_process_ends_with_the_agent_and_comes_again(t):
    with World() as w:
        harness.wait_until(lambda: w.policy()["state"] == "ready", "the policy")
        before = w.policy()["pid"]
        w.agent.kill_agent()
        harness.wait_until(lambda: not harness.alive(before), "its end")
        w.agent.wait_ready()
        harness.wait_until(lambda: w.policy()["state"] == "ready", "the policy again")
        harness.wait_until(lambda: w.places() == ["cpu2"] * 3, "its placement")


def faulty(fault, sentence, **options):
    def test(t):
        with World(fault=fault, **options) as w:
            w.wait_failed(sentence)
            t.true(w.group()["failures"] > 0)
            t.true(harness.alive(w.agent.agent_pid()), "the agent lives")
    return test


test_one_that_crashes_is_replaced_by_the_fallback = faulty("crash", "its process died")
test_one_that_exits_is_replaced_by_the_fallback = faulty("exit", "its process died")
test_one_that_hangs_is_ended_in_time = faulty("hang", "did not answer within 100ms", timeout="100ms")
test_one_that_names_no_device_is_not_believed = faulty("nowhere", "on device 77 of 3")
test_one_that_says_garbage_is_not_believed = faulty("garbage", "say nothing")
test_one_that_cannot_decide_is_replaced_by_the_fallback = faulty("refuse", "it could not decide")


def test_one_that_eats_memory_has_a_bound(t):
    with World(fault="memory", timeout="10s") as w:
        harness.wait_until(lambda: w.places() == ["cpu2"] * 3, "its placement")


def test_one_that_opens_files_finds_none(t):
    with World(fault="file") as w:
        harness.wait_until(lambda: w.policy()["state"] in ("ready", "failed"), "the policy")
        if "not confined" in w.agent.log():
            raise harness.Skip("this machine does not permit the filter")
        harness.wait_until(lambda: w.places() == ["cpu2"] * 3, "its placement, as open() failed")


def test_one_that_fails_later_is_tried_again(t):
    with World(fault="later") as w:
        harness.wait_until(lambda: w.group()["failures"] >= 2, "a second failure")
        t.true(harness.alive(w.agent.agent_pid()))
        t.contains(w.agent.log(), "policy-loaded")


def test_one_of_another_abi_is_refused(t):
    with World("policy-old") as w:
        w.wait_failed("built for ABI 0")


def test_one_without_an_entry_is_refused(t):
    with World("policy-empty") as w:
        w.wait_failed("defines no gantry_policy_entry")


def test_one_that_others_can_write_is_refused(t):
    with World(mode=0o666) as w:
        w.wait_failed("can be written by others")


def test_one_that_is_not_there_is_refused(t):
    with World(path=harness.pathlib.Path("/nonexistent/mine.so")) as w:
        w.wait_failed("opening /nonexistent/mine.so")


def test_wrong_options_are_told_in_the_policys_words(t):
    with World() as w:
        w.agent.config.write_text(w.agent.config.read_text().replace("policy = mine", "policy = mine\npolicy_options = x=1"))
        t.code(w.agent.ctl("reload"), 0)
        w.wait_failed("the option is fault=KIND")


def test_a_limit_of_the_tenant_binds_it(t):
    with World(fault="everywhere", tenants={"red": {"max_devices": 2}}) as w:
        harness.wait_until(lambda: "which may be on 2" in w.agent.log(), "a placement that is refused")


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

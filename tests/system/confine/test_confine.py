# SPDX-License-Identifier: Apache-2.0
"""Code that runs inside a confined worker gets nowhere, and what worker list says about workers is so."""
import errno
import os
import pwd
import stat
import tempfile

import harness
from confined import check_worker, confined_agent, need_root, probe_folder, status_of, worker_of

# Refused by the filter; clone3 answers as a kernel without it would, so that libraries use clone.
EXPECTED = {"clone3": errno.ENOSYS}
# Without the filter's help: the kernel's own answer to a process without rights.
BY_RIGHTS = {"open_memory": (errno.EACCES, errno.EPERM), "open_agent_memory": (errno.EACCES, errno.EPERM)}


def try_to_escape(t, agent):
    """Runs kernel escape while a victim of the same user lives; checks every answer."""
    victim = harness.Guest(["sleep", "600"])
    agent_pid = agent.agent_pid()
    guest = agent.guest("red", [harness.program("confine-guest"), "escape", agent_pid, victim.pid])
    answers = {}
    while True:
        line = guest.read_line()
        t.true(line is not None, f"the guest ended: {guest.lines[-3:]}")
        if line == "still serving":
            break
        name, _, number = line.rpartition(" ")
        t.true(name and number.isdigit(), f"the guest said: {line}")
        answers[name] = int(number)
    t.true(len(answers) > 40, f"only {len(answers)} attempts")
    for name, seen in answers.items():
        allowed = BY_RIGHTS.get(name, (EXPECTED.get(name, errno.EPERM),))
        t.true(seen in allowed, f"{name}: errno {seen} {os.strerror(seen) if seen else '(it worked)'}")
    t.equal(agent.agent_pid(), agent_pid, "the agent lives")
    t.true(harness.alive(victim.pid), "the victim lives")
    worker = worker_of(agent, guest.pid)
    return guest, worker


def test_code_in_a_worker_can_leave_in_no_way_and_the_worker_goes_on(t):
    with confined_agent() as agent:
        guest, worker = try_to_escape(t, agent)
        check_worker(t, worker)
        t.true("seccomp" in worker["confined"], f"no filter: {worker['unconfined']}")
        guest.process.stdin.close()
        t.equal(guest.wait(), 0)


def test_a_worker_of_another_user_is_that_user_and_can_leave_in_no_way(t):
    need_root()
    user = pwd.getpwnam("nobody")
    with confined_agent(worker_user="nobody") as agent:
        guest, worker = try_to_escape(t, agent)
        check_worker(t, worker)
        t.true("uid" in worker["confined"], f"{worker['unconfined']}")
        ids = status_of(worker["pid"])
        t.equal(ids["Uid"].split(), [str(user.pw_uid)] * 4, "user")
        t.equal(ids["Gid"].split(), [str(user.pw_gid)] * 4, "group")
        t.equal(ids["Groups"].split(), [], "supplementary groups")
        guest.process.stdin.close()
        t.equal(guest.wait(), 0)


def test_worker_user_takes_numbers_and_a_group_and_refuses_root(t):
    with harness.Agent(start=False) as agent:
        for value, code in (("64321:64322", 0), ("none", 0), ("auto", 0), ("root", 2), ("0", 2),
                            ("nosuchuser-at-all", 2), ("nobody:nosuchgroup-at-all", 2)):
            agent.sections["agent"]["worker_user"] = value
            agent.write_config()
            ended = harness.run(agent.argv() + ["--check-config"])
            t.equal(ended.code == 0, code == 0, f"worker_user = {value}: {ended}")


def test_a_worker_sees_no_network_but_its_own_loopback(t):
    with confined_agent() as agent:
        guest = agent.guest("red", [harness.program("confine-guest"), "hold"])
        guest.read_until("session")
        worker = worker_of(agent, guest.pid)
        if "netns" not in worker["confined"]:
            t.skip("; ".join(line for line in worker["unconfined"] if line.startswith("netns")))
        with open(f"/proc/{worker['pid']}/net/dev", encoding="ascii") as text:
            names = [line.split(":")[0].strip() for line in text if ":" in line]
        t.true(set(names) <= {"lo"}, f"interfaces {names}")


def test_confine_off_is_told_as_it_is(t):
    with confined_agent(confine="no") as agent:
        guest = agent.guest("red", [harness.program("confine-guest"), "hold"])
        guest.read_until("session")
        worker = worker_of(agent, guest.pid)
        for name in ("seccomp", "netns", "caps", "uid", "nodump"):
            t.true(name not in worker["confined"], f"{name} is claimed")
        t.equal(status_of(worker["pid"])["Seccomp"].strip(), "0")


def test_a_module_that_comes_later_is_loaded_under_the_filter(t):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        dirs = [path for path in harness.module_dirs() if path != probe_folder()] + [folder]
        with harness.Agent(agent={"module_dirs": ":".join(dirs)}) as agent:
            guest = agent.guest("red", [harness.program("confine-guest"), "hold"])
            guest.read_until("session")
            for name in ("probe-kernels.so", "probe.manifest"):
                with open(os.path.join(probe_folder(), name), "rb") as src, \
                        open(os.path.join(folder, name), "wb") as dst:
                    dst.write(src.read())
                    os.fchmod(dst.fileno(), stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
            agent.ctl("kernel", "rescan")
            harness.wait_until(lambda: any(k["name"] == "escape" for k in agent.ctl_json("kernel", "list")["kernels"]),
                               "the new kernel is listed")
            again, _ = try_to_escape(t, agent)
            again.process.stdin.close()
            t.equal(again.wait(), 0)


harness.main(globals())

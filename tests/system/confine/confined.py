# SPDX-License-Identifier: Apache-2.0
"""A gantryd whose workers find the probing kernels, and what the kernel says of a worker."""
import os

import harness


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as text:
        return dict(line.rstrip("\n").split(":\t", 1) for line in text)


def limits_of(pid):
    with open(f"/proc/{pid}/limits", encoding="ascii") as text:
        return text.read()


def worker_of(agent, guest_pid):
    session = next(s for s in agent.sessions() if s["pid"] == guest_pid)
    return next(w for w in agent.workers() if w["pid"] == session["worker_pid"])


def probe_folder():
    return os.path.dirname(harness.program("probe-kernels.so"))


def confined_agent(devices=None, tenants=None, **keys):
    dirs = [path for path in harness.module_dirs() if path != probe_folder()] + [probe_folder()]
    return harness.Agent(devices=devices or {"cpu0": {"cores": 2}}, tenants=tenants,
                         agent=dict(keys, module_dirs=":".join(harness.public_modules(dirs))))


def need_root():
    if os.geteuid() != 0:
        raise harness.Skip("needs root: an ordinary user's workers cannot change users")


def check_worker(t, worker):
    """What the list says, against what the kernel says."""
    pid, held = worker["pid"], worker["confined"]
    status = status_of(pid)
    t.note(f"confined: {', '.join(held)}; not: {'; '.join(worker['unconfined']) or 'nothing'}")
    t.equal("seccomp" in held, status["Seccomp"].strip() == "2", "seccomp")
    t.equal("no_new_privs" in held, status["NoNewPrivs"].strip() == "1", "no_new_privs")
    t.equal("caps" in held, int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0, "caps")
    t.equal("netns" in held, os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"), "netns")
    core = next(line for line in limits_of(pid).splitlines() if line.startswith("Max core file size"))
    t.equal("nodump" in held, core.split()[4:6] == ["0", "0"], "no core file")
    # /proc files of a process that is not dumpable are root's.
    if "uid" in held:
        t.equal(os.stat(f"/proc/{pid}/environ").st_uid, 0, "not dumpable")
    t.equal("uid" in held, os.geteuid() == 0 and status["Uid"].split()[1] != "0", "uid")
    for name in ("seccomp", "no_new_privs", "caps", "netns", "nodump", "uid"):
        missing = [line for line in worker["unconfined"] if line.startswith(name + ":")]
        t.true((name in held) != bool(missing) or (name == "uid" and os.geteuid() != 0),
               f"{name} is neither held nor missing, or both")

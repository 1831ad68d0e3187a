# SPDX-License-Identifier: Apache-2.0
"""Guests in containers that have nothing of the host but the folder of a door: runc, and podman with CDI and flags.

The root file system is made here: busybox, a guest program with its C library, and libgantry. What a machine lacks, a
tool or a permission, is named and the tests that need it are skipped.
"""
import atexit
import functools
import os
import pathlib
import re
import shutil
import stat

import containers
import harness

MIB = 1 << 20
TENANTS = {"red": {"mem": "64M", "virtual": "64M", "door_mode": "0666"}, "blue": {"mem": "64M", "door_mode": "0666"}}


# --- the root file system -----------------------------------------------------------------------------

@functools.lru_cache(None)
def root_fs():
    """Made once. Holds no configuration, no device, nothing of the host's /run."""
    root = containers.Root()
    root.add_program(harness.program("container-guest"), "/bin/guest")
    return root.path


def agent_with_doors():
    return harness.Agent(devices={"cpu0": {}}, tenants=TENANTS)


def library():
    return os.path.join(harness.library_dir(), "libgantry.so.0")


# --- runc ---------------------------------------------------------------------------------------------

class Runc(containers.Runc):
    def __init__(self, agent, root=None):
        super().__init__(agent, root or root_fs(), library=library())


# --- podman -------------------------------------------------------------------------------------------

class Podman:
    """Containers by podman, with storage of its own; each way that is known to work is tried."""

    # podman asks for more descriptors than a confined root may give; newer kernels and crun want unified cgroups.
    WAYS = [["--runtime", "runc"], [], ["--cgroup-manager", "cgroupfs"], ["--runtime", "runc", "--cgroup-manager",
                                                                      "cgroupfs"]]
    LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]

    def __init__(self, agent, root=None):
        if not shutil.which("podman"):
            raise harness.Skip("no podman")
        self.agent = agent
        self.root = root or root_fs()
        self.folder = str(agent.root / "podman")
        self.way, self.last = self.find_way()

    def find_way(self):
        reason = "?"
        for way in self.WAYS:
            ended = harness.run(self.base(way) + ["--rootfs", self.root, "/bin/true"], timeout=60)
            if ended.code == 0:
                return way, None
            reason = (ended.err.strip().splitlines() or ["no reason given"])[-1][:160]
        raise harness.Skip("podman cannot start containers here: " + reason)

    def base(self, way):
        return ["podman", "--root", self.folder + "/root", "--runroot", self.folder + "/run", "--storage-driver", "vfs",
                "--events-backend", "none", *way, "run", "--rm", "--network", "none", "--log-driver", "none",
                *self.LIMITS]

    def with_flags(self, tenant, command):
        flags = self.agent.ctl("cdi", "generate", "--tenant", tenant, "--library", library(),
                               "--print-flags", "podman").out.split()
        return self.base(self.way) + flags + ["--rootfs", self.root, *command]

    def with_cdi(self, tenant, command):
        """/etc/cdi is ours in a mount namespace: the host's is not touched, beyond an empty folder made for it."""
        specs = str(self.agent.root / "cdi")
        ended = self.agent.ctl("cdi", "generate", "--library", library(), "--output", specs)
        if ended.code != 0:
            raise harness.Failure(f"cdi generate: {ended}")
        if not os.path.isdir("/etc/cdi"):
            os.mkdir("/etc/cdi")
            atexit.register(os.rmdir, "/etc/cdi")
        argv = self.base(self.way) + ["--device", f"gantry.internal/tenant={tenant}", "--rootfs", self.root, *command]
        return ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/cdi && exec "$@"', specs, *argv]


# --- tests --------------------------------------------------------------------------------------------

def check_work(t, argv):
    ended = harness.run(argv, timeout=90)
    t.code(ended, 0)
    t.contains(ended.out, "worked session=")


def test_runc_guest_works(t):
    containers.need_root()
    with agent_with_doors() as agent:
        check_work(t, Runc(agent).argv("red", ["/bin/guest", "work"]))


def test_podman_guest_works_with_flags(t):
    containers.need_root()
    with agent_with_doors() as agent:
        check_work(t, Podman(agent).with_flags("red", ["/bin/guest", "work"]))


def test_podman_guest_works_with_cdi(t):
    containers.need_root()
    with agent_with_doors() as agent:
        podman = Podman(agent)
        probe = harness.run(["unshare", "-m", "true"])
        if probe.code != 0:
            t.skip("no mount namespace: " + probe.err.strip())
        check_work(t, podman.with_cdi("red", ["/bin/guest", "work"]))


def test_libraries_of_cuda_take_the_place_of_those_in_wheels(t):
    """In a container whose image has PyTorch's wheels, which name the folders of NVIDIA's themselves."""
    containers.need_root()
    with agent_with_doors() as agent:
        ours = agent.root / "cuda"
        ours.mkdir()
        for name in ("libcuda.so.1", "libcublas.so.13", "libcudnn.so.9", "libnvrtc.so.13", "libgantry-cudalibs.so.0"):
            (ours / name).write_text("ours\n")
        wheel = pathlib.Path(root_fs(), "app/nvidia/cu13/lib")
        wheel.mkdir(parents=True)
        for name in ("libcublas.so.13", "libnvrtc.so.13"):
            (wheel / name).write_text("NVIDIA's\n")
        runc = Runc(agent)
        runc.more = ["--cuda", str(ours), "--wheels", "/app"]
        script = "env; cd /app/nvidia; cat cu13/lib/libcublas.so.13 cudnn/lib/libcudnn.so.9 cu13/lib/libnvrtc.so.13; ls /usr/lib/gantry/cuda"
        ended = harness.run(runc.argv("red", ["/bin/sh", "-c", script]))
        t.code(ended, 0)
        lines = ended.out.splitlines()
        t.true("LD_LIBRARY_PATH=/usr/lib/gantry/cuda" in lines, ended.out)
        t.equal([line for line in lines if line in ("ours", "NVIDIA's")], ["ours", "ours", "NVIDIA's"])
        t.equal(lines[-5:], sorted(os.listdir(ours)))


def test_container_sees_one_door_and_no_device(t):
    containers.need_root()
    with agent_with_doors() as agent:
        runc = Runc(agent)
        ended = harness.run(runc.argv("red", ["/bin/sh", "-c", "ls /run/gantry; echo --; ls /dev; echo --; env"]))
        t.code(ended, 0)
        door, devices, environment = ended.out.split("--\n")
        t.equal(door.split(), ["door"])
        t.true(not [name for name in devices.split() if re.match(r"nvidia|kfd|dri|xdma", name)], devices)
        t.contains(environment, "GANTRY_DOOR=unix:/run/gantry/door")
        t.true(stat.S_ISSOCK(os.stat(agent.door("red")).st_mode))


def test_container_cannot_change_the_door_folder(t):
    containers.need_root()
    with agent_with_doors() as agent:
        ended = harness.run(Runc(agent).argv("red", ["/bin/sh", "-c", "echo x >/run/gantry/y; ls /run/gantry"]))
        t.contains(ended.err + ended.out, "Read-only")
        t.true(not os.path.exists(os.path.join(os.path.dirname(agent.door("red")), "y")))


def test_session_is_its_tenants_whatever_it_says(t):
    containers.need_root()
    with agent_with_doors() as agent:
        runc = Runc(agent)
        guest = harness.Guest(runc.argv("blue", ["/bin/guest", "loop"]))
        guest.read_until("ready")
        sessions = agent.sessions()
        t.equal([session["tenant"] for session in sessions], ["blue"])
        t.true(sessions[0]["pid"] in harness.descendants(os.getpid()), "the pid is not the host's")
        runc.kill()
        guest.wait()


def test_request_over_limit_is_refused_inside(t):
    containers.need_root()
    with agent_with_doors() as agent:
        runc = Runc(agent)
        t.code(harness.run(runc.argv("red", ["/bin/guest", "greedy", str(65 * MIB)])), 0)
        check_work(t, runc.argv("red", ["/bin/guest", "work"]))


def test_killed_container_leaves_nothing_and_others_go_on(t):
    containers.need_root()
    with agent_with_doors() as agent:
        victim, other = Runc(agent), Runc(agent)
        other.count = 100
        dying = harness.Guest(victim.argv("red", ["/bin/guest", "loop"]))
        living = harness.Guest(other.argv("blue", ["/bin/guest", "loop"]))
        dying.read_until("ready")
        living.read_until("ready")
        t.code(victim.kill(), 0)
        dying.wait()
        harness.wait_until(lambda: [s["tenant"] for s in agent.sessions()] == ["blue"], "red's session ends")
        before = agent.sessions()[0]["tasks_finished"]
        harness.wait_until(lambda: agent.sessions()[0]["tasks_finished"] > before, "blue's tasks go on")
        t.equal(agent.ctl_json("tenant", "show", "red")["tenant"]["mem_used"], 0, "memory that red still holds")
        other.kill()
        living.wait()


def test_agent_restart_reaches_a_running_container(t):
    containers.need_root()
    with agent_with_doors() as agent:
        runc = Runc(agent)
        sleeper = harness.Guest(runc.argv("red", ["/bin/sh", "-c", "echo ready; sleep 1000"]))
        sleeper.read_until("ready")
        check_work(t, runc.exec_argv(["/bin/guest", "work"]))
        old = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.ctl("--timeout", "2s", "version").code == 0 and agent.agent_pid() != old,
                           "another agent answers")
        check_work(t, runc.exec_argv(["/bin/guest", "work"]))
        runc.kill()
        sleeper.wait()


if __name__ == "__main__":
    harness.main(globals(), limit_s=150)

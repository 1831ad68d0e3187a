# SPDX-License-Identifier: Apache-2.0
"""The agent's own AF_VSOCK listener, where a machine's CID is its tenant.

Whether the kernel of this host can listen so is another matter; the guest's can. So gantryd runs inside the guest, and
its guests are programs of this host: vhost-vsock brings them in as the machines with this CID or that.
"""
import contextlib
import os

import harness
import puppet
import streamproxy
import vm
import vsock_device

RED, STRANGER, GANTRYD = 43, 44, 42
FOLDER = "/run/gantry"
CONFIG = f"""[agent]
admin = {FOLDER}/admin.sock
module_dirs = /opt/modules
warm_workers = 1
vsock_port = {vsock_device.PORT}

[device cpu0]
backend = cpu
cores = 1
mem = 256M

[tenant red]
mem = 64M
devices = all
vsock_cid = {RED}
"""
CHAIN_S = 180
E_DENIED = -105


def modules():
    """{there: here} of the modules core and test, by their manifests."""
    found = {}
    for folder in harness.module_dirs():
        for name in os.listdir(folder):
            if name in ("core.manifest", "test.manifest") or (name.endswith(".so") and name[:4] in ("core", "test")):
                found["opt/modules/" + name] = os.path.join(folder, name)
    return found


class Host:
    """The gantryd inside the machine, for what asks one of this host."""

    def __init__(self, machine):
        self.machine = machine
        machine.do(f"mkdir -p {FOLDER} /var/lib/gantry")
        machine.put("/etc/gantry.conf", CONFIG.encode())
        self.daemon = machine.start(["gantryd", "--config", "/etc/gantry.conf", "--run-dir", FOLDER, "--state-dir",
                                     "/var/lib/gantry", "--worker", "/bin/gantry-worker"])
        harness.wait_until(lambda: self.ctl("version").code == 0 or self.ended(), "gantryd in the machine answers")

    def ended(self):
        if self.daemon.ended:
            raise harness.Failure(f"gantryd in the machine ended: {self.daemon.out.decode(errors='replace')[-800:]}")

    def ctl(self, *words):
        return self.machine.run(["gantryctl", "--socket", f"{FOLDER}/admin.sock", "--timeout", "20s", *words])

    def ctl_json(self, *words):
        ended = self.ctl("--json", *words)
        if ended.code != 0:
            raise harness.Failure(f"gantryctl {' '.join(words)}: {ended}")
        return ended.json()

    def wait_other(self, old):
        """Until an agent answers that is not the process @old."""
        harness.wait_until(lambda: self.ctl("version").code == 0 and self.ctl_json("version")["agent"]["pid"] != old,
                           "another agent answers")

    def sessions(self):
        return self.ctl_json("session", "list")["sessions"]


def guest(door):
    """A program of this host, at a door of vhost-vsock's."""
    env = dict(os.environ, GANTRY_DOOR="stream:" + door, LD_LIBRARY_PATH=harness.library_dir())
    return harness.Guest([harness.program("puppet-guest")], env=env)


def run_chain(one, steps, so_far):
    one.do(f"chain 0 {steps} 0", CHAIN_S)
    seen, wanted = float(one.do("value 0", CHAIN_S)[0]), so_far + puppet.chain_value(steps)
    if seen != wanted:
        raise harness.Failure(f"the chain came to {seen}, not to {wanted}")
    return wanted


def test_machines_come_in_by_their_cid(t):
    programs = ["gantryd", "gantry-worker", "gantry-relay", "gantryctl", "puppet-guest"]
    with vsock_device.folder() as place, contextlib.ExitStack() as lines:
        device, red, stranger = (os.path.join(place, name) for name in ("vu", "red", "stranger"))
        behind = vsock_device.backend(device, GANTRYD, f"{red}={RED}:{vsock_device.PORT}",
                                      f"{stranger}={STRANGER}:{vsock_device.PORT}")
        with vm.Vm(programs=programs, files=modules(), memory="768M", shared_memory=True,
                   modules=[*vsock_device.MODULES, "vsock_loopback"], devices=vsock_device.words(device)) as machine:
            host = Host(machine)
            line = lines.enter_context(streamproxy.Proxy(os.path.join(place, "line"), red))
            one = puppet.Puppet(None, None, guest=guest(line.path))
            value = run_chain(one, 60, 0)
            session, = host.sessions()
            t.equal((session["tenant"], session["door"]), ("red", "vsock"))

            # An agent that dies, and a worker: the stream and its session go on.
            machine.do(f"kill -9 {session['worker_pid']}")
            value = run_chain(one, 60, value)
            old = host.ctl_json("version")["agent"]["pid"]
            machine.do(f"kill -9 {old}")
            value = run_chain(one, 60, value)
            host.wait_other(old)
            t.equal([row["session_id"] for row in host.sessions()], [session["session_id"]])

            # The same, with the connection lost while nobody listens: who comes back with its nonce goes on where it was,
            # and what ran does not run again.
            one.start("chain 0 400 20000")
            old = host.ctl_json("version")["agent"]["pid"]
            machine.do(f"kill -9 {old}")
            line.break_now()
            one.finish("chain", CHAIN_S)
            value += puppet.chain_value(400)
            t.equal(float(one.do("value 0", CHAIN_S)[0]), value, "each step once")
            t.true(line.connections >= 2, f"{line.connections} connections")
            host.wait_other(old)
            again, = host.sessions()
            t.equal((again["session_id"], again["door"]), (session["session_id"], "vsock"))
            t.equal(one.do("stats", CHAIN_S)[1], "0")
            value = run_chain(one, 60, value)

            # The kernel says which machine it is; nobody is another one, and the host's own CID is nobody's.
            for where in (stranger, None):
                program = guest(where) if where else machine.start(["puppet-guest"], env={"GANTRY_DOOR": "vsock:1"})
                told = puppet.Puppet(None, None, open_with=None, guest=program).fails("open", E_DENIED)
                t.contains(told, "no tenant's")
            one.do("close")
            harness.wait_until(lambda: not host.sessions(), "the session ends")
            t.true(puppet.Puppet(None, None, guest=guest(red)).session > 0, "the next agent's listener lets red in")
        behind.end()


if __name__ == "__main__":
    harness.main(globals(), limit_s=600)

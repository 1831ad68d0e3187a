# SPDX-License-Identifier: Apache-2.0
"""Guests of virtual machines over real AF_VSOCK: QEMU's vhost-user-vsock device, with vhost-vsock behind it."""
import contextlib
import os
import shutil
import signal
import tempfile

import harness
import puppet
import vm

PORT = 5710
MODULES = ["vmw_vsock_virtio_transport"]


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="gv-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def machine(place, cid, ports, programs=("puppet-guest",), **options):
    """A machine with that CID; its connections to each port of the host go to a Unix stream socket."""
    path = os.path.join(place, f"vu{cid}")
    backend = harness.Guest([harness.program("vhost-vsock"), path, cid] +
                            [f"{port}={target}" for port, target in ports.items()])
    try:
        backend.read_until("ready")
        with vm.Vm(programs=list(programs), modules=MODULES, shared_memory=True,
                   devices=["-chardev", f"socket,id=vu,path={path}", "-device", "vhost-user-vsock-pci,chardev=vu"],
                   **options) as made:
            made.backend = backend
            yield made
    finally:
        backend.end()


def guest_of(agent, made, user="guest", door="vsock:"):
    program = made.start(["puppet-guest"], env={"GANTRY_DOOR": door}, user=user)
    return puppet.Puppet(agent, None, guest=program)


def run_chain(guest, steps, so_far=0):
    """Returns the value that the chain has to have next time."""
    guest.do(f"chain 0 {steps} 0", 120)
    wanted = so_far + puppet.chain_value(steps)
    seen = float(guest.do("value 0", 120)[0])
    if seen != wanted:
        raise harness.Failure(f"the chain came to {seen}, not to {wanted}")
    return wanted


def test_ordinary_user_of_a_guest_works_over_vsock(t):
    with folder() as place:
        path = os.path.join(place, f"v_{PORT}")
        with harness.Agent(tenants={"red": {"vsock_path": path}}) as agent, machine(place, 42, {PORT: path}) as made:
            guest = guest_of(agent, made)
            value = run_chain(guest, 60)
            t.equal(agent.sessions()[0]["door"], "stream")
            agent.kill_worker(agent.sessions()[0]["worker_pid"])
            value = run_chain(guest, 60, value)
            old = agent.agent_pid()
            agent.kill_agent()
            value = run_chain(guest, 60, value)
            agent.wait_ready()
            t.true(agent.agent_pid() != old, "another agent")
            for _ in range(3):
                guest.start("chain 0 400 0")
                made.backend.kill(signal.SIGUSR1)  # as a migration of the machine resets its connections
                guest.finish(timeout=120)
                value += puppet.chain_value(400)
                t.equal(float(guest.do("value 0", 120)[0]), value)
            t.contains(agent.log(), "session-reconnected")
            guest.do("close")
            harness.wait_until(lambda: not agent.sessions(), "the session's end")
            t.equal(guest_of(agent, made, door=f"vsock:2:{PORT}").session > 0, True)
            wrong = made.start(["puppet-guest"], env={"GANTRY_DOOR": "vsock:2:9"}, user="guest")
            puppet.Puppet(agent, None, open_with=None, guest=wrong).fails("open", -103)


def test_two_machines_of_two_tenants_work_side_by_side_and_one_is_reset(t):
    with folder() as place:
        red, blue = (os.path.join(place, name) for name in ("red", "blue"))
        tenants = {"red": {"vsock_path": red}, "blue": {"vsock_path": blue}}
        with harness.Agent(tenants=tenants, agent={"vsock_grace": "1s"}) as agent, \
                machine(place, 42, {PORT: red}) as one, machine(place, 43, {PORT: blue}) as other:
            first, second = guest_of(agent, one), guest_of(agent, other)
            t.equal(sorted(session["tenant"] for session in agent.sessions()), ["blue", "red"])
            first.start("chain 0 600 0")
            second.start("chain 0 600 0")
            first.finish(timeout=120)
            second.finish(timeout=120)
            t.equal(float(first.do("value 0", 120)[0]), puppet.chain_value(600))
            t.equal(float(second.do("value 0", 120)[0]), puppet.chain_value(600))
            one.reset()
            run_chain(second, 60, puppet.chain_value(600))
            harness.wait_until(lambda: len(agent.sessions()) == 1, "the end of the session of the machine that was reset")
            run_chain(guest_of(agent, one), 60)


if __name__ == "__main__":
    harness.main(globals(), limit_s=200)

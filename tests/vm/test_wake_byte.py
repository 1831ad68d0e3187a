# SPDX-License-Identifier: Apache-2.0
"""Programs inside a machine that are woken through a virtio-serial port, which gantryctl vm args puts beside the device."""
import contextlib
import shlex

import doors
import harness
import libvirtd
import vm

PERMIT_PORTS = """for port in /sys/class/virtio-ports/*; do
    if grep -q '^org.gantry.wake' $port/name; then
        chgrp gantry /dev/${port##*/} && chmod 660 /dev/${port##*/}
    fi
done"""


@contextlib.contextmanager
def machine_with_port(agent):
    """As an administrator starts it who types what is printed."""
    words = shlex.split(agent.ctl("vm", "args", "red").out)
    with vm.Vm(programs=doors.PROGRAMS, devices=words) as machine:
        machine.do("sed -i /^gantry:/d /etc/group; echo gantry:x:900:guest >>/etc/group")
        for address in machine.pci(device="1110"):
            doors.permit(machine, address)
        machine.do(PERMIT_PORTS)    # what udev would do
        yield machine


def wakeups(agent):
    return sorted(session["wakeup"] for session in agent.sessions())


def run(guest, n):
    for _ in range(n):
        guest.ask("run q t spin 1 60000000")
        guest.ask("wait t 60000")


def wakes(agent):
    return sum(m["value"] for m in agent.ctl_json("stats")["metrics"] if m["name"] == "gantry_tenant_wakeups_total")


def test_program_of_an_ordinary_user_is_woken_by_bytes(t):
    with doors.agent() as agent, machine_with_port(agent) as machine:
        guest = doors.Inside(machine).scripted()
        t.equal(wakeups(agent), ["port"])
        t.contains(machine.do("gantry-guest", user="guest"), "woken by a byte")
        guest.ask("queue q")
        before = wakes(agent)
        run(guest, 12)
        t.note(f"{wakes(agent) - before:.0f} bytes for 12 waits")
        t.true(wakes(agent) - before >= 3, "tasks that take long are waited for asleep")
        agent.kill_agent()
        run(guest, 5)
        agent.wait_ready()
        t.equal(wakeups(agent), ["port"], "the next agent knows")
        guest.ask("close")


def test_programs_without_a_port_are_woken_over_vsock(t):
    with doors.agent() as agent, doors.Machine(agent, "red", 42) as machine:
        inside = doors.Inside(machine)
        guests = [inside.scripted(), inside.scripted()]
        t.equal(wakeups(agent), ["vsock", "vsock"], "each has a stream of its own")
        t.contains(machine.do("gantry-guest", user="guest"), "woken by a byte")
        before = wakes(agent)
        for guest in guests:
            guest.ask("queue q")
            run(guest, 6)
        t.note(f"{wakes(agent) - before:.0f} bytes for 12 waits")
        t.true(wakes(agent) - before >= 6, "tasks that take long are waited for asleep")
        agent.kill_agent()
        run(guests[0], 3)
        agent.wait_ready()
        t.equal(wakeups(agent), ["vsock", "vsock"], "the next agent knows")
        # Without the device there is nothing that wakes: they poll, and go on.
        machine.unplug("vsock:")
        for guest in guests:
            run(guest, 3)
        late = inside.scripted()
        harness.wait_until(lambda: wakeups(agent) == ["poll"] * 3, "who comes then polls, too")
        for guest in [*guests, late]:
            guest.ask("close")


def test_port_is_one_programs_at_a_time(t):
    with doors.agent() as agent, machine_with_port(agent) as machine:
        inside = doors.Inside(machine)
        first = inside.scripted()
        second = inside.scripted()
        t.equal(wakeups(agent), ["poll", "port"], "the second polls")
        for guest in (first, second):
            guest.ask("queue q")
            run(guest, 3)
        first.kill()
        first.process.wait()
        third = inside.scripted()
        harness.wait_until(lambda: wakeups(agent) == ["poll", "port"], "the third has the dead one's")
        third.ask("queue q")
        run(third, 3)
        third.ask("close")
        second.ask("close")


def test_libvirt_plugs_the_port_in_and_out(t):
    if not harness.find_in_build("gantry-vm", lambda path: True):
        raise harness.Skip("the build has no gantry-vm (packages libvirt-dev, libxml2-dev)")
    with contextlib.closing(libvirtd.Libvirtd()) as daemon, doors.agent() as agent:

        def ctl(*words):
            ended = harness.run([harness.program("gantryctl"), "--socket", agent.admin, "--timeout", "20s", "vm", *words,
                                 "--connect", daemon.uri], timeout=90)
            t.code(ended, 0)
            return ended.out

        machine = daemon.machine("guest", programs=["puppet-guest"]).start()
        try:
            for _ in range(2):
                t.contains(ctl("attach", "guest", "--tenant", "red"), "a port to wake its programs")
                t.contains(machine.xml(), "org.gantry.wake.red")
                guest = machine.port.start(["puppet-guest"], env={"GANTRY_DOOR": "ivshmem:"})
                guest.write_line("open")
                t.contains(guest.read_line(), "ok ")
                t.equal(wakeups(agent), ["port"])
                ctl("detach", "guest", "--drain", "200ms")
                t.true("org.gantry.wake" not in machine.xml(), "the port is out, too")
                guest.end()
        finally:
            machine.remove()


if __name__ == "__main__":
    harness.main(globals(), limit_s=300)

# SPDX-License-Identifier: Apache-2.0
"""gantryctl vm migrate with the device in the machine: its programs do nothing of their own, and notice a pause."""
import json
import os

import harness
import puppet
import shared
import two_hosts
from two_hosts import end_pipeline, hosts, wait_for_work
import failpoints  # of tests/migration, where two_hosts looks  pylint: disable=wrong-import-order

FAILED, USAGE, UNREACHABLE, UNSUPPORTED, TIMEOUT = 1, 2, 5, 8, 124
DOOR = "ivshmem:"


class World(two_hosts.World):
    attached = True

    def __init__(self):
        self.points = failpoints.Points()
        self.env = self.points.env
        super().__init__()

    def restore(self):
        self.points.clear()
        for host in (self.north, self.south):
            harness.wait_until(lambda h=host: not h.agent.sessions(), f"no sessions are left at {host.name}")

    def puppet(self):
        return puppet.Puppet(None, None, guest=self.machine.port.start(["puppet-guest"], env={"GANTRY_DOOR": DOOR}))

    def close(self):
        super().close()
        self.points.close()


WORLD = shared.Shared(World)


def kinds(host):
    return [json.loads(line)["kind"] for line in host.agent.ctl("--json", "events").out.splitlines()]


@two_hosts.emulated
def test_programs_at_the_door_go_there_and_back_and_know_of_nothing(t):
    with WORLD() as world:
        here, there = world.host(), world.other()
        pipeline, guest = world.pipeline(door=DOOR), world.puppet()
        stream = puppet.Puppet(None, None, guest=world.guest("puppet-guest"))  # goes in step, too
        t.equal(hosts.run_chain(stream), puppet.chain_value(40))
        t.equal(hosts.run_chain(guest), puppet.chain_value(40))
        held = guest.do("holds 0")
        wait_for_work(here)
        dry = world.ctl("--dry-run")
        t.code(dry, 0)
        t.contains(dry.out, "would take it, with 3 sessions and 1 doors, which would stay in")
        epoch = here.peer()["epoch"]

        for trip, (source, target) in enumerate(((here, there), (there, here)), 2):
            done = world.go()
            t.equal((done["way"], done["why"], done["sessions"], done["doors"]), ("attached", "", 3, 1))
            t.equal((source.machines(), target.machines()), ([], [two_hosts.NAME]))
            t.equal((source.agent.sessions(), len(target.agent.sessions())), ([], 3))
            t.equal(tuple(target.peer()[key] for key in ("door", "epoch", "guests")), ("open", epoch, 2))
            t.true(0 < done["machine_pause_ns"] < done["libvirt_total_ns"], str(done))
            t.true(0 < done["pause_ns"] < done["libvirt_total_ns"], str(done))
            t.note(f"to {target.name}: sessions stood still for {done['pause_ns'] / 1e6:.0f} ms, the machine for "
                   f"{done['machine_pause_ns'] / 1e6:.0f} ms, {done['libvirt_downtime_ns'] / 1e6:.0f} ms of them libvirt's; "
                   f"libvirt took {done['libvirt_total_ns'] / 1e6:.0f} ms")
            wait_for_work(target)
            guest.do("holds 0 " + " ".join(held))
            t.equal(hosts.run_chain(guest), trip * puppet.chain_value(40))
            held = guest.do("holds 0")
            t.equal(hosts.run_chain(stream), trip * puppet.chain_value(40))
            for kind in ("machine-coming", "session-arrived", "session-seated", "vm-migration-done"):
                t.true(kind in kinds(target), f"{kind} not in {kinds(target)}")

        # Newcomers are served where it is now.
        other = world.puppet()
        t.equal(hosts.run_chain(other), puppet.chain_value(40))
        other.do("close")
        guest.do("close")
        stream.do("close")
        said = end_pipeline(t, pipeline)
        t.note(f"{said['rounds']} rounds of the pipeline, the longest pause between two {said['longest_ms']} ms")


def stays(t, world, ended, code, *parts):
    """It failed with one sentence, and all is where it was and works, with the same program that knows of nothing."""
    t.code(ended, code)
    for part in parts:
        t.contains(ended.err, part)
    here, there = world.host(), world.other()
    t.equal((here.machines(), there.machines()), ([two_hosts.NAME], []))
    t.equal(there.agent.sessions(), [])
    t.equal(len(here.agent.sessions()), 1)
    wait_for_work(here)


@two_hosts.emulated
def test_machine_stays_with_its_sessions_where_a_step_fails(t):
    with WORLD() as world:
        guest = world.pipeline(door=DOOR)
        wait_for_work(world.host())
        t.code(world.ctl("--attached", "--detached"), USAGE)
        stays(t, world, world.ctl("--migrate-uri", "unix:///nonexistent/socket"), FAILED, "move: libvirt:", "all is as it was")
        there = world.other()
        t.code(there.agent.ctl("tenant", "set", "red", "--ivshmem-vectors", "4"), 0)
        stays(t, world, world.ctl(), UNSUPPORTED, "expect:", "8 doorbells", "have 4", "all is as it was")
        t.code(there.agent.ctl("tenant", "set", "red", "--ivshmem-vectors", "8"), 0)
        # Too slow to copy ahead; and then libvirt is.
        stays(t, world, world.ctl("--limit", "1s", "--bandwidth", "64K"), TIMEOUT, "copy:", "not ready", "all is as it was")
        stays(t, world, world.ctl("--limit", "300ms", "--bandwidth", "16M"), TIMEOUT, "--limit", "all is as it was")

        # The mover here ends once the machine stands still: it goes there and comes back, and the session never left.
        here = world.host()
        world.points.arm("send.rest", failpoints.DIE)
        ended = world.ctl()
        world.machine.moved(here.libvirtd)
        stays(t, world, ended, FAILED, "the mover ended", "all is as it was")

        # The machine is there already when the other agent dies before it has taken the session: both come back.
        here, there = world.host(), world.other()
        world.points.arm("in.commit", failpoints.DIE)
        ended = world.ctl()
        world.machine.moved(here.libvirtd)  # into a new QEMU of the same host
        stays(t, world, ended, UNREACHABLE, "seat:", "did not take it", "all is as it was")
        world.points.wait_fired("in.commit")
        harness.wait_until(lambda: there.agent.ctl("--timeout", "2s", "version").code == 0, "another agent answers")

        done = world.go()
        t.equal((done["way"], done["sessions"]), ("attached", 1))
        wait_for_work(world.host())
        end_pipeline(t, guest)


@two_hosts.emulated
def test_agent_here_that_dies_once_the_machine_stands_still_has_another_send_the_sessions_after_it(t):
    """It knew alone of what was copied, and where it is restarted the machine's QEMU has ended."""
    with WORLD() as world:
        guest = world.pipeline(door=DOOR)
        for point in ("out.hold", "out.prepared", "out.offered")[:int(os.environ.get("GANTRY_TEST_POINTS", "2"))]:
            here, there = world.host(), world.other()
            wait_for_work(here)
            world.points.arm(point, failpoints.DIE)
            done = world.go()
            world.points.wait_fired(point)
            t.equal((done["way"], done["sessions"]), ("attached", 1))
            t.equal((here.machines(), here.agent.sessions(), len(there.agent.sessions())), ([], [], 1))
            t.note(f"{point}: sessions stood still for {done['pause_ns'] / 1e6:.0f} ms")
            wait_for_work(there)
        if "GANTRY_TEST_POINTS" in os.environ:  # and with the other one dying, too, all comes back
            here = world.host()
            for point in ("out.hold", "in.commit"):
                world.points.arm(point, failpoints.DIE)
            ended = world.ctl()
            world.machine.moved(here.libvirtd)
            stays(t, world, ended, UNREACHABLE, "seat:", "did not take it", "all is as it was")
        end_pipeline(t, guest)


harness.main(globals(), limit_s=400)

# SPDX-License-Identifier: Apache-2.0
"""gantryctl vm migrate between two libvirtd with an agent each: the machine, its sessions and its door go, or all stays."""
import json
import os
import socket

import harness
import puppet
import shared
import two_hosts
from two_hosts import end_pipeline, hosts, wait_for_work
import failpoints  # of tests/migration, where two_hosts looks  pylint: disable=wrong-import-order

FAILED, USAGE, NOT_FOUND, DENIED, UNREACHABLE, QUOTA, BUSY, UNSUPPORTED, HALF, TIMEOUT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 124
E_DETACHED, E_NO_AGENT = -101, -103


class World(two_hosts.World):
    def __init__(self):
        self.points = failpoints.Points()
        self.env = self.points.env
        super().__init__()

    def close(self):
        super().close()
        self.points.close()

    def restore(self):
        """The machine has no door and no sessions; on which host it is does not matter."""
        self.points.clear()
        for host in (self.north, self.south):
            host.tunnel.hold.clear()
            harness.wait_until(lambda h=host: not h.agent.sessions(), f"no sessions are left at {host.name}")


WORLD = shared.Shared(World)


def stays(t, world, ended, code, *parts):
    """It failed with one sentence, and all is where it was and works."""
    t.code(ended, code)
    t.equal(ended.err.count("\n"), 1, f"lines of {ended.err!r}")
    for part in parts:
        t.contains(ended.err, part)
    t.equal((world.host().machines(), world.other().machines()), ([two_hosts.NAME], []))
    t.equal(world.other().agent.sessions(), [])


def peers(host):
    """How many machines are at the shared-memory door."""
    return int(sum(row["value"] for row in host.agent.ctl_json("stats")["metrics"] if row["name"] == "gantry_tenant_machines"))


def vm(world, *words, host=None):
    host = host or world.host()
    return harness.run([harness.program("gantryctl"), "--socket", host.agent.admin, "--timeout", "60s", "vm", *words,
                        "--connect", host.libvirtd.uri], timeout=120)


@two_hosts.emulated
def test_machine_goes_there_and_back_and_its_pipeline_stays_exact(t):
    with WORLD() as world:
        here, there = world.host(), world.other()
        before = here.metrics(), there.metrics()
        guest = world.pipeline()
        wait_for_work(here)
        dry = world.ctl("--dry-run")
        t.code(dry, 0)
        t.contains(dry.out, "would take it, with 1 sessions and 0 doors")
        t.equal((there.agent.sessions(), len(here.agent.sessions())), ([], 1))

        for source, target in ((here, there), (there, here)):
            done = world.go("--return", "80s")
            t.equal((source.machines(), target.machines()), ([], [two_hosts.NAME]))
            t.equal(source.agent.sessions(), [])
            t.equal((done["sessions"], done["missing"]), (1, 0))
            t.true(0 < done["libvirt_downtime_ns"] < done["libvirt_total_ns"], str(done))
            t.true(done["libvirt_total_ns"] < done["pause_ns"], str(done))
            t.note(f"to {target.name}: sessions stood still for {done['pause_ns'] / 1e6:.0f} ms; libvirt took "
                   f"{done['libvirt_total_ns'] / 1e6:.0f} ms, the machine stood still for {done['libvirt_downtime_ns'] / 1e6:.0f} ms")
            wait_for_work(target)
        said = end_pipeline(t, guest)
        t.note(f"{said['rounds']} rounds of the pipeline, the longest pause between two {said['longest_ms']} ms")

        for host, old in zip((here, there), before):
            new = host.metrics()
            t.equal(new["gantry_vm_migrations_total"] - old["gantry_vm_migrations_total"], 2)
            t.true(new["gantry_vm_migration_pause_seconds"] > new["gantry_vm_migration_downtime_seconds"] > 0)
            kinds = [json.loads(line)["kind"] for line in host.agent.ctl("--json", "events").out.splitlines()]
            for kind in ("vm-migration-begun", "vm-migration-done"):
                t.true(kind in kinds, f"{kind} not in {kinds}")


def test_machine_whose_qemu_would_lose_its_writes_is_told_of(t):
    with WORLD() as world:
        dry = world.ctl("--dry-run", before=["--json"])
        t.code(dry, 0)
        t.equal(dry.json()["caution"], "")  # two_hosts.TRACKED_MEMORY
        lossy = world.host().libvirtd.machine("lossy", boot=False)
        try:
            world.host().libvirtd.must("start", "lossy")
            words = harness.run([lossy.libvirtd.qemu, "--version"]).out.split()
            dry = world.ctl("--dry-run", before=["--json"], domain="lossy")
            t.code(dry, 0)
            if int(words[words.index("version") + 1].split(".")[0]) < 9:
                t.contains(dry.json()["caution"], "without KVM, and may lose what it writes")
                t.contains(world.ctl("--dry-run", domain="lossy").out, "lossy: QEMU")
            else:
                t.equal(dry.json()["caution"], "")
        finally:
            lossy.remove()


@two_hosts.emulated
def test_machine_stays_with_its_sessions_where_a_step_fails(t):
    with WORLD() as world:
        here, there = world.host(), world.other()
        guest = world.pipeline()
        back = here.metrics()["gantry_vm_migrations_back_total"]

        # Known before anything is changed.
        stays(t, world, world.ctl(uri="qemu+unix:///system?socket=/nowhere"), UNREACHABLE, "no libvirt at", "DESTURI")
        stays(t, world, world.ctl(uri=here.libvirtd.uri), BUSY, "runs there already")
        stays(t, world, world.ctl(to_socket="/nowhere"), UNREACHABLE, "no agent at /nowhere")
        stays(t, world, world.ctl(to=f"127.0.0.1:{harness.free_port()}"), UNREACHABLE, "migration_listen")
        stays(t, world, world.ctl(to=f"localhost:{there.agent.port}"), DENIED, "another host's")
        stays(t, world, world.ctl(domain="nobody"), NOT_FOUND, "no domain nobody")
        stays(t, world, world.ctl("--limit", "10m"), USAGE, "vsock_grace")
        stays(t, world, world.ctl("--tenant", "No/Name"), USAGE, "no name of a tenant")
        stays(t, world, world.ctl("--tenant", "nobody"), NOT_FOUND, "no tenant nobody")
        stays(t, world, world.ctl("--attached"), UNSUPPORTED, "no shared-memory device that could stay in")
        stays(t, world, world.ctl("--xml", "/nonexistent"), NOT_FOUND, "/nonexistent")
        wait_for_work(here)
        t.equal(here.metrics()["gantry_vm_migrations_back_total"], back)

        # libvirt refuses: the session has gone by then, and comes back.
        stays(t, world, world.ctl("--migrate-uri", "unix:///nonexistent/socket"), FAILED, "move: libvirt:", "all is as it was")
        wait_for_work(here)
        # libvirt is too slow.
        stays(t, world, world.ctl("--limit", "1ms", "--bandwidth", "16M"), TIMEOUT, "--limit", "all is as it was")
        wait_for_work(here)
        # The door of the machine there leads nowhere: machine and session come back.
        there.tunnel.hold.set()
        stays(t, world, world.ctl("--return", "1s"), TIMEOUT, "did not come back to their sessions", "all is as it was")
        world.machine.moved(here.libvirtd)  # into a new QEMU of the same host
        wait_for_work(here)

        t.equal(here.metrics()["gantry_vm_migrations_back_total"], back + 3)
        kinds = [json.loads(line)["kind"] for line in here.agent.ctl("--json", "events").out.splitlines()]
        t.true("vm-migration-back" in kinds, str(kinds))
        end_pipeline(t, guest)


@two_hosts.emulated
def test_guest_that_takes_its_time_is_told_of_and_comes_later(t):
    with WORLD() as world:
        here, there = world.host(), world.other()
        guest = puppet.Puppet(None, None, guest=world.guest("puppet-guest"))
        value = hosts.run_chain(guest)
        t.equal(value, puppet.chain_value(40))
        there.tunnel.hold.set()
        done = world.go()
        t.equal((done["sessions"], done["missing"]), (1, 1))
        t.contains(done["text"], "1 guests have not come back to theirs yet")
        there.tunnel.hold.clear()
        t.equal(hosts.run_chain(guest), 2 * puppet.chain_value(40))
        guest.do("close")


@two_hosts.emulated
def test_agent_that_dies_while_it_sends_the_sessions_has_another_send_them(t):
    """It knew alone of their migration: the machine does not go without them."""
    with WORLD() as world:
        here, there = world.host(), world.other()
        guest = world.pipeline()
        wait_for_work(here)
        world.points.arm("out.hold", failpoints.DIE)
        done = world.go("--return", "80s")
        world.points.wait_fired("out.hold")
        t.equal((done["sessions"], done["missing"]), (1, 0))
        t.equal((here.agent.sessions(), len(there.agent.sessions())), ([], 1))
        wait_for_work(there)
        end_pipeline(t, guest)


def come_back(world, guest, key, held):
    """The program in the machine takes its session up again, at the door that the machine has now."""
    def adopted():
        try:
            return guest.do(f"adopt {key} 80000", 100)
        except puppet.Refused as refused:
            # The device that was there has gone, or is not there yet.
            if refused.status not in (E_NO_AGENT, E_DETACHED):
                raise
            return False

    harness.wait_until(adopted, "that the session is taken up")
    guest.do("found")
    guest.do("holds 0 " + " ".join(held))
    shown, = world.host().agent.sessions()
    return shown["state"], shown["door"]


@two_hosts.emulated
def test_shared_memory_door_goes_along_with_its_session_or_both_come_back(t):
    with WORLD() as world:
        here, there = world.host(), world.other()
        t.code(vm(world, "attach", two_hosts.NAME, "--tenant", "red"), 0)

        # A program that has asked for no key cannot follow: it is said; with --drain it is asked to leave, and not made to.
        guest = puppet.Puppet(None, None, guest=world.machine.port.start(["puppet-guest"], env={"GANTRY_DOOR": "ivshmem:"}))
        stays(t, world, world.ctl(), UNSUPPORTED, "gantry_session_key()")
        stays(t, world, world.ctl("--drain", "300ms"), BUSY, "1 programs", "--drain more", "all is as it was")
        t.equal(hosts.run_chain(guest), puppet.chain_value(40))
        key, held = guest.do("key")[0], guest.do("holds 0")

        stays(t, world, world.ctl("--limit", "20m"), USAGE, "adoption_grace")
        # libvirt plugs a device in without master.
        stays(t, world, world.ctl("--attached"), UNSUPPORTED, "tenant red cannot stay in", "role='master'")

        # No room at the door there.
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(there.door_socket()))
            harness.wait_until(lambda: peers(there), "another machine at the door")
            stays(t, world, world.ctl(), BUSY, "as many virtual machines")
        harness.wait_until(lambda: not peers(there), "the other has gone")

        # The device finds no place there: session and machine have been there by then, and come back.
        os.rename(there.door_socket(), f"{there.door_socket()}.away")
        stays(t, world, world.ctl(), FAILED, "attach:", "all is as it was")
        os.rename(f"{there.door_socket()}.away", there.door_socket())
        world.machine.moved(here.libvirtd)
        t.equal((peers(here), peers(there)), (1, 0))
        t.equal(come_back(world, guest, key, held), ("attached", "ivshmem"))
        t.equal(hosts.run_chain(guest), 2 * puppet.chain_value(40))

        key, held = guest.do("key")[0], guest.do("holds 0")
        done = world.go()
        t.equal((done["sessions"], done["doors"], done["missing"], done["way"]), (1, 1, 1, "detached"))
        t.contains(done["why"], "role='master'")
        t.equal((peers(here), peers(there), here.agent.sessions()), (0, 1, []))
        t.equal(come_back(world, guest, key, held), ("attached", "ivshmem"))
        t.equal(hosts.run_chain(guest), 3 * puppet.chain_value(40))
        guest.do("close")
        guest.guest.end()
        t.code(vm(world, "detach", two_hosts.NAME), 0)


harness.main(globals(), limit_s=400)

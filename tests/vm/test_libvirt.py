# SPDX-License-Identifier: Apache-2.0
"""gantryctl vm, through a libvirtd of the test's own: into running machines, out of them, and what stands against it."""
import atexit
import functools
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import door_agent
import harness
import leaks
import libvirtd

CYCLES = int(os.environ.get("GANTRY_TEST_CYCLES", "8"))
NOT_FOUND, DENIED, UNREACHABLE, QUOTA, BUSY, UNSUPPORTED, TIMEOUT = 3, 4, 5, 6, 7, 8, 124
HOOK = harness.SOURCE / "deploy" / "libvirt" / "qemu-hook"
PREF64 = ("-global", "pcie-root-port.pref64-reserve=1G")


@functools.lru_cache(None)
def shared_libvirtd():
    """One for all tests, for it asks QEMU much when it starts."""
    daemon = libvirtd.Libvirtd(HOOK)
    atexit.register(daemon.close)
    return daemon


def need_program():
    if not harness.find_in_build("gantry-vm", lambda path: os.access(path, os.X_OK)):
        raise harness.Skip("the build has no gantry-vm (packages libvirt-dev, libxml2-dev)")


class World:
    """A libvirtd and a door; gantryctl speaks to both."""

    def __init__(self, **door):
        need_program()
        self.libvirtd = shared_libvirtd()
        self.folder = tempfile.mkdtemp(prefix="gantry-")
        os.chmod(self.folder, 0o755)
        self.agent = door_agent.Agent(self.folder, **door)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and not issubclass(kind, harness.Skip):
            self.libvirtd.report()
        # A machine that is as it was booted is the next test's, too.
        for machine in list(self.libvirtd.machines.values()):
            if machine.name != "one" or kind is not None or "gantry-red" in machine.xml() + machine.xml("--inactive"):
                machine.remove()
        for name in glob.glob("/dev/shm/filler-[0-9]*"):
            os.unlink(name)
        self.agent.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def one(self, running=True):
        """A guest that has no door, and runs; or does not."""
        machine = self.libvirtd.machines.get("one") or self.libvirtd.machine("one")
        if machine.port and not running:
            machine.end()
        elif running and not machine.port:
            machine.start()
        return machine

    def ctl(self, *words, timeout="20s", before=()):
        argv = [harness.program("gantryctl"), "--socket", self.agent.admin, "--timeout", timeout, *before, "vm", *words]
        return harness.run(argv + ["--connect", self.libvirtd.uri], timeout=90)

    def json(self, *words):
        ended = self.ctl(*words, before=["--json"])
        if ended.code != 0:
            raise harness.Failure(f"vm {' '.join(words)}: {ended}")
        return ended.json()

    def args(self, *words):
        ended = harness.run([harness.program("gantryctl"), "--socket", self.agent.admin, "vm", "args", "red", *words])
        if ended.code != 0:
            raise harness.Failure(f"vm args {' '.join(words)}: {ended}")
        return ended.out

    def row(self, name):
        rows = self.json("show", name)["vms"]
        if len(rows) != 1:
            raise harness.Failure(f"{name} has {len(rows)} rows")
        return rows[0]


def has_no_door(t, machine):
    definition = machine.xml()
    t.true("gantry-red" not in definition and "<shmem name='gantry" not in definition, f"left behind: {definition}")


def refused(t, world, machine, ended, code, *parts):
    """It failed with one sentence, and nothing was left behind."""
    t.code(ended, code)
    t.equal(ended.err.count("\n"), 1, f"lines of {ended.err!r}")
    for part in parts:
        t.contains(ended.err, part)
    t.equal(world.agent.server.peer_pids(), {}, "machines at the door")
    has_no_door(t, machine)


def mappings_of(pid):
    """Of a door's memory."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
        return maps.read().count("gantry-door")


def device_in(machine):
    """The address of the device as the guest has it."""
    find = 'cd /sys/bus/pci/devices; for d in *; do [ "$(cat $d/device)" = 0x1110 ] && echo $d; done; true'
    return machine.do(find).strip()


def test_config_lasts_over_a_start(t):
    with World() as world:
        machine = world.one(running=False)
        off = world.ctl("attach", "one", "--tenant", "red")
        refused(t, world, machine, off, 1, "not running", "--config")
        world.json("attach", "one", "--tenant", "red", "--config")
        row = world.row("one")
        t.equal((row["tenant"], row["in"], row["state"]), ("red", "config", "off"))
        machine.start()
        t.equal(world.row("one")["in"], "live,config")
        t.equal(len(world.agent.server.peer_pids()), 1)
        t.true(int(world.row("one")["address"], 16) > 0)
        detached = world.json("detach", "one")
        t.contains(detached["text"], "--config")
        t.equal(world.row("one")["in"], "config")
        t.code(world.ctl("detach", "one"), NOT_FOUND)
        world.json("detach", "one", "--config")
        refused(t, world, machine, world.ctl("detach", "one"), NOT_FOUND, "has no door")
        world.json("attach", "one", "--tenant", "red", "--config")
        t.equal(world.row("one")["in"], "live,config")
        world.json("detach", "one", "--config")
        t.equal(world.row("one")["tenant"], "")


def test_attach_and_detach_while_the_guest_runs(t):
    with World() as world:
        machine = world.one()
        listed = world.ctl("list")
        t.code(listed, 0)
        t.contains(listed.out, "one")
        t.equal(world.row("one")["tenant"], "")
        t.equal(world.row("one")["largest_bytes"], 64 << 30)

        attached = world.json("attach", "one", "--tenant", "red")
        t.contains(attached["text"], "64M at 0x")
        t.equal(list(world.agent.server.peer_pids().values()), [machine.pid])
        row = world.row("one")
        t.equal((row["tenant"], row["transport"], row["in"], row["door"], row["bytes"], row["guests"]),
                ("red", "ivshmem", "live", "open", 64 << 20, 0))
        t.true(int(row["address"], 16) > 0, row["address"])
        device = device_in(machine)
        t.contains(device, row["pci"])
        t.contains(machine.do(f"head -n 3 /sys/bus/pci/devices/{device}/resource | tail -n 1"), row["address"][2:])

        again = world.ctl("attach", "one", "--tenant", "red")
        t.code(again, BUSY)
        t.contains(again.err, "already")
        t.equal(again.err.count("\n"), 1)
        t.equal(len(world.agent.server.peer_pids()), 1)

        detached = world.json("detach", "one")
        t.equal(detached["left"], 0)
        t.equal(world.agent.server.peer_pids(), {})
        t.equal(world.agent.state, "open")
        asked = [verb for verb, _ in world.agent.asked]
        t.contains(asked, door_agent.DOOR_DRAIN)
        # Its machine is gone; what was drained beside it, or is to come, is none of its business.
        t.true(door_agent.DOOR_OPEN not in asked[asked.index(door_agent.DOOR_DRAIN):], f"a door was opened: {asked}")
        t.equal(world.row("one")["tenant"], "")
        t.true(device not in machine.do("ls /sys/bus/pci/devices"), "the guest still has the device")
        refused(t, world, machine, world.ctl("detach", "one"), NOT_FOUND, "has no door")


def test_size_is_for_one_attachment(t):
    with World() as world:
        machine = world.one()
        world.json("attach", "one", "--tenant", "red", "--size", "16M")
        t.equal(world.row("one")["bytes"], 16 << 20)
        world.json("detach", "one")
        world.json("attach", "one", "--tenant", "red")
        t.equal(world.row("one")["bytes"], 64 << 20)
        world.json("detach", "one")
        for words, code, part in (
                (["--size", "3M"], 2, "power of two"), (["--size", "48M"], 2, "power of two"),
                (["--size", "lots"], 2, "--size lots"), (["--size", "512M"], QUOTA, "ivshmem_size"),
                (["--size", "16M", "--config"], 2, "of this attachment only"),
                (["--transport", "pigeon"], 2, "ivshmem or vsock")):
            refused(t, world, machine, world.ctl("attach", "one", "--tenant", "red", *words), code, part)


def test_cycles_leak_nothing(t):
    with World() as world:
        machine = world.one()
        took, seen = {"attach": [], "detach": []}, None
        held = leaks.Held(qemu=machine.pid, libvirtd=world.libvirtd.pid)
        for number in range(CYCLES):
            attached = world.json("attach", "one", "--tenant", "red")
            detached = world.json("detach", "one")
            took["attach"].append(attached["took_ns"] / 1e6)
            took["detach"].append(detached["took_ns"] / 1e6)
            if number == 1:  # the first ones allocate what stays
                harness.wait_until(lambda: mappings_of(machine.pid) == 0, "no door memory is mapped any more")
                seen = held.at_rest()
        # QEMU lets go of a memory a little after its device.
        harness.wait_until(lambda: mappings_of(machine.pid) == 0, "no door memory is mapped any more")
        held.wait_no_more_than(seen)
        t.equal(world.agent.server.peer_pids(), {})
        has_no_door(t, machine)
        t.equal(device_in(machine), "")
        t.note(f"{CYCLES} cycles: " + ", ".join(f"{name} {min(all_ms):.0f} to {max(all_ms):.0f} ms"
                                               for name, all_ms in took.items()))
        # What others do on the machine makes some of them slow, hardly all. What waits for a limit to pass takes longer.
        for name, all_ms in took.items():
            t.below(min(all_ms), 5000 * float(os.environ.get("GANTRY_TEST_SLOWDOWN", "1")), f"milliseconds to {name}")


test_cycles_leak_nothing.limit_s = 300 + 20 * CYCLES


def test_q35_takes_what_its_root_ports_have_a_window_for(t):
    with World(size=256 << 20) as world:
        narrow = world.libvirtd.machine("narrow", machine="q35", boot=False).start()
        harness.wait_until(lambda: world.row("narrow")["largest_bytes"] == 2 << 20, "the firmware makes its windows")
        refused(t, world, narrow, world.ctl("attach", "narrow", "--tenant", "red"), UNSUPPORTED,
                "root port", "pref64-reserve=256M")
        narrow.end()
        world.libvirtd.machine("wide", machine="q35", options=PREF64).start()
        t.equal(world.row("wide")["largest_bytes"], 1 << 30)
        world.json("attach", "wide", "--tenant", "red")
        row = world.row("wide")
        t.equal(row["bytes"], 256 << 20)
        t.true(int(row["address"], 16) >= 1 << 32, row["address"])
        world.json("detach", "wide")
        t.equal(world.agent.server.peer_pids(), {})


def test_q35_without_a_free_port(t):
    with World() as world:
        full = "".join(f"<shmem name='filler-{bus}'><model type='ivshmem-plain'/><size unit='M'>1</size>"
                       f"<address type='pci' domain='0' bus='{bus}' slot='0' function='0'/></shmem>" for bus in range(1, 6))
        # The port of the machine's own channel takes one more, which libvirt adds.
        machine = world.libvirtd.machine("full", machine="q35", boot=False, devices=full)
        machine.start()
        free = world.ctl("attach", "full", "--tenant", "red")
        refused(t, world, machine, free, free.code, "root port")
        t.true(free.code in (BUSY, UNSUPPORTED), str(free))


def test_pc_without_a_free_slot(t):
    with World() as world:
        full = "".join(f"<shmem name='filler-{slot}'><model type='ivshmem-plain'/><size unit='M'>1</size>"
                       f"<address type='pci' domain='0' bus='0' slot='{slot}' function='0'/></shmem>" for slot in (2, *range(4, 32)))
        machine = world.libvirtd.machine("full", boot=False, devices=full).start()
        refused(t, world, machine, world.ctl("attach", "full", "--tenant", "red"), BUSY, "all slots", "detach a device")


def test_qemu_of_a_user_who_may_not_connect(t):
    harness.need_other_users()
    with World(mode=0o600) as world:
        machine = world.libvirtd.machine("other", boot=False, user=65534).start()
        refused(t, world, machine, world.ctl("attach", "other", "--tenant", "red"), DENIED, "uid 65534", "may not connect",
                world.agent.server.path)
        os.chmod(world.folder, 0o700)
        refused(t, world, machine, world.ctl("attach", "other", "--tenant", "red"), DENIED, "may not enter")


def test_guest_that_knows_no_hot_plug(t):
    with World() as world:
        machine = world.libvirtd.machine("deaf", acpi=False, boot=False).start()
        refused(t, world, machine, world.ctl("attach", "deaf", "--tenant", "red"), UNSUPPORTED, "<acpi/>")
        machine = world.libvirtd.machine("dumb", boot=False).start()
        ended = world.ctl("attach", "dumb", "--tenant", "red", timeout="4s")
        t.code(ended, TIMEOUT)
        t.contains(ended.err, "gave the device no address")
        t.contains(ended.err, "keeps the device until its next start")
        machine.end()
        harness.wait_until(lambda: not world.agent.server.peer_pids(), "the door is free")
        t.equal(world.agent.state, "open")


def test_attach_that_is_interrupted_is_undone(t):
    with World() as world:
        machine = world.libvirtd.machine("dumb", boot=False).start()
        argv = [harness.program("gantryctl"), "--socket", world.agent.admin, "--timeout", "60s", "vm", "attach", "dumb",
                "--tenant", "red", "--connect", world.libvirtd.uri]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as attach:
            harness.wait_until(world.agent.server.peer_pids, "the machine is at the door")
            attach.send_signal(signal.SIGINT)
            said = attach.communicate(timeout=30)[1]
        t.equal(attach.returncode, 1)
        t.contains(said, "interrupted; and it keeps the device")
        # Firmware never lets go; that it was asked, and waited for, is what counts.
        t.contains(said, "does not let the device go")
        t.equal(world.agent.state, "open")
        machine.end()


def test_guest_programs_are_told_first(t):
    with World() as world:
        world.one()
        world.json("attach", "one", "--tenant", "red")
        world.agent.claims = 2
        t.equal(world.json("detach", "one")["left"], 0)
        world.json("attach", "one", "--tenant", "red")
        world.agent.claims, world.agent.leave = 2, False
        before = time.monotonic()
        detached = world.json("detach", "one", "--drain", "300ms")
        t.true(time.monotonic() - before >= 0.3, "it did not wait for the programs")
        t.equal(detached["left"], 2)
        t.contains(detached["text"], "2 programs had not left in time")
        t.code(world.ctl("detach", "one", "--drain", "soon"), 2)


def test_doors_that_cannot_be_had(t):
    with World() as world:
        machine = world.one()

        def attach(*words, tenant="red"):
            return world.ctl("attach", "one", "--tenant", tenant, *words)

        refused(t, world, machine, attach(tenant="blue"), NOT_FOUND, "no tenant blue")
        refused(t, world, machine, attach(tenant="No/Name"), 2, "no name")
        refused(t, world, machine, world.ctl("attach", "one"), 2, "--tenant")
        refused(t, world, machine, world.ctl("attach", "nobody", "--tenant", "red"), NOT_FOUND, "no domain nobody")
        refused(t, world, machine, attach("--transport", "vsock"), DENIED, "--vsock-cid")
        world.agent.right = False
        refused(t, world, machine, attach(), DENIED, "ivshmem = yes")
        world.agent.right = True
        path = world.agent.server.path
        os.rename(path, path + ".away")
        refused(t, world, machine, attach(), NOT_FOUND, path)
        os.mkdir(path)
        refused(t, world, machine, attach(), NOT_FOUND, "no socket")
        os.rmdir(path)
        os.rename(path + ".away", path)
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(path)
            harness.wait_until(world.agent.server.peer_pids, "another machine at the door")
            busy = attach()
            t.code(busy, BUSY)
            t.contains(busy.err, f"QEMU's pid {os.getpid()}")
        harness.wait_until(lambda: not world.agent.server.peer_pids(), "the other has gone")
        world.libvirtd.must("suspend", "one")
        refused(t, world, machine, attach(), BUSY, "virsh resume one")
        world.libvirtd.must("resume", "one")
        gone = harness.run([harness.program("gantryctl"), "--socket", world.folder + "/none", "vm", "attach", "one",
                            "--tenant", "red", "--connect", world.libvirtd.uri])
        refused(t, world, machine, gone, UNREACHABLE, "no agent")
        # After all that it goes.
        world.json("attach", "one", "--tenant", "red")
        world.json("detach", "one")


VHOST_VSOCK = "/dev/vhost-vsock"
# A /dev of its own with the file that says that the kernel could; what it is good for QEMU finds out, which has the real one.
PRETEND = 'mount -t tmpfs none /dev && touch /dev/vhost-vsock && exec "$0" "$@"'


def pretending(world, *words, before=()):
    """gantryctl vm on a machine whose kernel has vhost-vsock, as far as gantryctl sees."""
    argv = [harness.program("gantryctl"), "--socket", world.agent.admin, "--timeout", "20s", *before, "vm", *words,
            "--connect", world.libvirtd.uri]
    return harness.run([*world.libvirtd.unshare(), "sh", "-c", PRETEND, *argv], timeout=90)


def test_vsock_device_is_refused_where_the_kernel_has_none(t):
    if os.path.exists(VHOST_VSOCK):
        t.skip(f"this machine has {VHOST_VSOCK}")
    with World(cid=42) as world:
        machine = world.one()
        attach = ["attach", "one", "--tenant", "red", "--transport", "vsock"]
        refused(t, world, machine, world.ctl(*attach), UNSUPPORTED, VHOST_VSOCK, "modprobe vhost_vsock")
        refused(t, world, machine, world.ctl(*attach, "--size", "16M"), 2, "no shared memory")
        # What gantryctl was told wrongly QEMU knows better: libvirt's words, and nothing stays.
        refused(t, world, machine, pretending(world, *attach), UNSUPPORTED, "attaching", "vhost-vsock")
        world.agent.vsock_state = "closed"
        refused(t, world, machine, pretending(world, *attach), 1, "is closed: no vsock here", "gantryctl doctor")


def test_vsock_device_is_a_definition_that_libvirt_takes(t):
    with World(cid=42) as world:
        machine = world.libvirtd.machine("two", boot=False)
        t.code(pretending(world, "attach", "two", "--tenant", "red", "--transport", "vsock", "--config"), 0)
        definition = machine.xml("--inactive")
        t.contains(definition, "<vsock model='virtio'>")
        t.contains(definition, "<cid auto='no' address='42'/>")
        kept = world.libvirtd.folder / "vsock.xml"
        kept.write_text(definition)
        world.libvirtd.must("define", "--validate", kept)
        row = world.row("two")
        t.equal((row["tenant"], row["transport"], row["in"]), ("red", "vsock", "config"))
        again = pretending(world, "attach", "two", "--tenant", "red", "--transport", "vsock", "--config")
        t.code(again, BUSY)
        t.contains(again.err, "already")
        world.json("detach", "two", "--config")
        t.true("<vsock" not in machine.xml("--inactive"), "it is out")
        # As one types it who goes without gantryctl vm.
        typed = world.libvirtd.folder / "typed.xml"
        typed.write_text(world.args("--transport", "vsock", "--format", "libvirt"))
        world.libvirtd.must("attach-device", "two", typed, "--config")
        t.equal(world.row("two")["transport"], "vsock")
        # One that is no tenant's is in the way.
        world.json("detach", "two", "--config")
        typed.write_text("<vsock model='virtio'><cid auto='no' address='77'/></vsock>")
        world.libvirtd.must("attach-device", "two", typed, "--config")
        other = pretending(world, "attach", "two", "--tenant", "red", "--transport", "vsock", "--config")
        t.code(other, BUSY)
        t.contains(other.err, "with CID 77")


def test_device_of_an_agent_that_is_gone_comes_out(t):
    with World() as world:
        world.one()
        world.json("attach", "one", "--tenant", "red")
        ended = harness.run([harness.program("gantryctl"), "--socket", world.folder + "/none", "vm", "detach", "one",
                             "--connect", world.libvirtd.uri], timeout=60)
        t.code(ended, 0)
        t.equal(world.row("one")["tenant"], "")


def test_program_of_a_guest_comes_in_by_the_agent_itself(t):
    limits = {"ivshmem": "yes", "ivshmem_size": "64M"}
    with World() as world, harness.Agent(tenants={"red": limits, "blue": {}}) as agent:
        machine = world.libvirtd.machine("guest", programs=["puppet-guest"]).start()

        def ctl(*words):
            return harness.run([harness.program("gantryctl"), "--socket", agent.admin, "--timeout", "30s", "vm", *words,
                                "--connect", world.libvirtd.uri], timeout=120)

        def vm(*words):
            ended = ctl(*words)
            t.code(ended, 0)
            return ended.out

        for _ in range(2):
            t.contains(vm("attach", "guest", "--tenant", "red"), "64M at 0x")
            guest = machine.port.start(["puppet-guest"], env={"GANTRY_DOOR": "ivshmem:"})
            guest.write_line("open")
            t.contains(guest.read_line(), "ok ")
            shown = dict(line.split(None, 1) for line in vm("show", "guest").splitlines() if " " in line.strip())
            t.equal((shown["guests"], shown["claims"], shown["door"]), ("1", "1", "open"))
            t.equal(len(agent.sessions()), 1)
            # It stays at the door, so that the agent has to end its session.
            vm("detach", "guest", "--drain", "200ms")
            harness.wait_until(lambda: not agent.sessions(), "the session is over")
            guest.end()
        # The real agent's own refusals, in the words of the list of bad input.
        for words, code, part in ((["--tenant", "nobody"], NOT_FOUND, "no tenant nobody"),
                                  (["--tenant", "blue"], DENIED, "ivshmem = yes"),
                                  (["--tenant", "red", "--size", "128M"], QUOTA, "ivshmem_size"),
                                  (["--tenant", "red", "--size", "24M"], 2, "power of two")):
            refused(t, world, machine, ctl("attach", "guest", *words), code, part)


def test_hook_refuses_a_start_without_its_door(t):
    with World() as world:
        machine = world.libvirtd.machine("two", boot=False)
        world.json("attach", "two", "--tenant", "red", "--config")
        machine.start()
        machine.end()
        # An agent that has stopped: its sockets are there, and nobody answers.
        world.agent.pause()
        before = time.monotonic()
        stuck = world.libvirtd.virsh("start", "two")
        t.true(stuck.code != 0, "it started")
        t.contains(stuck.err, "gantry: two has the door of tenant red")
        t.contains(stuck.err, "no answer in the time given")
        t.below(time.monotonic() - before, 20, "seconds")
        os.unlink(world.agent.server.path)
        gone = world.libvirtd.virsh("start", "two")
        t.true(gone.code != 0, "it started")
        t.contains(gone.err, "is gantryd running?")
        definition = machine.xml("--inactive")
        for operation in ("reconnect", "release", "migrate", "of-the-future"):
            told = subprocess.run([HOOK, "two", operation, "begin", "-"], input=definition, capture_output=True,
                                  text=True, timeout=10, check=False)
            t.equal((told.returncode, told.stdout, told.stderr), (0, "", ""), operation)


def test_examples_are_definitions_that_libvirt_takes(t):
    with World() as world:
        for name, machine in (("pc", "web1"), ("q35", "web2")):
            text = (harness.SOURCE / "deploy" / "libvirt" / f"{name}.xml").read_text().replace("'kvm'", "'qemu'")
            text = text.replace("<cpu mode='host-passthrough'/>", "")
            path = world.libvirtd.folder / f"{name}.xml"
            path.write_text(text)
            world.libvirtd.must("define", path)
            row = world.row(machine)
            t.equal(row["tenant"], "red" if name == "pc" else "")
            world.libvirtd.must("undefine", machine)


def test_libvirt_that_is_not_there(t):
    need_program()
    ended = harness.run([harness.program("gantryctl"), "vm", "list", "--connect", "qemu+unix:///system?socket=/nowhere"])
    t.code(ended, UNREACHABLE)
    t.contains(ended.err, "start libvirtd")
    t.equal(ended.err.count("\n"), 1)


def test_lists_other_drivers_machines(t):
    need_program()
    words = ["--connect", "test:///default"]
    gantryctl = harness.program("gantryctl")
    listed = harness.run([gantryctl, "--json", "vm", "list", *words], timeout=30)
    t.code(listed, 0)
    t.equal([(row["domain"], row["state"], row["tenant"]) for row in listed.json()["vms"]], [("test", "running", "")])
    t.contains(harness.run([gantryctl, "vm", "show", "test", *words]).out, "running")
    t.code(harness.run([gantryctl, "vm", "show", "nobody", *words]), NOT_FOUND)


harness.main(globals(), limit_s=300)

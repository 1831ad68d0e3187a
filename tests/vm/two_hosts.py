# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: each a libvirtd and an agent, and one virtual machine that goes from one to the other.

Its programs reach the agent of the host that it is on by a stream through a virtio-serial port (port-tunnel, tunnel.py).
"""
import functools
import os
import pathlib
import shutil
import sys
import tempfile

import harness
import libvirtd
import tunnel
import vm

sys.path.append(str(harness.SOURCE / "tests" / "migration"))
import hosts  # pylint: disable=wrong-import-position

PHOTO = harness.SOURCE / "demo" / "photo.png"
PROGRAMS = ("photo", "puppet-guest", "port-tunnel")
STREAM_PORT = "org.gantry.stream"
DOOR = "/tmp/door"
TENANT = {"mem": "256M", "virtual": "512M", "heap": "8M", "host_mem": "512M", "ivshmem": "yes", "ivshmem_size": "16M"}
NAME = "traveller"
# QEMU before 9.0 loses writes of a machine that it migrates without KVM: when it takes the bits of pages written, 64 of them at
# a time, it leaves in its processors' tables that those pages need no looking at, and what is written there next is not sent.
# Where a machine's memory is no multiple of 64 pages it takes them one by one, and does both. libvirt rounds to MiB; this overrides it.
TRACKED_BYTES = (256 << 20) + (8 << 10)
TRACKED_MEMORY = ("-object", f"memory-backend-ram,id=tracked,size={TRACKED_BYTES}", "-machine", "memory-backend=tracked",
                  "-m", f"size={TRACKED_BYTES >> 10}k")
MASTER_DOOR = ("<shmem name='gantry-red' role='master'><model type='ivshmem-doorbell'/><server path='{socket}'/>"
               "<msi vectors='8' ioeventfd='on'/><alias name='ua-gantry-red'/>{address}</shmem>")


class Host:
    def __init__(self, name, folder, env=None):
        self.name = name
        stream, port = os.path.join(folder, name), harness.free_port()
        self.agent = harness.Agent(tenants={"red": {"vsock_path": stream, **TENANT}}, agent={
            "migration_listen": f"127.0.0.1:{port}", "migration_name": name, "vsock_grace": "300s",
            "migration_certificates": os.path.join(hosts.certificates(), name)}, env=env)
        self.agent.vsock, self.agent.port = stream, port
        try:
            self.libvirtd = libvirtd.Libvirtd()
        except BaseException:
            self.agent.close()
            raise
        self.tunnel = tunnel.Tunnel(self.libvirtd.ends / f"{NAME}.stream", self.agent.vsock)

    @property
    def address(self):
        return f"127.0.0.1:{self.agent.port}"

    def door_socket(self):
        return self.agent.run_dir / "doors" / "red" / "ivshmem.sock"

    def peer(self):
        """The machine at the shared-memory door, as the agent shows it."""
        return self.agent.ctl_json("vm", "show", NAME, "--connect", self.libvirtd.uri)["vms"][0]

    def machines(self):
        """Names of the machines that run here."""
        return self.libvirtd.must("list", "--name", "--state-running").split()

    def metrics(self):
        return {row["name"]: row["value"] for row in self.agent.ctl_json("stats")["metrics"]}

    def report(self):
        self.libvirtd.report()
        self.agent.report()

    def close(self):
        self.tunnel.close()
        self.libvirtd.close()
        self.agent.close()


ATTEMPTS = 3


def emulated(test):
    """A test that may run again, in a new world, where its machine was reset or ended under it: QEMU 7.2 without KVM did that
    to one in some eighty that libvirt migrated, without any device or program of ours, too, before TRACKED_MEMORY; the shared memory of a
    device is still such. What fails in a machine that runs has failed."""
    @functools.wraps(test)
    def attempts(t):
        for left in reversed(range(ATTEMPTS)):
            World.lost_machine = False
            try:
                return test(t)
            except harness.Failure as failure:
                if not World.lost_machine or not left:
                    raise
                t.note(f"{failure}; the emulated machine was reset or ended: once more")
        return None
    return attempts


class World:
    """.north has the machine at first; .machine is it."""

    lost_machine = False  # as the latest that failed was left
    env = None            # of the agents
    attached = False      # the machine has a shared-memory door from the start, which QEMU migrates
    programs = PROGRAMS
    address = ""          # of that door in the machine, as libvirt has it
    options = {}          # of the machine

    def __init__(self):
        if not harness.find_in_build("gantry-vm", lambda path: os.access(path, os.X_OK)):
            raise harness.Skip("the build has no gantry-vm (packages libvirt-dev, libxml2-dev)")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-2h-"))
        os.chmod(self.folder, 0o755)
        self.north = self.south = None
        self.trips = 0
        try:
            self.north = Host("north", str(self.folder), self.env)
            self.south = Host("south", str(self.folder), self.env)
            self.machine = self.boot()
            self.boot_id = self.ask_boot_id()
        except BaseException as error:
            if not isinstance(error, harness.Skip):
                self.report()
            self.close()
            raise

    def boot(self):
        port = (f"<channel type='unix'><source mode='bind' path='{libvirtd.ENDS}/{NAME}.stream'/>"
                f"<target type='virtio' name='{STREAM_PORT}'/></channel>")
        options = dict(self.options)
        port += options.pop("devices", "").format(run=self.north.agent.run_dir)
        if self.attached:
            port += MASTER_DOOR.format(socket=self.north.door_socket(), address=self.address)
            options["master"] = "ua-gantry-red"
        machine = self.north.libvirtd.machine(NAME, programs=self.programs, files={"opt/photo.png": PHOTO}, devices=port,
                                              options=TRACKED_MEMORY, **options).start()
        device = machine.do(f"cd /sys/class/virtio-ports; for p in *; do [ $(cat $p/name) = {STREAM_PORT} ] && echo $p; done; true")
        inside = machine.port.start(["port-tunnel", "/dev/" + device.strip(), DOOR])
        inside.read_until("ready")
        return machine

    def host(self):
        """Where the machine is, as the test knows."""
        return self.north if self.machine.libvirtd is self.north.libvirtd else self.south

    def other(self):
        return self.south if self.host() is self.north else self.north

    def guest(self, *argv, door="stream:" + DOOR):
        """A program in the machine, at the door that leads to where it is."""
        return self.machine.port.start(argv, env={"GANTRY_DOOR": door})

    def pipeline(self, **options):
        """The image pipeline of the demo, again and again; each result is compared with the first."""
        guest = self.guest("photo", "--loop", "/opt/photo.png", **options)
        guest.read_until("started")
        return guest

    def ctl(self, *words, to=None, to_socket=None, uri=None, domain=NAME, before=(), timeout="60s"):
        """gantryctl vm migrate, from where the machine is to the other host."""
        here, there = self.host(), self.other()
        self.trips += 1
        argv = [harness.program("gantryctl"), "--socket", here.agent.admin, "--timeout", timeout, *before,
                "vm", "migrate", domain, uri or there.libvirtd.uri, "--connect", here.libvirtd.uri,
                "--to", to or there.address, "--to-socket", to_socket or there.agent.admin, "--back", here.address,
                "--tenant", "red", "--migrate-uri", f"unix://{self.folder}/{self.trips}.go",
                "--back-uri", f"unix://{self.folder}/{self.trips}.back"]
        return harness.run(argv + list(words), timeout=240)

    def go(self, *words):
        """It goes; what gantryctl says of it, from --json."""
        target = self.other()
        ended = self.ctl(*words, before=["--json"])
        if ended.code != 0:
            raise harness.Failure(f"vm migrate: {ended}")
        self.machine.moved(target.libvirtd)
        return ended.json()

    def ask_boot_id(self):
        return self.machine.do("cat /proc/sys/kernel/random/boot_id")

    def has_lost_machine(self):
        """It runs nowhere, or has booted again."""
        where = [host for host in (self.north, self.south) if NAME in host.machines()]
        if not where:
            return True
        # The test may have failed before it followed.
        self.machine.port.follow(where[0].libvirtd.ends / f"{NAME}.port")
        for _ in range(2):
            try:
                return self.ask_boot_id() != self.boot_id
            except vm.Lost:
                pass  # the first that is heard of a machine after a reset is that
        return True

    def report(self):
        if hasattr(self, "boot_id"):
            try:
                World.lost_machine = self.has_lost_machine()
            except harness.Failure as why:
                print(f"# whether the machine is the same cannot be said: {why}")
        for host in (self.north, self.south):
            if host:
                host.report()

    def close(self):
        for host in (self.south, self.north):
            if host:
                host.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def tasks(host):
    """Finished, of all sessions at @host."""
    return sum(row["tasks_finished"] for row in host.agent.sessions())


def wait_for_work(host):
    """Until its sessions have finished tasks after this call."""
    before = tasks(host)
    harness.wait_until(lambda: tasks(host) > before, "that the pipeline goes on")


def end_pipeline(t, guest):
    """Its last line, which says that all was exact."""
    guest.write_line("")
    said = dict(word.split("=", 1) for word in guest.read_until("ended").split()[1:])
    t.equal((said["different"], said["failed"]), ("0", "0"), f"the pipeline said {said}")
    t.equal(said["rounds"], said["finished"])
    t.true(int(said["rounds"]) > 0)
    return said

# SPDX-License-Identifier: Apache-2.0
"""Doors of virtual machines for tests: a gantryd that serves them, devices for QEMU, and programs at the other end."""
import os

import harness
import puppet
import scripted
import vm
import vsock_device

VECTORS = 8
TENANT = {"mem": "256M", "virtual": "512M", "heap": "8M", "host_mem": "512M", "ivshmem": "yes", "ivshmem_size": "64M",
          "ivshmem_vectors": VECTORS}
CALL_MS = 60000
ROUNDS_S = 120
# What goes into machines: guests of all kinds, the contract, and the tool that lets user guest in.
PROGRAMS = ("gantry-test-guest", "puppet-guest", "door-contract", "gantry-guest")


def agent(*tenants, **keys):
    """A gantryd with these tenants (red, if none is named), each of whom machines may be."""
    made = harness.Agent(start=False, tenants={name: dict(TENANT, **keys) for name in tenants or ("red",)})
    for name in made.sections["tenants"]:
        made.set_tenant(name, vsock_path=vsock_path(made, name))
    try:
        return made.start()
    except BaseException:
        made.report()
        made.close()
        raise


def vsock_path(serving, tenant):
    """The socket at which @tenant's machines come in by their vsock devices."""
    return str(serving.root / f"{tenant}.vsock")


def socket_of(serving, tenant):
    return str(serving.run_dir / "doors" / tenant / "ivshmem.sock")


def ivshmem(serving, tenant, name="iv", bus=None):
    """QEMU's words for a device that is there from the start."""
    return ["-chardev", f"socket,path={socket_of(serving, tenant)},id={name}c",
            "-device", f"ivshmem-doorbell,id={name},vectors={VECTORS},chardev={name}c" + (f",bus={bus}" if bus else "")]


def plug(machine, serving, tenant, name="iv", wait=True, **properties):
    """Hot-plugs a device of @tenant's door and waits until the guest has it. Its address."""
    before = machine.pci(device="1110") if wait else []
    address = {"type": "unix", "data": {"path": socket_of(serving, tenant)}}
    machine.ask("chardev-add", id=name + "c",
                backend={"type": "socket", "data": {"addr": address, "server": False}})
    machine.device_add("ivshmem-doorbell", id=name, chardev=name + "c", vectors=VECTORS, **properties)
    if not wait:
        return None
    return harness.wait_until(lambda: [one for one in machine.pci(device="1110") if one not in before],
                              "the guest sees the device")[0]


def unplug(machine, name="iv", timeout=harness.WAIT_S):
    machine.device_del(name, timeout)
    machine.ask("chardev-remove", id=name + "c")


def permit(machine, address):
    """What udev would do: group gantry may use the device."""
    machine.do(f"gantry-guest permit /sys/bus/pci/devices/{address}")


def admit(machine):
    """User guest is of group gantry, and that may use the ivshmem devices that are there."""
    machine.do("sed -i /^gantry:/d /etc/group; echo gantry:x:900:guest >>/etc/group")
    for address in machine.pci(device="1110"):
        permit(machine, address)


class Machine(vm.Vm):
    """A machine at both doors of @tenant, ivshmem and (with a @cid) vsock, which user guest may use."""

    def __init__(self, serving, tenant, cid=None, programs=PROGRAMS, devices=(), **options):
        self.serving, self.tenant, self.cid = serving, tenant, cid
        self.backend = self.backend_path = None
        words = [*devices, *ivshmem(serving, tenant)]
        try:
            if cid:
                self.start_backend()
                words += vsock_device.words(self.backend_path)
                options = {"modules": vsock_device.MODULES, "shared_memory": True, **options}
            super().__init__(programs=programs, devices=words, **options)
            admit(self)
        except BaseException:
            self.close()
            raise

    def start_backend(self):
        self.backend_path = str(self.serving.root / f"vhost-{self.cid}")
        self.backend = vsock_device.backend(self.backend_path, self.cid,
                                            f"{vsock_device.PORT}={vsock_path(self.serving, self.tenant)}")

    def close(self):
        if getattr(self, "folder", None):
            super().close()
        if self.backend:
            self.backend.end()
            self.backend = None

    def unplug(self, door):
        if door == "ivshmem:":
            unplug(self)
            return
        vsock_device.unplug(self)
        self.backend.wait()
        self.backend.end()

    def plug(self, door):
        if door == "ivshmem:":
            permit(self, plug(self, self.serving, self.tenant))
            return
        self.start_backend()
        vsock_device.plug(self, self.backend_path)


def machine_at(serving, tenant, programs=PROGRAMS, devices=(), **options):
    """A machine with a device of @tenant's, which user guest may use, and @devices before it."""
    machine = vm.Vm(programs=programs, devices=[*devices, *ivshmem(serving, tenant)], **options)
    try:
        admit(machine)
    except BaseException:
        machine.report()
        machine.close()
        raise
    return machine


class Inside:
    """Programs inside @machine, for what would start guests of an agent on the host (scripted.py, puppet.py)."""

    def __init__(self, machine, door="ivshmem:", user="guest"):
        self.machine, self.door, self.user = machine, door, user

    def guest(self, _tenant, argv, env=None):
        return self.machine.start(["/bin/" + os.path.basename(argv[0]), *argv[1:]],
                                  env={"GANTRY_DOOR": self.door, **(env or {})}, user=self.user)

    def run(self, argv, timeout=harness.WAIT_S, env=None):
        return self.machine.run(argv, env={"GANTRY_DOOR": self.door, **(env or {})}, user=self.user, timeout=timeout)

    def puppet(self):
        """A guest with a session and a queue: see puppet.py."""
        return puppet.Puppet(None, None, guest=self.guest(None, ["puppet-guest"]))

    def scripted(self, opened=True):
        """A guest that does what it is told; its calls may take as long as a busy machine needs."""
        guest = scripted.Scripted(self, None, opened=False)
        if opened:
            guest.ask(f"open timeout_ms {CALL_MS}")
        return guest

    def honest(self):
        """A guest that computes checksums until it is stopped; see still_honest()."""
        guest = self.scripted()
        guest.ask("honest start")
        still_honest(guest)
        return guest


def still_honest(guest):
    """Three more rounds, begun after this call or just before, all bit-exact. How many there have been."""
    return int(guest.ask("honest check", timeout=ROUNDS_S))

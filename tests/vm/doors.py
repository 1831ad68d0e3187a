# SPDX-License-Identifier: Apache-2.0
"""Doors of virtual machines for tests: a gantryd that serves them, devices for QEMU, and programs at the other end."""
import os

import harness
import scripted
import vm

VECTORS = 8
TENANT = {"mem": "256M", "virtual": "512M", "heap": "8M", "host_mem": "512M", "ivshmem": "yes", "ivshmem_size": "64M",
          "ivshmem_vectors": VECTORS}
# What goes into machines: guests of all kinds, the contract, and the tool that lets user guest in.
PROGRAMS = ("gantry-test-guest", "puppet-guest", "door-contract", "gantry-guest")


def agent(*tenants, **keys):
    """A gantryd with these tenants (red, if none is named), each of whom machines may be."""
    return harness.Agent(tenants={name: dict(TENANT, **keys) for name in tenants or ("red",)})


def socket_of(serving, tenant):
    return str(serving.run_dir / "doors" / tenant / "ivshmem.sock")


def ivshmem(serving, tenant, name="iv"):
    """QEMU's words for a device that is there from the start."""
    return ["-chardev", f"socket,path={socket_of(serving, tenant)},id={name}c",
            "-device", f"ivshmem-doorbell,id={name},vectors={VECTORS},chardev={name}c"]


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


def machine_at(serving, tenant, programs=PROGRAMS, devices=(), **options):
    """A machine with a device of @tenant's, which user guest may use, and @devices before it."""
    machine = vm.Vm(programs=programs, devices=[*devices, *ivshmem(serving, tenant)], **options)
    try:
        machine.do("sed -i /^gantry:/d /etc/group; echo gantry:x:900:guest >>/etc/group")
        for address in machine.pci(device="1110"):
            permit(machine, address)
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

    def run(self, argv, timeout=harness.WAIT_S):
        return self.machine.run(argv, env={"GANTRY_DOOR": self.door}, user=self.user, timeout=timeout)

    def scripted(self, opened=True):
        return scripted.Scripted(self, None, opened=opened)

    def honest(self):
        """A guest that computes checksums until it is stopped; see rounds()."""
        return scripted.honest(self, None)

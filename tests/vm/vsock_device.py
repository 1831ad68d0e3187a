# SPDX-License-Identifier: Apache-2.0
"""A machine's vsock device with vhost-vsock behind it: real AF_VSOCK, whatever this host's kernel can."""
import contextlib
import os
import shutil
import tempfile

import harness
import vm

PORT = 5710  # at which libgantry knocks
MODULES = ["vmw_vsock_virtio_transport"]
DRIVER = "/sys/bus/virtio/drivers/vmw_vsock_virtio_transport"


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="gv-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def backend(path, cid, *ways):
    """Listens at @path for one QEMU, whose guest has CID @cid. ways: see vhost-vsock.c."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    started = harness.Guest([harness.program("vhost-vsock"), path, cid, *ways])
    started.read_until("ready")
    return started


def words(path, name="vs"):
    """QEMU's, for a device that is there from the start; the machine has shared_memory."""
    return ["-chardev", f"socket,id={name}c,path={path}", "-device", f"vhost-user-vsock-pci,id={name},chardev={name}c"]


def plug(machine, path, name="vs"):
    """Hot-plugs the device whose backend listens at @path, and waits until the guest has it."""
    machine.ask("chardev-add", id=name + "c", backend={"type": "socket", "data": {
        "addr": {"type": "unix", "data": {"path": path}}, "server": False}})
    machine.device_add("vhost-user-vsock-pci", id=name, chardev=name + "c")
    harness.wait_until(lambda: machine.run(["sh", "-c", f"ls -d {DRIVER}/virtio*"]).code == 0,
                       "the guest's driver has the vsock device")


def unplug(machine, name="vs"):
    """Back when the guest has let go of it; its backend then ends."""
    machine.device_del(name)
    machine.ask("chardev-remove", id=name + "c")


@contextlib.contextmanager
def machine(place, cid, ports, programs=("puppet-guest",), **options):
    """A machine with that CID; its connections to each port of the host go to a Unix stream socket."""
    path = os.path.join(place, f"vu{cid}")
    behind = backend(path, cid, *(f"{port}={target}" for port, target in ports.items()))
    try:
        with vm.Vm(programs=list(programs), modules=MODULES, shared_memory=True, devices=words(path), **options) as made:
            made.backend = behind
            yield made
    finally:
        behind.end()

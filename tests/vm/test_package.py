# SPDX-License-Identifier: Apache-2.0
"""The guest package in a virtual machine: installed from its tarball, used by root and by others, explained."""
import functools
import glob
import itertools
import re
import shutil

import harness
import image
import shared
import vm

@functools.lru_cache(None)
def package(kind):
    """The tarball, or the Debian package; made by ./dev guest-package, which compiles only once."""
    for tool in ("dpkg-deb", "meson", "ninja"):
        if not shutil.which(tool):
            raise harness.Skip(f"no {tool}")
    ended = harness.run([harness.SOURCE / "dev", "guest-package"], timeout=600)
    if ended.code != 0:
        raise harness.Failure(f"./dev guest-package: {ended.err[-2000:]}")
    path, = glob.glob(f"{harness.SOURCE}/build/guest/*.{kind}")
    return path


class World:
    """A machine that has the tarball installed, and libc, which the package does not bring; and udev, where that is."""

    def __init__(self):
        libc = dict(image.libraries_of(harness.program("vm-agent")))
        udev = [shutil.which("systemd-udevd", path="/lib/systemd:/usr/lib/systemd"),
                shutil.which("udevadm", path="/bin:/usr/bin:/sbin")]
        self.has_udev = all(udev)
        self.numbers, self.memory = itertools.count(), None
        self.machine = vm.Vm(files={"opt/package.tar.gz": package("tar.gz"), **libc}, programs=filter(None, udev))
        self.report, self.close = self.machine.report, self.machine.close
        try:
            self.machine.do("cd /opt && tar xzf package.tar.gz && gantry-guest*/install /usr && cp /etc/group /opt/group")
        except BaseException:
            self.report()
            self.close()
            raise

    def plug(self):
        """A device that is no agent's. Its folder in the guest."""
        # A name of its own each time: QEMU gives the old one's memory back later, and ends at the same name twice.
        self.memory = f"m{next(self.numbers)}"
        self.machine.ask("object-add", qom_type="memory-backend-ram", id=self.memory, size=16 << 20, share=True)
        self.machine.device_add("ivshmem-plain", id="iv0", memdev=self.memory)
        address, = harness.wait_until(lambda: self.machine.pci(device="1110"), "the guest sees the device")
        return f"/sys/bus/pci/devices/{address}"

    def restore(self):
        for program in list(self.machine.port.programs.values()):
            program.end()
        if self.machine.pci(device="1110"):
            self.machine.device_del("iv0")
            self.machine.ask("object-del", id=self.memory)
        self.machine.do("cp /opt/group /etc/group")


WORLD = shared.Shared(World)


def test_packages_hold_what_they_should(t):
    listed = harness.run(["dpkg-deb", "--contents", package("deb")]).out
    for part in ("bin/gantry-guest", "libgantry.so.0", "gantry.h", "70-gantry.rules", "gantry-guest.conf", "gantry-guest.1"):
        t.contains(listed, part)
    t.true("gantryd" not in listed, listed)
    fields = harness.run(["dpkg-deb", "--field", package("deb"), "Depends"]).out.strip()
    t.true(re.fullmatch(r"libc6 \(>= [0-9.]+\)", fields), fields)


def test_doctor_explains_a_machine_without_doors(t):
    with WORLD() as world:
        guest = world.machine
        ended = guest.run(["gantry-guest", "doctor"])
        t.equal(ended.code, 1)
        t.contains(ended.out, "no device 1af4:1110")
        t.contains(ended.out, "gantryctl vm attach")
        t.equal(guest.run(["gantry-guest"]).code, 1)
        t.equal(guest.run(["gantry-guest", "nonsense"]).code, 2)
        t.equal(guest.do("grep -c ^gantry: /etc/group").strip(), "1")


def test_ordinary_users_need_the_group(t):
    with WORLD() as world:
        guest, folder = world.machine, world.plug()
        guest.do(f"echo 1 >{folder}/enable")
        ended = guest.run(["gantry-guest", "doctor"], user="guest")
        t.contains(ended.out, "not in group gantry")
        guest.do(f"chmod 600 {folder}/resource*; chown root:root {folder}/resource*")
        ended = guest.run(["gantry-guest", "status"], user="guest")
        t.contains(ended.out, "no permission")
        t.contains(ended.out, "group")
        guest.do(f"sed -i '/^gantry:/s/$/guest/' /etc/group; gantry-guest permit {folder}")
        # It may look now, and sees that this is no agent's.
        t.contains(guest.run(["gantry-guest", "status"], user="guest").out, "but no agent's")
        t.contains(guest.run(["gantry-guest", "status"], user="stranger").out, "no permission")


def test_udev_permits_a_device_that_comes_later(t):
    with WORLD() as world:
        if not world.has_udev:
            t.skip("no udev (package udev)")
        guest = world.machine
        daemon = guest.start(["systemd-udevd"])
        harness.wait_until(lambda: daemon.ended or guest.run(["udevadm", "control", "--ping"]).code == 0, "udev answers")
        folder = world.plug()
        harness.wait_until(lambda: guest.do(f"stat -c %a,%G {folder}/resource2").strip() == "660,gantry",
                           f"udev permits it; it said {daemon.out}")
        t.equal(guest.do(f"stat -c %a,%G {folder}/resource0; cat {folder}/enable").split(), ["660,gantry", "1"])
        t.equal(guest.do(f"stat -c %a {folder}/config").strip(), "644")


def test_doctor_explains_lockdown(t):
    """The last one: a kernel does not come back from there."""
    with WORLD() as world:
        guest, folder = world.machine, world.plug()
        guest.do(f"echo 1 >{folder}/enable; echo integrity >/sys/kernel/security/lockdown")
        ended = guest.run(["gantry-guest", "doctor"])
        t.equal(ended.code, 1)
        t.contains(ended.out, "[integrity]")
        t.contains(ended.out, "vsock")
        t.contains(ended.out, "lockdown, as with Secure Boot")


if __name__ == "__main__":
    harness.main(globals(), limit_s=900)

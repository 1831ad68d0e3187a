# SPDX-License-Identifier: Apache-2.0
"""A machine that goes to another host with its device in it, and programs in it that are woken: by the device's interrupts, which go
along, and through a port, whose next host does not know whose it is: who had it polls there, and who comes then has it."""
import doors
import harness
import shared
import two_hosts

DOOR = "ivshmem:"
BYTES = 1 << 20
VFIO = """folder=/sys/bus/pci/devices/{0}
echo 1 >$folder/enable; echo vfio-pci >$folder/driver_override; echo {0} >/sys/bus/pci/drivers_probe"""


class World(two_hosts.World):
    attached = True
    programs = (*two_hosts.PROGRAMS, "gantry-test-guest")
    address = "<address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>"
    options = {
        "machine": "q35",
        "features": "<ioapic driver='qemu'/>",
        "modules": ("vfio_pci", "vfio_iommu_type1"),
        "devices": "<iommu model='intel'><driver intremap='on'/></iommu>"
                   "<channel type='unix'><source mode='connect' path='{run}/doors/red/wake.sock'/>"
                   "<target type='virtio' name='org.gantry.wake.red'/></channel>",
    }

    def boot(self):
        machine = super().boot()
        address = machine.do("cd /sys/bus/pci/devices; grep -l 0x1110 */device | cut -d/ -f1").strip()
        machine.do(VFIO.format(address))
        return machine

    def restore(self):
        for host in (self.north, self.south):
            harness.wait_until(lambda h=host: not h.agent.sessions(), f"no sessions are left at {host.name}")

    def worker(self):
        """A program with a queue q and a buffer b, as .wanted knows its sum."""
        guest = doors.Inside(self.machine.port, DOOR, user="").scripted()
        for command in ("queue q", f"buffer b {BYTES} device", f"random b {BYTES} 7"):
            guest.ask(command, 60)
        guest.wanted = guest.ask(f"sum q b {BYTES}", 60)
        return guest

    def interrupts(self):
        return int(self.machine.do("awk '/vfio/ {n += $2 + $3} END {print n + 0}' /proc/interrupts"))


WORLD = shared.Shared(World)


def wakeups(host):
    return sorted(row["wakeup"] for row in host.agent.sessions())


def work(t, guest):
    """Tasks that take long are waited for asleep."""
    for _ in range(4):
        guest.ask("run q t spin 1 60000000")
        guest.ask("wait t 60000", 60)
    t.equal(guest.ask(f"sum q b {BYTES}", 60), guest.wanted)


def sent(host):
    """Interrupts and bytes that woke the tenant's programs."""
    return sum(m["value"] for m in host.agent.ctl_json("stats")["metrics"] if m["name"] == "gantry_tenant_wakeups_total")


@two_hosts.emulated
def test_programs_that_are_woken_go_there_and_back_and_interrupts_with_them(t):
    with WORLD() as world:
        woken = world.worker()
        t.equal(wakeups(world.host()), ["msix"])
        by_port = world.worker()
        t.equal(wakeups(world.host()), ["msix", "port"])
        for trip in range(3):
            before, rung = sent(world.host()), world.interrupts()
            work(t, woken)
            t.true(world.interrupts() > rung, f"trip {trip}: no interrupt came")
            t.true(sent(world.host()) > before, f"trip {trip}: none was sent")
            t.note(f"trip {trip}: {world.interrupts() - rung} interrupts for 5 waits")
            work(t, by_port)
            if trip < 2:
                done = world.go()
                t.equal((done["way"], done["why"], done["sessions"], done["doors"]), ("attached", "", 2, 1))
                t.equal(wakeups(world.host()), ["msix", "poll"])

        # The next agent knows, and the port leads to the one where the machine is.
        world.host().agent.kill_agent()
        world.host().agent.wait_ready()
        rung = world.interrupts()
        work(t, woken)
        t.true(world.interrupts() > rung, "no interrupt after the agent's death")
        by_port.ask("close")
        other = world.worker()
        t.equal(wakeups(world.host()), ["msix", "port"])
        work(t, other)
        for guest in (other, woken):
            guest.ask("close")


harness.main(globals(), limit_s=400)

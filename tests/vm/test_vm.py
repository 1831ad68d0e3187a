# SPDX-License-Identifier: Apache-2.0
"""The harness of virtual machines itself: boots, runs, feeds, kills, plugs, resets, and leaves nothing."""
import os
import signal

import harness
import shared
import vm


class World:
    """A machine that has nothing but what all have."""

    def __init__(self):
        init = os.path.join(os.path.dirname(__file__), "init")
        self.machine = vm.Vm(modules=["vsock_loopback", "uio_pci_generic"], files={"etc/here": b"there\n", "opt/init": init})
        self.report, self.close = self.machine.report, self.machine.close

    def restore(self):
        for program in list(self.machine.port.programs.values()):
            program.end()
        if self.machine.pci(device="1110"):
            raise harness.Failure("a device was left in the machine")


WORLD = shared.Shared(World)


def test_guest_boots_and_runs_commands(t):
    with WORLD() as world:
        machine = world.machine
        t.contains(machine.do("uname -r"), machine.kernel_version)
        loaded = machine.do("cat /proc/modules")
        for name in ("vsock_loopback", "uio_pci_generic", "virtio_console"):
            t.contains(loaded, name + " ")
        ended = machine.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
        t.equal((ended.code, ended.out, ended.err), (7, "out\n", "err\n"))
        t.equal(machine.run(["cat"], data=b"x" * 3000000).out, "x" * 3000000)
        t.equal(machine.run(["no-such-program"]).code, 127)


def test_program_answers_line_by_line_as_one_of_the_host_does(t):
    with WORLD() as world:
        machine = world.machine
        first = machine.start(["sh", "-c", "echo ready; while read a; do echo \"$a$X\"; done; exit 3"], env={"X": "!"})
        second = machine.start(["sh", "-c", "echo ready; exec sleep 1000"])
        t.equal(first.read_line(), "ready")
        second.read_until("rea")
        first.write_line("one")
        first.write_line("two")
        t.equal([first.read_line(), first.read_line()], ["one!", "two!"])
        first.close_input()
        t.equal(first.wait(), 3)
        second.kill(signal.SIGTERM)
        t.equal(second.wait(), -signal.SIGTERM)
        t.equal(machine.run(["sleep", "1000"], timeout=0.3).code, 124)
        t.equal(machine.do("pidof sleep || echo none").strip(), "none")


def test_files_and_users_of_the_guest(t):
    with WORLD() as world:
        machine = world.machine
        t.equal(machine.get("/etc/here"), b"there\n")
        t.equal(machine.do("head -c 2 /opt/init"), "#!")
        machine.put("/tmp/data", bytes(range(256)), 0o640)
        t.equal(machine.get("/tmp/data"), bytes(range(256)))
        t.equal(machine.do("id -un; id -gn; pwd", user="guest", cwd="/home/guest").split(),
                ["guest", "guest", "/home/guest"])
        t.true(machine.run(["cat", "/tmp/data"], user="guest").code != 0, "another user's file was readable")


def test_device_plugged_into_a_running_guest_appears_and_goes(t):
    with WORLD() as world:
        machine = world.machine
        for size in ("1M", "64M"):
            # Names of their own: QEMU gives the old one's memory back later, and ends at the same name twice.
            memory = "m" + size
            machine.ask("object-add", qom_type="memory-backend-ram", id=memory, size=int(size[:-1]) << 20, share=True)
            machine.device_add("ivshmem-plain", id="iv0", memdev=memory)
            address, = harness.wait_until(lambda: machine.pci(device="1110"), "the guest sees the device")
            t.equal(int(machine.do(f"stat -c %s /sys/bus/pci/devices/{address}/resource2")), int(size[:-1]) << 20)
            machine.do(f"echo 1 >/sys/bus/pci/devices/{address}/enable")
            machine.device_del("iv0")
            t.equal(machine.pci(device="1110"), [])
            machine.ask("object-del", id=memory)


def test_reset_loses_what_ran_and_boots_again(t):
    with WORLD() as world:
        machine = world.machine
        running = machine.start(["sleep", "1000"])
        machine.do("touch /tmp/before")
        machine.reset()
        try:
            running.wait()
            t.true(False, "a program outlived the reset")
        except vm.Lost:
            pass
        t.equal(machine.run(["test", "-e", "/tmp/before"]).code, 1)


def test_machine_that_ends_is_noticed_and_leaves_nothing(t):
    with vm.Vm() as machine:
        pid, folder = machine.pid, machine.folder
        machine.start(["poweroff", "-f"])
        try:
            machine.do("sleep 1000")
            t.true(False, "the machine did not end")
        except vm.Lost:
            pass
    t.true(not harness.alive(pid), "QEMU outlived its test")
    t.true(not folder.exists(), "its folder was left behind")


def test_qemu_that_refuses_its_arguments_is_told(t):
    try:
        with vm.Vm(devices=["-device", "no-such-device"]):
            t.true(False, "it started")
    except vm.Lost as lost:
        t.contains(str(lost), "ended")


def test_run_guest_passes_on_input_output_and_status(t):
    script = [os.path.join(os.path.dirname(__file__), "run-guest"), "--env", "X=there", "--user", "guest", "--",
              "sh", "-c", "echo $X; read a; echo $a; id -un; exit 9"]
    ended = harness.run(["sh", "-c", 'echo hello | "$0" "$@"'] + script, timeout=vm.BOOT_S)
    t.equal((ended.code, ended.out.split()), (9, ["there", "hello", "guest"]), ended)


if __name__ == "__main__":
    harness.main(globals(), limit_s=300)

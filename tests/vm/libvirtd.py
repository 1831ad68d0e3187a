# SPDX-License-Identifier: Apache-2.0
"""A libvirtd of a test's own, and domains of Debian's kernel in it.

It runs in a mount namespace in which its folders of /etc, /run, /var are the test's, so that one that the machine has
is left alone, and is ended with the test, as are its machines. Needs root; harness.Skip says what is missing.
"""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
import xml.sax.saxutils

import harness
import image
import vm

QEMU_CONF = """user = "root"
group = "root"
remember_owner = 0
dynamic_ownership = 0
namespaces = [ ]
seccomp_sandbox = 0
cgroup_controllers = [ ]
stdio_handler = "file"
security_driver = "none"
"""
LIBVIRTD_CONF = """unix_sock_dir = "{folder}/sock"
host_uuid = "{uuid}"
auth_unix_rw = "none"
log_outputs = "2:stderr"
"""
# Between the test and libvirtd: QEMUs leave their parent, and libvirtd waits long for one that has ended but that nobody
# has collected. Ends with libvirtd or with the test, and then ends all that is left.
REAPER = """
import ctypes, os, signal, subprocess, sys
libc = ctypes.CDLL(None)
libc.prctl(1, signal.SIGTERM, 0, 0, 0)
libc.prctl(36, 1, 0, 0, 0)
def end(*_):
    raise SystemExit
signal.signal(signal.SIGTERM, end)
daemon = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: libc.prctl(1, signal.SIGKILL, 0, 0, 0))
with open("daemon.pid", "w") as file:
    file.write(str(daemon.pid))
try:
    while os.wait()[0] != daemon.pid:
        pass
finally:
    daemon.returncode = 0
    while True:
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                        os.kill(int(entry), signal.SIGKILL)
            except OSError:
                pass
        try:
            os.wait()
        except ChildProcessError:
            break
"""
START = """set -e
mount --make-rprivate / 2>/dev/null || :
for pair in etc:/etc/libvirt run:/run/libvirt lib:/var/lib/libvirt log:/var/log/libvirt cache:/var/cache/libvirt \\
        passwd:/etc/passwd group:/etc/group ends:/run/gantry-test-ends; do
    mount --bind "$0/${pair%%:*}" "${pair#*:}"
done
exec libvirtd --pid-file "$0/libvirtd.pid" --config "$0/etc/libvirtd.conf"
"""
# libvirtd does not start without the user whom its package makes, though ours runs machines as root.
ACCOUNTS = {"passwd": "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin\n", "group": "libvirt-qemu:x:64055:\n"}
# Where a libvirtd's machines have their ends: each sees its own there, so that a definition is right for all of them.
ENDS = "/run/gantry-test-ends"
MOUNT_POINTS = (ENDS, "/etc/libvirt", "/run/libvirt", "/var/lib/libvirt", "/var/log/libvirt", "/var/cache/libvirt")
DOMAIN = """<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <memory unit='MiB'>256</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='{machine}'>hvm</type>{boot}</os>
  <features>{features}</features>
  <cpu mode='custom' match='exact'><model>qemu64</model></cpu>
  <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>{qemu}</emulator>
    {devices}
    <serial type='file'><source path='{ends}/{name}.console'/><target port='0'/></serial>
    <channel type='unix'><source mode='bind' path='{ends}/{name}.port'/><target type='virtio' name='{port}'/></channel>
    <memballoon model='none'/>
  </devices>
  {label}
  <qemu:commandline>{options}</qemu:commandline>
  {override}
</domain>
"""
LABEL = "<seclabel type='static' model='dac' relabel='no'><label>+{user}:+{user}</label></seclabel>"
# libvirt 9.0 does not say it to QEMU where a <shmem> with a server has role='master'.
MASTER = ("<qemu:override><qemu:device alias='{alias}'><qemu:frontend><qemu:property name='master' type='string' value='on'/>"
          "</qemu:frontend></qemu:device></qemu:override>")
ROOT_PORTS = "<controller type='pci' index='0' model='pcie-root'/>" + "".join(
    f"<controller type='pci' index='{index}' model='pcie-root-port'/>" for index in range(1, 6))


class Libvirtd:
    """A running one; its address is .uri."""

    def __init__(self, hook=None):
        if os.geteuid() != 0:
            raise harness.Skip("libvirtd needs root")
        for tool, package in (("libvirtd", "libvirt-daemon"), ("unshare", "util-linux"), ("virsh", "libvirt-clients")):
            image.need(tool, package)
        self.qemu = image.need("qemu-system-x86_64", "qemu-system-x86")
        if not os.path.exists("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so"):
            raise harness.Skip("libvirtd has no driver for QEMU (package libvirt-daemon-driver-qemu)")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-lv-"))
        os.chmod(self.folder, 0o755)
        self.process = None
        self.machines = {}
        for name in ("etc", "run", "lib/qemu", "log", "cache", "sock", "etc/hooks/qemu.d", "ends"):
            (self.folder / name).mkdir(parents=True)
        os.chmod(self.ends, 0o777)  # a machine may be of any user
        (self.folder / "etc/qemu.conf").write_text(QEMU_CONF)
        (self.folder / "etc/libvirtd.conf").write_text(LIBVIRTD_CONF.format(folder=self.folder, uuid=uuid.uuid4()))
        for name, line in ACCOUNTS.items():
            text = pathlib.Path("/etc", name).read_text(encoding="utf-8")
            (self.folder / name).write_text(text if "\nlibvirt-qemu:" in text else text.rstrip("\n") + "\n" + line)
        if hook:
            shutil.copy(hook, self.folder / "etc/hooks/qemu.d/gantry")
        self.uri = f"qemu+unix:///system?socket={self.folder}/sock/libvirt-sock"
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def ends(self):
        """Where machines' consoles and ports are."""
        return self.folder / "ends"

    @staticmethod
    def unshare():
        """Mounts of its own. In a chroot, whose / is no mount, they cannot be made private as a whole."""
        whole = subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL)
        return ["unshare", "-m"] + (["--propagation", "unchanged"] if whole.returncode else [])

    def start(self):
        for folder in MOUNT_POINTS:
            os.makedirs(folder, exist_ok=True)
        with open(self.folder / "libvirtd.log", "ab") as log:
            self.process = subprocess.Popen([sys.executable, "-c", REAPER, *self.unshare(), "sh", "-c", START,
                                             str(self.folder)],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                            env=dict(os.environ, PATH=self.path()),
                                            cwd=self.folder)
        harness.wait_until(self.answers, "libvirtd answers", 60)

    @staticmethod
    def path():
        """Where hooks find gantryctl, too."""
        return os.path.dirname(harness.program("gantryctl")) + ":" + os.environ["PATH"] + ":/usr/sbin:/sbin"

    def answers(self):
        if self.process.poll() is not None:
            if "mount" in self.log() and "denied" in self.log():
                raise harness.Skip("mounting is not permitted here")
            raise harness.Failure(f"libvirtd ended: {self.log()[-500:]}")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(f"{self.folder}/sock/libvirt-sock")
            except OSError:
                return False
        return self.virsh("list", "--all").code == 0

    @property
    def pid(self):
        return int((self.folder / "daemon.pid").read_text())

    def log(self):
        path = self.folder / "libvirtd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def virsh(self, *words, timeout=60):
        return harness.run(["virsh", "-q", "-c", self.uri, *words], timeout=timeout)

    def must(self, *words):
        ended = self.virsh(*words)
        if ended.code != 0:
            raise harness.Failure(f"virsh {' '.join(map(str, words))}: {ended}")
        return ended.out

    def report(self):
        """What helps to understand a failure, as TAP comments."""
        for line in self.log().splitlines()[-20:]:
            print(f"# libvirtd: {line}", flush=True)
        for machine in self.machines.values():
            machine.report()

    def close(self):
        for machine in self.machines.values():
            machine.close()
        if self.process:
            self.process.terminate()  # and with it libvirtd and its machines
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def machine(self, name, **options):
        """Defines a domain; start() boots it."""
        self.machines[name] = Machine(self, name, **options)
        return self.machines[name]


class Machine:
    """A domain. boot: Debian's kernel with vm-agent at .port; else it stays in its firmware, which knows no hot-plug.
    user: whose process its QEMU is, if not root's. master: alias of a device that QEMU is to migrate. features: elements beside
    <acpi/>. modules: of the kernel, loaded at start."""

    def __init__(self, libvirtd, name, machine="pc", boot=True, devices="", options=(), acpi=True, programs=(),
                 files=None, user=None, master=None, features="", modules=()):
        self.libvirtd, self.name = libvirtd, name
        self.boots = boot
        self.port = None
        text = ""
        if boot:
            kernel, _, _ = image.kernel()
            initrd = image.image(libvirtd.folder / f"{name}.initrd", programs, files)
            words = vm.KERNEL_WORDS + (" gantry.modules=" + ",".join(modules) if modules else "")
            text = f"<kernel>{kernel}</kernel><initrd>{initrd}</initrd><cmdline>{words}</cmdline>"
        arguments = "".join(f"<qemu:arg value={xml.sax.saxutils.quoteattr(word)}/>" for word in options)
        definition = libvirtd.folder / f"{name}.xml"
        definition.write_text(DOMAIN.format(
            name=name, machine=machine, boot=text, features=("<acpi/>" if acpi else "") + features, qemu=libvirtd.qemu, port=vm.PORT_NAME,
            ends=ENDS, override=MASTER.format(alias=master) if master else "", label=LABEL.format(user=user) if user else "", options=arguments, devices=(ROOT_PORTS if machine == "q35" else "") + devices))
        libvirtd.must("define", definition)

    def start(self):
        self.libvirtd.must("start", self.name)
        if self.boots:
            self.port = vm.Port.connect(self.libvirtd.ends / f"{self.name}.port")
            self.port.wait_hello()
        return self

    @property
    def pid(self):
        path = self.libvirtd.folder / "run/qemu" / f"{self.name}.pid"
        return int(path.read_text()) if path.exists() else 0

    def xml(self, *words):
        return self.libvirtd.must("dumpxml", self.name, *words)

    def do(self, script, **options):
        return self.port.do(script, **options)

    def moved(self, libvirtd):
        """It is another libvirtd's now; its programs go on."""
        del self.libvirtd.machines[self.name]
        self.libvirtd = libvirtd
        libvirtd.machines[self.name] = self
        if self.port:
            self.port.follow(libvirtd.ends / f"{self.name}.port")

    def report(self):
        for path in (self.libvirtd.ends / f"{self.name}.console", self.libvirtd.folder / f"log/qemu/{self.name}.log"):
            for line in path.read_text(errors="replace").splitlines()[-15:] if path.exists() else []:
                print(f"# {self.name}: {line.strip()}", flush=True)

    def close(self):
        if self.port:
            self.port.close()
            self.port = None

    def end(self):
        """Pulls its plug."""
        self.close()
        self.libvirtd.must("destroy", self.name)

    def remove(self):
        self.close()
        self.libvirtd.virsh("destroy", self.name)
        self.libvirtd.must("undefine", self.name)
        del self.libvirtd.machines[self.name]

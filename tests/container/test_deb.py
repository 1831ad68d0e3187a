# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, in roots of their own (overlays of this machine): installed, serving, upgraded, removed."""
import atexit
import contextlib
import ctypes
import functools
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile

import harness

CLONE_NEWNS = 0x20000
DOOR = "unix:/run/gantry/doors/default/door"
PACKAGES = ("libgantry0", "libgantry-dev", "gantry-host")
MIB = 1 << 20


def paths_in(out):
    return {name: glob.glob(f"{out}/{name}_*.deb")[0] for name in PACKAGES}


def make_debs(out, version, *options):
    """Takes the build folder of `./dev deb`, so that only the first run compiles."""
    ended = harness.run([harness.SOURCE / "tools/make-deb", harness.SOURCE / "build-deb", out, "--version", version,
                         "--fast", *options], timeout=300)
    if ended.code != 0:
        raise harness.Failure(f"make-deb: {ended}")
    return paths_in(out)


@functools.lru_cache(None)
def debs():
    """Three versions of the packages: as ./dev deb makes them, and later ones, the last with other formats."""
    for tool in ("dpkg-deb", "meson", "ninja"):
        if not shutil.which(tool):
            raise harness.Skip(f"no {tool}")
    ended = harness.run([harness.SOURCE / "dev", "deb", "--version", "0.1.0-1"], timeout=900)
    if ended.code != 0:
        raise harness.Failure(f"./dev deb: {ended.err[-2000:]}")
    folder = tempfile.mkdtemp(prefix="gantry-debs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [paths_in(harness.SOURCE / "build" / "deb"), make_debs(f"{folder}/2", "0.1.0-2"),
            make_debs(f"{folder}/3", "0.1.0-3", "--formats", "others")]


@functools.lru_cache(None)
def guest_deb():
    """What a virtual machine installs: one package, by a build of its own."""
    for tool in ("dpkg-deb", "meson", "ninja"):
        if not shutil.which(tool):
            raise harness.Skip(f"no {tool}")
    ended = harness.run([harness.SOURCE / "dev", "guest-package"], timeout=900)
    if ended.code != 0:
        raise harness.Failure(f"./dev guest-package: {ended.err[-2000:]}")
    return glob.glob(f"{harness.SOURCE}/build/guest/gantry-guest_*.deb")[0]


def control(path, field):
    return harness.run(["dpkg-deb", "--field", path, field]).out.strip()


# --- a machine to install on --------------------------------------------------------------------------

@functools.lru_cache(None)
def own_mounts():
    """From here on what this process mounts is seen by it and its children alone."""
    if os.geteuid() != 0:
        raise harness.Skip("only root may mount and change root")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise harness.Skip(f"no mount namespaces here: {os.strerror(ctypes.get_errno())}")
    mount("--make-rprivate", "/")


def mount(*args):
    ended = harness.run(["mount", *args])
    if ended.code != 0:
        raise harness.Skip(f"mount {' '.join(args)}: {ended.err.strip()}")


class Machine:
    """This machine's files with changes of its own, which end with it."""

    def __init__(self):
        own_mounts()
        self.top = tempfile.mkdtemp(prefix="gantry-machine-")
        self.root = self.top + "/root"
        self.monitor = None
        mount("-t", "tmpfs", "none", self.top)
        for name in ("upper", "work", "root"):
            os.mkdir(f"{self.top}/{name}")
        mount("-t", "overlay", "overlay", f"-olowerdir=/,upperdir={self.top}/upper,workdir={self.top}/work", self.root)
        mount("--bind", "/proc", self.root + "/proc")
        mount("--rbind", "/dev", self.root + "/dev")
        mount("-t", "tmpfs", "none", self.root + "/run")
        # Else each package has Debian's index of all manual pages made anew, which takes longer than all the rest.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.root + "/var/lib/man-db/auto-update")

    def __enter__(self):
        return self

    def __exit__(self, *what):
        if self.monitor:
            if what[0] and not issubclass(what[0], harness.Skip):
                print("# " + open(self.top + "/log", encoding="utf-8", errors="replace").read().replace("\n", "\n# "))
            self.monitor.terminate()
            try:
                self.monitor.wait(20)
            except subprocess.TimeoutExpired:
                self.monitor.kill()
        harness.run(["umount", "--recursive", "--lazy", self.top])
        shutil.rmtree(self.top, ignore_errors=True)

    def argv(self, *words):
        """Packages' own library, not the build's, serves programs of the build."""
        return ["chroot", self.root, "env", "LD_LIBRARY_PATH=" + self.library_dir(), f"GANTRY_DOOR={DOOR}", *words]

    @staticmethod
    def library_dir():
        return "/usr/lib/" + harness.run(["cc", "-print-multiarch"]).out.strip()

    def run(self, *words, timeout=60):
        return harness.run(self.argv(*words), timeout=timeout, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))

    def dpkg(self, *words):
        ended = self.run("dpkg", *words, timeout=120)
        if ended.code != 0:
            raise harness.Failure(f"dpkg {' '.join(words)}: {ended}")
        return ended

    def install(self, made):
        folder = tempfile.mkdtemp(dir=self.root + "/var/tmp")
        paths = [shutil.copy(made[name], folder)[len(self.root):] for name in PACKAGES]
        return self.dpkg("--force-confold", "--install", *paths)

    def start(self):
        """As the unit does; there is no systemd in here."""
        with open(self.top + "/log", "wb") as log:
            self.monitor = subprocess.Popen(self.argv("/usr/sbin/gantryd"), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        harness.wait_until(lambda: self.run("gantryctl", "--timeout", "2s", "version").code == 0 and
                           os.path.exists(self.root + "/run/gantry/doors/default/door"), "gantryd serves")

    def ctl(self, *words):
        ended = self.run("gantryctl", "--json", *words)
        if ended.code != 0:
            raise harness.Failure(f"gantryctl {' '.join(words)}: {ended}")
        return json.loads(ended.out)

    def guest(self):
        program = self.root + "/usr/local/bin/gantry-test-guest"
        if not os.path.exists(program):
            shutil.copy(harness.program("gantry-test-guest"), program)
        return harness.Guest(self.argv(program[len(self.root):]))


def ask(guest, line, timeout=30):
    guest.write_line(line)
    answer = guest.read_line(timeout)
    if not (answer or "").startswith("ok"):
        raise harness.Failure(f"{line}: {answer}")
    return answer[3:]


# --- tests --------------------------------------------------------------------------------------------

def test_packages_say_what_they_are(t):
    first, second, _ = debs()
    t.equal([control(first[name], "Version") for name in PACKAGES], ["0.1.0-1"] * 3)
    t.equal(control(second["gantry-host"], "Version"), "0.1.0-2")
    t.contains(control(first["gantry-host"], "Depends"), "libgantry0 (= 0.1.0-1)")
    t.contains(control(first["gantry-host"], "Depends"), "libc6 (>= ")
    t.true("cuda" not in control(first["gantry-host"], "Depends"), "vendor libraries are loaded where there are any")
    with tempfile.TemporaryDirectory() as folder:
        harness.run(["dpkg-deb", "--control", first["gantry-host"], folder])
        with open(folder + "/conffiles", encoding="utf-8") as file:
            t.equal(file.read().split(), ["/etc/gantry/gantry.conf"])
        for script in ("postinst", "prerm", "postrm"):
            t.code(harness.run(["sh", "-n", f"{folder}/{script}"]), 0, script)


def test_programs_find_their_libraries_where_debian_has_them(t):
    with tempfile.TemporaryDirectory() as folder:
        for path in debs()[0].values():
            t.code(harness.run(["dpkg-deb", "--extract", path, folder]), 0)
        found = [path for path in glob.glob(folder + "/usr/*/**", recursive=True)
                 if os.path.isfile(path) and open(path, "rb").read(4) == b"\x7fELF"]
        t.true(len(found) >= 6, f"programs and libraries: {found}")
        for path in found:
            told = harness.run(["readelf", "--dynamic", path]).out
            t.true(str(harness.SOURCE) not in told, f"{path} knows where it was built")


def test_installed_host_serves_as_users_of_its_own(t):
    with Machine() as machine:
        machine.install(debs()[0])
        for group in ("gantry", "gantry-admin"):
            t.code(machine.run("getent", "group", group), 0, f"group {group}")
        uid = machine.run("id", "--user", "gantry-worker").out.strip()
        t.true(uid.isdigit() and uid != "0", f"the workers' user: {uid!r}")
        machine.start()
        t.equal([check for check in machine.ctl("doctor")["checks"] if check["state"] == "fail"], [])
        guest = machine.guest()
        ask(guest, "open")
        ask(guest, "queue q")
        ask(guest, f"buffer b {MIB} device")
        ask(guest, f"random b {MIB} 1")
        t.equal(ask(guest, f"sum q b {MIB}"), ask(guest, f"expect {MIB} 1"))
        worker = machine.ctl("session", "list")["sessions"][0]["worker_pid"]
        with open(f"/proc/{worker}/status", encoding="ascii") as status:
            t.contains(status.read(), f"Uid:\t{uid}\t", "the worker's user")
        for page in ("gantryd.8", "gantry.conf.5", "gantryctl.1"):
            section = page.rpartition(".")[2]
            t.true(os.path.exists(f"{machine.root}/usr/share/man/man{section}/{page}.gz"), page)
        t.true(os.path.exists(machine.root + "/usr/share/bash-completion/completions/gantryctl.bash"), "completion")
        t.code(machine.run("gantryctl", "config", "check", "/etc/gantry/gantry.conf"), 0)


def test_upgrade_replaces_the_agent_and_keeps_sessions(t):
    with Machine() as machine:
        machine.install(debs()[0])
        with open(machine.root + "/etc/gantry/gantry.conf", "a", encoding="utf-8") as conf:
            conf.write("# the administrator's word\n")
        machine.start()
        guest = machine.guest()
        ask(guest, "open timeout_ms 30000")
        ask(guest, "queue q")
        ask(guest, f"buffer b {4 * MIB} device")
        ask(guest, f"random b {4 * MIB} 5")
        before, row = machine.ctl("version")["agent"], machine.ctl("session", "list")["sessions"][0]
        ask(guest, "run q t spin 400 5000000")
        told = machine.install(debs()[1])
        t.contains(told.out, "sessions go on")
        harness.wait_until(lambda: machine.run("gantryctl", "--timeout", "2s", "version").code == 0 and
                           machine.ctl("version")["agent"]["pid"] != before["pid"], "another agent")
        after = machine.ctl("session", "list")["sessions"]
        t.equal([(r["session_id"], r["worker_pid"]) for r in after], [(row["session_id"], row["worker_pid"])])
        t.contains(ask(guest, "ends t 400", 60), "OK=400")
        t.equal(ask(guest, f"sum q b {4 * MIB}"), ask(guest, f"expect {4 * MIB} 5"))
        fresh = machine.guest()
        ask(fresh, "open timeout_ms 30000")
        with open(machine.root + "/etc/gantry/gantry.conf", encoding="utf-8") as conf:
            t.contains(conf.read(), "# the administrator's word")
        exe = os.readlink(f"/proc/{machine.ctl('version')['agent']['pid']}/exe")
        t.true("(deleted)" not in exe, f"the agent runs the program that is there now: {exe}")


def test_upgrade_that_cannot_take_sessions_over_lets_them_end(t):
    with Machine() as machine:
        machine.install(debs()[0])
        machine.start()
        guest = machine.guest()
        ask(guest, "open timeout_ms 30000")
        ask(guest, "queue q")
        before = machine.ctl("version")["agent"]["pid"]
        for version in (2, 2):
            t.contains(machine.install(debs()[version]).out, "systemctl restart gantryd")
            t.equal(machine.ctl("version")["agent"]["pid"], before, "the agent that serves")
            ask(guest, "run q t spin 3 1000")
            ask(guest, "wait t 20000")


def test_removal_leaves_the_configuration_and_purge_nothing(t):
    with Machine() as machine:
        machine.install(debs()[0])
        machine.dpkg("--remove", "gantry-host")
        t.true(not os.path.exists(machine.root + "/usr/sbin/gantryd"), "gantryd is gone")
        t.true(os.path.exists(machine.root + "/etc/gantry/gantry.conf"), "the configuration is there")
        machine.dpkg("--purge", "gantry-host", "libgantry-dev", "libgantry0")
        for path in ("/etc/gantry", "/var/lib/gantry", "/usr/libexec/gantry", "/usr/include/gantry"):
            t.true(not os.path.exists(machine.root + path), f"{path} is gone")


# --- the package of virtual machines ------------------------------------------------------------------

DEVICE = "/sys/bus/pci/devices/0000:00:05.0"


def put_device(machine):
    """What a device of an agent looks like in /sys, of which this root has none of its own."""
    folder = machine.root + DEVICE
    os.makedirs(folder)
    for name, text in (("vendor", "0x1af4"), ("device", "0x1110"), ("enable", "0"), ("resource0", ""),
                       ("resource2", "x" * 8192), ("resource", "0 0 0\n0 0 0\n0xfe00000000 0xfe00001fff 0x14220c")):
        with open(f"{folder}/{name}", "w", encoding="ascii") as file:
            file.write(text + "\n" * (not name.startswith("resource")))
        os.chmod(f"{folder}/{name}", 0o600 if name in ("resource0", "resource2") else 0o644)
    return folder


def mode_of(machine, path):
    return machine.run("stat", "--format=%a %U:%G", path).out.strip()


def as_visitor(machine, *words):
    return machine.run("setpriv", "--reuid=visitor", "--regid=visitor", "--init-groups", *words)


def test_guest_package_lets_members_of_its_group_in_and_nobody_else(t):
    with Machine() as machine:
        folder = put_device(machine)
        t.code(machine.run("useradd", "--user-group", "visitor"), 0)
        deb = shutil.copy(guest_deb(), machine.root + "/var/tmp")[len(machine.root):]
        machine.dpkg("--install", deb)
        t.code(machine.run("getent", "group", "gantry"), 0, "group gantry")
        for name in ("resource0", "resource2"):
            t.equal(mode_of(machine, f"{DEVICE}/{name}"), "660 root:gantry", name)
        with open(folder + "/enable", encoding="ascii") as file:
            t.equal(file.read()[0], "1", "the device is enabled")
        with open(machine.root + "/usr/lib/udev/rules.d/70-gantry.rules", encoding="utf-8") as rules:
            program, = re.findall(r'RUN\+="(\S+) permit', rules.read())
        t.true(os.access(machine.root + program, os.X_OK), f"the rule's {program}")
        t.contains(machine.run("ldconfig", "-p").out, "libgantry.so.0")
        t.contains(machine.run("gantry-guest", "version").out, "0.1.0")
        refused = as_visitor(machine, "gantry-guest", "status")
        t.contains(refused.out + refused.err, "no permission")
        t.code(machine.run("usermod", "--append", "--groups", "gantry", "visitor"), 0)
        allowed = as_visitor(machine, "gantry-guest", "status")
        t.contains(allowed.out + allowed.err, "neither a PCI device's memory nor a sealed file")
        t.contains(as_visitor(machine, "gantry-guest", "doctor").out, "you may use what group gantry may use")


def test_guest_package_installs_over_itself_and_goes_without_a_trace(t):
    with Machine() as machine:
        deb = shutil.copy(guest_deb(), machine.root + "/var/tmp")[len(machine.root):]
        machine.dpkg("--install", deb)
        listed = machine.run("dpkg", "--listfiles", "gantry-guest").out.split()
        files = [path for path in listed if os.path.isfile(machine.root + path)]
        t.true(len(files) > 8, f"files: {files}")
        group = machine.run("getent", "group", "gantry").out
        machine.dpkg("--install", deb)
        t.equal(machine.run("getent", "group", "gantry").out, group, "the group")
        machine.dpkg("--remove", "gantry-guest")
        # What is configuration stays until the package is purged.
        t.equal([path for path in files if os.path.exists(machine.root + path)],
                [path for path in files if path.startswith("/etc/")], "what is left")
        machine.dpkg("--purge", "gantry-guest")
        t.equal([path for path in files if os.path.exists(machine.root + path)], [], "what is left after that")
        t.true("libgantry" not in machine.run("ldconfig", "-p").out, "the loader's cache has no libgantry")
        t.equal(machine.run("getent", "group", "gantry").out, group, "the group, whose files may still be there")
        machine.dpkg("--purge", "gantry-guest")
        t.true("gantry-guest" not in machine.run("dpkg", "--get-selections").out, "dpkg knows of none")


if __name__ == "__main__":
    harness.main(globals(), limit_s=900)

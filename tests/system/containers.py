# SPDX-License-Identifier: Apache-2.0
"""Containers for tests: a root file system of what programs need and nothing else of the host, and what runs it.

runc, from a config.json that holds what gantryctl prints for it; where the machine has none, or it cannot start any, the
same mounts in namespaces of our own by unshare and chroot.
"""
import atexit
import json
import os
import re
import shlex
import shutil
import tempfile

import harness

# What NVIDIA's driver and toolkit bring. A root file system has none of it, whatever programs would load on the host.
VENDOR = re.compile(r"^lib(cuda|nvidia|cu(dnn|blas|fft|rand|sparse|solver|file|pti)|nccl|nv)")


def tool(name):
    """A program of this machine's, or of the bundle's."""
    return shutil.which(name) or harness.find_in_build(name, lambda path: os.access(path, os.X_OK))


def libraries_of(path):
    """What the dynamic linker would load, from the host: (name, path)."""
    found = []
    for line in harness.run(["ldd", path]).out.splitlines():
        match = re.match(r"\s*(?:(\S+) => )?(/\S+) \(", line)
        if match:
            found.append((match.group(2), os.path.realpath(match.group(2))))
    return found


def need_root():
    if os.geteuid() != 0:
        raise harness.Skip("starting containers this way needs root")


class Root:
    """A root file system: busybox, and what is added. Goes with the test process."""

    FOLDERS = ("bin", "proc", "sys", "dev", "tmp", "etc", "run/gantry", "usr/lib")
    TOOLS = ("sh", "ls", "cat", "sleep", "true", "env", "find")

    def __init__(self, name="root"):
        busybox = tool("busybox")
        if not busybox or not is_static(busybox):
            raise harness.Skip("no static busybox (package busybox-static)")
        self.path = tempfile.mkdtemp(prefix=f"gantry-{name}-")
        atexit.register(shutil.rmtree, self.path, ignore_errors=True)
        os.chmod(self.path, 0o755)
        for folder in self.FOLDERS:
            os.makedirs(os.path.join(self.path, folder))
        shutil.copy(busybox, self.path + "/bin/busybox")
        for link in self.TOOLS:
            os.symlink("busybox", f"{self.path}/bin/{link}")
        # A mount needs something to be mounted on.
        open(self.path + "/usr/lib/libgantry.so.0", "w", encoding="ascii").close()
        # Engines write these themselves when they are missing: have them belong to the image.
        for link in ("resolv.conf", "hosts", "hostname"):
            open(f"{self.path}/etc/{link}", "w", encoding="ascii").close()

    def copy(self, source, where):
        os.makedirs(os.path.dirname(self.path + where), exist_ok=True)
        if not os.path.exists(self.path + where):
            shutil.copy(source, self.path + where)

    def add_libraries(self, *paths):
        """What these programs and libraries load from the host's own folders; none of ours, none of NVIDIA's."""
        for path in paths:
            for name, source in libraries_of(path):
                base = os.path.basename(name)
                if name.startswith(("/lib", "/usr/lib")) and "libgantry" not in base and not VENDOR.match(base):
                    self.copy(source, name)

    def add_program(self, path, where):
        self.copy(path, where)
        self.add_libraries(path)


def is_static(path):
    """It names no loader: no program header of type PT_INTERP."""
    with open(path, "rb") as file:
        head = file.read(4096)
    start, size, number = (int.from_bytes(head[at:at + width], "little") for at, width in ((32, 8), (54, 2), (56, 2)))
    return head[:4] == b"\x7fELF" and 3 not in [int.from_bytes(head[start + size * i:][:4], "little") for i in range(number)]


class Engine:
    """Containers of one agent. @more: words for cdi generate; @mounts: others, (source, destination), read-only."""

    def __init__(self, agent, root, library=None, more=(), mounts=(), env=()):
        self.agent, self.root, self.library = agent, root, library
        self.more, self.mounts, self.env = list(more), list(mounts), list(env)
        self.count = 0
        problem = self.problem()
        if problem:
            raise harness.Skip(f"{type(self).__name__.lower()} cannot start containers here: {problem}")

    def problem(self):
        ended = harness.run(self.argv("red", ["/bin/true"], plain=True))
        return None if ended.code == 0 else (ended.err.strip().splitlines() or ["no reason given"])[-1][:160]

    def edits(self, tenant, plain):
        """What gantryctl has a container of @tenant get: environment, mounts."""
        if plain:
            return [], []
        library = ["--library", self.library] if self.library else []
        ended = self.agent.ctl("cdi", "generate", "--tenant", tenant, *library, "--print-flags", "runc", *self.more)
        if ended.code != 0:
            raise harness.Failure(f"cdi generate: {ended}")
        spec = json.loads(ended.out)
        own = [{"destination": to, "type": "none", "source": source, "options": ["rbind", "ro"]} for source, to in self.mounts]
        return spec["process"]["env"] + self.env, own + spec["mounts"]


class Runc(Engine):
    def __init__(self, agent, root, **options):
        self.program = tool("runc")
        if not self.program:
            raise harness.Skip("no runc")
        self.state = str(agent.root / "runc")
        super().__init__(agent, root, **options)

    def bundle(self, tenant, command, plain):
        env, mounts = self.edits(tenant, plain)
        folder = self.agent.root / ("plain" if plain else f"bundle{self.count}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        config = {
            "ociVersion": "1.0.2",
            "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": command, "cwd": "/",
                        "env": ["PATH=/bin"] + env, "noNewPrivileges": True,
                        "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted")}},
            "root": {"path": self.root, "readonly": True},
            "hostname": "guest",
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                       {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=1777"]},
                       ] + mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]},
        }
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def argv(self, tenant, command, plain=False):
        self.count += 1
        self.name = f"gantry-test-{os.getpid()}-{self.count}"
        # A bundle brings runc's libraries along.
        return ["env", f"LD_LIBRARY_PATH={harness.build_dir()}/lib", self.program, "--root", self.state, "run", "-b",
                str(self.bundle(tenant, command, plain)), self.name]

    def kill(self):
        return harness.run([self.program, "--root", self.state, "kill", self.name, "KILL"])

    def exec_argv(self, command):
        return [self.program, "--root", self.state, "exec", "-e", "GANTRY_DOOR=unix:/run/gantry/door", self.name, *command]


class Unshare(Engine):
    """Mounts, processes, network and names of its own, and a change of root: a container without an engine."""

    BEGIN = """set -e
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t tmpfs -o nosuid,mode=755 tmpfs "$root/dev"
    for node in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do set -- $node; mknod -m 666 "$root/dev/$1" c 1 $2; done
    mount -t tmpfs -o nosuid tmpfs "$root/tmp"
    mount -t proc proc "$root/proc"
    put() {
        if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "${root}${2%/*}"; [ -e "$root$2" ] || : >"$root$2"; fi
        mount --rbind "$1" "$root$2"
        mount -o remount,bind,ro "$root$2"
    }
    """

    def argv(self, tenant, command, plain=False):
        env, mounts = self.edits(tenant, plain)
        lines = [f"root={shlex.quote(self.root)}", self.BEGIN]
        lines += [f"put {shlex.quote(mount['source'])} {shlex.quote(mount['destination'])}" for mount in mounts]
        lines += [f"cd {shlex.quote(self.root)}", 'mount -o remount,bind,ro "$root"',
                  "exec chroot . /bin/env -i PATH=/bin " + " ".join(map(shlex.quote, [*env, *command]))]
        return ["unshare", "--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child", "sh", "-c", "\n".join(lines)]


def engine(agent, root, **options):
    """runc, else namespaces of our own; why not runc goes to the log."""
    try:
        return Runc(agent, root, **options)
    except harness.Skip as why:
        print(f"# {why}", flush=True)
        return Unshare(agent, root, **options)

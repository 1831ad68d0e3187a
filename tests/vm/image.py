# SPDX-License-Identifier: Apache-2.0
"""What a test's virtual machine boots: Debian's kernel, uncompressed, and an initramfs made here.

kernel() and base_image() are made once per build folder and kept in it (tests/vm/cache): the kernel comes from what
tools/make-machine-kit made, where that is there, else from /boot
where there is one, else out of the linux-image package, which apt-get downloads and nobody installs. An image is a
cpio archive of the base (busybox, vm-agent, modules) followed by one of what a test wants in addition; the guest's
kernel unpacks one over the other.
"""
import contextlib
import fcntl
import functools
import glob
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile

import harness

HERE = pathlib.Path(__file__).resolve().parent
# Folders of the package's modules of which a test may load some.
MODULES = ("drivers/virtio/", "drivers/char/virtio_console", "drivers/uio/uio", "drivers/vfio/", "virt/lib/",
           "net/vmw_vsock/", "drivers/block/virtio_blk")
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000:guest:/home/guest:/bin/sh\n"
              "stranger:x:1001:1001:stranger:/home/stranger:/bin/sh\n",
    "group": "root:x:0:\nguest:x:1000:\nstranger:x:1001:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\n",
}


def run(*argv, timeout=300, **options):
    ended = harness.run(argv, timeout=timeout, **options)
    if ended.code != 0:
        raise harness.Skip(f"{' '.join(map(str, argv[:3]))}: {(ended.err.strip() or ended.out.strip())[-300:]}")
    return ended.out


@functools.lru_cache(None)
def kit():
    """What tools/make-machine-kit made, on a machine that has it, or None."""
    named = os.environ.get("GANTRY_MACHINE")
    bundle = HERE.parents[1]
    for folder in [named] if named else [bundle / "machine", bundle.parent / "machine"] if (bundle / "bundle.json").exists() else []:
        if os.path.isdir(f"{folder}/kernel/lib/modules"):
            return pathlib.Path(folder)
    return None


def need(tool, package):
    path = kit() and shutil.which(tool, path=str(kit() / "bin"))
    path = path or shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin")
    if not path:
        raise harness.Skip(f"no {tool} (package {package})")
    return path


@functools.lru_cache(None)
def cache():
    folder = harness.build_dir() / "tests" / "vm" / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked():
    """One process at a time fills the cache."""
    with open(cache() / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- the kernel ---------------------------------------------------------------------------------------

def elf_of(vmlinuz):
    """The ELF file in a bzImage, so that the guest need not unpack it."""
    start = vmlinuz.find(b"\xfd7zXZ\0")
    while start >= 0:
        with contextlib.suppress(lzma.LZMAError):
            elf = lzma.LZMADecompressor().decompress(vmlinuz[start:])
            if elf.startswith(b"\x7fELF"):
                return elf
        start = vmlinuz.find(b"\xfd7zXZ\0", start + 1)
    raise harness.Skip("the kernel is not compressed with xz")


def kernel_package():
    """The package that linux-image-amd64 stands for."""
    for attempt in ("as is", "with new lists"):
        if attempt != "as is":
            harness.run(["apt-get", "-q", "update"], timeout=300)
        ended = harness.run(["apt-cache", "depends", "linux-image-amd64"], timeout=60)
        found = re.search(r"Depends: (linux-image-\d\S*)", ended.out)
        if found:
            return found.group(1)
    raise harness.Skip("no kernel in /boot, and apt knows no package linux-image-amd64")


def download(folder):
    name = kernel_package()
    for attempt in ("as is", "with new lists"):
        if attempt != "as is":
            harness.run(["apt-get", "-q", "update"], timeout=300)
        ended = harness.run(["apt-get", "-q", "download", name], cwd=folder, timeout=600)
        found = glob.glob(f"{folder}/{name}_*.deb")
        if ended.code == 0 and found:
            return found[0]
    raise harness.Skip(f"no kernel in /boot, and {name} cannot be downloaded: {ended.err.strip()[-200:]}")


def wanted(path):
    return "/boot/vmlinuz-" in path or "/modules." in path or \
        (path.endswith(".ko") and any("/kernel/" + part in path for part in MODULES))


def unpack_package(folder):
    """vmlinuz and modules out of the package, below @folder."""
    deb = download(folder)
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if member.isfile() and wanted("/" + member.name.lstrip("./")):
                    archive.extract(member, folder)
    os.unlink(deb)
    return folder


def copy_installed(folder):
    """The same from a kernel that is installed with its modules; False where there is none."""
    for vmlinuz in sorted(glob.glob("/boot/vmlinuz-*-amd64"), reverse=True):
        modules = "/lib/modules/" + vmlinuz.split("vmlinuz-")[1]
        if not os.path.isdir(modules) or not os.access(vmlinuz, os.R_OK):
            continue
        for path in [vmlinuz] + glob.glob(modules + "/**", recursive=True):
            if os.path.isfile(path) and wanted(path):
                os.makedirs(folder + os.path.dirname(path), exist_ok=True)
                shutil.copy(path, folder + path)
        return True
    return False


@functools.lru_cache(None)
def kernel():
    """(path of vmlinux, folder with lib/modules/VERSION, VERSION)."""
    with locked():
        home = (kit() or cache()) / "kernel"
        if not home.exists():
            depmod = need("depmod", "kmod")
            with tempfile.TemporaryDirectory(dir=cache()) as work:
                folder = work + "/kernel"
                os.mkdir(folder)
                if not copy_installed(folder):
                    need("apt-get", "apt")
                    unpack_package(folder)
                vmlinuz = glob.glob(folder + "/boot/vmlinuz-*")[0]
                version = vmlinuz.split("vmlinuz-")[1]
                pathlib.Path(folder, "vmlinux").write_bytes(elf_of(pathlib.Path(vmlinuz).read_bytes()))
                run(depmod, "-b", folder, version)
                shutil.rmtree(folder + "/boot")
                os.rename(folder, home)
        version = os.listdir(home / "lib/modules")[0]
        return str(home / "vmlinux"), str(home), version


# --- archives -----------------------------------------------------------------------------------------

class Archive:
    """A cpio archive of the kind the kernel unpacks, owned by root whoever makes it."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.folders = set()
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.entry("TRAILER!!!", 0, b"")
        self.file.close()

    def entry(self, name, mode, data):
        self.count += 1
        raw = name.encode() + b"\0"
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        self.file.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def folder(self, name, mode=0o755):
        name = name.strip("/")
        if name and name not in self.folders:
            self.folder(os.path.dirname(name))
            self.folders.add(name)
            self.entry(name, stat.S_IFDIR | mode, b"")

    def text(self, name, data, mode=0o644):
        self.folder(os.path.dirname(name))
        self.entry(name.strip("/"), stat.S_IFREG | mode, data if isinstance(data, bytes) else data.encode())

    def link(self, name, target):
        self.folder(os.path.dirname(name))
        self.entry(name.strip("/"), stat.S_IFLNK | 0o777, target.encode())

    def copy(self, path, name):
        """A file, a link or a folder with all below it."""
        path = str(path)
        if os.path.isdir(path) and not os.path.islink(path):
            self.folder(name)
            for below in sorted(os.listdir(path)):
                self.copy(os.path.join(path, below), name.rstrip("/") + "/" + below)
        elif os.path.islink(path):
            self.link(name, os.readlink(path))
        else:
            self.text(name, pathlib.Path(path).read_bytes(), stat.S_IMODE(os.stat(path).st_mode))


def libraries_of(path):
    """What the dynamic linker would load for it here: (name in the guest, path)."""
    for line in harness.run(["ldd", path]).out.splitlines():
        match = re.match(r"\s*(?:\S+ => )?(/\S+) \(", line)
        if match:
            found = match.group(1)
            # A library of ours lies in the build; in the guest it is where the linker looks anyway.
            yield found if re.match(r"(/usr)?/lib", found) else "/usr/lib/" + os.path.basename(found), found


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def add_program(archive, path, name, added):
    """A file, with the libraries it needs where it is a program."""
    if name in added:
        return
    added.add(name)
    real = os.path.realpath(path)
    archive.copy(real if os.path.isfile(real) else path, name)
    if os.path.isfile(real) and is_elf(real):
        for library, source in libraries_of(path):
            if library not in added:
                added.add(library)
                archive.text(library, pathlib.Path(source).read_bytes(), 0o755)


# --- images -------------------------------------------------------------------------------------------

def busybox():
    path = need("busybox", "busybox-static")
    if list(libraries_of(path)):
        raise harness.Skip("busybox is not static (package busybox-static)")
    return path


def content_key(*paths):
    whole = hashlib.sha256()
    for path in paths:
        whole.update(pathlib.Path(path).read_bytes())
    return whole.hexdigest()[:16]


@functools.lru_cache(None)
def base_image():
    """The part of an image that all machines share. Made again when what goes into it has changed."""
    _, home, version = kernel()
    box, agent = busybox(), harness.program("vm-agent")
    path = cache() / f"base-{content_key(box, agent, HERE / 'init', __file__)}.cpio"
    with locked():
        if not path.exists():
            for old in cache().glob("base-*"):
                old.unlink()
            with Archive(str(path) + ".new") as archive:
                fill_base(archive, box, agent, f"{home}/lib/modules/{version}", version)
            os.rename(str(path) + ".new", path)
    return path


def fill_base(archive, box, agent, modules, version):
    for folder in ("proc", "sys", "dev", "run", "etc", "root", "lib64", "usr/bin", "usr/sbin", "usr/lib"):
        archive.folder(folder)
    archive.folder("tmp", 0o1777)
    for name in ("home/guest", "home/stranger"):
        archive.folder(name, 0o777)
    for name, text in ETC.items():
        archive.text("etc/" + name, text)
    archive.text("init", (HERE / "init").read_bytes(), 0o755)
    archive.copy(box, "bin/busybox")
    for name in harness.run([box, "--list"]).out.split():
        if name != "busybox":
            archive.link("bin/" + name, "busybox")
    add_program(archive, agent, "/bin/vm-agent", set())
    archive.copy(modules, "lib/modules/" + version)


def image(path, programs=(), files=None):
    """Writes an image to @path. @programs: names of programs of the build, or paths, which come to /bin with their
    libraries. @files: {path in the guest: path here, or bytes}; programs among them bring their libraries too."""
    with open(base_image(), "rb") as base:
        head = base.read()
    with tempfile.NamedTemporaryFile() as more:
        with Archive(more.name) as archive:
            added = set()
            for name in programs:
                source = name if "/" in str(name) else harness.program(name)
                add_program(archive, str(source), "/bin/" + os.path.basename(source), added)
            for name, source in (files or {}).items():
                if isinstance(source, bytes):
                    archive.text(name, source)
                elif os.path.isdir(source):
                    archive.copy(source, name)
                else:
                    add_program(archive, str(source), name, added)
        with open(path, "wb") as out:
            out.write(head + b"\0" * (-len(head) % 512) + more.read())
    return path

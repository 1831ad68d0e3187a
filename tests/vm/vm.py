# SPDX-License-Identifier: Apache-2.0
"""A virtual machine for a test: QEMU without KVM, Debian's kernel, and programs of the build inside.

    import harness
    import vm

    def test_guest_sees_the_device(t):
        with vm.Vm(programs=["puppet-guest"], devices=["-device", "ivshmem-plain,memdev=m0", ...]) as machine:
            t.contains(machine.do("cat /sys/bus/pci/devices/*/vendor"), "0x1af4")
            guest = machine.start(["puppet-guest"], env={"GANTRY_DOOR": "ivshmem:"}, user="guest")
            guest.write_line("open")
            t.contains(guest.read_line(), "ok")

    harness.main(globals())

What start() returns answers to what harness.Guest answers to, so that what drives a guest of the host (puppet.py,
scripted.py) drives one in the machine. A machine ends with its `with`, or with the test process whatever ends that.
Every wait has a limit. What the machine lacks (QEMU, a kernel, ...) raises harness.Skip that says so.
"""
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import harness
import image

BOOT_S = float(os.environ.get("GANTRY_TEST_BOOT_S", "120"))
# The kernel looks at its start whether ten ticks of the timer come in time, and panics where they do not: on a busy host
# they may come later than its emulated processor counts.
KERNEL_WORDS = "console=ttyS0 panic=-1 quiet no_timer_check"
HELLO = b"GANTRY-VM-HELLO\n"
PORT_NAME = "org.gantry.test"
RUN, IN, KILL = 1, 2, 3
OUT, ERR, EXIT = 1, 2, 3
CHUNK = 1 << 16


class Lost(harness.Failure):
    """The machine ended or was reset under what was asked of it."""


def die_with_the_test():
    """In QEMU's process: SIGKILL, for one whose main loop stands answers nothing less."""
    ctypes.CDLL(None, use_errno=True).prctl(harness.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# --- programs of the guest ----------------------------------------------------------------------------

class Program:
    """A program that runs in the machine: as harness.Guest."""

    def __init__(self, port, job, argv):
        self.port, self.job, self.argv = port, job, [str(word) for word in argv]
        self.out, self.err = b"", b""
        self.lines = []
        self.code = None
        self.lost = False

    @property
    def ended(self):
        return self.code is not None or self.lost

    def read_line(self, timeout=harness.WAIT_S):
        """The next line of what it prints, without its end; None once it has ended."""
        self.port.pump(lambda: b"\n" in self.out or self.ended, timeout, f"a line of {self.argv[0]}")
        if b"\n" not in self.out:
            if self.lost:
                raise Lost(f"{self.argv[0]}: the machine ended or was reset under it")
            if not self.out:
                return None
            self.out += b"\n"
        line, _, self.out = self.out.partition(b"\n")
        self.lines.append(line.decode(errors="replace"))
        return self.lines[-1]

    def read_until(self, start, timeout=harness.WAIT_S):
        """Reads lines up to one that starts with @start, and returns that."""
        end = time.monotonic() + timeout
        while True:
            line = self.read_line(max(0.0, end - time.monotonic()))
            if line is None:
                raise harness.Failure(f"{self.argv[0]} ended before it printed {start!r}; it said: {self.lines[-5:]}")
            if line.startswith(start):
                return line

    def write(self, data):
        for at in range(0, len(data), CHUNK):
            self.port.say(IN, self.job, data[at:at + CHUNK])

    def write_line(self, text):
        self.write(text.encode() + b"\n")

    def close_input(self):
        self.port.say(IN, self.job, b"")

    def kill(self, number=signal.SIGKILL):
        self.port.say(KILL, self.job, struct.pack("<I", number))

    def wait(self, timeout=harness.WAIT_S):
        """Its exit status (negative: the signal that ended it). Its remaining output is in .lines."""
        end = time.monotonic() + timeout
        while self.read_line(max(0.01, end - time.monotonic())) is not None:
            pass
        return self.code

    def output(self):
        return "\n".join(self.lines)

    def end(self):
        """Kills it, where it still runs."""
        if not self.ended:
            try:
                self.kill()
                self.port.pump(lambda: self.ended, harness.WAIT_S, f"the end of {self.argv[0]}")
            except Lost:
                pass


class Port:
    """The virtio-serial port at which vm-agent is: one stream, many programs."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.setblocking(False)
        self.to_guest = bytearray()
        self.from_guest = bytearray()
        self.programs = {}
        self.jobs = 0
        self.there = False
        self.gone = False

    @classmethod
    def connect(cls, path):
        """The port of a machine that somebody else has started (libvirt), by the socket of its channel."""
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(path))
        return cls(sock)

    def follow(self, path):
        """The machine is in another QEMU now, whose socket is at @path. Nothing may have been on the way."""
        self.sock.close()
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(path))
        self.sock.setblocking(False)
        self.gone = False

    def close(self):
        self.sock.close()
        self.lose_all()

    def lose_all(self):
        for program in self.programs.values():
            program.lost = True
        self.programs.clear()

    def forget(self):
        """The machine was reset, or will be: what is on the way is nobody's."""
        self.there = False
        self.to_guest.clear()
        self.lose_all()

    def wait_hello(self, timeout=BOOT_S):
        self.pump(lambda: self.there, timeout, "the guest's vm-agent")

    def say(self, kind, job, data):
        self.to_guest += struct.pack("<III", kind, job, len(data)) + data
        self.pump(lambda: len(self.to_guest) < 16 * CHUNK, harness.WAIT_S, "the guest to take input")

    def start(self, argv, env=None, user="", cwd="", merged=True):
        """A program of the guest, as @user of its /etc/passwd."""
        self.jobs += 1
        program = self.programs[self.jobs] = Program(self, self.jobs, argv)
        variables = [f"{key}={value}" for key, value in (env or {}).items()]
        words = ["m" if merged else "", user, cwd, str(len(variables)), *variables, *program.argv]
        self.say(RUN, self.jobs, b"".join(str(word).encode() + b"\0" for word in words))
        return program

    def run(self, argv, env=None, user="", cwd="", timeout=harness.WAIT_S, data=b""):
        """Runs a program of the guest to its end, as harness.run(). 124: it took too long and was killed."""
        program = self.start(argv, env, user, cwd, merged=False)
        if data:
            program.write(data)
        program.close_input()
        try:
            self.pump(lambda: program.ended, timeout, "")
            code, note = program.code, b""
        except Lost:
            raise
        except harness.Failure:
            program.end()
            code, note = 124, b"(killed: took too long)"
        if program.lost:
            raise Lost(f"{program.argv[0]}: the machine ended or was reset under it")
        return harness.Ended(code, program.out.decode(errors="replace"), (program.err + note).decode(errors="replace"))

    def do(self, script, **options):
        """Runs a shell script; what it prints, or Failure where it fails."""
        ended = self.run(["sh", "-c", script], **options)
        if ended.code != 0:
            raise harness.Failure(f"in the guest: {script!r}: {ended}")
        return ended.out

    # the stream

    def pump(self, until, timeout, what):
        """Sends and receives until @until says so."""
        end = time.monotonic() + timeout
        while True:
            self.parse()
            if until():
                return
            if self.gone:
                raise Lost(f"the machine ended; awaited was {what}")
            left = end - time.monotonic()
            if left <= 0:
                raise harness.Failure(f"{what}: not within {timeout:g} s")
            self.move(left)

    def move(self, timeout):
        readable, writable, _ = select.select([self.sock], [self.sock] if self.to_guest else [], [], timeout)
        try:
            if readable:
                data = self.sock.recv(CHUNK)
                self.gone = not data
                self.from_guest += data
            if writable:
                del self.to_guest[:self.sock.send(self.to_guest)]
        except BlockingIOError:
            pass
        except OSError:
            self.gone = True
        if self.gone:
            self.lose_all()

    def parse(self):
        if not self.there:
            at = self.from_guest.find(HELLO)
            if at < 0:
                return
            del self.from_guest[:at + len(HELLO)]
            self.there = True
        while len(self.from_guest) >= 12:
            # A frame never starts like this: its type would be too great.
            if self.from_guest.startswith(HELLO[:12]):
                self.forget()
                return self.parse()
            kind, job, size = struct.unpack_from("<III", self.from_guest)
            if len(self.from_guest) < 12 + size:
                return None
            self.take(kind, job, bytes(self.from_guest[12:12 + size]))
            del self.from_guest[:12 + size]
        return None

    def take(self, kind, job, data):
        program = self.programs.get(job)
        if not program:
            return
        if kind == OUT:
            program.out += data
        elif kind == ERR:
            program.err += data
        elif kind == EXIT:
            program.code = struct.unpack("<i", data)[0]
            del self.programs[job]


# --- QEMU ---------------------------------------------------------------------------------------------

class Refused(harness.Failure):
    """QEMU answered a command with an error."""


class Qmp:
    """QEMU's monitor. Events are kept in .events until asked for."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""
        self.events = []
        self.greeted = False

    def message(self, timeout, what):
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise harness.Failure(f"QEMU's monitor: {what}: not within {timeout:g} s")
            data = self.sock.recv(CHUNK)
            if not data:
                raise Lost(f"QEMU ended; awaited was {what}")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def ask(self, command, timeout=harness.WAIT_S, **arguments):
        """What a command returns. Arguments' underscores stand for dashes; Refused with QEMU's words."""
        if not self.greeted:
            self.greeted = True
            self.message(timeout, "its greeting")
            self.ask("qmp_capabilities")
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.sock.sendall(json.dumps({"execute": command, "arguments": named}).encode() + b"\n")
        while True:
            answer = self.message(timeout, command)
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise Refused(f"{command}: {answer['error']['desc']}")
            elif "return" in answer:
                return answer["return"]

    def wait_event(self, name, timeout=harness.WAIT_S, **data):
        """The first event of that name whose data has these values; it and those before it are forgotten."""
        end = time.monotonic() + timeout
        while True:
            while self.events:
                event = self.events.pop(0)
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    return event
            self.events.append(self.message(max(0.0, end - time.monotonic()), f"event {name}"))


class Vm:
    """A machine that has booted, or the exception that says why not.

    programs, files: what the guest has beyond busybox; see image.image(). devices: words for QEMU's command line.
    modules: kernel modules to load at start. shared_memory: for vhost-user devices. append: words for the kernel.
    A guest that panics or reboots by itself ends the machine.
    """

    def __init__(self, programs=(), files=None, machine="pc", memory="256M", cpus=2, modules=(), devices=(),
                 shared_memory=False, append="", wait=True):
        self.qemu = image.need("qemu-system-x86_64", "qemu-system-x86")
        vmlinux, _, self.kernel_version = image.kernel()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-vm-"))
        self.process = self.port = self.qmp = None
        try:
            initrd = image.image(self.folder / "initrd", programs, files)
            words = [KERNEL_WORDS, append]
            if modules:
                words.append("gantry.modules=" + ",".join(modules))
            self.launch(vmlinux, initrd, " ".join(filter(None, words)), machine, memory, cpus, shared_memory,
                        [str(word) for word in devices])
            if wait:
                self.port.wait_hello()
        except BaseException as error:
            if not isinstance(error, harness.Skip):
                self.report()
            self.close()
            raise

    def launch(self, vmlinux, initrd, append, machine, memory, cpus, shared_memory, devices):
        mine, ports = zip(*(socket.socketpair() for _ in range(2)))
        argv = [self.qemu, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
                "-name", "gantry-test", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus), "-m", memory]
        argv += ["-M", machine + (",memory-backend=ram" if shared_memory else "")]
        if shared_memory:
            argv += ["-object", f"memory-backend-memfd,id=ram,size={memory},share=on"]
        argv += ["-kernel", vmlinux, "-initrd", str(initrd), "-append", append,
                 "-serial", f"file:{self.folder}/console",
                 "-chardev", f"socket,id=gantry-port,fd={ports[0].fileno()}", "-device", "virtio-serial",
                 "-device", f"virtserialport,chardev=gantry-port,name={PORT_NAME}",
                 "-chardev", f"socket,id=gantry-qmp,fd={ports[1].fileno()}",
                 "-mon", "chardev=gantry-qmp,mode=control"] + devices
        with open(self.folder / "qemu.log", "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            pass_fds=[port.fileno() for port in ports], start_new_session=True,
                                            preexec_fn=die_with_the_test)
        for port in ports:
            port.close()
        self.port, self.qmp = Port(mine[0]), Qmp(mine[1])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and not issubclass(kind, harness.Skip):
            self.report()
        self.close()

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        if self.port:
            self.port.close()
            self.qmp.sock.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def text(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def console(self):
        """What the guest's kernel and init printed."""
        return self.text("console")

    def report(self):
        """What helps to understand a failure, as TAP comments."""
        for name in ("qemu.log", "console"):
            for line in self.text(name).splitlines()[-40:]:
                print(f"# {name}: {line.strip()}", flush=True)

    def cpu_s(self):
        """Seconds of CPU time that QEMU has had."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as text:
            fields = text.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    # in the guest

    def start(self, argv, **options):
        return self.port.start(argv, **options)

    def run(self, argv, **options):
        return self.port.run(argv, **options)

    def do(self, script, **options):
        return self.port.do(script, **options)

    def put(self, name, data, mode=0o644):
        """Writes a file of the running guest."""
        ended = self.run(["sh", "-c", f'cat >"$0" && chmod {mode:o} "$0"', name], data=data)
        if ended.code != 0:
            raise harness.Failure(f"in the guest: writing {name}: {ended}")

    def get(self, name):
        """The bytes of a file of the running guest."""
        program = self.start(["cat", name], merged=False)
        self.port.pump(lambda: program.ended, harness.WAIT_S, f"the file {name}")
        if program.code != 0:
            raise harness.Failure(f"in the guest: reading {name}: {program.err.decode(errors='replace')}")
        return program.out

    def pci(self, vendor="1af4", device=None):
        """Addresses of the PCI devices of a vendor, and of a kind of device, that the guest sees."""
        pattern = f"0x{vendor} 0x{device}" if device else f"0x{vendor} "
        listed = self.do('cd /sys/bus/pci/devices && for d in *; do echo "$d $(cat $d/vendor) $(cat $d/device)"; done')
        return [line.split()[0] for line in listed.splitlines() if pattern in line]

    # from outside

    def ask(self, command, **arguments):
        """A command of QEMU's monitor."""
        return self.qmp.ask(command, **arguments)

    def device_add(self, driver, **properties):
        return self.ask("device_add", driver=driver, **properties)

    def device_del(self, name, timeout=harness.WAIT_S):
        """Unplugs, and waits until the guest has let go of it."""
        self.ask("device_del", id=name)
        self.qmp.wait_event("DEVICE_DELETED", timeout, device=name)

    def reset(self, timeout=BOOT_S):
        """As the reset button does; back when the guest has booted again."""
        self.port.pump(lambda: not self.port.to_guest, harness.WAIT_S, "the guest to take input")
        self.port.forget()
        self.port.from_guest.clear()
        self.ask("set-action", reboot="reset")
        self.ask("system_reset")
        self.port.wait_hello(timeout)
        self.ask("set-action", reboot="shutdown")

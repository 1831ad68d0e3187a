# SPDX-License-Identifier: Apache-2.0
"""A private gantryd for a test, programs that use it, and TAP. Python 3 standard library only.

    import harness

    def test_victim_goes_on(t):
        with harness.Agent(devices={"cpu0": {}}, tenants={"red": {"mem": "256M"}}) as agent:
            guest = agent.guest("red", [harness.program("spin-guest"), "10"])
            t.equal(guest.read_line(), "ready")
            agent.kill_worker(agent.ctl_json("session", "list")["sessions"][0]["worker_pid"])
            t.equal(guest.wait(), 0)

    harness.main(globals())

Programs are found in the build folder (GANTRY_BUILD, else GANTRY_BUILD_DIR); see program(). Nothing here waits for
a fixed time: every wait is for an event or a condition, and has a limit. Whatever a test starts is ended with it;
when it fails, the agent's log and the last lines of its guests are printed as TAP comments.
"""
import atexit
import ctypes
import functools
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

SOURCE = pathlib.Path(__file__).resolve().parents[2]
READY_S = float(os.environ.get("GANTRY_TEST_READY_S", "60"))
WAIT_S = float(os.environ.get("GANTRY_TEST_WAIT_S", "60"))
# A machine that others use too may take so many times as long as a test was written for. Limits are for what hangs.
PATIENCE = 3
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Skip(Exception):
    """The machine lacks something: the test is skipped, and says what."""


class Failure(Exception):
    """What a test expected did not come."""


# --- the build ----------------------------------------------------------------------------------------

def build_dir():
    named = os.environ.get("GANTRY_BUILD") or os.environ.get("GANTRY_BUILD_DIR")
    # In a bundle the tests lie beside what they test.
    folder = pathlib.Path(named) if named else SOURCE if (SOURCE / "bundle.json").exists() else SOURCE / "build"
    if not (folder / "build.ninja").exists() and not (folder / "bin").exists():
        raise Skip(f"no build in {folder}: set GANTRY_BUILD")
    return folder.resolve()


def build_folders():
    """Each folder of the build with its files; without the objects, and without bundle and packages: copies for users
    that lack test modules or filters."""
    for folder, subfolders, files in os.walk(build_dir()):
        subfolders[:] = sorted(sub for sub in subfolders
                               if not sub.endswith(".p") and sub not in ("meson-private", "bundle", "deb"))
        yield folder, files


def find_in_build(name, accept):
    for folder, files in build_folders():
        if name in files and accept(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return None


def program(name):
    """The path of a program of the build. GANTRY_PROGRAM_<NAME> (dashes as underscores) names another."""
    path = os.environ.get("GANTRY_PROGRAM_" + name.upper().replace("-", "_"))
    path = path or find_in_build(name, lambda found: os.access(found, os.X_OK))
    if not path:
        raise Skip(f"the build has no {name}")
    return path


def need_other_users():
    """The root folder itself may be closed to all but root: that of a change-root made by mktemp is."""
    try:
        subprocess.run(["/bin/true"], cwd="/", user=65534, group=65534, extra_groups=[], check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Skip(f"no user but root can run a program here: {error}") from None


@functools.lru_cache(maxsize=None)
def public_folder():
    """A folder that every user may read; the build may lie where only its owner can enter."""
    need_other_users()
    path = tempfile.mkdtemp(prefix="gantry-public-")
    os.chmod(path, 0o755)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.lru_cache(maxsize=None)
def public_program(name):
    """A copy of a program of the build that another user can run."""
    return shutil.copy2(program(name), os.path.join(public_folder(), name))


def public_modules(dirs):
    """Copies of module folders that a worker of another user can read."""
    copies = []
    for number, source in enumerate(dirs):
        target = os.path.join(public_folder(), f"modules-{number}")
        shutil.copytree(source, target, dirs_exist_ok=True,
                        ignore=lambda folder, names: [name for name in names
                                                      if not name.endswith((".manifest", ".so"))])
        copies.append(target)
    return copies


def library_dir():
    """Where libgantry.so is, for LD_LIBRARY_PATH."""
    for name in ("libgantry.so", "libgantry.so.0"):
        path = find_in_build(name, os.path.exists)
        if path:
            return os.path.dirname(path)
    raise Skip("the build has no libgantry.so")


def module_dirs():
    """Folders of the build that hold kernel modules: those of manifests, the tests' own ones last."""
    found = []
    for folder, files in build_folders():
        # gpu-fake stands in for core on the fake driver, and so does what unit tests make: named where they are wanted.
        if "/tests/unit/" in folder + "/":
            continue
        if any(name.endswith(".manifest") and name != "gpu-fake.manifest" for name in files):
            found.append(folder)
    return sorted(found, key=lambda path: ("test" in os.path.basename(path), path))


# --- waiting ------------------------------------------------------------------------------------------

def wait_until(condition, what, timeout=WAIT_S):
    """Asks @condition until it says something true, which is returned. Raises Failure naming @what."""
    timeout = max(timeout, min(WAIT_S, PATIENCE * timeout))
    end = time.monotonic() + timeout
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {timeout:g} s")
        select.select([], [], [], pause)
        pause = min(pause * 2, 0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- processes ----------------------------------------------------------------------------------------

def adopt_orphans():
    """Processes whose parent ends become ours, so that none can hide from the clean-up."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return int(fields[1]) if fields[0] != "Z" else None
    except (OSError, IndexError):
        return None


def alive(pid):
    return parent_of(pid) is not None


def descendants(root):
    """Live processes below @root, parents first."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = parent_of(int(entry))
            if parent is not None:
                children.setdefault(parent, []).append(int(entry))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(0), [])
        found += below
        todo += below
    return found


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as text:
            return text.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def cpu_s(*pids):
    """Seconds of processor time that these processes have used."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def send_signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def reap():
    """Collects orphans that became ours and have ended."""
    mine = {guest.process.pid for guest in Guest.running}
    mine |= {agent.monitor.pid for agent in Agent.current if agent.monitor}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in mine:
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                os.waitpid(int(entry), os.WNOHANG)
        except OSError:
            pass


class Guest:
    """A program under test with its output in pipes. Lines are read with a limit in time."""

    running = []

    def __init__(self, argv, env=None, **options):
        self.argv = [str(word) for word in argv]
        self.buffer = b""
        self.lines = []
        self.process = subprocess.Popen(self.argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True, **options)
        Guest.running.append(self)

    @property
    def pid(self):
        return self.process.pid

    def read_line(self, timeout=WAIT_S):
        """The next line of what it prints, without its end; None once it has closed its output."""
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failure(f"{self.argv[0]} printed no line within {timeout:g} s")
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                if not self.buffer:
                    return None
                self.buffer += b"\n"
                break
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        self.lines.append(line.decode(errors="replace"))
        return self.lines[-1]

    def has_line(self):
        """Whether read_line() would not wait long."""
        return b"\n" in self.buffer or bool(select.select([self.process.stdout], [], [], 0)[0])

    def read_until(self, start, timeout=WAIT_S):
        """Reads lines up to one that starts with @start, and returns that."""
        end = time.monotonic() + timeout
        while True:
            line = self.read_line(max(0.0, end - time.monotonic()))
            if line is None:
                raise Failure(f"{self.argv[0]} ended before it printed {start!r}; it said: {self.lines[-5:]}")
            if line.startswith(start):
                return line

    def write_line(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        send_signal(self.process.pid, number)

    def wait(self, timeout=WAIT_S):
        """Its exit status (negative: the signal that ended it). Its remaining output is in .lines."""
        end = time.monotonic() + timeout
        while self.read_line(max(0.01, end - time.monotonic())) is not None:
            pass
        try:
            return self.process.wait(max(0.01, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.argv[0]} did not end within {timeout:g} s") from None

    def output(self):
        return "\n".join(self.lines)

    def end(self):
        for pid in descendants(self.process.pid) + [self.process.pid]:
            send_signal(pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
        if self in Guest.running:
            Guest.running.remove(self)


class Ended:
    """What a command did: .code, .out, .err."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"exit {self.code}, out {self.out!r}, err {self.err!r}"


def end_with_the_test():
    """In a child: whatever ends this test, SIGKILL too, the child is told to end (a monitor ends the rest in order)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def run(argv, env=None, timeout=WAIT_S, **options):
    """Runs a command to its end. 124: it took too long and was killed."""
    process = subprocess.Popen([str(word) for word in argv], env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **options)
    try:
        out, err = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = 124
        err += b"(killed: took too long)"
    return Ended(code, out.decode(errors="replace"), err.decode(errors="replace"))


# --- the agent ----------------------------------------------------------------------------------------

def config_text(agent=None, devices=None, tenants=None):
    """An ini file: {"cpu0": {"cores": 1}} becomes a section [device cpu0]. A key whose value is None is left out."""
    lines = ["[agent]"]
    lines += [f"{key} = {value}" for key, value in (agent or {}).items()]
    for kind, sections in (("device", devices or {}), ("tenant", tenants or {})):
        for name, keys in sections.items():
            lines += ["", f"[{kind} {name}]"]
            lines += [f"{key} = {value}" for key, value in keys.items() if value is not None]
    return "\n".join(lines) + "\n"


class Agent:
    """A gantryd with its own run, state and configuration folders under one temporary folder.

    agent, devices, tenants: sections of the configuration; a device without keys gets backend=cpu cores=1 mem=1G.
    start=False: only the folders and the configuration are made.
    """

    current = []

    def __init__(self, devices=None, tenants=None, agent=None, start=True, options=(), env=None, modules=True):
        for name in ("gantryd", "gantry-worker", "gantryctl"):
            program(name)
        found = module_dirs() if modules else []
        if modules and not found:
            raise Skip("the build has no kernel modules")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="gantry-"))
        os.chmod(self.root, 0o755)
        self.run_dir = self.root / "run"
        self.state_dir = self.root / "state"
        self.config = self.root / "gantryd.conf"
        self.admin = self.run_dir / "admin.sock"
        self.log_path = self.root / "gantryd.log"
        for folder in (self.run_dir, self.state_dir):
            folder.mkdir(mode=0o755)
        self.options = [str(word) for word in options]
        self.env = dict(os.environ, **(env or {}))
        self.monitor = None
        self.guests = []
        self.known_pids = set()
        self.sections = {"agent": {"admin": str(self.admin), "warm_workers": 1},
                         "devices": {}, "tenants": {}}
        if modules:
            self.sections["agent"]["module_dirs"] = ":".join(self.short(found))
        self.sections["agent"].update(agent or {})
        for name, keys in (devices if devices is not None else {"cpu0": {}}).items():
            made = {"backend": "cpu", "cores": 1, "mem": "1G"} if keys.get("backend", "cpu") not in ("cuda", "opencl", "hip") else {}
            self.sections["devices"][name] = {**made, **keys}
        for name, keys in (tenants if tenants is not None else {"red": {}}).items():
            self.sections["tenants"][name] = {"mem": "256M", "devices": "all", **keys}
        self.write_config()
        Agent.current.append(self)
        if start:
            try:
                self.start()
            except BaseException:
                self.report()
                self.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and not issubclass(kind, Skip):
            self.report()
        self.close()

    # configuration

    def short(self, folders):
        """The same folders by names that fit into one line of a configuration, wherever the build lies."""
        if len(":".join(folders)) <= 160:
            return folders
        links = []
        for number, folder in enumerate(folders):
            links.append(str(self.root / f"m{number}"))
            os.symlink(folder, links[-1])
        return links

    def write_config(self, text=None):
        self.config.write_text(text if text is not None else config_text(**self.sections))

    def set_tenant(self, name, **keys):
        """Changes the file only; reload() makes the agent read it."""
        self.sections["tenants"].setdefault(name, {"mem": "256M", "devices": "all"}).update(keys)
        self.write_config()

    # start and end

    def argv(self):
        return [program("gantryd"), "--config", str(self.config), "--run-dir", str(self.run_dir),
                "--state-dir", str(self.state_dir), "--worker", program("gantry-worker")] + self.options

    def start(self, ready=True):
        notify_path = self.root / "notify"
        notify_path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, open(self.log_path, "ab") as log:
            notify.bind(str(notify_path))
            os.chmod(notify_path, 0o666)
            self.monitor = subprocess.Popen(self.argv(), env=dict(self.env, NOTIFY_SOCKET=str(notify_path)),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            cwd=self.root, start_new_session=True, preexec_fn=end_with_the_test)
            if ready:
                self.wait_ready(notify=notify)
        return self

    def answers(self):
        """Does anything accept connections on the admin socket?"""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self.admin))
            except OSError:
                return False
            return True

    def wait_ready(self, timeout=READY_S, notify=None):
        """Until the agent answers a version request and every tenant's door is there."""
        end = time.monotonic() + timeout
        while True:
            if self.monitor.poll() is not None:
                raise Failure(f"gantryd ended with status {self.monitor.returncode} before it was ready")
            if self.answers() and self.ctl("--timeout", "2s", "version").code == 0 and self.doors_there():
                self.remember()
                return
            if time.monotonic() > end:
                raise Failure(f"gantryd was not ready within {timeout:g} s")
            # Its READY=1 ends the pause early; an agent that sends none is asked again soon.
            select.select([notify] if notify else [], [], [], 0.02)
            if notify and select.select([notify], [], [], 0)[0]:
                notify.recv(4096)

    def doors_there(self):
        return all(os.path.exists(self.door(name)) for name in self.sections["tenants"])

    def remember(self):
        if self.monitor:
            self.known_pids.update(descendants(self.monitor.pid))

    def pids(self):
        """Live processes of this agent: monitor, agent, workers."""
        self.remember()
        mine = set(self.known_pids)
        if self.monitor:
            mine.add(self.monitor.pid)
        # After the monitor's death its children are ours; they carry the run folder on their command line or had
        # been seen before.
        for pid in descendants(os.getpid()):
            if str(self.run_dir) in command_of(pid) or parent_of(pid) in mine:
                mine.add(pid)
        return sorted(pid for pid in mine if alive(pid) and pid not in {guest.pid for guest in self.guests})

    def stop(self, timeout=10):
        """SIGTERM, as systemd would. Returns processes that outlived it (and kills them)."""
        if not self.monitor:
            return []
        mine = self.pids()
        if self.monitor.poll() is None:
            self.monitor.send_signal(signal.SIGTERM)
            try:
                self.monitor.wait(timeout)
            except subprocess.TimeoutExpired:
                pass
        end = time.monotonic() + 2
        left = mine
        while left and time.monotonic() < end:
            reap()
            left = [pid for pid in mine if alive(pid)]
            select.select([], [], [], 0.005 if left else 0)
        left = [(pid, command_of(pid)) for pid in left]
        self.kill_all()
        self.monitor = None
        return left

    def kill_all(self):
        """Parents first, so that none starts another; until none is left."""
        end = time.monotonic() + 5
        while time.monotonic() < end:
            mine = self.pids()
            if not mine:
                break
            for pid in mine:
                send_signal(pid, signal.SIGKILL)
            if self.monitor:
                self.monitor.poll()
            reap()
            select.select([], [], [], 0.002)
        if self.monitor:
            self.monitor.wait()

    def close(self):
        for guest in list(self.guests):
            guest.end()
        self.stop()
        if self in Agent.current:
            Agent.current.remove(self)
        if not os.environ.get("GANTRY_TEST_KEEP"):
            shutil.rmtree(self.root, ignore_errors=True)

    # speaking with it

    def ctl(self, *args, timeout=WAIT_S):
        """gantryctl ARGS at this agent's admin socket."""
        return run([program("gantryctl"), "--socket", self.admin, *args], env=self.env, timeout=timeout)

    def ctl_json(self, *args):
        """The object that gantryctl --json prints; Failure when it fails."""
        ended = self.ctl("--json", *args)
        if ended.code != 0:
            raise Failure(f"gantryctl {' '.join(map(str, args))}: {ended}")
        return ended.json()

    def reload(self):
        return self.ctl("reload")

    def version(self):
        return self.ctl_json("version")["agent"]

    def sessions(self):
        return self.ctl_json("session", "list")["sessions"]

    def workers(self):
        return self.ctl_json("worker", "list")["workers"]

    def agent_pid(self):
        return self.version()["pid"]

    def kill_agent(self, number=signal.SIGKILL):
        send_signal(self.agent_pid(), number)

    def kill_monitor(self, number=signal.SIGKILL):
        self.remember()
        send_signal(self.monitor.pid, number)
        self.monitor.wait()

    def kill_worker(self, pid, number=signal.SIGKILL):
        self.remember()
        send_signal(pid, number)

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def door(self, tenant):
        return str(self.run_dir / "doors" / tenant / "door")

    def guest_env(self, tenant):
        env = dict(self.env, GANTRY_DOOR="unix:" + self.door(tenant))
        env["LD_LIBRARY_PATH"] = library_dir() + (":" + env["LD_LIBRARY_PATH"] if env.get("LD_LIBRARY_PATH") else "")
        return env

    def guest(self, tenant, argv, env=None, **options):
        """Starts a guest program of @tenant."""
        guest = Guest(argv, env=dict(self.guest_env(tenant), **(env or {})), **options)
        self.guests.append(guest)
        return guest

    def run_guest(self, tenant, argv, env=None, timeout=WAIT_S):
        return run(argv, env=dict(self.guest_env(tenant), **(env or {})), timeout=timeout)

    def report(self):
        """What helps to understand a failure, as TAP comments."""
        for line in self.log().splitlines()[-80:]:
            print(f"# gantryd: {line}")
        for guest in self.guests:
            try:
                while select.select([guest.process.stdout], [], [], 0)[0] and guest.read_line(0.1) is not None:
                    pass
            except (Failure, OSError, ValueError):
                pass
            for line in guest.lines[-20:]:
                print(f"# {os.path.basename(guest.argv[0])}[{guest.pid}]: {line}")
        sys.stdout.flush()


# --- TAP ----------------------------------------------------------------------------------------------

class Checks:
    """What a test function gets: checks that say what they saw."""

    def true(self, value, what="expected something true"):
        if not value:
            raise Failure(what)

    def equal(self, seen, wanted, what=""):
        if seen != wanted:
            raise Failure(f"{what + ': ' if what else ''}expected {wanted!r}, saw {seen!r}")

    def contains(self, text, part, what=""):
        if part not in text:
            raise Failure(f"{what + ': ' if what else ''}{part!r} is not in {text!r}")

    def below(self, value, limit, what=""):
        if not value < limit:
            raise Failure(f"{what + ': ' if what else ''}{value!r} is not below {limit!r}")

    def code(self, ended, wanted, what=""):
        if ended.code != wanted:
            raise Failure(f"{what + ': ' if what else ''}expected exit {wanted}: {ended}")

    def skip(self, reason):
        raise Skip(reason)

    def note(self, text):
        """A line for whoever reads the log."""
        for line in str(text).splitlines():
            print(f"# {line}")
        sys.stdout.flush()


class TookTooLong(Exception):
    pass


def on_alarm(_number, _frame):
    raise TookTooLong()


def clean_up():
    for guest in list(Guest.running):
        guest.end()
    for agent in list(Agent.current):
        agent.close()


def run_test(name, function, limit_s):
    """One TAP point's text after its number, and whether it passed."""
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        function(Checks())
        return True, ""
    except Skip as reason:
        return True, f" # SKIP {reason}"
    except TookTooLong:
        print(f"# {name}: took longer than {limit_s:g} s, at:")
        print("# " + traceback.format_exc().replace("\n", "\n# "))
    except Failure as failure:
        where = traceback.extract_tb(failure.__traceback__)
        mine = [frame for frame in where if frame.filename != __file__] or where
        print(f"# {os.path.basename(mine[-1].filename)}:{mine[-1].lineno}: {failure}".replace("\n", "\n# "))
    except Exception:  # pylint: disable=broad-except
        print("# " + traceback.format_exc().replace("\n", "\n# "))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        clean_up()
    return False, ""


def main(namespace, limit_s=60):
    """Runs every test_* function of @namespace in the order they are written, or those named as arguments."""
    adopt_orphans()
    # A shell that starts us in the background has SIGINT ignored, and our children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout.reconfigure(line_buffering=True)
    limit_s *= PATIENCE * float(os.environ.get("GANTRY_TEST_SLOWDOWN", "1"))
    tests = [(name, function) for name, function in namespace.items()
             if name.startswith("test_") and callable(function)]
    if len(sys.argv) > 1:
        tests = [(name, function) for name, function in tests if any(word in name for word in sys.argv[1:])]
    failed = 0
    print(f"1..{len(tests)}")
    for number, (name, function) in enumerate(tests, 1):
        passed, note = run_test(name, function, getattr(function, "limit_s", limit_s))
        title = name[len("test_"):].replace("_", " ")
        print(f"{'' if passed else 'not '}ok {number} - {title}{note}")
        failed += not passed
    sys.exit(1 if failed else 0)

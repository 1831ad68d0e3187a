# SPDX-License-Identifier: Apache-2.0
"""Other builds of gantryd and of its worker, how one is asked to take over, and guests whose tasks are counted."""
import os
import shutil
import tempfile

import harness
from scripted import Scripted

FORMATS = ("monitor", "names", "journal", "ledger", "pages", "worker", "doormem", "wire")


class Builds:
    """Programs of other builds in a folder of the test, where they can be replaced and spoilt."""

    def __init__(self, agent):
        self.agent = agent
        self.ranges = None
        self.folder = agent.root / "builds"
        self.folder.mkdir(exist_ok=True)

    def copy(self, name, to=None):
        path = self.folder / (to or name)
        path.unlink(missing_ok=True)
        shutil.copy2(harness.program(name), path)
        path.chmod(0o755)
        return path

    def hello(self, version="9.2.0", problem=None, **formats):
        """What a gantryd says of itself; formats: name="OLDEST NEWEST", the others as this tree has them."""
        if not self.ranges:
            ended = upgrade(self.agent, "--json", "--check", "--binary", self.copy("gantryd-next", "gantryd-asked"))
            self.ranges = {row["name"]: f'{row["oldest"]} {row["newest"]}' for row in ended.json()["upgrade"]["formats"]}
        lines = [f"gantryd {version}"]
        lines += [f"format {name} {span}" for name, span in (self.ranges | formats).items()]
        return "\n".join(lines + ([f"problem {problem}"] if problem else []) + ["end", ""])

    def newest(self, name):
        """The version of a format that this tree writes."""
        self.hello()
        return int(self.ranges[name].split()[1])

    def liar(self, does, text=None):
        if text is None:
            text = self.hello()
        path = self.copy("gantryd-liar", f"liar-{does}")
        path.with_name(path.name + ".does").write_text(f"{does}\n{text}")
        return path


def upgrade(agent, *args):
    return agent.ctl("agent", "upgrade", *args, timeout=90)


def version_of(agent):
    return agent.version()["version"]


def program_of(pid):
    """Its path; "" of a process that has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return ""


def fds_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def counting(agent, tenant="red", n=4000):
    """A guest whose tasks each add one to a number: one that is lost, or runs twice, shows."""
    guest = Scripted(agent, tenant)
    guest.ask("queue q")
    guest.ask("buffer b 64 device")
    guest.ask("float b 0")
    guest.ask(f"add q t b {n}")
    return guest


def counted(t, guest, n=4000):
    """All of its tasks have run, once each."""
    guest.ask("wait t 60000", timeout=70)
    t.equal(float(guest.ask("float b")), float(n), "tasks that ran")


def begin(agent, path, *options):
    """gantryctl agent upgrade, not waited for."""
    return harness.Guest([harness.program("gantryctl"), "--socket", str(agent.admin), "agent", "upgrade", "--binary",
                          str(path), *options])


def candidate(agent, path, asked=None):
    """The process that runs @path beside the agent, once there is one. None where @asked has ended before any was seen."""
    def find():
        over = asked and asked.process.poll() is not None
        for pid in harness.descendants(os.getpid()):
            words = harness.command_of(pid)
            if "--standby" in words and str(agent.run_dir) in words and program_of(pid) == str(path):
                return [pid]
        return [None] if over else []
    return harness.wait_until(find, "the candidate")[0]


def frozen(agent, path):
    """Its agent waits for the monitor's word, and does nothing else; the candidate of @path has everything. Its pid."""
    journal = agent.run_dir / "journal"
    harness.wait_until(lambda: "\nupgrade 3 " in journal.read_text(), "the agent has yielded")
    pid = candidate(agent, path)
    harness.wait_until(lambda: fds_of(pid) > 12, "the candidate has what is kept")
    return pid


def serves(agent):
    harness.wait_until(lambda: agent.ctl("--timeout", "2s", "version").code == 0, "an agent serves")
    return agent.agent_pid()


class OwnWorkerFile:
    """The worker program as a file of the test's own, where another build can be put in its place."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="gantry-worker-")
        self.source = harness.program("gantry-worker")
        self.path = os.path.join(self.folder, "gantry-worker")
        shutil.copy2(self.source, self.path)
        os.environ["GANTRY_PROGRAM_GANTRY_WORKER"] = self.path
        return self

    def replace(self):
        shutil.copy2(self.source, self.path + ".new")
        os.rename(self.path + ".new", self.path)

    def __exit__(self, *what):
        del os.environ["GANTRY_PROGRAM_GANTRY_WORKER"]
        shutil.rmtree(self.folder, ignore_errors=True)


class OwnWorkers(harness.Agent):
    """Each build of gantryd takes the worker beside it."""

    def argv(self):
        words = super().argv()
        at = words.index("--worker")
        return words[:at] + words[at + 2:]


def next_build(agent):
    builds = Builds(agent)
    builds.copy("gantry-worker")
    return builds.copy("gantryd-next")


def own_workers(red=None, blue=None):
    return OwnWorkers(tenants={"red": dict(red or {}), "blue": dict(blue or {})})

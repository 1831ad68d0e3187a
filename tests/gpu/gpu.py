# SPDX-License-Identifier: Apache-2.0
"""Worlds of GPUs for the tests of this folder: a private gantryd over harness.py, whatever plays the GPU.

GANTRY_GPU_BACKEND says what does: cuda (real GPUs), fakecuda (our backend over the fake driver of tests/fakecuda),
cpu (cpu devices with windows: slabs, steward and all, but kernels of the host). GANTRY_GPUS: how many there are. Where there
is one, what wants two devices gets one GPU as two, each with a part of its memory, unless it wants GPUs (apart).
"""
import atexit
import contextlib
import functools
import os
import pathlib
import re
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
import harness  # pylint: disable=wrong-import-position
import machine  # pylint: disable=wrong-import-position
from scripted import Scripted, session_of, worker_of  # pylint: disable=wrong-import-position,unused-import

BACKEND = os.environ.get("GANTRY_GPU_BACKEND", "cpu")
REAL = BACKEND == "cuda"
KIND = 1 if BACKEND == "cpu" else 2
GPUS = int(os.environ.get("GANTRY_GPUS", "2"))
MIB = 1 << 20
# What a test calls much memory: gibibytes where there are, and what two cores fill in a moment elsewhere.
BIG = (2048 if REAL else 64) * MIB
MODES = ("isolated", "packed", "pooled")
LIMIT_S = 120 if REAL else 90


class Divided:
    """What the latest sections() were: of one GPU as two devices, what is measured is named so."""
    now = False


FAKE_MEM = 1 << 30


def divided_mem(count):
    """Bytes for each of @count devices of one GPU: contexts and the driver want some, too."""
    whole = machine.find_gpus()[1][0]["mem_bytes"] if REAL else FAKE_MEM
    return f"{whole * 4 // 5 // count // MIB}M"


def can_divide(count):
    return BACKEND != "cpu" and GPUS == 1 and count == 2


def sections(count=1, apart=False, **keys):
    """Device sections gpu0, gpu1, ..., or Skip where there are fewer. @apart: parts of one GPU will not do."""
    Divided.now = count > GPUS and can_divide(count) and not apart
    if GPUS < count and not Divided.now:
        raise harness.Skip(f"{count} GPUs are wanted, there {'is one' if GPUS == 1 else f'are {GPUS}'}")
    if BACKEND == "cpu":
        base = {"backend": "cpu", "cores": 1, "mem": "1G", "window": os.environ.get("GANTRY_GPU_WINDOWS", "yes")}
    else:
        base = {"backend": "cuda"}
    if Divided.now:
        print("# one GPU as two devices", flush=True)
        base["mem"] = divided_mem(count)
    found = {}
    for index in range(count):
        number = {} if BACKEND == "cpu" else {"gpu": 0 if Divided.now else index}
        found[f"gpu{index}"] = {**base, **number, **fake_libraries(), **keys}
    return found


def needs_backend(name, **keys):
    """Skip where the build knows no such backend, or not with these keys."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(harness.config_text(devices={"x": {"backend": name, **keys}}))
        file.flush()
        checked = harness.run([harness.program("gantryctl"), "config", "check", file.name])
    if checked.code != 0:
        raise harness.Skip(f"this build has no backend {name}: {checked.err.strip()}")


def fake_libraries():
    if BACKEND != "fakecuda":
        return {}
    found = {}
    for key, name in (("driver", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1"), ("nvrtc", "libnvrtc.so")):
        # Of our own libraries one has the name of NVIDIA's.
        found[key] = harness.find_in_build(name, lambda path: "fakecuda" in path)
        if not found[key]:
            raise harness.Skip(f"the build has no fake {name}")
    return found


def fake_modules():
    """On the fake driver, a module for it instead of core, whose device code is for GPUs."""
    if BACKEND != "fakecuda":
        return {}
    path = harness.find_in_build("gpu-fake.manifest", os.path.exists)
    if not path:
        raise harness.Skip("the build has no kernels for the fake driver")
    return {"module_dirs": os.path.dirname(path)}


def needs_packed():
    """Packed workers share a GPU through MPS, or its fake."""
    if BACKEND == "cpu":
        raise harness.Skip("packed workers share a GPU through NVIDIA's MPS; cpu devices have no such thing")


def world(tenants=None, count=1, mode="isolated", group="lab", agent=None, device=None, env=None, apart=False, **options):
    """A gantryd with @count GPUs (see sections()). Tenants get room, @mode, and one trust group."""
    keys = {"mem": "8G" if REAL else "512M", "virtual": "16G" if REAL else "2G", "heap": "64M", "isolation": mode}
    if mode != "isolated":
        keys["trust_group"] = group
    if mode == "packed":
        needs_packed()
    served = {name: {**keys, **own} for name, own in (tenants or {"red": {}}).items()}
    mps = fake_mps() if mode == "packed" and BACKEND == "fakecuda" else {}
    devices = sections(count, apart, **(device or {}))
    return harness.Agent(devices=devices, tenants=served, agent={**fake_modules(), **mps, **(agent or {})},
                         env={**(fake_environment(1 if Divided.now else count) or {}), **(env or {})} or None, **options)


@contextlib.contextmanager
def far_world(start=world, **options):
    """A world, of @start, whose tenant red is also behind a stream, at .vsock: guests there share no memory with the host."""
    with tempfile.TemporaryDirectory(prefix="gs-") as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "v")
        with start({"red": {"vsock_path": path}}, **options) as agent:
            agent.vsock = path
            harness.wait_until(lambda: os.path.exists(path), "the stream socket")
            yield agent


@functools.lru_cache(maxsize=None)
def fake_mps_folder():
    folder = tempfile.mkdtemp(prefix="gantry-mps-")
    os.chmod(folder, 0o777)
    shutil.copy2(HERE.parent / "system" / "mps" / "nvidia-cuda-mps-control", folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def fake_mps():
    """A control program that starts no server of NVIDIA's. Its clients write to a file, which confined ones may not."""
    return {"mps": os.path.join(fake_mps_folder(), "nvidia-cuda-mps-control"), "confine": "no", "worker_user": "none"}


def fake_environment(count):
    """As many fake GPUs as the test wants; clients of one MPS server share faults."""
    if BACKEND != "fakecuda":
        return None
    return {"FAKECUDA_DEVICES": str(count), "FAKECUDA_MEM": str(FAKE_MEM), "FAKECUDA_MPS_GROUP": "pipes"}


def each_mode(namespace, *modes):
    """Decorates def test_x(t, mode): a test for each of @modes, or of all, test_x_isolated and so on."""
    def register(function):
        for mode in modes or MODES:
            def one(t, mode=mode):
                function(t, mode)
            one.limit_s = getattr(function, "limit_s", LIMIT_S)
            namespace[f"{function.__name__}_{mode}"] = one
    return register


def takes_limit(seconds):
    """Decorates a test that may take longer than the others of its file."""
    def set_limit(function):
        function.limit_s = seconds
        return function
    return set_limit


def guest(agent, tenant="red", queue=True):
    """A guest with a session, and a queue q for the GPU."""
    made = Scripted(agent, tenant, opened=False)
    made.ask("open timeout_ms 30000")
    if queue:
        made.ask("queue q")
    return made


def guest_without_session(agent, tenant="red"):
    return Scripted(agent, tenant, opened=False)


def neighbour(agent, tenant, depth=16, spin_us=200, kept=None):
    """A guest with a deep queue of checked rounds and a buffer of random contents that has to stay as it is."""
    made = guest(agent, tenant)
    made.kept_bytes = kept or BIG // 8
    made.ask(f"buffer kept {made.kept_bytes} device")
    made.ask(f"random kept {made.kept_bytes} 77")
    made.kept_sum = made.ask(f"expect {made.kept_bytes} 77")
    made.ask(f"deep start {depth} {spin_us * 1000}")
    made.ask("deep check", timeout=90)
    made.ask("deep forget")
    return made


def rounds(answer):
    """"rounds 9 doubt 0 longest_ns 5" as a dict."""
    words = answer.split()
    return {words[i]: int(words[i + 1]) for i in range(0, len(words) - 1, 2)}


def unharmed(t, who, doubt=0, what="neighbour"):
    """It works on, every sum was right, and what it kept is there. Returns its longest pause in ns."""
    seen = rounds(who.ask("deep check", timeout=90))
    if doubt is not None:
        t.equal(seen["doubt"], doubt, f"{what}: rounds in doubt")
    t.equal(who.ask(f"sum q kept {who.kept_bytes}", timeout=90), who.kept_sum, f"{what}: bytes lost")
    return seen["longest_ns"]


def ends(made, ticket, number, timeout=100):
    """{"OK": 3, "IN_DOUBT": 1}"""
    return {word.partition("=")[0]: int(word.partition("=")[2])
            for word in made.ask(f"ends {ticket} {number}", timeout).split()}


def image(name):
    """The path of an image: sources of this folder, or what the build made of them."""
    if BACKEND == "fakecuda":
        name = {"other.cubin": "fake-other.cubin"}.get(name, name.replace("guest.", "fake."))
    path = HERE / "images" / name
    if path.exists():
        return str(path)
    found = harness.find_in_build(name, os.path.exists)
    if not found:
        raise harness.Skip(f"the build has no {name}: it had no CUDA compiler")
    return found


def needs_images():
    if BACKEND == "cpu":
        raise harness.Skip("cpu devices take installed modules only")


# The fake driver's fatbins have no parts, as real ones do.
WHOLE = "guest.cubin" if BACKEND == "fakecuda" else "guest.fatbin"


def load(made, name=WHOLE):
    made.ask(f"image probe {KIND} {image(name)}", timeout=60)
    return made


# Kernels that misbehave: of the installed test module on cpu devices, else of the guest's own image.
BAD = {"crash": ("illegal", "u64", "u64=16"), "stuck": ("endless", "void", ""), "endless": ("endless", "void", "")}


def misbehave(made, what, ticket):
    """Submits a task that crashes, or never ends and (stuck) does not ask whether it should."""
    if BACKEND == "cpu":
        made.ask(f"run q {ticket} {what} 1")
        return
    symbol, signature, arguments = BAD[what]
    if not getattr(made, "has_image", False):
        load(made)
        made.has_image = True
    made.ask(f"kernel {what} probe {symbol} {signature}", timeout=60)
    made.ask(f"launch q {ticket} {what} 1 1 1 0 {arguments}")


def figure(name, value, unit):
    """A measured number, for the log and the results file."""
    print(f"# figure {name}{'_one_gpu' if Divided.now else ''} {value:.6g} {unit}", flush=True)


STEPS = re.compile(r" session-recovered .*worker gone(?: (\d+) us after its fault was told)?; "
                   r"another started (\d+) us later, ready in (\d+); it serves after (\d+) us")


def recovery_steps(agent, name, skip="red"):
    """Figures: how long the steps of recoveries took that were not of tenants called @skip, the medians."""
    found = [match.groups() for match in map(STEPS.search, agent.log().splitlines()) if match and skip not in match.string]
    steps = ("told_to_gone", "gone_to_started", "started_to_ready", "gone_to_served")
    for step, values in zip(steps, zip(*found)):
        known = sorted(int(value) for value in values if value)
        if known:
            figure(f"{name}_{step}_p50", known[len(known) // 2] / 1e6, "s")


# --- what may leak ------------------------------------------------------------------------------------

def used_bytes():
    """Device memory in use on each GPU by anybody; None where there is no real one."""
    library = machine.nvml() if REAL else None
    return [library.memory(index).used for index in range(library.count())] if library else None


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


class Leaks:
    """What gantryd's processes hold before and after: with Leaks(t, agent): ... fails when there is more."""

    # A driver may keep a little for the next process; a lost slab is at least 2 MiB.
    SLACK_BYTES = 64 * MIB
    # What the context of one worker takes, and its driver beside; a lost one would be there without a worker.
    CONTEXT_BYTES = 640 * MIB

    # Warm ones of each class, a steward for each device: how many are there at a moment says nothing.
    IDLE_WORKERS = 8
    # A control socket, what it confirms with, a descriptor of its process.
    DESCRIPTORS_OF_WORKER = 3

    def __init__(self, t, agent):
        self.t, self.agent = t, agent

    def look(self):
        """Workers, each perhaps with a child that compiles, are counted apart: warm ones come and go by themselves."""
        workers = self.agent.workers()
        self.number = len(workers)
        theirs = {row["pid"] for row in workers}
        others = [pid for pid in self.agent.pids() if pid not in theirs and harness.parent_of(pid) not in theirs]
        return {"descriptors of the monitor": descriptors(self.agent.monitor.pid),
                "descriptors of the agent": descriptors(self.agent.agent_pid()),
                "processes that are no workers": len(others),
                "sessions": len(self.agent.sessions()),
                "workers without": sum(row["sessions"] == 0 for row in workers)}

    def allowed(self):
        """How many more of each there may be than before."""
        several = self.pool_slabs() + self.DESCRIPTORS_OF_WORKER * max(0, self.number - self.contexts)
        return {"descriptors of the monitor": several, "descriptors of the agent": several,
                "workers without": max(0, self.IDLE_WORKERS - self.before["workers without"])}

    def pool_slabs(self):
        """At most so many slabs are ready for whoever comes: a descriptor each, and no leak."""
        rows = self.agent.ctl_json("stats")["metrics"]
        ready = sum(row["value"] for row in rows if row["name"] in ("gantry_slab_pool_bytes", "gantry_slab_dirty_bytes"))
        return int(ready) // (2 * MIB)

    def all_there(self):
        """Nobody starts or ends: of such a worker nobody can say whether it has a context."""
        return all(row["state"] not in ("starting", "ending") for row in self.agent.workers())

    def __enter__(self):
        harness.wait_until(self.all_there, "workers that come and go are there or gone", 30)
        self.before, self.memory = self.look(), used_bytes()
        self.contexts = self.number
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            return
        seen = {}

        def settled():
            seen.update(self.look())
            more = self.allowed()
            return self.all_there() and all(seen[what] <= self.before[what] + more.get(what, 0) for what in seen)
        try:
            harness.wait_until(settled, "nothing leaks", 20)
        except harness.Failure:
            raise harness.Failure(f"more than before: {self.before}, then {seen}") from None
        if self.memory:
            more = max(0, self.number - self.contexts)
            slack = self.SLACK_BYTES + 2 * MIB * self.pool_slabs() + more * self.CONTEXT_BYTES
            harness.wait_until(lambda: all(now <= then + slack for now, then in zip(used_bytes(), self.memory)),
                               f"device memory is free again (it was {self.memory}, is {used_bytes()})", 30)

# SPDX-License-Identifier: Apache-2.0
"""The figures, each a generator function of a Bench that yields Figure objects. FIGURES lists them by name.

Every figure is a median of several runs, and runs of what is compared take turns (A B A B), so that a slow minute of
the machine hits both. Pinned: the worker on one processor, the guest on another, nothing of ours beside them.
Unpinned: wherever the kernel puts them. Where the two differ, the plain name is the pinned one, which measures the
program rather than the scheduler, and the other is printed beside it.
"""
import collections
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import programs
from programs import Unable, harness, median

Figure = collections.namedtuple("Figure", "name value unit how", defaults=("",))

MIB = 1 << 20
PINNED = "worker and guest on a processor each"
UNPINNED = "worker and guest where the kernel puts them"


class Bench:
    """What figures share: how much to do, and what the report draws."""

    def __init__(self, quick):
        self.rounds = 3 if quick else 7
        self.scale = 0.2 if quick else 1.0
        self.quick = quick
        self.plots = {}

    def count(self, n):
        return max(int(n * self.scale), 10)

    def run_ns(self, ns):
        return max(int(ns * self.scale), 50_000_000)


def place(guest, pinned):
    """Where the two sides of a session run from now on."""
    host, client = ({cpu} for cpu in programs.cpu_pair()) if pinned else (programs.ALL_CPUS, programs.ALL_CPUS)
    programs.pin(guest.worker, host)
    programs.pin(guest.pid, client)


def pair_of(pinned):
    """The same for baselines: the asking end takes the guest's processor."""
    host, client = programs.cpu_pair() if pinned else (-1, -1)
    return client, host


def suffix(pinned):
    return "_pinned" if pinned else "_unpinned"


def ways():
    """Pinned first; on a machine with one processor there is only one way."""
    return (True, False) if len(programs.ALL_CPUS) > 1 else (False,)


def emit(name, values, unit, how):
    """The figure both ways, and under its plain name."""
    for pinned, value in values.items():
        yield Figure(name + suffix(pinned), value, unit, how + ("; " if how else "") + (PINNED if pinned else UNPINNED))
    yield Figure(name, values[True] if True in values else values[False], unit, how)


# --- round trips --------------------------------------------------------------------------------------

def rtt(bench):
    """Submit an empty task, see it done; against a word that two spinning processes pass back and forth."""
    runs = {pinned: ([], []) for pinned in ways()}
    with harness.Agent(tenants={"red": {}}) as agent:
        raw, guest = programs.baseline(), programs.open_guest(agent, "red")
        for _ in range(bench.rounds):
            for pinned, (bare, ours) in runs.items():
                raw.ask("pair", *pair_of(pinned))
                bare.append(raw.ask("spin", bench.count(50000)))
                place(guest, pinned)
                ours.append(guest.ask("rtt", bench.count(50000)))
        raw.end()
    bench.plots["rtt"] = {pinned: (bare[-1]["cdf"], ours[-1]["cdf"]) for pinned, (bare, ours) in runs.items()}
    how = "empty kernel, isolated worker; median of p50"
    yield from emit("rtt_raw_us", {p: median(r["p50"] for r in bare) / 1e3 for p, (bare, _) in runs.items()}, "us",
                    "two processes spin on a shared word")
    yield from emit("rtt_hot_p50_us", {p: median(r["p50"] for r in ours) / 1e3 for p, (_, ours) in runs.items()},
                    "us", how)
    yield from emit("rtt_hot_p99_us", {p: median(r["p99"] for r in ours) / 1e3 for p, (_, ours) in runs.items()},
                    "us", "the same, p99")
    yield from emit("rtt_ratio_raw", {p: median(o["p50"] / b["p50"] for b, o in zip(*both))
                                      for p, both in runs.items()}, "x", "of neighbouring runs")


def parked(bench):
    """Both sides asleep before each trip: begun on one processor each, worker and guest never spin."""
    host, client = programs.cpu_pair()
    runs = {pinned: ([], []) for pinned in ways()}
    gap_us, trips = 200, bench.count(2000)
    with programs.born_on({host}):
        agent = harness.Agent(tenants={"red": {}})
    with agent:
        raw = programs.baseline()
        with programs.born_on({client}):
            guest = programs.open_guest(agent, "red")
        for _ in range(bench.rounds):
            for pinned, (bare, ours) in runs.items():
                raw.ask("pair", *pair_of(pinned))
                bare.append(raw.ask("futex", trips, gap_us))
                place(guest, pinned)
                ours.append(guest.ask("parked", trips, gap_us))
        raw.end()
    bench.plots["parked"] = {pinned: (bare[-1]["cdf"], ours[-1]["cdf"]) for pinned, (bare, ours) in runs.items()}
    yield from emit("rtt_parked_asleep_share",
                    {p: median(min(run["sleeps"], run["wakeups"]) / trips for run in ours)
                     for p, (_, ours) in runs.items()}, "share", "trips in which both slept and were woken")
    yield from emit("rtt_futex_us", {p: median(r["p50"] for r in bare) / 1e3 for p, (bare, _) in runs.items()}, "us",
                    "two processes sleep on a shared word")
    yield from emit("rtt_parked_us", {p: median(r["p50"] for r in ours) / 1e3 for p, (_, ours) in runs.items()}, "us",
                    "empty kernel; both sides asleep before each")
    yield from emit("rtt_parked_ratio", {p: median(o["p50"] / b["p50"] for b, o in zip(*both))
                                         for p, both in runs.items()}, "x", "of neighbouring runs")


# --- doors without shared memory ----------------------------------------------------------------------

def beside_bare(bench, bare, where, guest, trips, copied):
    """Round trips and copies over a stream; against a bare one on the same way, by turns."""
    runs = [(bare.ask("ping", where, trips), guest.ask("rtt", trips)) for _ in range(bench.rounds)]
    bulk = [(bare.ask("pour", where, copied, 3), guest.ask("copy", copied, 3)) for _ in range(bench.rounds)]
    return runs, bulk


def emit_stream(name, runs, bulk, copied, how):
    yield Figure(name + "_raw_us", median(b["p50"] for b, _ in runs) / 1e3, "us", "one byte there and back, " + how)
    yield Figure(name + "_rtt_us", median(o["p50"] for _, o in runs) / 1e3, "us", "empty kernel, " + how)
    yield Figure(name + "_rtt_ratio", median(o["p50"] / b["p50"] for b, o in runs), "x", "of neighbouring runs")
    for bare, ours, way in (("there_ns", "write_ns", "write"), ("back_ns", "read_ns", "read")):
        yield Figure(f"{name}_{way}_gb_s", copied / median(o[ours] for _, o in bulk), "GB/s",
                     f"gantry_{way}() of {copied // MIB} MiB, " + how)
        yield Figure(f"{name}_{way}_ratio", median(b[bare] / o[ours] for b, o in bulk), "x",
                     "of what a bare stream carries in neighbouring runs")


def stream(bench):
    """Over a Unix stream socket of this machine, which is all that a virtual machine's vsock may add to."""
    copied = 64 * MIB
    folder = tempfile.mkdtemp(prefix="gb-")
    try:
        door, echo = os.path.join(folder, "door"), os.path.join(folder, "echo")
        with harness.Agent(tenants={"red": {"vsock_path": door, "mem": "512M"}}) as agent:
            bare = programs.Commanded(harness.Guest([harness.program("bench-stream")]))
            bare.ask("serve", echo)
            guest = programs.guest_of(agent, "red", {"GANTRY_DOOR": "stream:" + door})
            guest.ask("open")
            runs, bulk = beside_bare(bench, bare, echo, guest, bench.count(20000), copied)
            bare.end()
        yield from emit_stream("stream", runs, bulk, copied, "over a Unix stream socket")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def vsock(bench):
    """From inside a virtual machine, which QEMU emulates, over its vsock device."""
    try:
        import vsock_device  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise Unable(f"no virtual machines here: {error}") from None
    copied, port = 8 * MIB, 5711
    try:
        with vsock_device.folder() as folder:
            door, echo = os.path.join(folder, "door"), os.path.join(folder, "echo")
            with harness.Agent(tenants={"red": {"vsock_path": door, "mem": "512M"}}) as agent:
                server = programs.Commanded(harness.Guest([harness.program("bench-stream")]))
                server.ask("serve", echo)
                names = ("bench-stream", "bench-guest")
                ports = {vsock_device.PORT: door, port: echo}
                with vsock_device.machine(folder, 42, ports, names) as made:
                    bare = programs.Commanded(made.start(["bench-stream"]))
                    guest = programs.Commanded(made.start(["bench-guest"], env={"GANTRY_DOOR": "vsock:"}))
                    guest.ask("open")
                    runs, bulk = beside_bare(bench, bare, port, guest, bench.count(2000), copied)
                server.end()
                del agent
    except harness.Skip as reason:
        raise Unable(str(reason)) from None
    yield from emit_stream("vsock", runs, bulk, copied, "from QEMU's guest over vsock")


# --- submission and rate ------------------------------------------------------------------------------

def submit(bench):
    """The guest's side of a batch of 64, per task; against putting 64 bare messages into a ring."""
    runs = {pinned: ([], []) for pinned in ways()}
    with harness.Agent(tenants={"red": {}}) as agent:
        raw, guest = programs.baseline(), programs.open_guest(agent, "red")
        for _ in range(bench.rounds):
            for pinned, (bare, ours) in runs.items():
                raw.ask("pair", *pair_of(pinned))
                bare.append(raw.ask("ring", bench.count(1000000), 64)["put_ns"])
                place(guest, pinned)
                ours.append(guest.ask("submit", bench.count(5000), 64)["per_task_ns"])
        raw.end()
    yield from emit("submit_raw_ns", {p: median(bare) for p, (bare, _) in runs.items()}, "ns",
                    "a bare 64-byte message put into a shared ring")
    yield from emit("submit_ns", {p: median(ours) for p, (_, ours) in runs.items()}, "ns",
                    "gantry_submit() of 64 empty launches, per launch")


def together(guests, bench, run_ns):
    at_ns = programs.in_ms(30)
    for guest in guests:
        guest.tell("rate", at_ns, run_ns, 64, 32)
    return sum(guest.hear()["per_s"] for guest in guests)


def rate(bench):
    """Empty tasks a second, 64 in flight from each client, put 32 at a time."""
    names = ("raw", "one", "single", "pooled", "isolated")
    runs = {pinned: {name: [] for name in names} for pinned in ways()}
    run_ns = bench.run_ns(400_000_000)
    tenants = {"one": {}, "four": {}, "pool": {"isolation": "pooled"}}
    with harness.Agent(tenants=tenants) as agent:
        raw, one = programs.baseline(), programs.open_guest(agent, "one")
        pool = [programs.open_guest(agent, "pool") for _ in range(4)]
        four = [programs.open_guest(agent, "four") for _ in range(4)]
        for _ in range(bench.rounds):
            for pinned, seen in runs.items():
                for guest in [one] + pool + four:
                    place(guest, pinned)
                raw.ask("pair", *pair_of(pinned))
                seen["raw"].append(raw.ask("ring", bench.count(4000000), 32)["per_s"])
                seen["one"].append(one.ask("rate", 0, run_ns, 64, 32)["per_s"])
                seen["pooled"].append(together(pool, bench, run_ns))
                seen["isolated"].append(together(four, bench, run_ns))
                seen["single"].append(one.ask("rate", 0, run_ns, 64, 1)["per_s"])
        raw.end()
    bench.plots["rate"] = {pinned: {name: median(values) for name, values in seen.items()}
                           for pinned, seen in runs.items()}

    def both(name):
        return {pinned: median(seen[name]) for pinned, seen in runs.items()}

    yield from emit("tasks_per_s_raw", both("raw"), "1/s", "bare 64-byte messages through a ring of 64")
    yield from emit("tasks_per_s_1", both("one"), "1/s", "one client, 64 in flight, 32 a call")
    yield from emit("tasks_per_s_1_single", both("single"), "1/s", "one client, 64 in flight, one a call")
    yield from emit("tasks_per_s_4", both("pooled"), "1/s", "four client processes, one pooled worker")
    yield from emit("tasks_per_s_4_isolated", both("isolated"), "1/s", "four client processes, a worker each")
    yield from emit("tasks_per_s_4_over_1", {p: median(four / one for four, one in zip(seen["pooled"], seen["one"]))
                                             for p, seen in runs.items()}, "x", "pooled, of neighbouring runs")


# --- what a warm task does not do ---------------------------------------------------------------------

class Traced:
    """strace on a process and its threads, with a time for each call."""

    def __init__(self, pid, folder):
        self.path = os.path.join(folder, f"{pid}.strace")
        self.process = subprocess.Popen(["strace", "-f", "-ttt", "-q", "-p", str(pid), "-o", self.path],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            harness.wait_until(lambda: self.process.poll() is not None or is_traced(pid), "strace", timeout=10)
        except harness.Failure:
            self.end()
        if self.process.poll() is not None:
            raise Unable("strace: " + self.process.stderr.read().decode(errors="replace").strip())

    def end(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def calls(self):
        """(time, name) of each call begun."""
        found = []
        with open(self.path, encoding="utf-8", errors="replace") as log:
            for line in log:
                match = re.match(r"(?:\d+ +)?(\d+\.\d+) (\w+)\(", line)
                if match:
                    found.append((float(match.group(1)), match.group(2)))
        return found


def is_traced(pid):
    def tracer(tid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/task/{tid}/status", encoding="ascii", errors="replace") as status:
                return "TracerPid:\t0\n" not in status.read()
        return False
    return all(tracer(tid) for tid in programs.threads_of(pid))


def windows_of(calls):
    marks = [at for at, name in calls if name == "getppid"]
    return list(zip(marks, marks[1:]))


def counted_syscalls(guest, folder):
    """
    System calls per task in each window, and which they were. Windows are short, about 1 ms, because whatever else
    runs on the machine makes both sides sleep now and then: the median tells what a task costs, the mean also that.
    """
    if not shutil.which("strace"):
        raise Unable("there is no strace; tools/packages.txt lists it under bench")
    ntasks, nwindows = 4096, 41
    traced = [Traced(guest.pid, folder)]
    try:
        traced.append(Traced(guest.worker, folder))
        guest.ask("count", ntasks, 64, 32, 2)
        guest.ask("count", ntasks, 64, 32, nwindows)
    finally:
        for one in traced:
            one.end()
    calls = [one.calls() for one in traced]
    names = collections.Counter()
    windows = []
    for start, end in windows_of(calls[0])[-nwindows:]:
        inside = [name for log in calls for at, name in log if start < at < end and name != "getppid"]
        names.update(inside)
        windows.append(len(inside) / ntasks)
    return windows, names


def allocations_of(folder, pid):
    with open(os.path.join(folder, str(pid)), "rb") as word:
        return int.from_bytes(word.read(8), "little")


def counted_allocations(bench, guest, folder):
    """Allocations per task of guest and worker together."""
    ntasks, nwindows = bench.count(100000) // 32 * 32, 10
    guest.ask("count", ntasks, 64, 32, 1)
    before = allocations_of(folder, guest.worker)
    seen = guest.ask("count", ntasks, 64, 32, nwindows)["allocs"]
    after = allocations_of(folder, guest.worker)
    if min(seen) < 0:
        raise Unable("the counter of allocations was not loaded")
    return (sum(seen) + after - before) / (ntasks * nwindows)


@contextlib.contextmanager
def counting_worker(folder):
    """Workers begin with the counter of allocations loaded."""
    library = harness.find_in_build("libbench-allocs.so", os.path.exists)
    if not library:
        raise Unable("the build has no libbench-allocs.so")
    script = os.path.join(folder, "gantry-worker")
    with open(script, "w", encoding="utf-8") as out:
        out.write(f"#!/bin/sh\nexport LD_PRELOAD='{library}' GANTRY_BENCH_ALLOCS='{folder}'\n"
                  f"exec '{harness.program('gantry-worker')}' \"$@\"\n")
    os.chmod(script, 0o755)
    before = os.environ.get("GANTRY_PROGRAM_GANTRY_WORKER")
    os.environ["GANTRY_PROGRAM_GANTRY_WORKER"] = script
    try:
        yield {"LD_PRELOAD": library, "GANTRY_BENCH_ALLOCS": folder}
    finally:
        if before is None:
            del os.environ["GANTRY_PROGRAM_GANTRY_WORKER"]
        else:
            os.environ["GANTRY_PROGRAM_GANTRY_WORKER"] = before


def counts(bench):
    """System calls and allocations of guest and worker during warm tasks, counted from outside."""
    with tempfile.TemporaryDirectory(prefix="gantry-bench-") as folder:
        os.chmod(folder, 0o777)
        with harness.Agent(tenants={"red": {}}) as agent:
            guest = programs.open_guest(agent, "red")
            place(guest, len(programs.ALL_CPUS) > 1)
            try:
                windows, names = counted_syscalls(guest, folder)
                what = ", ".join(f"{n} {name}" for name, n in names.most_common(4)) or "none"
                yield Figure("syscalls_per_task", median(windows), "1/task",
                             f"strace of both; median of {len(windows)} windows of 4096 tasks; in all of them: {what}")
                yield Figure("syscalls_per_task_mean", sum(windows) / len(windows), "1/task", "the same, mean of all windows")
                yield Figure("syscalls_none_share", windows.count(0) / len(windows), "share", "windows without any")
            except Unable as why:
                yield Figure("syscalls_per_task", None, "1/task", str(why))
        with counting_worker(folder) as env, harness.Agent(tenants={"red": {}}) as agent:
            guest = programs.open_guest(agent, "red", env=env)
            place(guest, len(programs.ALL_CPUS) > 1)
            started = allocations_of(folder, guest.pid) + allocations_of(folder, guest.worker)
            yield Figure("allocs_per_task", counted_allocations(bench, guest, folder), "1/task",
                         "malloc() and its kin of both, by a preloaded counter")
            yield Figure("allocs_attach", started, "", "baseline: what the counter saw of both until the guest was attached")


# --- memory -------------------------------------------------------------------------------------------

def copy(bench):
    """64 MiB into a buffer and out again; against memcpy() of as much between touched pages."""
    tenants = {"red": {"mem": "512M", "heap": "192M"}, "small": {"mem": "512M", "heap": "32M"}}
    with harness.Agent(tenants=tenants) as agent:
        guest, small = programs.open_guest(agent, "red"), programs.open_guest(agent, "small")
        runs = [guest.ask("copy", 64 * MIB, 3) for _ in range(bench.rounds)]
        staged = [small.ask("copy", 64 * MIB, 3) for _ in range(bench.rounds)]
        mapped = guest.ask("mapped", 8 * MIB)
    gb = 2 * 64 * MIB / 1e9

    def ratio(run):
        return run["memcpy_ns"] / (run["write_ns"] + run["read_ns"])

    yield Figure("copy_memcpy_gb_s", gb / (median(run["memcpy_ns"] for run in runs) / 1e9), "GB/s",
                 "memcpy() of 64 MiB to touched pages and back")
    yield Figure("copy_gb_s", gb / (median(run["write_ns"] + run["read_ns"] for run in runs) / 1e9), "GB/s",
                 "gantry_write() and gantry_read() of 64 MiB, buffer as allocated by default")
    yield Figure("copy_ratio_memcpy", median(ratio(run) for run in runs), "x", "by turns in one process")
    yield Figure("copy_ratio_memcpy_staged", median(ratio(run) for run in staged), "x",
                 "the same where the session's heap is too small for the buffer")
    ok = mapped["same_address"] and mapped["right"]
    yield Figure("mapped_copies", mapped["copied_bytes"] / (8 * MIB) if ok else None, "",
                 "bytes the session copied for a mapped 8 MiB buffer that a kernel changed, over its size"
                 + ("; mapped at the same address before and after" if ok else "; the address or the result was wrong"))


# --- sessions -----------------------------------------------------------------------------------------

def attach(bench):
    """From gantry_open() to the first task done, with a worker warm; against a bare Unix socket and a descriptor."""
    steps = collections.defaultdict(list)
    bare = []
    with harness.Agent(tenants={"red": {}}) as agent:
        raw, guest = programs.baseline(), programs.guest_of(agent, "red")
        for _ in range(max(bench.rounds, 5) + 1):
            bare.append(raw.ask("door", 10)["p50"])
            programs.wait_warm(agent)
            for step, ns in guest.ask("open").items():
                steps[step].append(ns)
            guest.ask("close")
        raw.end()
    yield Figure("attach_raw_ms", median(bare) / 1e6, "ms", "connect, a message each way, a memfd, mapped")
    # The first session of a process also loads and relocates.
    yield Figure("attach_ms", median(steps["total_ns"][1:]) / 1e6, "ms", "gantry_open() to the first empty task done")
    yield Figure("attach_open_ms", median(steps["open_ns"][1:]) / 1e6, "ms", "of it gantry_open()")
    yield Figure("attach_queue_ms", median(steps["queue_ns"][1:]) / 1e6, "ms", "gantry_queue_open()")
    yield Figure("attach_kernel_ms", median(steps["kernel_ns"][1:]) / 1e6, "ms", "gantry_kernel_find()")
    yield Figure("attach_task_ms", median(steps["task_ns"][1:]) / 1e6, "ms", "the first task, which loads the module")


def first_after(done_ns, killed_ns):
    """When service was back: the end of the longest pause that ended after the kill."""
    ends = [(end - start, end) for start, end in zip([killed_ns] + done_ns, done_ns) if end > killed_ns]
    if not ends:
        raise Unable("all tasks had finished when the worker was killed")
    return max(ends)[1]


def recovery(bench):
    """SIGKILL of the worker with tasks queued and one running, to the first completion after it."""
    times, starts, failed, curve = [], [], 0, None
    with harness.Agent(tenants={"red": {}}) as agent:
        for _ in range(max(bench.rounds, 5)):
            begun = time.monotonic_ns()
            programs.baseline().end()
            starts.append((time.monotonic_ns() - begun) / 1e6)
            guest = programs.open_guest(agent, "red")
            programs.wait_warm(agent)
            guest.ask("recover", 100, 1_000_000)
            select.select([], [], [], 0.02)  # into the middle of the work
            killed_ns = time.monotonic_ns()
            agent.kill_worker(guest.worker)
            seen = guest.hear()
            failed += seen["failed"]
            times.append((first_after(seen["done_ns"], killed_ns) - killed_ns) / 1e6)
            curve = [(at - killed_ns) / 1e6 for at in seen["done_ns"]]
            guest.end()
    bench.plots["recovery"] = curve
    yield Figure("process_start_ms", median(starts), "ms", "baseline: a small program started and ended")
    yield Figure("worker_recovery_ms", median(times), "ms", "worker killed with a queue of 1 ms tasks, to the next completion")
    yield Figure("worker_recovery_worst_ms", max(times), "ms", f"the worst of {len(times)}")
    yield Figure("worker_recovery_failed", failed, "tasks", "that did not finish well, of those that may be replayed")


def longest_gap(done_ns):
    return max(end - start for start, end in zip(done_ns, done_ns[1:])) / 1e6


def upgrade_meanwhile(agent, guest, *words):
    """One upgrade of gantryd to itself while the guest does what it was told; what it says, and the upgrade's figures."""
    guest.tell(*words)
    told = agent.ctl("--json", "agent", "upgrade", timeout=60)
    if told.code != 0:
        raise Unable(f"upgrade: {told.err}")
    return told.json()["upgrade"]


def upgrade(bench):
    """What running and new guests see of an upgrade of gantryd; against the same guests without one, by turns."""
    quiet, during, opened, opened_during, took, paused = [], [], [], [], [], []
    failed = 0
    with harness.Agent(tenants={"red": {}}) as agent:
        guest, fresh = programs.open_guest(agent, "red"), programs.guest_of(agent, "red")
        for _ in range(max(bench.rounds, 5)):
            guest.ask("recover", 100, 1_000_000)
            quiet.append(longest_gap(guest.hear()["done_ns"]))
            told = upgrade_meanwhile(agent, guest, "recover", 100, 1_000_000)
            guest.hear()
            seen = guest.hear()
            failed += seen["failed"]
            during.append(longest_gap(seen["done_ns"]))
            took.append(told["took_ns"] / 1e6)
            paused.append(told["pause_ns"] / 1e6)
            programs.wait_warm(agent)
            opened.append(fresh.ask("open")["open_ns"] / 1e6)
            fresh.ask("close")
            programs.wait_warm(agent)
            upgrade_meanwhile(agent, fresh, "open")
            opened_during.append(fresh.hear()["open_ns"] / 1e6)
            fresh.ask("close")
    yield Figure("upgrade_ms", median(took), "ms", "from the command to agent and monitor of the other build")
    yield Figure("upgrade_pause_ms", median(paused), "ms", "of it without an agent that lets guests in")
    yield Figure("upgrade_gap_raw_ms", median(quiet), "ms", "longest time between completions of 1 ms tasks, no upgrade")
    yield Figure("upgrade_gap_ms", median(during), "ms", "the same while gantryd is upgraded")
    yield Figure("upgrade_gap_ratio", median(d / q for d, q in zip(during, quiet)), "x", "of neighbouring runs")
    yield Figure("upgrade_failed", failed, "tasks", "that did not finish well")
    yield Figure("upgrade_open_raw_ms", median(opened), "ms", "gantry_open(), no upgrade")
    yield Figure("upgrade_open_ms", median(opened_during), "ms", "gantry_open() called as the upgrade begins")


def idle(bench):
    """Processor time of everything with ten sessions that do nothing, and the agent's size."""
    seconds = 5 if bench.quick else 15
    with harness.Agent(tenants={"red": {}}) as agent:
        guests = [programs.open_guest(agent, "red") for _ in range(10)]
        raw = programs.baseline()
        programs.wait_warm(agent)
        select.select([], [], [], 2)  # spinning ends, warm workers are there
        pids = agent.pids() + [guest.pid for guest in guests]
        before = {pid: (programs.cpu_ns(pid), programs.cpu_ticks(pid)) for pid in pids + [raw.pid]}
        begun = time.monotonic_ns()
        select.select([], [], [], seconds)
        wall_ns = time.monotonic_ns() - begun
        used = {pid: (programs.cpu_ns(pid) - ns, programs.cpu_ticks(pid) - ticks)
                for pid, (ns, ticks) in before.items()}
        size, bare = programs.rss_mib(agent.agent_pid()), programs.rss_mib(raw.pid)
        raw.end()
    # Whichever says more: schedstat counts nanoseconds, but stat includes what interrupts took.
    ns = sum(used[pid][0] for pid in pids)
    ticks = sum(used[pid][1] for pid in pids)
    by_ticks = ticks * 1e9 / os.sysconf("SC_CLK_TCK")
    yield Figure("idle_cpu_raw_pct", 100 * used[raw.pid][0] / wall_ns, "%", "baseline: one process asleep in read()")
    yield Figure("idle_cpu_pct", 100 * max(ns, by_ticks) / wall_ns, "%",
                 f"{len(pids)} processes: monitor, agent, workers, 10 idle guests; {seconds} s; of one processor; "
                 f"schedstat {ns / 1e6:.2f} ms, stat {ticks} ticks")
    yield Figure("rss_raw_mib", bare, "MiB", "baseline: a small C program")
    yield Figure("agent_rss_mib", size, "MiB", "VmRSS of the agent with ten sessions")


# --- sharing ------------------------------------------------------------------------------------------

MIXED_A_NS = (200_000, 1_000_000, 50_000, 500_000)
MIXED_B_NS = (2_000_000, 100_000, 700_000)


def device_time_at(curve, at_ns):
    """Between two samples by a straight line."""
    before = curve[0]
    for sample in curve:
        if sample[0] >= at_ns:
            span = sample[0] - before[0]
            part = (at_ns - before[0]) / span if span else 0
            return before[1] + part * (sample[1] - before[1])
        before = sample
    return curve[-1][1]


def gained(curves, from_ns, to_ns):
    """Device time of all these between two times that all of them saw."""
    return sum(device_time_at(curve, to_ns) - device_time_at(curve, from_ns) for curve in curves)


def common_window(curves, skip=0.15):
    start = max(curve[0][0] for curve in curves)
    end = min(curve[-1][0] for curve in curves)
    return start + skip * (end - start), end


def load_all(loads, run_ns):
    """loads: (guest, depth, lengths). All at once; their answers."""
    at_ns = programs.in_ms(50)
    for guest, depth, lengths in loads:
        guest.tell("load", at_ns, run_ns, depth, *lengths)
    return [guest.hear() for guest, _, _ in loads]


def fairness(bench):
    """Two tenants that never stop asking, in workers of their own, tasks of unlike lengths: device time by weight."""
    run_ns = bench.run_ns(3_000_000_000)
    tenants = {"three": {"weight": 300}, "one": {"weight": 100}, "same": {"weight": 100}}
    weighted, equal = [], []
    with harness.Agent(tenants=tenants) as agent:
        three, one, same = (programs.open_guest(agent, name) for name in ("three", "one", "same"))
        for _ in range(min(bench.rounds, 3)):
            for first, ratios in ((same, equal), (three, weighted)):
                answers = load_all([(first, 8, MIXED_A_NS), (one, 8, MIXED_B_NS)], run_ns)
                curves = [answer["curve"] for answer in answers]
                start, end = common_window(curves)
                ratios.append(gained(curves[:1], start, end) / gained(curves[1:], start, end))
    bench.plots["fairness"] = share_over_time(curves)
    yield Figure("fairness_1to1", median(equal), "x", "baseline: the same load at equal weights")
    yield Figure("fairness_3to1", median(weighted), "x", "device time at weights 300 and 100; runs: "
                 + ", ".join(f"{ratio:.3f}" for ratio in weighted))


def share_over_time(curves, step_ns=100_000_000):
    """(seconds, share of the first since the beginning of the window)"""
    start, end = common_window(curves, skip=0)
    points, at = [], start + step_ns
    while at <= end:
        mine, all_of_them = gained(curves[:1], start, at), gained(curves, start, at)
        if all_of_them:
            points.append(((at - start) / 1e9, mine / all_of_them))
        at += step_ns
    return points


def isolation(bench):
    """A steady victim beside a tenant of equal weight that floods from eight sessions."""
    run_ns = bench.run_ns(3_000_000_000)
    depth, lengths = 4, (500_000,)
    shares, alone, beside = [], [], []
    with harness.Agent(tenants={"victim": {"weight": 100}, "flood": {"weight": 100}}) as agent:
        victim = programs.open_guest(agent, "victim")
        flood = [programs.open_guest(agent, "flood") for _ in range(8)]
        for _ in range(min(bench.rounds, 3)):
            alone.append(load_all([(victim, depth, lengths)], run_ns // 4)[0])
            answers = load_all([(victim, depth, lengths)] + [(guest, 32, MIXED_A_NS) for guest in flood], run_ns)
            curves = [answer["curve"] for answer in answers]
            start, end = common_window(curves)
            shares.append(gained(curves[:1], start, end) / gained(curves, start, end) / 0.5)
            beside.append(answers[0])
    bench.plots["isolation"] = (alone[-1]["cdf"], beside[-1]["cdf"])
    how = f"victim of 500 us tasks, {depth} in flight"
    yield Figure("isolation_share", median(shares), "x", "share of device time over the half its weight entitles it to; runs: "
                 + ", ".join(f"{share:.3f}" for share in shares))
    yield Figure("isolation_alone_p99_ms", median(run["p99"] for run in alone) / 1e6, "ms", how + ", alone")
    yield Figure("isolation_p99_ms", median(run["p99"] for run in beside) / 1e6, "ms", how + ", beside eight flooding sessions")


FIGURES = {function.__name__: function for function in
           (rtt, parked, stream, vsock, submit, rate, counts, copy, attach, recovery, upgrade, idle, fairness, isolation)}

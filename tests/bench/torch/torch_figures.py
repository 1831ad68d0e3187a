# SPDX-License-Identifier: Apache-2.0
"""The figures of PyTorch over our libraries. FIGURES lists the measurements by name; each is a generator of Figure objects.

Each has the same program twice on one GPU, with NVIDIA's own libraries and with ours, both warm; they take turns.
"""
import collections
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "gpu"), str(HERE.parents[1] / "system")]
import gpu  # pylint: disable=wrong-import-position
import harness  # pylint: disable=wrong-import-position
import torch_compare  # pylint: disable=wrong-import-position
import torch_world  # pylint: disable=wrong-import-position

Figure = collections.namedtuple("Figure", "name value unit how target", defaults=("", None))

GIB = 1 << 30
READY_S = 60
ANSWER_S = 60
TENANT = {"mem": "40G", "virtual": "60G", "heap": "256M", "host_mem": "4G", "sessions": "32"}


def worker_pid(agent, guest):
    for session in agent.sessions():
        if session["pid"] == guest.pid:
            return session.get("worker_pid")
    return None


def tasks_of(agent, guest):
    """Of all its sessions."""
    return sum(session.get("tasks_finished", 0) for session in agent.sessions() if session["pid"] == guest.pid)


class Job:
    """A job of torch_jobs.py in one of the environments."""

    def __init__(self, bench, agent, name, *words, tenant="red", env=None):
        argv = [torch_world.PYTHON, str(HERE / "torch_jobs.py"), name, *words]
        self.agent = agent
        scratch = {**bench.scratch(name, agent is not None), "FIRST_IMAGE": bench.image, **(env or {})}
        if agent:
            self.guest = agent.guest(tenant, argv, env={**bench.place.guest_env, **scratch})
        else:
            self.guest = harness.Guest(argv, env={**torch_world.native_environment(), **scratch})
        self.values, self.times, self.cpu, self.steps = [], [], [], 0

    def ready(self):
        told = json.loads(self.guest.read_until("ready", READY_S).partition(" ")[2])
        self.values += told["values"]
        self.warmed_s = told["seconds"]

    def cpu_now(self):
        pids = [self.guest.pid]
        worker = worker_pid(self.agent, self.guest) if self.agent else None
        return [harness.cpu_s(pid) for pid in pids + ([worker] if worker else [])]

    def ask(self, *words):
        self.say(*words)
        return self.heard()

    def say(self, *words):
        self.guest.write_line(" ".join(map(str, words)))

    def heard(self, limit=ANSWER_S):
        return json.loads(self.guest.read_until("{", limit))

    def go(self, count, look=False):
        """Seconds of a step."""
        before = (self.cpu_now(), tasks_of(self.agent, self.guest) if self.agent else 0) if look else None
        told = self.ask(count)
        if "error" in told:
            raise harness.Failure(f"a step, {'ours' if self.agent else 'native'}: {told['error']}")
        if look:
            self.cpu = [(now - then) / count for now, then in zip(self.cpu_now(), before[0])]
            self.tasks = (tasks_of(self.agent, self.guest) - before[1]) / count if self.agent else 0
        self.values += told["values"]
        self.times.append(told["seconds"] / count)
        return self.times[-1]

    def note_session(self):
        """For the log: what the agent knows of its sessions, and which calls they missed."""
        for session in self.agent.sessions():
            if session["pid"] == self.guest.pid:
                for more in ((), ("--unsupported",)):
                    print(self.agent.ctl("session", "show", *more, str(session["session_id"])).out, flush=True)


class Bench:
    """What all measurements share: the environments, made once, and how much there is to do."""

    def __init__(self, place, scale):
        self.place, self.scale = place, scale
        self.image = gpu.image("guest.cubin")

    def count(self, number):
        return max(number // self.scale, 2)

    def scratch(self, name, ours):
        """Folders for what is compiled: none finds what another has made."""
        folder = self.place.folder / f"scratch-{name}-{'ours' if ours else 'native'}-{time.monotonic_ns()}"
        folder.mkdir()
        return {key: str(folder / key) for key in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "CUPY_CACHE_DIR")}

    def pair(self, agent, name, *words):
        """(native, ours), both ready; they set up side by side."""
        both = Job(self, None, name, *words), Job(self, agent, name, *words)
        for job in both:
            job.ready()
        return both


def ms(seconds):
    return seconds * 1e3


def overhead(name, native, ours, limit, how):
    """The figures of two lists of seconds of a step, taken by turns."""
    theirs, mine = statistics.median(native.times), statistics.median(ours.times)
    ratios = [b / a for a, b in zip(native.times, ours.times)]
    yield Figure(f"{name}_native", ms(theirs), "ms", how)
    yield Figure(f"{name}_ours", ms(mine), "ms", f"of the turns' ratios {min(ratios):.4f} to {max(ratios):.4f}")
    yield Figure(f"{name}_overhead", 100 * (mine / theirs - 1), "%", "of the medians", ("<=", limit))
    yield Figure(f"{name}_cpu", ms(ours.cpu[0]), "ms", f"of the guest for a step; worker {ms(sum(ours.cpu[1:])):.3f}, "
                 f"native {ms(native.cpu[0]):.3f}; {ours.tasks:.1f} tasks for a step")


def speed(job, turns, steps, limit):
    """A measurement of torch_jobs.py's @job: @turns times @steps steps, native and ours."""
    def measure(bench):
        with bench.place.world({"red": TENANT}) as agent:
            native, ours = bench.pair(agent, job)
            yield Figure(f"{job}_set_up_native", native.warmed_s, "s", "model, data and five steps")
            yield Figure(f"{job}_set_up_ours", ours.warmed_s, "s")
            count = bench.count(steps)
            for one in (native, ours):
                one.go(count)
                one.times.clear()
            for turn in range(bench.count(turns)):
                for one in (native, ours) if turn % 2 else (ours, native):
                    one.go(count, look=turn == 0)
            ours.note_session()
            yield from overhead(job, native, ours, limit, f"median of {len(native.times)} x {count} steps")
            yield from torch_compare.curve(job, native.values, ours.values, exact=False)
    return measure


def curve(job, turns, steps):
    """Native and ours side by side, with fixed seeds and deterministic algorithms: the values of all steps are compared."""
    def measure(bench):
        with bench.place.world({"red": TENANT}) as agent:
            native, ours = bench.pair(agent, job, "exact")
            for _ in range(turns):
                for one in (native, ours):
                    one.say(bench.count(steps))
                for one in (native, ours):
                    told = one.heard()
                    if "error" in told:
                        raise harness.Failure(f"{job}, {'ours' if one.agent else 'native'}: {told['error']}")
                    one.values += told["values"]
            yield from torch_compare.curve(job, native.values, ours.values, exact=True)
    return measure


# --- from the process's start ---------------------------------------------------------------------------

def since_start(bench, agent, step):
    """{word: seconds from the process's start to its line}"""
    argv = [torch_world.PYTHON, str(HERE / "torch_others.py"), step]
    more = {"FIRST_IMAGE": bench.image}
    begun = time.monotonic_ns()
    if agent:
        done = agent.run_guest("red", argv, env={**bench.place.guest_env, **more}, timeout=ANSWER_S)
    else:
        done = harness.run(argv, env={**torch_world.native_environment(), **more}, timeout=ANSWER_S)
    if done.code or f"ok {step}" not in done.out:
        raise harness.Failure(f"{step}, {'ours' if agent else 'native'}: {(done.out + done.err).strip()[-300:]}")
    return {line.split()[0]: (int(line.split()[1]) - begun) / 1e9 for line in done.out.splitlines()
            if line.startswith(("first", "imported"))}


def first_kernel(bench):
    with bench.place.world({"red": TENANT}, agent={"warm_workers": 2}) as agent:
        for step, rounds in (("driver", 9), ("torch_first", 3)):
            native, ours = [], []
            for turn in range(bench.count(rounds) + 1):
                # A worker is warm again before a program starts: that is what warm ones are for.
                harness.wait_until(lambda: any(row["state"] == "warm" for row in agent.workers()), "a warm worker", 30)
                pair = since_start(bench, None, step), since_start(bench, agent, step)
                if turn:
                    native.append(pair[0])
                    ours.append(pair[1])
            theirs, mine = (statistics.median(row["first"] for row in rows) for rows in (native, ours))
            yield Figure(f"first_kernel_{step}_native", ms(theirs), "ms", f"from the process's start, median of {len(native)}")
            yield Figure(f"first_kernel_{step}_ours", ms(mine), "ms")
            yield Figure(f"first_kernel_{step}_ratio", mine / theirs, "", "", ("<=", 1))
            if "imported" in native[0]:
                theirs, mine = (statistics.median(row["first"] - row["imported"] for row in rows) for rows in (native, ours))
                yield Figure(f"first_kernel_{step}_after_import_native", ms(theirs), "ms")
                yield Figure(f"first_kernel_{step}_after_import_ours", ms(mine), "ms")


# --- many operations, other frameworks ------------------------------------------------------------------

def operations(bench):
    """PyTorch's table of operations, each with its own samples, in several processes of each side."""
    with bench.place.world({"red": dict(TENANT, mem="80G", virtual="80G")}) as agent:
        native, ours = torch_compare.all_operations(bench, agent)
        yield from torch_compare.operations(native, ours)


def others(bench):
    steps = harness.run([sys.executable, str(HERE / "torch_others.py")]).out.split()
    with bench.place.world({"red": TENANT}) as agent:
        for step in steps:
            argv, more = [torch_world.PYTHON, str(HERE / "torch_others.py"), step], {"FIRST_IMAGE": bench.image}
            native = harness.run(argv, env={**torch_world.native_environment(), **more}, timeout=60)
            ours = agent.run_guest("red", argv, env={**bench.place.guest_env, **more}, timeout=60)
            for side, done in (("native", native), ("ours", ours)):
                print(f"## {step} {side}: exit status {done.code}\n" + "\n".join((done.out + done.err).splitlines()[-25:]), flush=True)
            passed = [done.code == 0 and f"ok {step}" in done.out for done in (native, ours)]
            said = ((ours.out + ours.err).strip().splitlines() or ["nothing"])[-1][:200]
            yield Figure(f"others_{step}", int(passed[1]), "", "" if passed[1] else f"native {'passes' if passed[0] else 'fails, too'}; {said}")
        yield from torch_compare.static_runtimes(bench, agent)


# What is asked for first comes first: a budget cuts the end.
FIGURES = {
    "resnet18": speed("resnet18", 10, 15, 3),
    "transformer": speed("transformer", 10, 20, 3),
    "inference": speed("inference", 20, 500, 5),
    "first_kernel": first_kernel,
    "curve_resnet18_small": curve("resnet18_small", 3, 100),
    "curve_transformer": curve("transformer", 2, 100),
    "others": others,
    "operations": operations,
    "curve_transformer_generation": curve("transformer_generation", 1, 20),
    "curve_low_precision": curve("low_precision", 1, 50),
    "curve_streams": curve("streams", 1, 100),
    "curve_graph": curve("graph", 1, 100),
    "curve_memory": curve("memory", 1, 200),
    "resnet18_small": speed("resnet18_small", 6, 20, 3),
    "inference_queued": speed("inference_queued", 20, 500, 5),
    "transformer_bf16": speed("transformer_bf16", 6, 20, 3),
    "transformer_compiled": speed("transformer_compiled", 6, 20, 3),
}


def more_figures():
    """Those of other files, which know this one."""
    import torch_moved  # pylint: disable=import-outside-toplevel,cyclic-import
    import torch_shared  # pylint: disable=import-outside-toplevel,cyclic-import
    import torch_trace  # pylint: disable=import-outside-toplevel,cyclic-import
    import torch_two  # pylint: disable=import-outside-toplevel,cyclic-import
    import torch_wheels  # pylint: disable=import-outside-toplevel,cyclic-import
    return {**{f"shared_{mode}": torch_shared.shared(mode) for mode in ("isolated", "packed")},
            **{f"trace_{job}": torch_trace.trace(job) for job in ("resnet18", "transformer")},
            **{name: getattr(torch_wheels, name) for name in ("numba_tests", "torch_test_cuda", "cupy_tests")},
            "parts": torch_two.parts, "keras": torch_two.keras, "nccl": torch_two.nccl, "moves": torch_moved.moves, "moves_communicator": torch_moved.communicator_moves}

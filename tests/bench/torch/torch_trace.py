# SPDX-License-Identifier: Apache-2.0
"""Where the time of a step goes, natively and over our libraries: what the device did, by its own clock, and which calls the driver got.

Both are told by CUPTI inside the process that has the driver: natively the program, here the worker (trace.c). That makes calls
slower, and gaps between kernels with them; how long a kernel takes it does not change.
"""
import collections
import glob
import os
import pathlib
import time

from torch_figures import TENANT, Figure, Job, harness

STEPS = 10
# Behind the file's coming and going, until the tracer has seen it and what was left has been written.
SETTLE_S = 1.0
SHORT_NS = 2000
KIND = {"K": "kernels", "C": "copies", "F": "fills"}

Event = collections.namedtuple("Event", "kind start end stream what")
# Of one step: events by kind, microseconds that the device was busy and was not, gaps longer than SHORT_NS, {what: (count, us)} of events and of calls.
Told = collections.namedtuple("Told", "counts busy_us idle_us gaps events calls")


def events_of(text):
    """The lines of a trace, by their start; what CUPTI could not do is a failure."""
    found = []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "E":
            raise harness.Failure(f"the tracer says: {rest}")
        words = rest.split(" ", 3)
        if kind in ("K", "C", "F", "A") and len(words) == 4:
            found.append(Event(kind, int(words[0]), int(words[1]), words[2], words[3]))
    return sorted(found, key=lambda event: event.start)


def by_what(events, steps):
    found = collections.defaultdict(lambda: [0, 0])
    for event in events:
        row = found[event.what if event.kind in ("K", "A") else KIND[event.kind]]
        row[0] += 1 / steps
        row[1] += (event.end - event.start) / 1e3 / steps
    return dict(found)


def told(events, steps):
    """What overlaps on the device is busy once."""
    work = [event for event in events if event.kind != "A"]
    if not work:
        raise harness.Failure("the trace has no work of a device")
    busy, gaps, end = 0, [], work[0].start
    for event in work:
        gaps.append(max(0, event.start - end))
        busy += max(0, event.end - max(event.start, end))
        end = max(end, event.end)
    counts = collections.Counter(KIND[event.kind] for event in work)
    return Told({kind: count / steps for kind, count in counts.items()}, busy / 1e3 / steps, sum(gaps) / 1e3 / steps,
                sum(gap > SHORT_NS for gap in gaps) / steps, by_what(work, steps), by_what([e for e in events if e.kind == "A"], steps))


def differences(native, ours):
    """[(more us of a step, what, native's (count, us), ours)], the largest first."""
    rows = [(ours.get(what, (0, 0))[1] - native.get(what, (0, 0))[1], what, native.get(what, (0, 0)), ours.get(what, (0, 0)))
            for what in {*native, *ours}]
    return sorted(rows, key=lambda row: -abs(row[0]))


def figures(job, native, ours):
    for side, one in (("native", native), ("ours", ours)):
        counts = ", ".join(f"{count:.1f} {kind}" for kind, count in sorted(one.counts.items()))
        yield Figure(f"{job}_trace_busy_{side}", one.busy_us, "us", f"of the device for a step: {counts}")
        yield Figure(f"{job}_trace_idle_{side}", one.idle_us, "us", f"while it was traced; {one.gaps:.1f} gaps of more than {SHORT_NS // 1000} us; "
                     f"{sum(count for count, _ in one.calls.values()):.0f} calls of the driver")
    yield Figure(f"{job}_trace_busy_overhead", 100 * (ours.busy_us / native.busy_us - 1), "%", "of the device's time; the log has each kernel")
    for title, left, right in (("device", native.events, ours.events), ("driver call", native.calls, ours.calls)):
        for more, what, theirs, mine in differences(left, right)[:60]:
            print(f"## {job} {title}: {more:+9.2f} us; native {theirs[0]:6.1f} x, {theirs[1]:9.2f} us; ours {mine[0]:6.1f} x, {mine[1]:9.2f} us: {what[:160]}",
                  flush=True)


def cupti_of(site):
    found = sorted(site.glob("nvidia/*/lib/libcupti.so.*"))
    return str(found[0]) if found else "libcupti.so.13"


def trace_of(path):
    """That of the process that had most to tell: a worker that only waits, and the steward, write next to nothing."""
    texts = [pathlib.Path(one).read_text(encoding="utf-8", errors="replace") for one in glob.glob(path + ".[0-9]*")]
    if not texts:
        raise harness.Failure("no process has loaded the tracer")
    return max(texts, key=len)


def traced(job, path):
    """What STEPS steps were."""
    job.go(STEPS)
    wanted = pathlib.Path(path + ".on")
    wanted.touch()
    time.sleep(SETTLE_S)
    job.go(STEPS)
    time.sleep(SETTLE_S)
    wanted.unlink()
    time.sleep(SETTLE_S)
    return told(events_of(trace_of(path)), STEPS)


def trace(name):
    """A measurement of torch_jobs.py's @name. Workers may write files here: they are not confined."""
    def measure(bench):
        library = harness.find_in_build("libgpu-trace.so", os.path.exists)
        if not library:
            raise harness.Skip("this build has no libgpu-trace.so: it was made without CUPTI's header")
        os.chmod(bench.place.folder, 0o777)
        env = {"CUDA_INJECTION64_PATH": library, "GPU_TRACE_CUPTI": cupti_of(bench.place.site)}
        paths = [str(bench.place.folder / f"trace-{name}-{side}-{time.monotonic_ns()}") for side in ("native", "ours")]
        with bench.place.world({"red": TENANT}, env={**env, "GPU_TRACE": paths[1]}, agent={"confine": "no", "worker_user": "none"}) as agent:
            native, ours = Job(bench, None, name, env={**env, "GPU_TRACE": paths[0]}), Job(bench, agent, name)
            for one in (native, ours):
                one.ready()
            yield from figures(name, *(traced(one, path) for one, path in zip((native, ours), paths)))
    return measure

# SPDX-License-Identifier: Apache-2.0
"""The demo keeps its promises, in time, and leaves nothing behind but the pictures."""
import os
import shutil
import tempfile
import time

import harness


def run_demo(folder):
    return harness.run([harness.program("gantryctl"), "demo", "--output", folder], timeout=100)


def test_demo_keeps_its_promises(t):
    folder = tempfile.mkdtemp(prefix="gantry-pictures-")
    try:
        start = time.monotonic()
        ended = run_demo(folder)
        t.note(ended.out)
        broken = [line.strip() for line in ended.out.splitlines() if line.startswith("  NOT ")]
        # How exactly time was shared in three seconds is for the benchmarks to judge, on a quiet machine.
        broken = [line for line in broken if "to 1" not in line]
        t.equal(broken, [])
        t.contains(ended.out, "promises kept", ended.err)
        t.below(time.monotonic() - start, 60)
        for name in ("edges.png", "sharp.png", "focus.png"):
            with open(os.path.join(folder, name), "rb") as picture:
                t.equal(picture.read(8), b"\x89PNG\r\n\x1a\n", name)
    finally:
        shutil.rmtree(folder)


def test_demo_on_one_device_that_is_named_keeps_its_promises(t):
    folder = tempfile.mkdtemp(prefix="gantry-pictures-")
    try:
        ended = harness.run([harness.program("gantryctl"), "demo", "--device", "backend=cpu,cores=1,mem=1G", "--output",
                             folder], timeout=100)
        broken = [line.strip() for line in ended.out.splitlines() if line.startswith("  NOT ") and "to 1" not in line]
        t.equal(broken, [])
        t.contains(ended.out, "devices  cpu0 (cpu, 1024 MiB)\n", ended.err)
        t.true("is drained" not in ended.out, "there is no other device to drain")
    finally:
        shutil.rmtree(folder)


def test_demo_of_a_device_without_backend_says_so(t):
    ended = harness.run([harness.program("gantryctl"), "demo", "--device", "gpu=0"])
    t.code(ended, 2)
    t.contains(ended.err, "no backend")


def test_demo_leaves_no_process_and_no_folder(t):
    folder = tempfile.mkdtemp(prefix="gantry-pictures-")
    try:
        before = set(os.listdir(tempfile.gettempdir()))
        run_demo(folder)
        left = [name for name in set(os.listdir(tempfile.gettempdir())) - before if name.startswith("gantry-demo-")]
        t.equal(left, [])
        harness.wait_until(lambda: harness.reap() or not harness.descendants(os.getpid()), "its processes end", 10)
    finally:
        shutil.rmtree(folder)


def test_demo_without_its_parts_says_so(t):
    folder = tempfile.mkdtemp(prefix="gantry-pictures-")
    try:
        shutil.copy(harness.program("gantry-demo"), folder)
        ended = harness.run([os.path.join(folder, "gantry-demo"), "--output", folder])
        t.code(ended, 1)
        t.contains(ended.err, "gantry-demo: ")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    harness.main(globals(), limit_s=120)

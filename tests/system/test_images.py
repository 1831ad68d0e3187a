#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Images that guests load, through whole programs: on a null device with images=yes, which finds names and runs nothing."""
import tempfile

import harness
from scripted import Scripted, worker_of

IMAGE = "null-image 1\nkernel nothing\nkernel scale 8 4\nend\n"
DEVICES = {"null0": {"backend": "null", "images": "yes", "cores": None}}


def world():
    return harness.Agent(devices=DEVICES, tenants={"red": {}})


def saved(text):
    file = tempfile.NamedTemporaryFile("w", suffix=".image")
    file.write(text)
    file.flush()
    return file


def runs(t, guest, what):
    guest.ask("launch q t mine 1 1 1 0")
    guest.ask("wait t 30000")
    t.true(True, what)


def test_images_outlive_workers_and_agents(t):
    with world() as agent, saved(IMAGE) as image:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask(f"image own 7 {image.name}")
        guest.ask("kernel mine own nothing void")
        runs(t, guest, "before")
        agent.kill_worker(worker_of(agent, guest))
        runs(t, guest, "after the worker's death")
        pid = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.ctl("version").code == 0 and agent.agent_pid() != pid, "another agent", 30)
        agent.kill_worker(worker_of(agent, guest))
        runs(t, guest, "after both deaths")
        guest.ask("kernel other own scale rw:f32*,f32")
        guest.refused("kernel other own scale rw:f32*,f64", "SIGNATURE")
        guest.refused("kernel other own absent void", "NO_KERNEL")


def test_texts_that_misbehave_harm_nobody(t):
    with world() as agent, saved(IMAGE) as image:
        guest = Scripted(agent, "red")
        guest.ask("queue q")
        guest.ask(f"image own 7 {image.name}")
        guest.ask("kernel mine own nothing void")
        worker = worker_of(agent, guest)
        for line, status in (("crash", "IMAGE"), ("exit", "IMAGE"), ("error line 1", "IMAGE"), ("grow", "IMAGE")):
            with saved(f"null-source 1\n{line}\n") as text:
                guest.refused(f"image x 7 {text.name}", status, 60)
        runs(t, guest, "a kernel of before")
        t.equal(worker_of(agent, guest), worker, "the worker")
        with saved("null-source 1\nkernel made 4\n") as text:
            guest.ask(f"image x 7 {text.name}", 60)
        guest.ask("kernel y x made u32")


if __name__ == "__main__":
    harness.main(globals())

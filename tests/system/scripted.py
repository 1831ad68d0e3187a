# SPDX-License-Identifier: Apache-2.0
"""Guests that do what a test tells them, one line at a time (progs/guest.c), and worlds that hold them."""
import json

import harness


class Scripted:
    """A guest of @tenant. ask() wants it to go well; tell() takes the answer as it comes."""

    def __init__(self, agent, tenant, opened=True, env=None):
        self.process = agent.guest(tenant, [harness.program("gantry-test-guest")], env=env)
        if opened:
            self.ask("open")

    @property
    def pid(self):
        return self.process.pid

    def start(self, command):
        self.process.write_line(command)

    def answer(self, timeout=harness.WAIT_S):
        line = self.process.read_line(timeout)
        if line is None:
            raise harness.Failure("the guest ended instead of answering")
        return line

    def tell(self, command, timeout=harness.WAIT_S):
        """The whole answer: "ok ..." or "error NAME sentence"."""
        self.start(command)
        return self.answer(timeout)

    def ask(self, command, timeout=harness.WAIT_S):
        """What follows "ok"."""
        answer = self.tell(command, timeout)
        if not answer.startswith("ok"):
            raise harness.Failure(f"{command}: {answer}")
        return answer[3:]

    def refused(self, command, status, timeout=harness.WAIT_S):
        """It must fail with @status, and with a sentence."""
        answer = self.tell(command, timeout)
        if not answer.startswith(f"error {status} "):
            raise harness.Failure(f"{command}: expected {status}, got {answer!r}")
        if not answer[len(f"error {status} "):].strip():
            raise harness.Failure(f"{command}: {status} came without a sentence")
        return answer

    def session(self):
        return int(self.ask("id"))

    def kill(self):
        self.process.kill()


def honest(agent, tenant="blue"):
    """A guest that computes checksums all the time; check() with still_honest()."""
    guest = Scripted(agent, tenant)
    guest.ask("honest start")
    guest.ask("honest check")
    return guest


def still_honest(guest):
    """Three more rounds, begun after this call or just before, all bit-exact."""
    guest.ask("honest check", timeout=40)


def two_tenants(red=None, blue=None, devices=None, **options):
    return harness.Agent(devices=devices or {"cpu0": {}},
                         tenants={"red": dict(red or {}), "blue": dict(blue or {})}, **options)


def session_of(agent, guest):
    """The agent's row of a guest's session, by its process."""
    for row in agent.sessions():
        if row["pid"] == guest.pid:
            return row
    raise harness.Failure(f"no session of pid {guest.pid}")


def worker_of(agent, guest):
    return session_of(agent, guest)["worker_pid"]


def gone(agent, session_id):
    return all(row["session_id"] != session_id for row in agent.sessions())


def events(agent, *kinds):
    """Events so far, of these kinds or all."""
    ended = agent.ctl("--json", "events")
    found = []
    for line in ended.out.splitlines():
        found.append(json.loads(line))
    return [event for event in found if not kinds or event["kind"] in kinds]

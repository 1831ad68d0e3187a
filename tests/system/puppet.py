# SPDX-License-Identifier: Apache-2.0
"""A guest that does what a test tells it, one line at a time: see guests/puppet_guest.c for its commands."""
import harness


class Refused(harness.Failure):
    """A call of libgantry failed: .status and .sentence."""

    def __init__(self, line, status, sentence):
        super().__init__(f"{line}: {status} {sentence}")
        self.status = status
        self.sentence = sentence


class Puppet:
    """A guest of @tenant with a session and queue 0, unless told otherwise."""

    def __init__(self, agent, tenant, open_with="open", queue="queue 0", guest=None):
        self.agent = agent
        self.guest = guest or agent.guest(tenant, [harness.program("puppet-guest")])
        self.session = 0
        self.slot = 0
        if open_with:
            self.session = int(self.do(open_with)[0])
            if queue:
                self.slot = int(self.do(queue)[0])

    @property
    def queue(self):
        """Its queue 0, as gantryctl names it."""
        return f"{self.session}:{self.slot}"

    def start(self, line):
        """Says @line; the answer is left for finish()."""
        self.guest.write_line(line)
        return self

    def finish(self, line="", timeout=harness.WAIT_S):
        answer = self.guest.read_line(timeout)
        if answer is None:
            raise harness.Failure(f"the guest ended in the middle of {line!r}")
        word, _, rest = answer.partition(" ")
        if word != "ok":
            status, _, sentence = rest.partition(" ")
            raise Refused(line, int(status), sentence)
        return rest.split()

    def do(self, line, timeout=harness.WAIT_S):
        """Says @line, and returns the words of its answer; Refused where the call failed."""
        return self.start(line).finish(line, timeout)

    def fails(self, line, status, timeout=harness.WAIT_S):
        """Says @line, which has to fail with @status; returns the sentence."""
        try:
            words = self.do(line, timeout)
        except Refused as refused:
            if refused.status != status:
                raise harness.Failure(f"{line}: expected status {status}, saw {refused}") from None
            return refused.sentence
        raise harness.Failure(f"{line}: expected status {status}, but it went well: {words}")

    def idle(self):
        """No answer has come, and none is on its way for a moment that is not waited for."""
        return not self.guest.buffer

    def end(self):
        self.guest.process.stdin.close()
        return self.guest.wait()


def chain_value(steps):
    """What a fresh chain of @steps has to come to."""
    value = 0
    for step in range(1, steps + 1):
        value = step - value
    return value

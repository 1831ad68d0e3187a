# SPDX-License-Identifier: Apache-2.0
"""A checker of what became of every task, whoever died meanwhile.

A guest puts additions of one to a float, by a kernel that is not idempotent. What ended OK ran once, what is
IN_DOUBT once or not at all, nothing ran twice and nothing is lost:  OK <= sum <= OK + IN_DOUBT,  OK + IN_DOUBT = tasks.
"""
import harness

# What a task may end with whose worker was killed.
KILLED = frozenset({"OK", "IN_DOUBT"})


class History:
    """The tasks that @guest (a Scripted with a queue q) has put since the last check."""

    def __init__(self, guest):
        self.guest = guest
        self.tasks = 0
        self.tickets = []
        self.is_putting = False
        guest.ask("buffer y 64 device")
        guest.ask("float y 0")

    def begin(self, number):
        """Has them put; end() waits until they are, which may take until their worker is there again."""
        name = f"h{len(self.tickets)}"
        self.guest.start(f"add q {name} y {number}")
        self.is_putting = True
        self.tickets.append((name, number))
        self.tasks += number

    def end(self, timeout=60):
        answer = self.guest.answer(timeout)
        self.is_putting = False
        if not answer.startswith("ok"):
            raise harness.Failure(f"putting tasks: {answer}")

    def put(self, number, timeout=60):
        self.begin(number)
        self.end(timeout)

    def check(self, t, allowed=frozenset({"OK"}), timeout=100):
        """How they ended: {status: how many}."""
        ended = {}
        for name, number in self.tickets:
            for word in self.guest.ask(f"ends {name} {number}", timeout).split():
                key, _, value = word.partition("=")
                ended[key] = ended.get(key, 0) + int(value)
        t.equal(set(key for key, value in ended.items() if value) - set(allowed), set(), f"how tasks ended: {ended}")
        t.equal(sum(ended.values()), self.tasks, f"tasks accounted for: {ended}")
        ran = float(self.guest.ask("float y", timeout))
        t.true(ended.get("OK", 0) <= ran <= ended.get("OK", 0) + ended.get("IN_DOUBT", 0),
               f"ran {ran} times: {ended}")
        self.tickets, self.tasks = [], 0
        self.guest.ask("float y 0", timeout)
        return ended

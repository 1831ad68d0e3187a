# SPDX-License-Identifier: Apache-2.0
"""A world that the tests of a file have one after another, for machines are slow to boot.

    class World:
        def __init__(self): ...     # boots
        def restore(self): ...      # back to what a new one is; Failure where that cannot be
        def report(self): ...
        def close(self): ...

    WORLD = shared.Shared(World)

    def test_something(t):
        with WORLD() as world:
            ...

After a test that went well restore() runs, still as part of that test, so that no test sees what another left. A
test that fails takes its world with it, and the next one has a new one.
"""
import atexit
import contextlib

import harness


class Shared:
    def __init__(self, make):
        self.make = make
        self.world = None
        self.agents, self.guests = [], []
        atexit.register(self.close)

    def show(self):
        """While a test runs, the harness has the world's processes among those that it ends after it."""
        harness.Agent.current += self.agents
        harness.Guest.running += self.guests
        self.agents, self.guests = [], []

    def hide(self):
        """What there is after restore() is the world's, though a test may have started it."""
        for mine, known in ((self.agents, harness.Agent.current), (self.guests, harness.Guest.running)):
            mine += known
            known.clear()

    def close(self):
        if self.world:
            self.show()
            world, self.world = self.world, None
            world.close()

    @contextlib.contextmanager
    def __call__(self):
        self.show()
        if not self.world:
            self.world = self.make()
        try:
            yield self.world
            self.world.restore()
        except BaseException as error:
            if not isinstance(error, harness.Skip):
                self.world.report()
            self.close()
            raise
        self.hide()

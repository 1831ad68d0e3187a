# SPDX-License-Identifier: Apache-2.0
"""The failpoints of an agent's processes (docs/failpoints.md), as a test arms and reads them while they run."""
import functools
import mmap
import os
import struct
import tempfile

import harness

PAGE = 4096
SLOT = struct.Struct("<IIIIIi")  # struct gantry_failpoint_slot: action, skip, times, hits, fired, pid
NOTHING, DIE, STALL, FAIL, STALLED = range(5)
ALWAYS = 0xffffffff


@functools.lru_cache(maxsize=None)
def table():
    """name: (number, "step" or "io", program, where it is), as gantryd tells them."""
    told = harness.run([harness.program("gantryd"), "--failpoints"])
    if told.code != 0:
        raise harness.Skip("this build has no failpoints")
    rows = [line.split("\t") for line in told.out.splitlines()]
    return {name: (int(number), kind, program, what) for number, name, kind, program, what in rows}


class Points:
    """A page that an agent, its workers and movers share; .env is what they are started with."""

    def __init__(self):
        table()
        descriptor, self.path = tempfile.mkstemp(prefix="gantry-points-")
        os.ftruncate(descriptor, PAGE)
        self.page = mmap.mmap(descriptor, PAGE)
        os.close(descriptor)
        self.env = {"GANTRY_FAILPOINTS": self.path}

    def slot(self, name):
        """Its action, skip, times, hits, fired, pid."""
        return SLOT.unpack_from(self.page, table()[name][0] * SLOT.size)

    def set_word(self, name, index, value):
        struct.pack_into("<I", self.page, table()[name][0] * SLOT.size + 4 * index, value)

    def arm(self, name, action, skip=0, times=1):
        """From now on: the first @skip pass, then @times are hit."""
        for index, value in ((0, NOTHING), (1, skip), (2, times), (4, 0)):
            self.set_word(name, index, value)
        self.set_word(name, 0, action)

    def clear(self):
        """Nothing happens at any of them; who stands still goes on."""
        for name in table():
            self.set_word(name, 0, NOTHING)

    def action(self, name):
        return self.slot(name)[0]

    def hits(self, name):
        return self.slot(name)[3]

    def fired(self, name):
        return self.slot(name)[4]

    def pid(self, name):
        """Who was hit last."""
        return self.slot(name)[5]

    def stalled(self, name):
        return self.action(name) == STALLED

    def wait_fired(self, name, timeout=harness.WAIT_S):
        harness.wait_until(lambda: self.fired(name), f"somebody passes {name}", timeout)

    def wait_stalled(self, name, timeout=harness.WAIT_S):
        harness.wait_until(lambda: self.stalled(name), f"somebody stands still at {name}", timeout)
        return self.pid(name)

    def close(self):
        self.clear()
        self.page.close()
        os.unlink(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

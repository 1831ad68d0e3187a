#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The time of day jumps; whoever waits by it hangs or wakes too soon. So nobody may: it is for showing only.

test_guests.py (clock jumps change nothing) shows it from outside; this finds the line.
"""
import pathlib
import re
import unittest

import tap

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("base", "proto", "guest-shim", "host-agent", "devices", "migration")
# Where the wall clock may be named, and why.
ALLOWED = {
    "devices/fpga/work.c": "a condition that was made with the monotonic clock",
    "devices/opencl/board_run.c": "likewise",
    "devices/seat/link.c": "likewise",
    "host-agent/agent/run.c": "gantry_unix_now_ns(): times in events and lists",
    "host-agent/worker/confine.c": "a name in the list of allowed system calls",
    "host-agent/ctl/top.c": "the time at the top of a screen",
}
WALL = re.compile(r"\b(CLOCK_REALTIME(_COARSE|_ALARM)?|CLOCK_TAI|gettimeofday|ftime|sem_timedwait|pthread_cond_timedwait|"
                  r"pthread_mutex_timedlock|pthread_rwlock_timed\w+|mq_timed\w+|FUTEX_CLOCK_REALTIME)\b|\btime\((NULL|&|0)")


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


class Clock(unittest.TestCase):
    def test_nothing_waits_by_the_time_of_day(self):
        found = {}
        for room in ROOMS:
            for path in sorted((ROOT / room).rglob("*.[ch]")):
                for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
                    if WALL.search(line):
                        found.setdefault(str(path.relative_to(ROOT)), []).append(f"{number}: {line.strip()}")
        self.assertEqual({name: lines for name, lines in found.items() if name not in ALLOWED}, {})
        self.assertEqual(sorted(set(ALLOWED) - set(found)), [], "an exception that nothing needs any more")

    def test_timestamps_are_not_compared_for_waiting(self):
        """gantry_unix_now_ns() ends up in a field or on a screen, never in a deadline."""
        for path in sorted((ROOT / "host-agent").rglob("*.c")):
            for line in without_comments(path.read_text()).splitlines():
                if "gantry_unix_now_ns()" in line:
                    self.assertNotRegex(line, r"deadline|timeout|timer|<|>(?!\w)|\bif\b|\bwhile\b", f"{path.name}: {line}")


if __name__ == "__main__":
    tap.main()

# SPDX-License-Identifier: Apache-2.0
"""Do two runs of one program say the same? Text is compared word by word: timings and addresses are masked, numbers
may differ by a tolerance that the program's row names (0: not at all), everything else has to be equal."""
import math
import re

DIGITS = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)"
NUMBER = re.compile(DIGITS + r"|\b(?:nan|inf)\b", re.I)
ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")
# A line that tells how long or how fast says nothing of the result: its numbers are masked, its words are not.
TIMING = re.compile(r"\b(time|times|timing|elapsed|took|speed|speedup|throughput|bandwidth|performance|latency|duration|clock|clocks|"
                    r"cycles|ms|msec|us|usec|ns|s|sec|secs|second|seconds|fps|rate|overhead)\b|\b[GMKT]?i?B/s|[GMT]?flop|/sec\b|/s\b|_ms\b|"
                    r"\btime[:=]|\d(ms|us|s)\b", re.I)
MASK = "#"


def masked(line, masks=()):
    """@line with what may differ between any two runs replaced."""
    line = ADDRESS.sub(MASK, line)
    if TIMING.search(line) or any(re.search(mask, line) for mask in masks):
        line = NUMBER.sub(MASK, line)
    return " ".join(line.split())


def lines_of(text, masks=(), drop=(), in_any_order=False):
    """The lines that count."""
    lines = [masked(line, masks) for line in text.splitlines() if not any(re.search(one, line) for one in drop)]
    lines = [line for line in lines if line]
    return sorted(lines) if in_any_order else lines


def close(seen, wanted, tolerance):
    """Two numbers, as text."""
    if seen == wanted:
        return True
    a, b = float(seen), float(wanted)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return abs(a - b) <= tolerance * max(abs(a), abs(b), 1.0)


def same_line(seen, wanted, tolerance):
    if seen == wanted:
        return True
    if tolerance == 0 or NUMBER.sub(MASK, seen) != NUMBER.sub(MASK, wanted):
        return False
    return all(close(a, b, tolerance) for a, b in zip(NUMBER.findall(seen), NUMBER.findall(wanted)))


def difference(seen, wanted, tolerance=0.0, **how):
    """"" where the texts agree, else one sentence that names the first line that does not."""
    seen, wanted = lines_of(seen, **how), lines_of(wanted, **how)
    for number, (mine, other) in enumerate(zip(seen, wanted), 1):
        if not same_line(mine, other, tolerance):
            return f"line {number}: {mine[:120]!r}, natively {other[:120]!r}"
    if len(seen) != len(wanted):
        longer = seen if len(seen) > len(wanted) else wanted
        whose = "here" if longer is seen else "natively"
        return f"{len(seen)} lines, natively {len(wanted)}; the first only {whose}: {longer[min(len(seen), len(wanted))][:120]!r}"
    return ""

# SPDX-License-Identifier: Apache-2.0
"""What single calls of the Runtime API cost, natively and over our libraries: cuda-runtime-launches of the build, on both sides."""
import harness

PROGRAM = "cuda-runtime-launches"
CALLS = 40000
LIMIT_S = 60


def lines_of(guest, worker_cpu_s=None):
    """{sort: [wall us, the caller's cpu us, the worker's cpu us or None]}. The worker is looked at when a sort's line comes."""
    found, before = {}, worker_cpu_s() if worker_cpu_s else None
    while True:
        line = guest.read_line(LIMIT_S)
        if line is None:
            return found
        words = line.split()
        if len(words) != 4 or not words[1].isdigit():
            raise harness.Failure(f"{PROGRAM}: {line}")
        row = [float(words[2]) / 1e3, float(words[3]) / 1e3, None]
        now = worker_cpu_s() if worker_cpu_s else None
        if now is not None:
            row[2] = (now - before) / int(words[1]) * 1e6
            before = now
        found[words[0]] = row


def natively(env):
    guest = harness.Guest([harness.program(PROGRAM), str(CALLS)], env=env)
    try:
        guest.read_until("ready", LIMIT_S)
        return lines_of(guest)
    finally:
        guest.end()


def as_guest(agent, env):
    guest = agent.guest("red", [harness.program(PROGRAM), str(CALLS)], env=env)
    guest.read_until("ready", LIMIT_S)  # it has a session
    pids = [row["pid"] for row in agent.workers() if row["sessions"]]

    def worker_cpu_s():
        try:
            return harness.cpu_s(*pids)
        except OSError:  # the program has ended meanwhile, and its worker
            return None
    try:
        return lines_of(guest, worker_cpu_s)
    finally:
        guest.end()

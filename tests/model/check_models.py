#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Search each model with spin; then each of its broken variants, in which the search must find the fault.

A model that cannot fail proves nothing: the variants show that every fence is looked at, and needed.
Prints TAP. usage: check_models.py FOLDER
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

# Model: defines of the searches that must find nothing, of those that must find the fault, what the fault is called,
# and how spin says it.
SLEEP = ("never loses a wake-up", "loses one", "invalid end state")
BOTH = ("runs on exactly one side", "does not", "assertion violated")
MODELS = {
    "ring": (
        [[], ["TASKS=3"]],
        [["NO_FENCE_PUT"], ["NO_FENCE_PARK"], ["NO_FENCE_WAKE"], ["NO_FENCE_WAIT"]],
        SLEEP,
    ),
    "handover": (
        [[], ["DEATHS=3", "LOSSES=1"]],
        [["RUNS_ON"], ["COMMIT_UNWRITTEN"], ["EAGER"], ["FORGETS_READY"], ["RETURNS_ANYWAY"]],
        BOTH,
    ),
    "share": (
        [[], ["TURNS=3"], ["NLANES=2"]],
        [
            ["NO_FENCE_WANT"],
            ["NO_FENCE_SLEEP"],
            ["NO_FENCE_GIVE"],
            ["NO_FENCE_CALL"],
            ["NO_FENCE_LEAVE"],
            ["NO_FENCE_TAKE", "NLANES=2"],
        ],
        SLEEP,
    ),
}
DEPTH = 1000000
TIMEOUT_S = 100


class ModelError(Exception):
    """The search did not come to a result, so it says nothing about the model."""


def run(command, folder):
    """Output of @command; a failure to run is a ModelError."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{command[0]}: no result in {TIMEOUT_S} s") from error
    return done.returncode, done.stdout + done.stderr


def search(model, defines, optimise):
    """What the complete search of @model finds first: "invalid end state ...", or "" for nothing."""
    with tempfile.TemporaryDirectory(prefix="gantry-model.") as folder:
        flags = ["-D" + define for define in defines]
        status, output = run(["spin", *flags, "-a", model], folder)
        if status or "Error" in output:
            raise ModelError("spin: " + output)
        status, output = run(["gcc", "-w", optimise, "-DSAFETY", "-o", "pan", "pan.c"], folder)
        if status:
            raise ModelError("gcc: " + output)
        _, output = run(["./pan", f"-m{DEPTH}"], folder)
    found = re.search(r"errors: (\d+)", output)
    if not found:
        raise ModelError("pan: " + output)
    first = re.search(r"^pan:\d+: (.*)$", output, re.MULTILINE)
    if int(found.group(1)):
        return first.group(1) if first else output
    if "Search not completed" in output or "max search depth" in output:
        raise ModelError("the search was cut short: " + output)
    return ""


def cases(folder):
    """(name, model, defines, the fault it must have or None), one for each search."""
    for name, (sound, broken, (good, bad, fault)) in MODELS.items():
        model = os.path.join(folder, name + ".pml")
        for defines in sound:
            yield " ".join([name, *defines, good]), model, defines, None
        for defines in broken:
            yield " ".join([name, *defines, bad]), model, defines, fault


def check(model, defines, fault):
    """A complaint, or None."""
    try:
        # A fault is found soon: the compiler would take longer over the search than the search takes.
        found = search(model, defines, "-O0" if fault else "-O1")
    except ModelError as error:
        return str(error)
    if fault and fault not in found:
        return f"no {fault}, but '{found}': is what was left out needed, does the model see it?"
    if not fault and found:
        return f"{found}; see it with: spin -a, cc, pan, spin -t -p"
    return None


def main():
    folder = os.path.abspath(sys.argv[1])
    missing = [tool for tool in ("spin", "gcc") if not shutil.which(tool)]
    todo = list(cases(folder))
    failed = 0

    print(f"1..{len(todo)}", flush=True)
    for number, (name, model, defines, fault) in enumerate(todo, 1):
        if missing:
            print(f"ok {number} - {name} # SKIP {missing[0]} is not installed")
            continue
        complaint = check(model, defines, fault)
        print(f"{'not ok' if complaint else 'ok'} {number} - {name}", flush=True)
        if complaint:
            failed += 1
            print("# " + complaint.replace("\n", "\n# "))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

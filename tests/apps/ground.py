# SPDX-License-Identifier: Apache-2.0
"""Where a program runs: natively over NVIDIA's libraries, or as a guest over ours, in a folder of its own each time."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpu"), str(HERE.parent / "system")]
import harness  # pylint: disable=wrong-import-position
import inputs  # pylint: disable=wrong-import-position

# Of NVIDIA's libraries, what does its work on the CPU alone: a guest has the real ones.
KEPT = ("libnvrtc", "libnvJitLink", "libnvvm")
# So deep below the run's own folder lies the working folder: some programs want their input beside it, further up.
DEPTH = ("a", "b", "c", "d")


def wheels_of(python):
    """Folders of NVIDIA's wheels that this interpreter knows."""
    code = "import nvidia, pathlib\nfor one in nvidia.__path__: print(one)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return []
    return [path for line in done.stdout.split() for path in sorted(pathlib.Path(line).glob("*/lib"))]


def vendor_folders(named, pythons):
    """Folders with NVIDIA's libraries: those named, those of wheels, those of the toolkit."""
    found = [pathlib.Path(folder) for folder in named]
    for python in pythons:
        found += wheels_of(python)
    home = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    return [folder for folder in [*found, home / "lib64", home / "targets" / "x86_64-linux" / "lib"] if folder.is_dir()]


def link_libraries(folders, target, accept=lambda name: True):
    """One folder of links; the first folder that has a name gives it."""
    target.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for path in sorted(folder.glob("*.so*")):
            if accept(path.name) and not (target / path.name).exists():
                (target / path.name).symlink_to(path.resolve())
    return target


def our_folders():
    """Folders of the build with libraries that stand for NVIDIA's."""
    found = []
    for name in ("libcudart.so.13", "libcublasLt.so.13", "libnvidia-ml.so.1"):
        path = harness.find_in_build(name, lambda path: os.path.exists(path) and "fakecuda" not in path)
        if not path:
            raise harness.Skip(f"the build has no {name}: it had no headers of CUDA 13")
        found.append(pathlib.Path(path).parent)
    return found


class Run:
    """What one run of a program came to."""

    def __init__(self, code, out, err, started_ns, wall_s, report, outputs):
        self.code, self.out, self.err, self.wall_s, self.report, self.outputs = code, out, err, wall_s, report, outputs
        first = report.get("first_launch_ns", 0)
        self.first_s = (first - started_ns) / 1e9 if first else None

    def last_words(self):
        lines = [line for line in (self.out + "\n" + self.err).splitlines() if line.strip()]
        return (lines or ["nothing was said"])[-1].strip()[:200]


class Ground:
    """Runs programs of @apps in folders below @root."""

    def __init__(self, apps, root, vendor, observer):
        self.apps, self.root = pathlib.Path(apps).resolve(), pathlib.Path(root)
        self.inputs = self.root / "inputs"
        self.vendor = link_libraries(vendor, self.root / "vendor")
        self.ours = link_libraries(our_folders(), self.root / "ours", lambda name: not name.startswith(KEPT))
        link_libraries(vendor, self.ours, lambda name: name.startswith(KEPT))
        self.observer = observer

    def has(self, program):
        return (self.apps / program.name / program.name).exists()

    def prepare(self, program):
        """Makes its inputs, once."""
        for name in program.inputs.values():
            inputs.make(name, self.inputs)

    def working_folder(self, program):
        top = pathlib.Path(tempfile.mkdtemp(prefix=program.name + "-", dir=self.root))
        folder = top.joinpath(*DEPTH)
        folder.mkdir(parents=True)
        source = self.apps / program.name
        for path in source.iterdir():
            (folder / path.name).symlink_to(path)
        for where, name in program.inputs.items():
            target = folder / where
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(self.inputs / name)
        return top, folder

    def native_env(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("GANTRY")}
        env["LD_LIBRARY_PATH"] = ":".join([str(self.vendor), *filter(None, [env.get("LD_LIBRARY_PATH")])])
        return env

    def guest_env(self, agent, tenant="red"):
        return {**agent.guest_env(tenant), "LD_LIBRARY_PATH": str(self.ours)}

    def run(self, program, env, options=()):
        """One run; @options are settings of observer.c."""
        top, folder = self.working_folder(program)
        report = top / "report.json"
        env = dict(env, LD_PRELOAD=self.observer, APPS_REPORT=str(report), **dict(options))
        if program.fixed_time:
            env["APPS_TIME"] = "1700000000"
        try:
            started_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            ended = harness.run(["./" + program.name, *program.args], env=env, timeout=program.limit_s, cwd=folder)
            wall_s = (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - started_ns) / 1e9
            told = json.loads(report.read_text(encoding="ascii")) if report.exists() else {}
            written = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
                       if path.is_file() and not path.is_symlink()}
            return Run(ended.code, ended.out, ended.err, started_ns, wall_s, told, written)
        finally:
            shutil.rmtree(top, ignore_errors=True)

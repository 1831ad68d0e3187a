#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Gantry at work, in a few seconds: two tenants share two devices, and some accidents happen.

Starts an agent of its own in a temporary folder; an agent that runs already is left alone. Every number printed is
from this run. Needs no accelerator: the devices are two processor cores, unless told otherwise. Exit status: 0 when
all went as promised.

  gantryctl demo [--gpu N] [--device KEY=VALUE[,...]] [--output FOLDER] [--log]
"""
import argparse
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Where things are, from this folder: in a build tree, then as installed.
PLACES = {
    "gantryctl": ["../host-agent/ctl", "../../bin"],
    "gantryd": ["../host-agent/monitor", "../host-agent/agent", "../host-agent/main", "../host-agent", "../../sbin",
                "../../bin"],
    "gantry-worker": ["../host-agent/worker", "../host-agent", "../../sbin", "../../bin", "."],
    "photo": ["."],
    "options": ["."],
    "photo.png": ["."],
    "core.manifest": ["../devices/kernels", "../../lib/gantry/kernels", "../../lib/x86_64-linux-gnu/gantry/kernels"],
    "libgantry.so.0": ["../guest-shim", "../../lib", "../../lib/x86_64-linux-gnu"],
}
TENANTS = {
    "studio": {"weight": 3, "mem": "256M", "virtual": "512M", "heap": "96M", "host_mem": "400M"},
    "bank": {"weight": 1, "mem": "256M", "virtual": "512M", "heap": "96M", "host_mem": "400M"},
}
GREEDY_BYTES = 8 << 30
SHARING_S = 3.0
# Three seconds are a few thousand tasks, the largest of them milliseconds long: 3 to 1 shows, its decimals do not.
LOWEST_RATIO, HIGHEST_RATIO = 2.25, 3.75
LIMIT_S = 15


class DemoFailed(Exception):
    pass


def find(name):
    for place in PLACES[name]:
        path = HERE / place / name
        if path.exists():
            return path.resolve()
    raise DemoFailed(f"{name} is not where the demo looks for it; is everything built?")


# --- telling ------------------------------------------------------------------------------------------

COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
START = time.monotonic()
promises = []


def styled(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def title(text):
    print("\n" + styled("1", text))


def tell(text):
    print("  " + text)
    sys.stdout.flush()


def promise(kept, text):
    """A line that was checked."""
    promises.append(bool(kept))
    print(f"  {styled('32', 'ok ') if kept else styled('31', 'NOT')} {text}")
    sys.stdout.flush()


# --- processes ----------------------------------------------------------------------------------------

class Guest:
    """A guest program whose lines are read with a limit in time."""

    def __init__(self, demo, tenant, *argv):
        env = dict(os.environ, GANTRY_DOOR=f"unix:{demo.root}/run/doors/{tenant}/door",
                   LD_LIBRARY_PATH=str(find("libgantry.so.0").parent))
        self.tenant = tenant
        self.name = os.path.basename(str(argv[0]))
        self.buffer = b""
        self.process = subprocess.Popen([str(word) for word in argv], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        demo.guests.append(self)

    def line(self):
        """The next line; None at the end."""
        end = time.monotonic() + LIMIT_S
        while b"\n" not in self.buffer:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise DemoFailed(f"{self.name} says nothing for {LIMIT_S} s")
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                return None
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode(errors="replace")

    def expect(self, word):
        """The figures of the line that starts with @word."""
        seen = []
        while (line := self.line()) is not None:
            if line.startswith(word + " "):
                return line[len(word) + 1:]
            seen.append(line)
        raise DemoFailed(f"{self.name} ended early: {' / '.join(seen) or 'no word'}")

    def figures(self, word):
        return dict(item.split("=", 1) for item in self.expect(word).split())

    def stop(self):
        """Ends its loop and returns its figures."""
        self.process.stdin.close()
        figures = self.figures("ended")
        if self.process.wait(LIMIT_S) != 0:
            raise DemoFailed(f"{self.name} ended with status {self.process.returncode}: {figures}")
        return figures


class Demo:
    def __init__(self, output, devices):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="gantry-demo-"))
        os.chmod(self.root, 0o755)
        self.devices = devices
        self.output = output
        self.guests = []
        self.monitor = None
        self.log = self.root / "gantryd.log"

    def start(self):
        lines = ["[agent]", f"admin = {self.root}/run/admin.sock", f"module_dirs = {find('core.manifest').parent}",
                 "warm_workers = 2"]
        for device, keys in self.devices.items():
            lines += ["", f"[device {device}]"] + [f"{key} = {value}" for key, value in keys.items()]
        for tenant, keys in TENANTS.items():
            lines += ["", f"[tenant {tenant}]", "devices = all"]
            lines += [f"{key} = {value}" for key, value in keys.items()]
        (self.root / "gantryd.conf").write_text("\n".join(lines) + "\n")
        for folder in ("run", "state"):
            (self.root / folder).mkdir()
        with open(self.log, "wb") as log:
            self.monitor = subprocess.Popen(
                [find("gantryd"), "--config", self.root / "gantryd.conf", "--run-dir",
                 self.root / "run", "--state-dir", self.root / "state", "--worker", find("gantry-worker")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.until("the agent answers", lambda: self.ctl("version", check=False) and all(
            (self.root / "run/doors" / tenant / "door").exists() for tenant in TENANTS))

    def until(self, what, condition):
        end = time.monotonic() + LIMIT_S
        while not (value := condition()):
            if self.monitor.poll() is not None:
                raise DemoFailed(f"the agent ended with status {self.monitor.returncode}")
            if time.monotonic() > end:
                raise DemoFailed(f"{what}: not within {LIMIT_S} s")
            select.select([], [], [], 0.002)
        return value

    def ctl(self, *args, check=True):
        ended = subprocess.run([find("gantryctl"), "--socket", self.root / "run/admin.sock", "--json", *args],
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if ended.returncode == 0:
            return json.loads(ended.stdout)
        if check:
            raise DemoFailed(f"gantryctl {' '.join(args)}: {ended.stderr.strip()}")
        return None

    def session_of(self, guest):
        for session in self.ctl("session", "list", "--tenant", guest.tenant)["sessions"]:
            if session["pid"] == guest.process.pid:
                return session
        return None

    def device_seconds(self):
        return {tenant["name"]: tenant["device_ns"] / 1e9 for tenant in self.ctl("tenant", "list")["tenants"]}

    def close(self):
        for guest in self.guests:
            if guest.process.poll() is None:
                guest.process.kill()
                guest.process.wait()
        if self.monitor and self.monitor.poll() is None:
            self.monitor.terminate()
            try:
                self.monitor.wait(5)
            except subprocess.TimeoutExpired:
                self.monitor.kill()
                self.monitor.wait()
        shutil.rmtree(self.root, ignore_errors=True)


# --- the scenes ---------------------------------------------------------------------------------------

def scene_setting(demo):
    devices = demo.ctl("device", "list")["devices"]
    tell("devices  " + ", ".join(f"{d['name']} ({d['kind']}, {d['mem_bytes'] >> 20} MiB)" for d in devices))
    tell("tenants  " + ", ".join(f"{name} (weight {keys['weight']}, {keys['mem']})" for name, keys in TENANTS.items()))


def scene_work(demo):
    title("1. Two tenants, two kinds of work")
    photo = Guest(demo, "studio", find("photo"), find("photo.png"), demo.output)
    book = Guest(demo, "bank", find("options"))
    ran = photo.figures("pipeline")
    tell(f"studio   a photograph, {ran['width']} x {ran['height']}: blur, edges, sharpen, combine; "
         f"{ran['tasks']} tasks in {ran['ms']} ms")
    for _ in range(3):
        tell("         " + photo.expect("wrote"))
    ran = book.figures("book")
    tell(f"bank     {int(ran['options']):,} options in {ran['ms']} ms, mean call {ran['mean_call']}")
    promise(ran["wrong"] == "0", f"each price within a cent of the closed form; largest error {ran['worst_error']}")
    for guest in (photo, book):
        if guest.process.wait(LIMIT_S) != 0:
            raise DemoFailed(f"{guest.name} ended with status {guest.process.returncode}")


def loops(demo):
    photo = Guest(demo, "studio", find("photo"), "--loop", find("photo.png"), "2")
    book = Guest(demo, "bank", find("options"), "--loop", "2")
    return photo, book, photo.expect("started"), book.expect("started")


def scene_sharing(demo):
    title("2. One device for both: its time goes by weight")
    only, *others = demo.devices
    for device in others:
        demo.ctl("device", "drain", device)
        tell(f"{device} is drained, so that both need {only}")
    photo, book, _, _ = loops(demo)
    before, start = demo.device_seconds(), time.monotonic()
    select.select([], [], [], SHARING_S)
    after, elapsed = demo.device_seconds(), time.monotonic() - start
    used = {tenant: after[tenant] - before[tenant] for tenant in TENANTS}
    for tenant, seconds in used.items():
        share = seconds / (sum(used.values()) or 1)
        bar = "#" * round(share * 40)
        tell(f"{tenant:8} weight {TENANTS[tenant]['weight']}  {seconds:.2f} device seconds  {share:6.1%}  {bar}")
    ratio = used["studio"] / used["bank"] if used["bank"] else float("inf")
    tell(f"in {elapsed:.1f} s; the weights ask for {TENANTS['studio']['weight']}.00 to 1")
    promise(LOWEST_RATIO <= ratio <= HIGHEST_RATIO, f"the run gave {ratio:.2f} to 1")
    for device in others:
        demo.ctl("device", "enable", device)
    return photo, book


def scene_refusal(demo):
    title("3. A request over the limit")
    guest = Guest(demo, "bank", find("options"), "--greedy", GREEDY_BYTES)
    answer = guest.expect("answer")
    status, _, text = answer.partition(" text=")
    tell(f"bank asks for {GREEDY_BYTES >> 30} GiB")
    promise(guest.process.wait(LIMIT_S) == 0, f"refused ({status.partition('=')[2]}): {text}")


def scene_guest_dies(demo, photo, book):
    title("4. A guest is killed in the middle of its work")
    session = demo.session_of(photo)
    if not session:
        raise DemoFailed("the agent does not know the photo program's session")
    photo.process.send_signal(signal.SIGKILL)
    photo.process.wait()
    start = time.monotonic()
    demo.until("the dead guest's session is gone",
               lambda: all(s["session_id"] != session["session_id"]
                           for s in demo.ctl("session", "list")["sessions"]))
    tell(f"studio's program (pid {session['pid']}, {session['tasks_finished']} tasks done) got SIGKILL; "
         f"its session was gone {1e3 * (time.monotonic() - start):.0f} ms later")
    ran = book.stop()
    promise(ran["different"] == "0" and ran["failed"] == "0",
            f"bank's {int(ran['finished']):,} rounds went on, all with checksum {ran['checksum']}")


def scene_worker_dies(demo):
    title("5. A worker is killed while tasks run and queue")
    photo, book, wanted, _ = loops(demo)
    session = demo.session_of(photo)
    queues = demo.ctl("queue", "list", "--session", str(session["session_id"]))["queues"]
    waiting = sum(max(0, queue["submitted"] - queue["done"]) for queue in queues)
    os.kill(session["worker_pid"], signal.SIGKILL)
    start = time.monotonic()
    demo.until("the session has another worker",
               lambda: (demo.session_of(photo) or session)["worker_pid"] not in (0, session["worker_pid"]))
    replaced_ms = 1e3 * (time.monotonic() - start)
    select.select([], [], [], 0.3)
    ran, other = photo.stop(), book.stop()
    tell(f"studio's worker (pid {session['worker_pid']}) got SIGKILL with {waiting} tasks submitted and not done; "
         f"another had taken over {replaced_ms:.0f} ms later")
    promise(ran["failed"] == "0" and ran["finished"] == ran["rounds"] and int(ran["restarts"]) > 0,
            f"nothing lost: {int(ran['finished']):,} of {int(ran['rounds']):,} rounds ({int(ran['tasks']):,} tasks) "
            f"finished; longest pause {ran['longest_ms']} ms")
    promise(ran["different"] == "0" and ran["checksum"] == wanted,
            f"each result has checksum {wanted}, as before")
    promise(other["different"] == "0" and other["failed"] == "0" and other["restarts"] == "0",
            f"bank noticed nothing: {int(other['finished']):,} rounds, longest pause {other['longest_ms']} ms")


def shortest(path):
    near = os.path.relpath(path)
    return near if len(near) < len(str(path)) else path


def next_steps(demo):
    title("Try next")
    ctl, options = (shortest(find(name)) for name in ("gantryctl", "options"))
    for command, meaning in (
            (f"{ctl} help", "what can be administered"),
            (f"{ctl} doctor", "is this host ready"),
            (f"{ctl} tenant create red --mem 2G", "with gantryd running: a tenant"),
            (f"{ctl} run red -- {options}", "a program at its door"),
            (f"{ctl} top", "who uses what"),
            (f"{ctl} cdi generate --tenant red", "for containers")):
        tell(f"{command}")
        tell(f"    {meaning}")
    tell(f"pictures: {demo.output}")


def run(demo):
    print(styled("1", "Gantry: programs share accelerators that they do not own"))
    demo.start()
    ready = time.monotonic()
    scene_setting(demo)
    scene_work(demo)
    photo, book = scene_sharing(demo)
    scene_refusal(demo)
    scene_guest_dies(demo, photo, book)
    scene_worker_dies(demo)
    kept = sum(promises)
    title(f"{kept} of {len(promises)} promises kept, in {time.monotonic() - ready:.1f} s "
          f"(and {ready - START:.1f} s to start)")
    next_steps(demo)
    return 0 if kept == len(promises) else 1


def devices_of(parser, args):
    """{name: {key: value}} of what was asked for."""
    asked = [f"backend=cuda,gpu={args.gpu}"] if args.gpu is not None else []
    asked += args.device or []
    if not asked:
        return {f"cpu{i}": {"backend": "cpu", "cores": 1, "mem": "1G"} for i in range(2)}
    devices = {}
    for number, text in enumerate(asked):
        keys = dict(item.partition("=")[::2] for item in text.split(","))
        if not keys.get("backend"):
            parser.error(f"{text}: no backend")
        devices[f"{keys['backend']}{number}"] = keys
    return devices


def main():
    parser = argparse.ArgumentParser(prog="gantryctl demo", description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="folder for the pictures (default: a new one under /tmp)")
    parser.add_argument("--gpu", metavar="N", help="on an NVIDIA GPU: its number, as nvidia-smi counts, or UUID")
    parser.add_argument("--device", metavar="KEY=VALUE[,...]", action="append",
                        help="on a device of these keys of gantry.conf(5), such as backend=cuda,gpu=1; may be repeated")
    parser.add_argument("--log", action="store_true", help="print the agent's log at the end")
    args = parser.parse_args()
    output = pathlib.Path(args.output or tempfile.mkdtemp(prefix="gantry-pictures-"))
    output.mkdir(parents=True, exist_ok=True)
    demo = Demo(output, devices_of(parser, args))
    code = 1
    try:
        code = run(demo)
    except (DemoFailed, subprocess.TimeoutExpired, OSError) as failure:
        print(f"\ngantry-demo: {failure}", file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    finally:
        if (args.log or code == 1) and demo.log.exists():
            print("\nthe agent's log:", file=sys.stderr)
            for line in demo.log.read_text(errors="replace").splitlines()[-40:]:
                print(f"  {line}", file=sys.stderr)
        demo.close()
    sys.exit(code)


if __name__ == "__main__":
    main()

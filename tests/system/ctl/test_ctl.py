# SPDX-License-Identifier: Apache-2.0
"""gantryctl against an agent that does not exist: every verb, its JSON, exit codes, and agents that misbehave."""
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import stat
import struct
import fcntl
import tempfile
import termios
import time
import xml.etree.ElementTree

import harness

CHANGES = [
    # verb and arguments, what the agent hears
    (["device", "enable", "cpu0"], "device cpu0 1"),
    (["device", "disable", "cpu0"], "device cpu0 2"),
    (["device", "drain", "cpu0"], "device cpu0 3"),
    (["tenant", "create", "green", "--mem", "20Gi", "--deadline", "2s"],
     "tenant green mem=21474836480 weight=-1 priority=-1 deadline=2000000000 devices="),
    (["tenant", "set", "red", "--weight", "3", "--priority=-5", "--devices", "cpu0,cpu1"],
     "tenant red mem=-1 weight=3 priority=-5 deadline=-1 devices=cpu0,cpu1"),
    (["tenant", "remove", "red"], "remove red"),
    (["session", "kick", "7", "--reason", "night"], "kick 7 night"),
    (["queue", "pause", "7:1"], "queue 7:1 paused=1"),
    (["queue", "resume", "7:1"], "queue 7:1 paused=0"),
    (["kernel", "rescan"], "change 82"),
    (["reload"], "change 70"),
]
LISTS = [
    # verb, key of its list, a word of its table
    (["device", "list"], "devices", "cpu0"),
    (["tenant", "list"], "tenants", "red"),
    (["session", "list"], "sessions", "isolated"),
    (["queue", "list"], "queues", "cpu0"),
    (["worker", "list"], "workers", "seccomp"),
    (["policy", "list"], "policies", "elastic"),
    (["group", "list"], "groups", "gpus"),
    (["kernel", "list"], "kernels", "saxpy"),
    (["stats"], "metrics", "gantry_worker_restarts_total"),
]
SHOWS = [
    (["device", "show", "cpu1"], "device", "device-failed"),
    (["tenant", "show", "red"], "tenant", "tenant"),
    (["session", "show", "7"], "session", "session"),
    (["queue", "show", "7:1"], "queue", "queue"),
]


class Fake:
    """A fake agent in a temporary folder."""

    def __init__(self, mode="good", doors=None):
        self.root = tempfile.mkdtemp(prefix="gantry-")
        self.socket = os.path.join(self.root, "admin.sock")
        self.guest = harness.Guest([harness.program("fake-agent"), self.socket, mode, doors or self.root + "/doors"])

    def __enter__(self):
        if self.guest.read_line() != "ready":
            raise harness.Failure("the fake agent is not ready")
        return self

    def __exit__(self, *_):
        self.guest.end()
        shutil.rmtree(self.root, ignore_errors=True)

    def ctl(self, *args, timeout="5s", env=None):
        return ctl("--socket", self.socket, "--timeout", timeout, *args, env=env)


def ctl(*args, env=None):
    return harness.run([harness.program("gantryctl"), *args], env=env)


def golden(name):
    with open(harness.SOURCE / "tests" / "golden" / "ctl" / (name + ".json"), encoding="utf-8") as text:
        return json.load(text)


def one_line(t, ended):
    t.true(ended.err.startswith("gantryctl: "), f"stderr is {ended.err!r}")
    t.equal(ended.err.count("\n"), 1, "lines on stderr")


def test_lists_as_tables_and_as_json(t):
    with Fake() as fake:
        for verb, key, word in LISTS:
            table = fake.ctl(*verb)
            t.code(table, 0)
            t.contains(table.out, word)
            t.true("\033" not in table.out, "colour or control characters without a terminal")
            as_json = fake.ctl("--json", *verb).json()
            t.equal(as_json["schema"], 1)
            t.true(as_json[key], "an empty list")
            bare = fake.ctl("--no-headings", *verb)
            t.equal(len(bare.out.splitlines()), len(table.out.splitlines()) - 1, "lines without the heading")


def test_bytes_option_prints_plain_numbers(t):
    with Fake() as fake:
        t.contains(fake.ctl("device", "list").out, "1G")
        t.contains(fake.ctl("--bytes", "device", "list").out, "1073741824")


def test_show_as_text_and_as_json(t):
    with Fake(doors="/run/gantry/doors") as fake:
        for verb, key, name in SHOWS:
            t.code(fake.ctl(*verb), 0)
            t.equal(fake.ctl("--json", *verb).json(), {"schema": 1, key: golden(name)})


def test_changes_reach_the_agent(t):
    with Fake() as fake:
        for verb, heard in CHANGES:
            ended = fake.ctl(*verb)
            t.code(ended, 0)
            t.equal(fake.guest.read_line(), heard)
            t.equal(fake.ctl("--json", *verb).json()["ok"], True)
            t.equal(fake.guest.read_line(), heard)


def test_vm_args_are_what_each_hypervisor_wants(t):
    chardev = "-chardev socket,id=gantry-red,path=/run/gantry/doors/red/ivshmem.sock"
    device = "-device ivshmem-doorbell,id=gantry-shm-red,chardev=gantry-red,vectors=8,master=on"
    with Fake() as fake:
        t.equal(fake.ctl("vm", "args", "red").out, f"{chardev} {device}\n")
        t.equal(fake.ctl("vm", "args", "red", "--format=proxmox").out, f"qm set VMID --args '{chardev} {device}'\n")
        t.equal(fake.ctl("vm", "args", "red", "--transport", "vsock").out,
                "-device vhost-vsock-pci,id=gantry-red,guest-cid=42\n")
        shmem = xml.etree.ElementTree.fromstring(fake.ctl("vm", "args", "red", "--format", "libvirt").out)
        t.equal((shmem.tag, shmem.get("name"), shmem.find("server").get("path"), shmem.find("msi").get("vectors")),
                ("shmem", "gantry-red", "/run/gantry/doors/red/ivshmem.sock", "8"))
        vsock = xml.etree.ElementTree.fromstring(
            fake.ctl("vm", "args", "red", "--format", "libvirt", "--transport=vsock").out)
        t.equal((vsock.tag, vsock.find("cid").get("address")), ("vsock", "42"))
        for words in (["--format", "xen"], ["--transport", "pigeon"], []):
            wrong = fake.ctl(*([] if words else ["--json"]), "vm", "args", "red", *words)
            t.code(wrong, 2)
            one_line(t, wrong)


def test_vm_without_its_program_says_what_to_do(t):
    missing = ctl("vm", "list", env=dict(os.environ, GANTRY_PROGRAM_GANTRY_VM="/nowhere/gantry-vm"))
    t.code(missing, 1)
    one_line(t, missing)
    t.contains(missing.err, "/nowhere/gantry-vm")


NOWHERE = "qemu+unix:///system?socket=/nowhere"


def test_vm_migrate_looks_at_its_words_before_it_looks_for_libvirt(t):
    harness.program("gantry-vm")
    for words in (["--bandwidth", "0"], ["--bandwidth", "fast"], ["--limit", "soon"], ["--tenant", "a/b"], ["--attached", "--detached"]):
        wrong = ctl("vm", "migrate", "web1", "qemu+ssh://south/system", "--to-socket", "/nowhere", "--connect", NOWHERE, *words)
        t.code(wrong, 2, str(words))
        one_line(t, wrong)
        t.contains(wrong.err, words[0])


def test_version_of_both(t):
    with Fake() as fake:
        t.contains(fake.ctl("version").out, "agent")
        t.equal(fake.ctl("--json", "version").json()["agent"], golden("version"))


def test_stats_for_prometheus(t):
    with Fake() as fake:
        lines = fake.ctl("stats", "--prometheus").out.splitlines()
        t.equal(lines, ["# TYPE gantry_tenant_memory_used_bytes gauge",
                        'gantry_tenant_memory_used_bytes{tenant="red"} 2097152',
                        "# TYPE gantry_worker_restarts_total counter", "gantry_worker_restarts_total 4"])
        t.code(fake.ctl("--json", "stats", "--prometheus"), 2)


def test_events_end_without_follow(t):
    with Fake() as fake:
        lines = fake.ctl("--json", "events").out.splitlines()
        t.equal(len(lines), 2)
        t.equal(json.loads(lines[1]), dict(golden("event"), schema=1))
        text = fake.ctl("events").out.splitlines()
        t.equal(len(text), 2, "an event is one line, whatever is in it")


def test_events_follow_waits_until_its_time_is_over(t):
    with Fake() as fake:
        ended = fake.ctl("--json", "events", "--follow", timeout="2s")
        t.code(ended, 124)
        t.equal(len([line for line in ended.out.splitlines() if '"kind"' in line]), 2)


def test_events_follow_ends_at_ctrl_c(t):
    with Fake() as fake:
        follow = harness.Guest([harness.program("gantryctl"), "--socket", fake.socket, "events", "--follow"])
        follow.read_line()
        follow.read_line()
        follow.kill(signal.SIGINT)
        t.equal(follow.wait(), -signal.SIGINT)


def test_top_once_and_as_json(t):
    with Fake() as fake:
        text = fake.ctl("top", "--once", "--interval", "20ms")
        t.code(text, 0)
        for word in ("DEVICE", "TENANT", "SESSION", "cpu1", "red"):
            t.contains(text.out, word)
        t.true("\033" not in text.out, "escape sequences without a terminal")
        picture = fake.ctl("--json", "top", "--once", "--interval", "20ms").json()
        t.equal(picture["schema"], 1)
        t.equal(picture["devices"][0]["busy_percent"], 0.0)
        lines = fake.ctl("--json", "top", "--count", "3", "--interval", "20ms").out.splitlines()
        t.equal([json.loads(line)["schema"] for line in lines], [1, 1, 1])


def test_top_leaves_the_terminal_as_it_was(t):
    for ending in (b"q", signal.SIGINT, signal.SIGTERM):
        with Fake() as fake:
            master, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            before = termios.tcgetattr(slave)
            child = os.fork()
            if child == 0:
                os.setsid()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                for number in (0, 1, 2):
                    os.dup2(slave, number)
                os.execv(harness.program("gantryctl"),
                         ["gantryctl", "--socket", fake.socket, "top", "--interval", "20ms"])
            seen = b""
            try:
                while seen.count(b"\033[H") < 3:
                    t.true(select.select([master], [], [], 60)[0], f"top is silent after {seen!r}")
                    seen += os.read(master, 65536)
                if isinstance(ending, bytes):
                    os.write(master, ending)
                else:
                    os.kill(child, ending)
                while b"\033[?1049l" not in seen:
                    t.true(select.select([master], [], [], 60)[0], "the alternate screen was not left")
                    seen += os.read(master, 65536)
                status = harness.wait_until(lambda: os.waitpid(child, os.WNOHANG)[0] and "ended", "top ends")
                t.equal(status, "ended")
                t.equal(termios.tcgetattr(slave), before, "the terminal's settings")
            finally:
                harness.send_signal(child, signal.SIGKILL)
                os.close(master)
                os.close(slave)
            t.contains(seen, b"\033[?25h", "the cursor")


def test_refusals_have_their_exit_codes(t):
    for mode, code in (("failed", 1), ("notfound", 3), ("denied", 4), ("quota", 6), ("busy", 7), ("unsupported", 8),
                       ("timeout", 124), ("oddcode", 1), ("rude", 1)):
        with Fake(mode) as fake:
            for verb in (["device", "drain", "cpu0"], ["device", "list"], ["events"], ["version"]):
                ended = fake.ctl(*verb)
                t.code(ended, code, mode)
                one_line(t, ended)
            as_json = fake.ctl("--json", "device", "list")
            t.equal(as_json.json()["error"]["code"], code)


def test_absent_objects_are_not_found(t):
    with Fake() as fake:
        for verb in (["device", "show", "cpu9"], ["tenant", "show", "nobody"], ["session", "show", "9"],
                     ["queue", "show", "7:9"], ["cdi", "generate", "--library", "none", "--tenant", "nobody"],
                     ["run", "nobody", "--", "true"], ["help", "nonsense"], ["config", "check", "/nonexistent"],
                     ["cdi", "generate", "--library", "/nonexistent"],
                     ["cdi", "generate", "--library", "none", "--cuda", "/nonexistent"],
                     ["cdi", "generate", "--library", "none", "--cuda", "none", "--wheels", "/app"]):
            ended = fake.ctl(*verb)
            t.code(ended, 3, " ".join(verb))
            one_line(t, ended)


def test_mistakes_are_usage(t):
    with Fake() as fake:
        for verb in (["session", "show", "x"], ["session", "kick", "-1"], ["queue", "pause", "7"],
                     ["queue", "pause", "7:x"], ["queue", "pause", ":"], ["tenant", "set", "red"],
                     ["tenant", "set", "red", "--weight", "heavy"], ["tenant", "set", "red", "--mem", "1.2.3G"],
                     ["tenant", "create", "red", "--mem", "99999999999999999999G"], ["top", "--interval", "1ns"],
                     ["top", "--count", "0"], ["run", "RED", "--", "true"], ["run", "red", "--"],
                     ["cdi", "generate", "--doors", "/x", "--library", "none"],
                     ["cdi", "generate", "--library", "none", "--wheels", "site-packages"]):
            ended = fake.ctl(*verb)
            t.code(ended, 2, " ".join(verb))
            one_line(t, ended)


def test_no_agent_is_unreachable(t):
    folder = tempfile.mkdtemp(prefix="gantry-")
    try:
        stale = os.path.join(folder, "stale.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(stale)
        for path in (os.path.join(folder, "none.sock"), stale, os.path.join(folder, "x" * 200)):
            for verb in (["device", "list"], ["top", "--once"], ["events"], ["reload"], ["version"]):
                ended = ctl("--socket", path, *verb)
                t.code(ended, 5, path)
                one_line(t, ended)
        t.code(ctl("device", "list", env=dict(os.environ, GANTRY_ADMIN=stale)), 5)
    finally:
        shutil.rmtree(folder)


def test_socket_without_permission_is_denied(t):
    if os.geteuid() != 0:
        t.skip("becoming another user needs root")
    with Fake() as fake:
        os.chmod(fake.root, 0o755)
        ended = harness.run([harness.public_program("gantryctl"), "--socket", fake.socket, "device", "list"], user=65534,
                            group=65534, extra_groups=[])
        t.code(ended, 4)
        one_line(t, ended)


def test_agents_that_do_not_answer_time_out(t):
    for mode in ("silent", "deaf"):
        with Fake(mode) as fake:
            for verb in (["device", "list"], ["device", "drain", "x"], ["events"], ["events", "--follow"],
                         ["top", "--once"], ["version"], ["cdi", "generate", "--library", "none"]):
                start = time.monotonic()
                ended = fake.ctl(*verb, timeout="150ms")
                t.code(ended, 124, f"{mode}: {verb}")
                t.below(time.monotonic() - start, 5)
                one_line(t, ended)


def test_full_backlog_times_out(t):
    folder = tempfile.mkdtemp(prefix="gantry-")
    path = os.path.join(folder, "admin.sock")
    clients = []
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(0)
            while len(clients) < 16:
                client = socket.socket(socket.AF_UNIX)
                client.setblocking(False)
                clients.append(client)
                if client.connect_ex(path):
                    break
            t.code(ctl("--socket", path, "--timeout", "150ms", "device", "list"), 124)
    finally:
        for client in clients:
            client.close()
        shutil.rmtree(folder)


def test_garbage_is_refused_with_a_sentence(t):
    for mode in ("garbage", "junk", "huge", "short", "wrongtag"):
        with Fake(mode) as fake:
            for verb in (["device", "list"], ["events"], ["top", "--once"]):
                ended = fake.ctl(*verb)
                t.code(ended, 1, mode)
                one_line(t, ended)
    with Fake("wrongbody") as fake:
        t.code(fake.ctl("device", "list"), 8)
    with Fake("close") as fake:
        t.code(fake.ctl("device", "list"), 5)


def test_slow_answer_is_put_together(t):
    with Fake("slow") as fake:
        t.equal(len(fake.ctl("--json", "device", "list").json()["devices"]), 2)


def test_peer_ping(t):
    with Fake("peer") as fake:
        t.contains(ctl("peer", "ping", fake.socket).out, "elsewhere")
        seen = ctl("--json", "peer", "ping", fake.socket).json()
        t.equal((seen["schema"], seen["host"], seen["devices"]), (1, "elsewhere", [golden("peer-device")]))
    with Fake("peer-refuse") as fake:
        t.code(ctl("peer", "ping", fake.socket), 8)
    with Fake("silent") as fake:
        t.code(ctl("--timeout", "150ms", "peer", "ping", fake.socket), 124)
    with Fake("garbage") as fake:
        t.code(ctl("peer", "ping", fake.socket), 1)
    t.code(ctl("peer", "ping", "/nonexistent"), 5)


def make_doors(root, *tenants):
    listeners = []
    for tenant in tenants:
        folder = os.path.join(root, tenant)
        os.makedirs(folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(os.path.join(folder, "door"))
        listener.listen(1)
        listeners.append(listener)
    return listeners


def test_run_sets_the_door_and_keeps_the_status(t):
    with Fake() as fake:
        doors = fake.root + "/doors"
        listeners = make_doors(doors, "red")
        ended = fake.ctl("run", "red", "--", "sh", "-c", 'echo "$GANTRY_DOOR $1"; exit 7', "sh", "--json")
        t.code(ended, 7)
        t.equal(ended.out, f"unix:{doors}/red/door --json\n")
        t.code(fake.ctl("run", "red", "--", "/nonexistent/program"), 3)
        t.code(fake.ctl("run", "blue", "--", "true"), 3, "a tenant whose door is missing")
        listeners[0].close()
        t.code(fake.ctl("run", "red", "--", "true"), 5, "a door that nobody answers at")


def test_run_without_permission_to_ask_uses_the_usual_door(t):
    with Fake("denied") as fake:
        listeners = make_doors(fake.root + "/doors", "red")
        t.equal(fake.ctl("run", "red", "--", "printenv", "GANTRY_DOOR").out, f"unix:{fake.root}/doors/red/door\n")
        listeners[0].close()


def test_cdi_files_are_replaced_whole(t):
    with Fake() as fake:
        output = os.path.join(fake.root, "cdi")
        library = os.path.join(fake.root, "libgantry.so.0")
        open(library, "w", encoding="ascii").close()
        seen = fake.ctl("--json", "cdi", "generate", "--output", output, "--library", library).json()
        t.equal(seen["files"], [output + "/gantry-red.json", output + "/gantry-blue.json"])
        with open(seen["files"][0], encoding="utf-8") as text:
            spec = json.load(text)
        wanted = golden("cdi")
        mounts = wanted["devices"][0]["containerEdits"]["mounts"]
        mounts[0]["hostPath"], mounts[1]["hostPath"] = fake.root + "/doors/red", library
        t.equal(spec, wanted)
        inode = os.stat(seen["files"][0]).st_ino
        t.code(fake.ctl("cdi", "generate", "--output", output, "--library", library), 0)
        t.true(os.stat(seen["files"][0]).st_ino != inode, "the file was written in place")
        t.equal(stat.S_IMODE(os.stat(seen["files"][0]).st_mode), 0o644)
        t.equal(sorted(os.listdir(output)), ["gantry-blue.json", "gantry-red.json"])
        t.code(fake.ctl("cdi", "generate", "--output", library, "--library", library), 1)


def test_cdi_flags_and_doors_without_an_agent(t):
    args = ["cdi", "generate", "--tenant", "red", "--doors", "/run/g/doors", "--library", "none"]
    t.equal(ctl(*args, "--print-flags", "podman").out,
            "-v /run/g/doors/red:/run/gantry:ro -e GANTRY_DOOR=unix:/run/gantry/door\n")
    t.equal(json.loads(ctl(*args, "--print-flags", "runc").out)["process"]["env"],
            ["GANTRY_DOOR=unix:/run/gantry/door"])
    t.code(ctl(*args, "--print-flags", "chroot"), 8)
    t.equal(json.loads(ctl(*args, "--output", "-").out)["devices"][0]["name"], "red")
    t.code(ctl("cdi", "generate", "--tenant", "../x", "--doors", "/d", "--library", "none", "--output", "-"), 1)


def test_doctor_reports_local_and_agent_checks(t):
    with Fake() as fake:
        listeners = make_doors(fake.root + "/doors", "red", "blue")
        cdi = os.path.join(fake.root, "cdi")
        t.code(fake.ctl("cdi", "generate", "--output", cdi, "--library", "none", "--tenant", "red"), 0)
        with open(cdi + "/gantry-gone.json", "w", encoding="ascii") as orphan:
            orphan.write("{}")
        ended = fake.ctl("--json", "doctor", "--cdi-dir", cdi)
        t.code(ended, 0)
        checks = {}
        for check in ended.json()["checks"]:
            checks.setdefault(check["name"], []).append(check)
        t.equal(checks["agent"][0]["state"], "ok")
        t.equal(checks["door red"][0]["state"], "ok")
        t.equal(checks["journal"][0]["state"], "ok", "what the agent says")
        t.equal([check["state"] for check in checks["cdi"] if "gone" in check["text"]], ["warn"])
        os.chmod(fake.socket, 0o666)
        t.code(fake.ctl("doctor", "--cdi-dir", cdi), 1, "a socket open to everybody")
        for listener in listeners:
            listener.close()
    t.code(ctl("--socket", "/nonexistent/admin.sock", "doctor"), 1)


def fake_gantryd(folder, text, code):
    path = os.path.join(folder, "gantryd")
    with open(path, "w", encoding="ascii") as script:
        script.write(f"#!/bin/sh\necho \"args: $*\" >{folder}/args\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    os.chmod(path, 0o755)
    return dict(os.environ, GANTRY_PROGRAM_GANTRYD=path)


def test_config_check_passes_on_what_gantryd_says(t):
    folder = tempfile.mkdtemp(prefix="gantry-")
    try:
        conf = os.path.join(folder, "g.conf")
        open(conf, "w", encoding="ascii").close()
        env = fake_gantryd(folder, "g.conf:3: no such key\ng.conf: cannot be read", 1)
        t.code(ctl("config", "check", conf, env=env), 1)
        seen = ctl("--json", "config", "check", conf, env=env).json()
        t.equal(seen, {"schema": 1, "ok": False, "problems": [{"file": "g.conf", "line": 3, "text": "no such key"},
                                                              {"text": "g.conf: cannot be read"}]})
        with open(os.path.join(folder, "args"), encoding="ascii") as args:
            t.equal(args.read(), f"args: --check-config --config {conf}\n")
        env = fake_gantryd(folder, "", 0)
        t.code(ctl("config", "check", env=env), 0)
        t.equal(ctl("--json", "config", "check", env=env).json()["ok"], True)
    finally:
        shutil.rmtree(folder)


def test_help_of_every_verb(t):
    verbs = ctl("--json", "help").json()["verbs"]
    t.true(len(verbs) > 25, f"only {len(verbs)} verbs")
    everything = ctl("help").out
    for verb in verbs:
        words = verb["name"].split()
        ended = ctl("help", *words)
        t.code(ended, 0)
        t.contains(ended.out, "usage: gantryctl")
        t.contains(everything, verb["name"])
        for option in verb["options"]:
            t.contains(ended.out, "--" + option)
        t.equal(ctl(*words, "--help").out, ended.out)


def complete(fake, *words):
    return fake.ctl("complete", "--", "--socket", fake.socket, *words).out.split()


def test_completion_knows_verbs_options_and_objects(t):
    with Fake() as fake:
        t.true({"device", "tenant", "run", "top"} <= set(complete(fake, "")))
        t.equal(complete(fake, "kernel", ""), ["list", "rescan"])
        t.true("--weight" in complete(fake, "tenant", "set", "--"))
        t.equal(complete(fake, "tenant", "show", ""), ["red", "blue"])
        t.equal(complete(fake, "device", "show", ""), ["cpu0", "cpu1"])
        t.equal(complete(fake, "session", "kick", ""), ["7"])
        t.equal(complete(fake, "queue", "pause", ""), ["7:1"])
        t.equal(complete(fake, "session", "list", "--tenant", ""), ["red", "blue"])
        t.equal(complete(fake, "cdi", "generate", "--print-flags", ""), ["podman", "docker", "runc"])


def test_completion_in_bash(t):
    if not shutil.which("bash"):
        t.skip("no bash")
    with Fake() as fake:
        script = ctl("completion", "bash").out
        probe = script + "\n" + """
COMP_WORDS=("$1" --socket "$2" tenant show r) COMP_CWORD=5
_gantryctl
printf '%s\\n' "${COMPREPLY[@]}"
"""
        ended = harness.run(["bash", "-c", probe, "bash", harness.program("gantryctl"), fake.socket])
        t.equal(ended.out, "red\n", repr(ended))
    t.code(ctl("completion", "tcsh"), 8)


def test_output_that_cannot_be_written_fails(t):
    if not os.path.exists("/dev/full"):
        t.skip("no /dev/full")
    with Fake() as fake, open("/dev/full", "wb") as full:
        process = harness.subprocess.Popen([harness.program("gantryctl"), "--socket", fake.socket, "device", "list"],
                                           stdout=full, stderr=harness.subprocess.PIPE)
        t.true(b"gantryctl: " in process.communicate(timeout=20)[1])
        t.equal(process.returncode, 1)


def test_scdoc_lists_every_verb(t):
    text = ctl("help", "--scdoc").out
    for verb in ctl("--json", "help").json()["verbs"]:
        t.true(re.search(r"^\*" + re.escape(verb["name"]) + r"\*", text, re.M), verb["name"])


if __name__ == "__main__":
    harness.main(globals())

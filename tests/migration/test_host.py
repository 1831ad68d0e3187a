# SPDX-License-Identifier: Apache-2.0
"""Sessions that go from host to host while their guests work: the good road, and every refusal on it."""
import json
import os
import resource
import select
import signal
import socket
import time

import harness
import puppet
import test_images
from hosts import Wire, certificates, run_chain, two
from scripted import Scripted

FAILED, USAGE, NOT_FOUND, DENIED, UNREACHABLE, QUOTA, BUSY, UNSUPPORTED = 1, 2, 3, 4, 5, 6, 7, 8


def stays(t, hosts, guest, ended, code, words, value=1):
    """The command failed as documented, and the session goes on where it was."""
    t.equal(ended.code, code, str(ended))
    for word in words:
        t.contains(ended.err, word)
    t.equal([s["session_id"] for s in hosts.north.sessions()], [guest.session])
    t.equal(run_chain(guest), (value + 1) * puppet.chain_value(40))
    harness.wait_until(lambda: not hosts.south.sessions(), "that the other host has nothing")


def worker_of(agent):
    return agent.sessions()[0]["worker_pid"]


def movers(agent):
    return [pid for pid in harness.descendants(agent.monitor.pid)
            if os.path.basename(harness.command_of(pid).split(" ")[0] or "-") == "gantry-mover"]


def test_session_goes_to_another_host_and_its_guest_follows(t):
    with two() as hosts:
        guest = hosts.guest()
        t.equal(run_chain(guest), puppet.chain_value(40))
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session)
        t.equal(done.code, 0, str(done))
        t.contains(done.out, "has moved to 127.0.0.1")
        t.equal(hosts.north.sessions(), [])
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        arrived = hosts.south.sessions()
        t.equal(len(arrived), 1)
        t.equal(arrived[0]["state"], "attached")
        guest.do("close")
        harness.wait_until(lambda: not hosts.south.sessions(), "the session's end")


def test_host_that_has_only_just_begun_takes_a_session_once_it_knows_its_devices(t):
    with two(south={"warm_workers": 0}) as hosts:
        guest = hosts.guest()
        run_chain(guest)
        hosts.follow(hosts.south)
        begun = hosts.migrate(guest.session, "--no-wait")
        t.equal(begun.code, 0, str(begun))
        other = puppet.Puppet(hosts.south, "red")  # its worker is the first there
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["state"] == "done", "that it has gone", 30)
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        other.do("close")


def test_session_goes_there_and_back_many_times_without_losing_a_task(t):
    with two() as hosts:
        guest = hosts.guest()
        here, there = hosts.north, hosts.south
        for n in range(6):
            t.equal(run_chain(guest), (n + 1) * puppet.chain_value(40))
            hosts.follow(there)
            done = hosts.migrate(here.sessions()[0]["session_id"], source=here)
            t.equal(done.code, 0, f"trip {n}: {done}")
            here, there = there, here
        t.equal(run_chain(guest), 7 * puppet.chain_value(40))
        t.equal(there.sessions(), [])


def test_guest_that_works_all_the_time_notices_only_a_pause(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 8388608")
        guest.do("fill 0 1 8388608 7")
        guest.start("chain 0 4000 0")
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session)
        t.equal(done.code, 0, str(done))
        guest.finish("chain", 120)
        t.equal(float(guest.do("value 0", 60)[0]), puppet.chain_value(4000))


def test_dry_run_says_that_it_could_go_and_it_stays(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        done = hosts.migrate(guest.session, "--dry-run")
        t.equal(done.code, 0, str(done))
        t.contains(done.out, "would take it; it stays here")
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        harness.wait_until(lambda: not hosts.south.sessions(), "that the other host lets go")
        shown = hosts.migrations(hosts.north)[0]
        t.equal([shown["dry_run"], shown["state"], shown["code"]], [True, "done", 0])
        harness.wait_until(lambda: hosts.migrations(hosts.south)[0]["over"], "that it is over there, too")
        asked = hosts.migrations(hosts.south)[0]
        t.equal([asked["dry_run"], asked["state"], asked["code"]], [True, "done", 0], asked["text"])
        for agent in (hosts.north, hosts.south):
            stats = {m["name"]: m["value"] for m in agent.ctl_json("stats")["metrics"]}
            t.equal([stats["gantry_host_migrations_total"], stats["gantry_host_migrations_failed_total"]], [0, 0])


def test_list_show_and_events_tell_of_it_on_both_sides(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        hosts.follow(hosts.south)
        t.equal(hosts.migrate(guest.session).code, 0)
        run_chain(guest)
        harness.wait_until(lambda: hosts.migrations(hosts.south)[0]["state"] == "done", "that it is over there, too")
        out, arrived = hosts.migrations(hosts.north)[0], hosts.migrations(hosts.south)[0]
        t.equal([out["direction"], out["state"], out["session_id"]], ["out", "done", guest.session])
        t.equal([arrived["direction"], arrived["state"], arrived["host"]], ["in", "done", "north"])
        t.true(out["rounds"] >= 2 and out["sent_bytes"] > out["page_bytes"] > 0, str(out))
        t.true(0 < out["downtime_ns"] < out["elapsed_ns"], str(out))
        stats = {m["name"]: m["value"] for m in hosts.north.ctl_json("stats")["metrics"]}
        t.equal(stats["gantry_host_migrations_total"], 1)
        t.true(stats["gantry_host_migration_sent_bytes_total"] >= out["sent_bytes"])
        t.true(0 < stats["gantry_host_migration_downtime_seconds"] < 30)
        shown = hosts.north.ctl("migration", "show", str(out["migration_id"]))
        t.contains(shown.out, "has moved")
        t.contains(shown.out, "draining")
        for agent, row, way, phases in (
                (hosts.north, out, "to 127.0.0.1", ["connecting", "copying", "draining", "still", "done"]),
                (hosts.south, arrived, "from north", ["connecting", "copying", "still", "done"])):
            trace = json.loads(agent.ctl("migration", "show", str(row["migration_id"]), "--trace").out)["traceEvents"]
            spans = [event for event in trace if event["ph"] == "X"]
            t.equal([span["name"] for span in spans], phases)
            t.contains(trace[0]["args"]["name"], way)
            t.true(abs(sum(span["dur"] for span in spans) * 1000 - row["elapsed_ns"]) < 1e6, "they make up the whole")
        kinds = [event["kind"] for event in
                 map(json.loads, hosts.south.ctl("--json", "events").out.splitlines())]
        for kind in ("session-arrived", "migration-done", "session-reconnected"):
            t.true(kind in kinds, f"{kind} not in {kinds}")


def test_images_of_the_guests_own_go_along_and_outlive_workers_and_agents(t):
    """What they are kept in there is one descriptor, which each worker gets, and nobody else's is closed with it."""
    with two(devices=test_images.DEVICES) as hosts, test_images.saved(test_images.IMAGE) as image:
        guest = Scripted(hosts.north, "red", env={"GANTRY_DOOR": "stream:" + hosts.front})
        guest.ask("queue q")
        guest.ask(f"image own 7 {image.name}")
        guest.ask("kernel mine own nothing void")
        test_images.runs(t, guest, "before")
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session())
        t.equal(done.code, 0, str(done))
        test_images.runs(t, guest, "there")
        guest.ask("kernel other own scale rw:f32*,f32")
        hosts.south.kill_worker(worker_of(hosts.south))
        test_images.runs(t, guest, "after a worker's death")
        hosts.south.kill_agent()
        hosts.south.wait_ready()
        hosts.south.kill_worker(worker_of(hosts.south))
        test_images.runs(t, guest, "after both deaths")
        second = Scripted(hosts.south, "red")
        second.ask("queue q")
        guest.ask("close")
        harness.wait_until(lambda: len(hosts.south.sessions()) == 1, "the session's end")
        second.ask(f"image own 7 {image.name}")
        second.ask("kernel mine own nothing void")
        test_images.runs(t, second, "another session")


# --- what cannot be, is said, and the session stays ---

def test_unknown_host_is_said(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        stays(t, hosts, guest, hosts.migrate(guest.session, to="nowhere.invalid"), NOT_FOUND, ["no host nowhere.invalid"])


def test_host_that_does_not_listen_is_said(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        port = harness.free_port()
        stays(t, hosts, guest, hosts.migrate(guest.session, to=f"127.0.0.1:{port}"), UNREACHABLE,
              [f"port {port}", "migration_listen"])


def test_bad_words_are_usage(t):
    with two() as hosts:
        guest = hosts.guest()
        for arguments in (["--to", ""], ["--to", "a:b"], ["--to", "a:0"], [], ["--to", "south", "--bandwidth", "fast"],
                          ["--to", "south", "--bandwidth", "0"]):
            t.equal(hosts.north.ctl("session", "migrate", str(guest.session), *arguments).code, USAGE, str(arguments))
        t.equal(hosts.migrate(77).code, NOT_FOUND)
        t.equal(hosts.north.ctl("migration", "show", "77").code, NOT_FOUND)
        t.equal(hosts.north.ctl("migration", "cancel", "77").code, NOT_FOUND)


def test_wrong_authority_is_said(t):
    strange = os.path.join(certificates(), "strangers", "north")
    with two(north={"migration_certificates": strange}) as hosts:
        guest = hosts.guest()
        run_chain(guest)
        stays(t, hosts, guest, hosts.migrate(guest.session), DENIED, ["certificate"])
        for row in hosts.migrations(hosts.north):
            t.true(" ;" not in row["text"] and ".;" not in row["text"], row["text"])


def test_certificate_of_another_host_is_said(t):
    elsewhere = os.path.join(certificates(), "elsewhere")
    with two(south={"migration_certificates": elsewhere, "migration_name": "elsewhere"}) as hosts:
        guest = hosts.guest()
        run_chain(guest)
        stays(t, hosts, guest, hosts.migrate(guest.session), DENIED, ["another host's"])


def test_host_that_says_to_be_another_is_refused(t):
    with two(north={"migration_name": "south"}) as hosts:
        guest = hosts.guest()
        run_chain(guest)
        stays(t, hosts, guest, hosts.migrate(guest.session), DENIED, ["not for the host that it says it is"])


def test_agent_without_certificates_says_what_to_set(t):
    with two(north={"migration_certificates": None, "migration_listen": None}) as hosts:
        guest = hosts.guest()
        run_chain(guest)
        stays(t, hosts, guest, hosts.migrate(guest.session), UNSUPPORTED, ["set migration_certificates"])


def test_certificates_that_are_missing_are_named(t):
    with two(north={"migration_certificates": "/nonexistent"}) as hosts:
        guest = hosts.guest()
        run_chain(guest)
        stays(t, hosts, guest, hosts.migrate(guest.session), FAILED, ["/nonexistent/ca.pem"])


def test_tenant_without_memory_there_is_said(t):
    with two(south_tenant={"mem": "1M"}) as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 8388608")
        guest.do("fill 0 1 8388608 0")
        run_chain(guest)
        asked = hosts.migrate(guest.session, "--dry-run")
        t.equal(asked.code, QUOTA, str(asked))
        stays(t, hosts, guest, hosts.migrate(guest.session), QUOTA, ["no room", "mem"])
        stats = {m["name"]: m["value"] for m in hosts.north.ctl_json("stats")["metrics"]}
        t.equal(stats["gantry_host_migrations_failed_total"], 1, "a dry run is none that failed")


def test_tenant_that_is_not_there_is_said(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        hosts.south.sections["tenants"] = {"blue": {"mem": "1M", "devices": "all"}}
        hosts.south.write_config()
        t.equal(hosts.south.reload().code, 0)
        stays(t, hosts, guest, hosts.migrate(guest.session), NOT_FOUND, ["no tenant red"])


def test_kernel_that_is_missing_there_is_named(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        hosts.south.sections["agent"]["module_dirs"] = str(hosts.south.root)
        hosts.south.write_config()
        t.equal(hosts.south.reload().code, 0)
        stays(t, hosts, guest, hosts.migrate(guest.session), NOT_FOUND, ["kernel", "not installed there"])


def test_session_whose_guest_shares_memory_does_not_go(t):
    with two() as hosts:
        guest = puppet.Puppet(hosts.north, "red")
        run_chain(guest)
        stays(t, hosts, guest, hosts.migrate(guest.session), UNSUPPORTED, ["shares memory with this host"])


def test_second_migration_of_a_session_is_busy_and_the_first_can_be_cancelled(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        guest.do("alloc 1 33554432")
        guest.do("fill 0 1 33554432 7")
        first = hosts.migrate(guest.session, "--bandwidth", "1M", "--no-wait")
        t.equal(first.code, 0, str(first))
        number = first.out.strip()
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["state"] == "copying", "the copying")
        second = hosts.migrate(guest.session)
        t.equal(second.code, BUSY, str(second))
        t.code(hosts.north.ctl("queue", "migrate", f"{guest.session}:1", "--to", "cpu0:0"), 0)
        t.equal([row["kind"] for row in hosts.migrations(hosts.north)], ["session", "queue"])
        t.equal(hosts.north.ctl("migration", "cancel", number).code, 0)
        ended = hosts.migrations(hosts.north)[0]
        t.equal([ended["state"], ended["code"]], ["failed", FAILED])
        t.contains(ended["text"], "cancelled; the session stays here")
        again = hosts.north.ctl("migration", "cancel", number)
        t.equal(again.code, FAILED)
        t.contains(again.err, "is over")
        t.equal(hosts.migrate(guest.session, "--dry-run").code, 0)
        t.equal([row["kind"] for row in hosts.migrations(hosts.north)], ["session", "queue", "session"], "in their order")
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        harness.wait_until(lambda: not hosts.south.sessions(), "that the other host lets go")
        harness.wait_until(lambda: not movers(hosts.north) + movers(hosts.south), "the movers' end")


def test_timeout_ends_the_watching_and_not_the_migration(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        guest.do("alloc 1 33554432")
        guest.do("fill 0 1 33554432 7")
        watched = hosts.migrate(guest.session, "--bandwidth", "1M", "--timeout", "1s")
        t.equal(watched.code, 124, str(watched))
        number = hosts.migrations(hosts.north)[0]["migration_id"]
        t.contains(watched.err, f"migration {number} goes on; see gantryctl migration show {number}")
        t.equal(hosts.migrations(hosts.north)[0]["over"], False)
        t.equal(hosts.north.ctl("migration", "cancel", str(number)).code, 0)
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))


def test_bandwidth_is_a_limit(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 8388608")
        guest.do("fill 0 1 8388608 7")
        run_chain(guest)
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session, "--bandwidth", "8M")
        t.equal(done.code, 0, str(done))
        seconds = hosts.migrations(hosts.north)[0]["elapsed_ns"] / 1e9
        t.true(seconds > 0.9, f"8 MiB at 8 MiB/s took {seconds} s")


def test_stream_that_is_altered_or_cut_changes_nothing(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 4194304")
        guest.do("fill 0 1 4194304 7")
        value = 0
        for keys in ({"alter_at": 3000000}, {"cut_at": 3000000}, {"alter_at": 2500}, {"cut_at": 300}):
            with Wire(hosts.south.port, **keys) as wire:
                run_chain(guest)
                value += 1
                ended = hosts.migrate(guest.session, to=f"127.0.0.1:{wire.port}")
                t.true(ended.code in (FAILED, DENIED, UNREACHABLE), f"{keys}: {ended}")
                t.contains(ended.err, "stays here")
                t.equal(run_chain(guest), (value + 1) * puppet.chain_value(40))
                value += 1
                harness.wait_until(lambda: not hosts.south.sessions(), "that the other host lets go")


def test_movers_are_confined(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 33554432")
        guest.do("fill 0 1 33554432 7")
        run_chain(guest)
        begun = hosts.migrate(guest.session, "--bandwidth", "1M", "--no-wait")
        t.equal(begun.code, 0, str(begun))
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["page_bytes"] > 0, "the first pages")
        for pid in movers(hosts.north) + movers(hosts.south):
            with open(f"/proc/{pid}/status", encoding="ascii") as text:
                status = dict(line.split(":", 1) for line in text if ":" in line)
            seen = {key: status[key].strip() for key in ("Seccomp", "NoNewPrivs", "CapEff")}
            t.equal(seen, {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0" * 16})
        t.equal(hosts.north.ctl("migration", "cancel", begun.out.strip()).code, 0)


def test_strangers_are_told_of_now_and_then_and_are_no_migrations(t):
    """Anybody may connect: what others did stays in the history, and the agent is not kept busy."""
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        hosts.follow(hosts.south)
        t.equal(hosts.migrate(guest.session).code, 0)
        pid = hosts.south.agent_pid()
        began, spent = time.monotonic(), harness.cpu_s(pid)
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", hosts.south.port), timeout=20) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        harness.wait_until(lambda: [m["state"] for m in hosts.migrations(hosts.south)] == ["done"], "none but the one is left")
        share = (harness.cpu_s(pid) - spent) / (time.monotonic() - began)
        t.note(f"{100 * share:.1f} % of a processor in the agent")
        told = [event["kind"] for event in map(json.loads, hosts.south.ctl("--json", "events").out.splitlines())]
        t.true(0 < told.count("host-denied") <= 20 * (2 + (time.monotonic() - began) // 10), f"{told.count('host-denied')} events")
        t.true("session-arrived" in told, "what happened before is still there")
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))


def test_hosts_that_come_while_no_descriptor_is_left_wait_and_cost_nothing(t):
    with two() as hosts:
        pid = hosts.south.agent_pid()
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with socket.create_connection(("127.0.0.1", hosts.south.port), timeout=20) as stranger:
            began, spent = time.monotonic(), harness.cpu_s(pid)
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" * 10)
            t.equal(select.select([stranger], [], [], 2)[0], [], "nobody is served")
            share = (harness.cpu_s(pid) - spent) / (time.monotonic() - began)
            t.note(f"{100 * share:.1f} % of a processor in the agent")
            t.below(share, 0.1, "it looks away meanwhile")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            try:
                while stranger.recv(4096):
                    pass
            except ConnectionResetError:
                pass


def test_what_speaks_no_tls_is_answered_with_an_end(t):
    with two() as hosts:
        with socket.create_connection(("127.0.0.1", hosts.south.port), timeout=20) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" * 10)
            try:
                while stranger.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        harness.wait_until(lambda: not movers(hosts.south), "the mover's end")
        t.equal(hosts.south.sessions(), [])


# --- deaths ---

def test_movers_that_are_killed_leave_the_session_where_it_was(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 33554432")
        guest.do("fill 0 1 33554432 7")
        value = 0
        for agent in (hosts.north, hosts.south):
            run_chain(guest)
            value += 1
            begun = hosts.migrate(guest.session, "--bandwidth", "2M", "--no-wait")
            t.equal(begun.code, 0, str(begun))
            harness.wait_until(lambda: hosts.migrations(hosts.north)[-1]["page_bytes"] > 0, "the first pages")
            os.kill(movers(agent)[0], signal.SIGKILL)
            harness.wait_until(lambda: hosts.migrations(hosts.north)[-1]["state"] == "failed", "that it has failed")
            t.equal(run_chain(guest), (value + 1) * puppet.chain_value(40))
            value += 1
            harness.wait_until(lambda: not hosts.south.sessions(), "that the other host lets go")


def test_agents_that_are_killed_meanwhile_leave_the_session_where_it_was(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 33554432")
        guest.do("fill 0 1 33554432 7")
        value = 0
        for agent in (hosts.south, hosts.north):
            run_chain(guest)
            value += 1
            begun = hosts.migrate(guest.session, "--bandwidth", "2M", "--no-wait")
            t.equal(begun.code, 0, str(begun))
            harness.wait_until(lambda: hosts.migrations(hosts.north)[-1]["page_bytes"] > 0, "the first pages")
            agent.kill_agent()
            agent.wait_ready()
            harness.wait_until(lambda: not movers(hosts.north) + movers(hosts.south), "the movers' end")
            t.equal(run_chain(guest), (value + 1) * puppet.chain_value(40))
            value += 1
            harness.wait_until(lambda: not hosts.south.sessions(), "that the other host lets go")


def test_worker_that_dies_while_its_session_is_copied_changes_nothing(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 8388608")
        guest.do("fill 0 1 8388608 7")
        run_chain(guest)
        worker = worker_of(hosts.north)
        begun = hosts.migrate(guest.session, "--bandwidth", "2M", "--no-wait")
        t.equal(begun.code, 0, str(begun))
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["page_bytes"] > 0, "the first pages")
        hosts.north.kill_worker(worker)
        hosts.follow(hosts.south)
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["state"] == "done", "the end", 60)
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))


def test_session_that_arrived_outlives_its_new_agent_and_worker(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        hosts.follow(hosts.south)
        t.equal(hosts.migrate(guest.session).code, 0)
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        hosts.south.kill_worker(worker_of(hosts.south))
        t.equal(run_chain(guest), 3 * puppet.chain_value(40))
        hosts.south.kill_agent()
        hosts.south.wait_ready()
        t.equal(run_chain(guest), 4 * puppet.chain_value(40))


def test_guest_that_does_not_follow_yet_finds_its_session_later(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        hosts.proxy.hold.set()
        t.equal(hosts.migrate(guest.session).code, 0)
        harness.wait_until(lambda: hosts.south.sessions()[0]["state"] == "attached", "a worker")
        hosts.south.kill_agent()
        hosts.south.wait_ready()
        hosts.follow(hosts.south)
        hosts.proxy.hold.clear()
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))


def test_guest_that_is_led_to_the_old_host_is_told_to_try_again(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        t.equal(hosts.migrate(guest.session).code, 0)
        guest.start("value 0")
        tried = hosts.proxy.connections
        harness.wait_until(lambda: hosts.proxy.connections > tried + 1, "that it tries the old host")
        hosts.north.kill_agent()
        hosts.north.wait_ready()
        tried = hosts.proxy.connections
        harness.wait_until(lambda: hosts.proxy.connections > tried + 1, "that it tries the old host's next agent")
        hosts.follow(hosts.south)
        t.equal(float(guest.finish("value", 60)[0]), puppet.chain_value(40))
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))


def test_task_that_runs_long_is_waited_for_and_then_the_session_stays(t):
    with two() as hosts:
        guest = hosts.guest()
        run_chain(guest)
        guest.do("spin 0 300000000")
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session)
        t.equal(done.code, 0, str(done))
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))


harness.main(globals())

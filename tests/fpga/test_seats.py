# SPDX-License-Identifier: Apache-2.0
"""Isolated tenants on one board: its steward holds it, and each session's own worker has a seat there; through deaths of either."""
import contextlib
import fcntl
import os
import pathlib
import signal
import sys

import harness
from scripted import Scripted, events
from test_system import World, answers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system" / "upgrade"))
import builds  # pylint: disable=wrong-import-position


def held(tenants, board="", **keys):
    return World(tenants, board=board, isolation="isolated", holder="steward", **keys)


def worker_pid(world, guest):
    def find():
        for session in world.agent.sessions():
            if session["pid"] == guest.process.pid and session["worker_pid"]:
                return session["worker_pid"]
        return None
    return harness.wait_until(find, "a worker for the guest")


def steward_pid(world, but=None, board="fpga0"):
    def find():
        for worker in world.agent.workers():
            if worker["mode"] == "steward" and worker["trust_group"] == f"held:{board}" and worker["pid"] != but and worker["state"] == "warm":
                return worker["pid"]
        return None
    return harness.wait_until(find, "the board's steward")


@contextlib.contextmanager
def taken(path):
    """Another process, this one, has the board of that lock."""
    with open(path, "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def is_open(world, board):
    return [row["state"] for row in world.agent.ctl_json("device", "list")["devices"] if row["name"] == board] == ["enabled"]


def busy(world, tenant):
    """Device time of a tenant, in seconds."""
    return sum(row["value"] for row in world.agent.ctl_json("stats")["metrics"]
               if row["name"] == "gantry_tenant_device_seconds_total" and f'tenant="{tenant}"' in row["labels"])


def test_isolated_and_pooled_tenants_share_the_board_at_once(t):
    with held(["red", "blue"], pooled=["green", "pink"]) as world:
        guests = [world.guest(name) for name in ("red", "blue", "red", "green", "pink")]
        for count in (40, 4):
            for guest, kernel in zip(guests, ("vadd", "scale", "scale", "vadd", "scale")):
                guest.write_line(f"{kernel} {count if guest in (guests[0], guests[2]) else 4}")
            t.equal(answers(guests), ["ok 0"] * 5)
        pids = [worker_pid(world, guest) for guest in guests]
        t.equal(len(set(pids)), 4, "a worker for each isolated session, one for the group")
        t.equal(pids[3], pids[4], "the group's")
        t.true(steward_pid(world) not in pids, "and the board's is none of them")
        # Who had ten times as many launches had more of the board, by whoever's process they went.
        harness.wait_until(lambda: busy(world, "blue") > 0 and busy(world, "green") > 0, "device time of all")
        t.true(busy(world, "red") > 3 * busy(world, "blue"), f"red {busy(world, 'red')}, blue {busy(world, 'blue')}")


def run(guest, line):
    guest.write_line(line)
    return guest.read_line(90)


COPIES = ("copied_in", "kept", "copied_out")


def copies(world):
    """What the board's launches copied to it, did not, for it was there, and copied back, in bytes."""
    rows = {row["name"]: row["value"] for row in world.agent.ctl_json("stats")["metrics"]}
    return [rows.get(f"gantry_device_board_{name}_bytes_total") for name in COPIES]


def test_what_launches_used_stays_on_the_board(t):
    with held(["red", "blue"]) as world:
        red, blue = world.guest("red"), world.guest("blue")
        t.equal(run(red, "chain 20"), "ok 0")
        # Two buffers of 16 KiB: each is copied to the board once, and comes back after each launch that wrote it.
        size = 16384
        harness.wait_until(lambda: copies(world) == [2 * size, 78 * size, 40 * size], f"what was copied: {copies(world)}")
        t.equal(run(blue, "chain 3"), "ok 0")
        t.equal(run(red, "more 5"), "ok 0")
        harness.wait_until(lambda: copies(world) == [4 * size, 108 * size, 56 * size], f"what was copied: {copies(world)}")


def test_board_that_is_to_keep_nothing_is_given_all_each_time(t):
    with held(["red"], device={"keep": "no"}) as world:
        red = world.guest("red")
        t.equal(run(red, "chain 5"), "ok 0")
        size = 16384
        harness.wait_until(lambda: copies(world) == [20 * size, 0, 10 * size], f"what was copied: {copies(world)}")


def test_nothing_that_ended_is_lost_with_a_worker_or_the_board_s_process(t):
    with held(["red", "blue"]) as world:
        red, blue = world.guest("red"), world.guest("blue")
        for guest in (red, blue):
            t.equal(run(guest, "chain 5"), "ok 0")
        died = worker_pid(world, red)
        os.kill(died, signal.SIGKILL)
        harness.wait_until(lambda: worker_pid(world, red) != died, "another worker for red")
        t.equal([run(guest, "more 3") for guest in (red, blue)], ["ok 0"] * 2)
        first, died = steward_pid(world), [worker_pid(world, guest) for guest in (red, blue)]
        os.kill(first, signal.SIGKILL)
        harness.wait_until(lambda: all(worker_pid(world, guest) not in died for guest in (red, blue)), "other workers for both")
        t.equal([run(guest, "more 3") for guest in (red, blue)], ["ok 0"] * 2)
        t.true(steward_pid(world, but=first) != first)


def test_loading_that_destroys_memory_takes_nothing_that_was_kept(t):
    # Images of one kernel each: the second that is loaded is what the board destroys all for.
    with held(["red", "blue"], board="memory_lost=1", lost=True, device={"mode": "single"}) as world:
        red, blue = world.guest("red"), world.guest("blue")
        t.equal(run(red, "chain 5"), "ok 0")
        t.equal(run(blue, "vadd 3"), "ok 0")
        t.equal(run(red, "more 3"), "ok 0")
        size = 16384
        harness.wait_until(lambda: copies(world) == [7 * size, 34 * size, 19 * size], f"what was copied: {copies(world)}")


def test_guest_that_writes_while_tasks_run_harms_nobody_and_is_served_right_afterwards(t):
    with held(["red", "blue"]) as world:
        red, blue = world.guest("red"), world.guest("blue")
        red.write_line("meddle 60")
        blue.write_line("chain 60")
        t.equal(answers([red, blue]), ["ok 0"] * 2)


def test_tenant_with_very_many_queues_takes_no_stream_from_others(t):
    with held(["red", "blue"]) as world:
        many = [world.guest("red") for _ in range(5)]
        for guest in many:
            guest.write_line("queues 60")
        t.equal(answers(many), ["ok 0"] * 5)
        for guest in many:
            guest.write_line("vadd 2")
        t.equal(answers(many), ["ok 0"] * 5)
        blue = world.guest("blue")
        blue.write_line("scale 4")
        t.equal(answers([blue]), ["ok 0"])


def test_killed_worker_loses_nothing_of_its_neighbours(t):
    with held(["red", "blue"]) as world:
        red, blue = world.guest("red"), world.guest("blue")
        steward, untouched = steward_pid(world), worker_pid(world, blue)
        for _ in range(2):
            red.write_line("vadd 200")
            blue.write_line("scale 200")
            died = worker_pid(world, red)
            os.kill(died, signal.SIGKILL)
            # What red had in flight may run again: both see nothing of it.
            t.equal(answers([red, blue]), ["ok 0"] * 2)
            # It may have ended before.
            harness.wait_until(lambda: worker_pid(world, red) != died, "another worker for red")
        t.equal(worker_pid(world, blue), untouched, "blue's worker")
        t.equal(steward_pid(world), steward, "the board's process")


def test_killed_holder_is_followed_by_another_and_sessions_recover(t):
    with held(["red", "blue"]) as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        steward = steward_pid(world)
        for guest, line in zip(guests, ("vadd 300", "scale 300")):
            guest.write_line(line)
        os.kill(steward, signal.SIGKILL)
        t.equal(answers(guests), ["ok 0"] * 2)
        t.true(steward_pid(world, but=steward) != steward, "another holds the board")
        guests[0].write_line("scale 5")
        t.equal(answers(guests[:1]), ["ok 0"])


def test_agent_that_is_killed_disturbs_no_launch(t):
    with held(["red", "blue"]) as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        steward = steward_pid(world)
        for guest, line in zip(guests, ("vadd 300", "scale 300")):
            guest.write_line(line)
        world.agent.kill_agent()
        t.equal(answers(guests), ["ok 0"] * 2)
        t.equal(steward_pid(world), steward, "the same process holds the board")
        # Seats given by the next agent work as well.
        late = world.guest("red")
        late.write_line("vadd 3")
        t.equal(answers([late]), ["ok 0"])


def test_upgrade_keeps_images_and_the_board_s_process(t):
    with held(["red", "blue"], kind=builds.OwnWorkers) as world:
        def images():
            return sorted((row["name"], row["version"], row["problem"]) for row in world.agent.ctl_json("image", "list")["images"])
        red, blue = world.guest("red"), world.guest("blue")
        before, steward, old = images(), steward_pid(world), worker_pid(world, red)
        t.equal([name for name, _, _ in before], ["pair", "scale", "stencil", "vadd"])
        red.write_line("vadd 300")
        blue.write_line("scale 300")
        t.code(builds.upgrade(world.agent, "--binary", builds.next_build(world.agent), "--restart-workers"), 0)
        t.equal(answers([red, blue]), ["ok 0"] * 2)
        t.equal(builds.version_of(world.agent), "9.1.0")
        t.equal(images(), before)
        # Sessions have workers of the next build; what holds the board is the old one's, for they depend on it.
        t.true(worker_pid(world, red) != old, "another worker")
        t.true(harness.alive(steward), "the process that holds the board")
        late = world.guest("blue")
        for guest, line in ((red, "scale 3"), (late, "vadd 3")):
            guest.write_line(line)
        t.equal(answers([red, late]), ["ok 0"] * 2)


def test_board_that_is_lost_ends_its_tasks_only_and_is_opened_again(t):
    with held(["red"], board="lost_after=0") as world:
        red = world.guest("red")
        steward = steward_pid(world)
        red.write_line("vadd 20")
        t.true(answers([red])[0].startswith("err "), "the task says so")
        steward_pid(world, but=steward)


def test_board_that_cannot_be_opened_is_no_affair_of_tenants_without_it(t):
    with held(["red"], plain=["green"], start=False) as world:
        with taken(world.lock()):
            world.agent.start()
            green = Scripted(world.agent, "green")
            steward, untouched = None, worker_pid(world, green)
            for _ in range(3):
                steward = steward_pid(world, but=steward)
                harness.wait_until(lambda pid=steward: not harness.alive(pid), "the end of one that has no board")
            t.equal(worker_pid(world, green), untouched, "green's worker")
        # Whoever comes then has the board.
        harness.wait_until(lambda: is_open(world, "fpga0"), "the board")
        red = world.guest("red")
        red.write_line("vadd 3")
        t.equal(answers([red]), ["ok 0"])
        # Nor is the death of who held it.
        steward = steward_pid(world)
        os.kill(steward, signal.SIGKILL)
        steward_pid(world, but=steward)
        red.write_line("vadd 3")
        t.equal(answers([red]), ["ok 0"])
        green.ask("buffer 0 65536")
        t.equal(worker_pid(world, green), untouched, "green's worker")


def test_second_board_is_tried_again_while_the_first_is_used(t):
    with held(["red"], boards=2, start=False) as world:
        with taken(world.lock(1)):
            world.agent.start()
            first = steward_pid(world)
            red = world.guest("red")
            red.write_line("vadd 3")
            t.equal(answers([red]), ["ok 0"])
            untouched = worker_pid(world, red)
            second = steward_pid(world, board="fpga1")
            harness.wait_until(lambda: not harness.alive(second), "the end of one that has no board")
        harness.wait_until(lambda: is_open(world, "fpga1"), "the second board")
        t.equal(steward_pid(world), first, "the first one's process")
        red.write_line("vadd 3")
        t.equal(answers([red]), ["ok 0"])
        t.equal(worker_pid(world, red), untouched, "red's worker")


def test_endless_launch_is_its_tenants_fault_and_the_board_is_opened_anew_for_all(t):
    with held(["red", "blue"], board="hang_n=100", device={"longest": "3s"}) as world:
        red, blue = world.guest("red"), world.guest("blue")
        red.write_line("vadd 3")
        t.equal(answers([red]), ["ok 0"])
        before = steward_pid(world)
        blue.write_line("scale 400")
        red.write_line("endless 1")
        answer, = answers([red])
        t.true(answer.startswith("err -202 "), answer)  # DEADLINE
        # Blue's ran again where they were in flight: nothing of it shows.
        t.equal(answers([blue]), ["ok 0"])
        t.true(steward_pid(world, but=before) != before, "another steward")
        for guest, line in ((red, "vadd 3"), (blue, "scale 3")):
            guest.write_line(line)
        t.equal(answers([red, blue]), ["ok 0"] * 2)
        told, = events(world.agent, "launch-endless")
        t.equal(told["tenant"], "red")
        t.contains(told["text"], "a launch of board_vadd did not end")
        faults = {row["labels"]: row["value"] for row in world.agent.ctl_json("stats")["metrics"] if row["name"] == "gantry_tenant_context_faults_total"}
        t.equal(sorted(value for labels, value in faults.items() if 'tenant="red"' in labels or 'tenant="blue"' in labels), [0, 1])


def abandon(world):
    """A launch of red's that does not end is on the board, most likely, when red is gone."""
    red = world.guest("red")
    red.write_line("endless 1")
    harness.wait_until(lambda: any(row["tenant"] == "red" and row["issued"] > row["done"] for row in world.agent.ctl_json("queue", "list")["queues"]),
                       "it is on its way")
    red.kill()
    with contextlib.suppress(harness.Failure):
        harness.wait_until(lambda: events(world.agent, "launch-endless"), "it counts as endless", 3)


def test_endless_launch_that_nobody_waits_for_is_no_fault_of_those_who_are_there(t):
    with held(["red", "blue"], board="hang_n=100", device={"stuck": "300ms"}) as world:
        blue = world.guest("blue")
        blue.write_line("vadd 3")
        t.equal(answers([blue]), ["ok 0"])
        before = steward_pid(world)
        blue.write_line("scale 3000")
        for _ in range(5):
            if not events(world.agent, "launch-endless"):
                abandon(world)
        told, = events(world.agent, "launch-endless")
        t.contains(told["text"], "a launch of board_vadd did not end: of worker ")  # which has ended, or is about to
        t.equal(told["tenant"], "")
        t.equal(answers([blue]), ["ok 0"])
        t.true(steward_pid(world, but=before) != before, "another steward")
        blue.write_line("vadd 3")
        t.equal(answers([blue]), ["ok 0"])


def test_reload_disturbs_no_launch(t):
    with held(["red"]) as world:
        red = world.guest("red")
        steward, untouched = steward_pid(world), worker_pid(world, red)
        red.write_line("vadd 300")
        world.agent.sections["devices"]["cpu9"] = {"backend": "cpu", "cores": 1, "mem": "64M"}
        world.agent.write_config()
        t.code(world.agent.reload(), 0)
        t.equal(answers([red]), ["ok 0"])
        t.equal(steward_pid(world), steward, "the board's process")
        t.equal(worker_pid(world, red), untouched, "red's worker")
        late = world.guest("red")
        late.write_line("scale 3")
        t.equal(answers([late]), ["ok 0"])


if __name__ == "__main__":
    harness.main(globals(), limit_s=150)

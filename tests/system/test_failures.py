#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What is left after a death, counted exactly: tasks (at most once, in doubt once), memory, slots, contents.

test_faults.py has the rows of the failure table one by one; here work goes on while things die, again and again, and
the books are checked. Guests are actors (guests/actor.c).
"""
import os
import re
import signal
import socket
import time

import harness

OK, TIMEOUT, CANCELLED, IN_DOUBT, ACCESS = 0, -11, -13, -15, -16
DETACHED, NO_AGENT = -101, -103
DEVICE_FAULT, DEADLINE = -200, -202
MISSING = (-2, -19)  # a handle, or a share, that is no more
CANARY = 0x5ca1ab1e0ddba11
# Deaths in a row that end a session (the agent's GIVE_UP_AFTER); one less is survived.
KILLS = 7


class Refused(harness.Failure):
    def __init__(self, order, answer):
        super().__init__(f"{order}: {answer}")
        self.status = int(answer.split()[1])
        self.sentence = " ".join(answer.split()[2:])


class Actor:
    """A guest that obeys. say() and answer() apart, for what does not answer at once."""

    def __init__(self, agent, tenant, opened=True, call_timeout_ms=0, **options):
        self.agent = agent
        self.guest = agent.guest(tenant, [harness.program("actor")], **options)
        self.session = int(self.do(f"open {call_timeout_ms}")) if opened else 0

    def say(self, order):
        self.order = order
        self.guest.write_line(order)

    def answer(self, timeout=harness.WAIT_S):
        answer = self.guest.read_line(timeout)
        if answer is None:
            raise harness.Failure(f"{self.order}: the actor ended")
        if not answer.startswith("ok"):
            raise Refused(self.order, answer)
        return answer[3:].strip()

    def do(self, order, timeout=harness.WAIT_S):
        self.say(order)
        return self.answer(timeout)

    def fails(self, order, timeout=harness.WAIT_S):
        """Its status; a failure without a sentence is one of ours."""
        try:
            answer = self.do(order, timeout)
        except Refused as refused:
            if not refused.sentence:
                raise harness.Failure(f"{order}: status {refused.status} without a sentence") from None
            return refused.status
        raise harness.Failure(f"{order} went well: {answer}")

    def statuses(self, queue, timeout_ms=40000):
        """How its tasks ended: {status: how many}."""
        words = self.do(f"wait {queue} {timeout_ms}", timeout_ms / 1000 + 10).split()
        return {int(word.split("=")[0]): int(word.split("=")[1]) for word in words}

    def rounds(self, job=0):
        return int(self.do(f"rounds {job}"))

    def moves(self, job=0, by=20, what="the job goes on", timeout=harness.WAIT_S):
        """Waits until the job has done @by rounds from now."""
        goal = self.rounds(job) + by
        harness.wait_until(lambda: self.rounds(job) >= goal, what, timeout)

    def end(self, job=0, now=True, timeout=60):
        """Ends the job: its numbers by name, statuses by number."""
        words = re.findall(r"(-?\w+)=(\d+)", self.do(f"end {job}{' now' if now else ''}", timeout))
        return {(int(key) if key.lstrip("-").isdigit() else key): int(value) for key, value in words}

    def row(self):
        for row in self.agent.sessions():
            if row["session_id"] == self.session:
                return row
        return None

    def worker(self):
        return self.row()["worker_pid"]

    def kill(self):
        self.guest.kill()
        self.guest.process.wait()


def world(devices=None, **tenants):
    tenants = tenants or {"red": {}, "blue": {}}
    return harness.Agent(devices=devices or {"cpu0": {}}, tenants=tenants)


def neighbour(agent, tenant="blue"):
    """Checksums all the time."""
    actor = Actor(agent, tenant)
    actor.do("job 0 loop")
    actor.moves()
    return actor


def unharmed(t, actor, kept_worker=True):
    """The neighbour goes on, and none of its answers was wrong or failed."""
    actor.moves()
    seen = actor.end()
    t.equal((seen["wrong"], set(key for key in seen if isinstance(key, int))), (0, {OK}), f"the neighbour: {seen}")
    if kept_worker:
        t.equal(actor.row()["worker_restarts"], 0, "the neighbour's worker")


def tenant(agent, name):
    return agent.ctl_json("tenant", "show", name)["tenant"]


def device_used(agent):
    return agent.ctl_json("device", "show", "cpu0")["device"]["mem_used"]


def nothing_left(agent, name, sessions=0):
    """The tenant holds nothing: as a condition to wait for."""
    shown = tenant(agent, name)
    return (shown["mem_used"], shown["virtual_used"], shown["host_mem_used"], shown["sessions"]) == (0, 0, 0, sessions)


def busy_queue(actor, queue=0, running="endless", queued=20):
    """One task that runs, others that wait. Kernels come first: one core that computes answers nothing."""
    actor.do(f"queue {queue}")
    actor.do("find empty")
    actor.do("find saxpy")
    actor.do(f"put {queue} {running}")
    actor.do(f"put {queue} empty 0 {queued}")


def queues_of(agent, actor):
    return [row for row in agent.ctl_json("queue", "list")["queues"] if row["session_id"] == actor.session]


def control_operations(agent, actor):
    """Finished tasks of queue 0: what the session has finished less what its other queues have."""
    return actor.row()["tasks_finished"] - sum(queue["done"] for queue in queues_of(agent, actor))


def in_flight(agent, actor):
    """Tasks that a device has."""
    return sum(row["issued"] - row["done"] for row in queues_of(agent, actor) if row["slot"] != 0)


def pair_state(agent, actor):
    """Of the last two tasks: "flying" once a device has both, "done", or None."""
    queue = queues_of(agent, actor)[0]
    if queue["done"] == queue["submitted"]:
        return "done"
    return "flying" if queue["issued"] - queue["done"] >= 2 else None


def another_worker(agent, actor, old):
    def there():
        row = actor.row()
        return row and row["worker_pid"] not in (0, old) and row["state"] == "attached"
    harness.wait_until(there, "another worker", 20)


def kill_worker(agent, actor, number=signal.SIGKILL):
    old = actor.worker()
    agent.kill_worker(old, number)
    another_worker(agent, actor, old)


def books_are_right(t, seen, what=""):
    statuses = {key: value for key, value in seen.items() if isinstance(key, int)}
    t.equal((seen["wrong"], seen["lost"], seen["twice"]), (0, 0, 0), f"{what} {seen}")
    t.true(set(statuses) <= {OK, IN_DOUBT}, f"{what} {seen}")
    return statuses


class NoAgent:
    """No agent for as long as the block: its monitor is stopped, so that nobody starts another."""

    def __init__(self, agent):
        self.agent = agent

    def __enter__(self):
        self.old = self.agent.agent_pid()
        self.agent.remember()
        self.monitor = self.agent.version()["monitor_pid"]
        harness.send_signal(self.monitor, signal.SIGSTOP)
        harness.send_signal(self.old, signal.SIGKILL)
        harness.wait_until(lambda: not harness.alive(self.old), "the agent is dead")
        return self

    def __exit__(self, *_):
        harness.send_signal(self.monitor, signal.SIGCONT)
        agent_again(self.agent, self.old)


def agent_again(agent, old):
    def there():
        ended = agent.ctl("--timeout", "2s", "--json", "version")
        return ended.code == 0 and ended.json()["agent"]["pid"] not in (0, old)
    harness.wait_until(there, "another agent", 20)
    agent.remember()


# --- a guest dies -------------------------------------------------------------------------------------

def test_a_dead_client_that_held_everything_leaves_all_of_it(t):
    with world(red={"mem": "64M", "virtual": "64M", "sessions": 1, "queues": 8}, blue={}) as agent:
        other = neighbour(agent)
        base = harness.wait_until(lambda: device_used(agent), "the neighbour's buffers")
        ours, theirs = socket.socketpair()
        for _ in range(2):
            red = Actor(agent, "red", pass_fds=[theirs.fileno()])
            for buffer, kind in enumerate(("host", "device", "shared", "shared")):
                red.do(f"alloc {buffer} 8388608 {kind}")
            red.do("fill 1 1")
            for _ in range(4):
                red.do("queue 1")
            red.do("job 0 adds")
            try:
                while True:  # the heap to its end
                    red.do("alloc 5 4194304 host")
            except Refused as refused:
                t.true(refused.status in (-8, -9), str(refused))
            red.do(f"share 2 rw {theirs.fileno()}")
            red.do("map 0")
            busy_queue(red)
            t.true(tenant(agent, "red")["virtual_used"] > 0, "it holds something")
            red.kill()
            harness.wait_until(lambda: nothing_left(agent, "red"), f"red holds nothing: {tenant(agent, 'red')}")
            harness.wait_until(lambda: device_used(agent) == base, "the device has its memory back")
        unharmed(t, other)
        ours.close()
        theirs.close()


def test_a_guest_killed_in_the_middle_of_making_and_freeing_leaves_nothing(t):
    with world(red={"sessions": 2}, blue={}) as agent:
        for _ in range(5):
            red = Actor(agent, "red")
            red.do("job 0 churn")
            red.do("job 1 adds")
            red.moves(0, 5)
            red.kill()
        harness.wait_until(lambda: nothing_left(agent, "red"), f"red holds nothing: {tenant(agent, 'red')}")
        harness.wait_until(lambda: device_used(agent) == 0, "the device has its memory back")


def test_memory_of_the_dead_is_never_seen_again(t):
    """With writes in the middle, in device, shared and host memory, and in arguments and copies in the heap."""
    with world(devices={"cpu0": {"mem": "32M"}}, red={"sessions": 4}, blue={"sessions": 4}) as agent:
        for _ in range(3):
            red = Actor(agent, "red")
            for buffer, kind in enumerate(("host", "device", "shared")):
                red.do(f"alloc {buffer} 4194304 {kind}")
                red.do(f"fill {buffer} {CANARY}")
            busy_queue(red)
            red.say(f"fill 1 {CANARY}")
            red.kill()
            harness.wait_until(lambda: nothing_left(agent, "red"), "red is gone")
            heirs = [Actor(agent, name) for name in ("blue", "red")]
            for heir in heirs:
                for buffer, kind in enumerate(("host", "device", "shared")):
                    heir.do(f"alloc {buffer} 4194304 {kind}")
                    seen = heir.do(f"count {buffer} {CANARY}")
                    t.equal(seen, "words=524288 same=0 zero=524288", f"a fresh {kind} buffer")
            for heir in heirs:
                heir.do("close")
            harness.wait_until(lambda: nothing_left(agent, "red") and nothing_left(agent, "blue"), "all are gone")


def test_exit_without_close_is_an_end_like_any_other(t):
    with world() as agent:
        red = Actor(agent, "red")
        red.do("alloc 0 1048576 device")
        red.do("fill 0 1")
        busy_queue(red)
        red.say("exit")
        t.equal(red.guest.wait(), 0)
        harness.wait_until(lambda: nothing_left(agent, "red"), "red is gone")


def test_a_child_of_a_guest_may_not_use_the_session_and_does_not_keep_it(t):
    with world() as agent:
        red = Actor(agent, "red")
        red.do("queue 0")
        red.do("put 0 empty")
        t.equal(red.statuses(0), {OK: 1})
        t.equal(red.do("fork"), "alloc=-102 submit=-102 wait=-102 closed")
        t.equal(red.do("put 0 empty 0 10"), "")
        t.equal(red.statuses(0), {OK: 11}, "after the child closed its copy")


def test_a_library_unloaded_with_an_open_session_leaves_it_to_the_kernel(t):
    with world() as agent:
        guest = agent.guest("red", [harness.program("unload")])
        guest.read_until("unloaded")
        guest.process.stdin.close()
        t.equal(guest.wait(), 0)
        harness.wait_until(lambda: nothing_left(agent, "red"), "red is gone")


# --- a worker dies ------------------------------------------------------------------------------------

def test_no_task_runs_twice_and_none_is_lost_over_many_deaths(t):
    with world(red={}, green={}, blue={}, devices={"cpu0": {"cores": 2}}) as agent:
        other = neighbour(agent)
        actors = [Actor(agent, name) for name in ("red", "green", "red")]
        for actor in actors:
            actor.do("job 0 adds")
        for _ in range(KILLS):
            for actor in actors:
                actor.moves()
                agent.kill_worker(actor.worker())
            for actor in actors:
                actor.moves(by=300)
        calm = Actor(agent, "green")
        calm.do("job 0 adds 100")
        calm.end(now=False)
        asked = control_operations(agent, calm)
        doubtful = 0
        for actor in actors:
            seen = actor.end()
            statuses = books_are_right(t, seen)
            t.equal(sum(statuses.values()), seen["rounds"], f"statuses of {seen}")
            doubtful += statuses.get(IN_DOUBT, 0)
            row = actor.row()
            t.equal(row["worker_restarts"], KILLS)
            t.equal(row["tasks_failed"], statuses.get(IN_DOUBT, 0), "failures as the host counts them")
            for queue in queues_of(agent, actor):
                t.equal(queue["done"], queue["submitted"], f"a queue with nothing to do: {queue}")
                t.equal(queue["failed"], statuses.get(IN_DOUBT, 0) if queue["slot"] == 1 else 0, f"failures: {queue}")
            t.equal(control_operations(agent, actor), asked, "finished tasks beside those of its queues")
        t.note(f"{doubtful} tasks in doubt after {KILLS * len(actors)} deaths")
        t.true(doubtful > 0, "no death met a task in flight")
        unharmed(t, other)


def test_replayed_tasks_give_the_answers_of_one_run(t):
    """Fills and checksums of one buffer, one after the other: a replay must not see what came later."""
    with world(devices={"cpu0": {"cores": 2}}) as agent:
        red = Actor(agent, "red")
        red.do("job 0 pairs")
        for _ in range(KILLS):
            red.moves(by=100)
            kill_worker(agent, red)
        books_are_right(t, red.end())


def test_a_replay_does_not_read_what_a_later_task_in_doubt_wrote(t):
    """The device has done both and told of neither: the checksum is of the data before, or it is in doubt."""
    with world(devices={"cpu0": {"cores": 2, "filters": "delay", "delay.time": "700ms"}}) as agent:
        red = Actor(agent, "red")
        red.do("queue 0")
        red.do("alloc 0 65536 device")
        red.do("put 0 sum 0")  # makes the buffer of answers
        red.do("fill 0 5")
        met = 0
        for times in range(1, 13):
            red.do(f"pattern 0 0 {times}")
            red.statuses(0)
            red.do("put 0 sum 0")
            red.do(f"pattern 0 0 {times + 100}")
            # On a slow machine both may be over before anybody has looked: another try.
            state = harness.wait_until(lambda: pair_state(agent, red), "both are issued or done")
            if state == "flying":
                kill_worker(agent, red)
                met += 1
            red.statuses(0)
            status = int(red.do(f"status 0 {3 * times - 1}"))
            t.true(status in (1, IN_DOUBT), f"the checksum's status is {status}")
            if status == 1:
                t.equal(red.do(f"answer 0 0 {times}"), "same", "a checksum that finished well")
            t.equal(red.do(f"count 0 {times + 100}"), "words=8192 same=8192 zero=0", "the later task")
            if met == 2:
                break
        t.true(met > 0, "no death came in time")


def test_handles_and_memory_are_right_after_deaths_amid_control_operations(t):
    with world() as agent:
        red = Actor(agent, "red")
        red.do("alloc 0 1048576 device")
        red.do(f"fill 0 {CANARY}")
        red.do("job 0 churn")
        for _ in range(KILLS):
            red.moves(by=10)
            kill_worker(agent, red)
        red.moves(by=10)
        seen = red.end()
        t.equal(set(key for key in seen if isinstance(key, int)), {OK}, f"buffers made and filled: {seen}")
        t.equal(red.do(f"count 0 {CANARY}"), "words=131072 same=131072 zero=0")
        # What is charged is what there is: its own buffers, and those of the job.
        left = red.row()["virtual_used"]
        t.below(left, 1048576 + 65536 * 2, "bytes that nobody has a handle of")
        red.do("close")
        harness.wait_until(lambda: nothing_left(agent, "red"), "red is gone")


def test_a_task_that_was_cut_short_is_in_doubt_and_what_waited_behind_it_runs(t):
    with world() as agent:
        other = neighbour(agent)
        red = Actor(agent, "red")
        red.do("queue 0")
        red.do("queue 1")
        red.do("alloc 0 4096 device")
        red.do("fill 0 0")
        red.do("put 0 add 0 50")
        t.equal(red.statuses(0), {OK: 50})
        red.do("find spin")
        red.do("put 0 stuck")
        red.do("put 0 add 0 50")
        red.do("put 1 spin 1000 50")
        harness.wait_until(lambda: in_flight(agent, red), "the task runs")
        began = time.monotonic()
        kill_worker(agent, red)
        t.note(f"{time.monotonic() - began:.3f} s until the successor served")
        t.equal(red.statuses(0), {OK: 100, IN_DOUBT: 1})
        t.equal(red.do("status 0 50"), str(IN_DOUBT), "the ticket of the one that ran")
        t.equal(red.statuses(1), {OK: 50}, "the other queue")
        t.equal(red.statuses(0), {OK: 100, IN_DOUBT: 1}, "asked again")
        unharmed(t, other)


def test_the_task_that_crashed_is_told_apart_from_all_others(t):
    with world() as agent:
        other = neighbour(agent)
        red = Actor(agent, "red")
        red.do("alloc 0 4096 device")
        red.do("fill 0 0")
        for queue in (0, 1):
            red.do(f"queue {queue}")
            red.do(f"put {queue} add 0 30")
        red.do("put 0 crash")
        red.do("put 0 add 0 30")
        red.do("put 1 add 0 30")
        t.equal(red.statuses(0).get(DEVICE_FAULT), 1)
        t.equal(red.do("status 0 30"), str(DEVICE_FAULT), "the ticket of the crash")
        first, second = red.statuses(0), red.statuses(1)
        t.true(first.get(OK, 0) >= 30 and set(first) <= {OK, IN_DOUBT, DEVICE_FAULT}, repr(first))
        t.true(set(second) <= {OK, IN_DOUBT}, f"the queue that did not crash: {second}")
        red.do("put 1 add 0 5")
        unharmed(t, other)


def test_three_faults_end_a_pooled_tenants_pooling(t):
    pooled = {"isolation": "pooled", "trust_group": "one"}
    with world(red=pooled, pink=pooled, blue={}) as agent:
        other, friend = neighbour(agent), Actor(agent, "pink")
        friend.do("job 0 adds")
        red = Actor(agent, "red")
        t.equal(red.worker(), friend.worker(), "one worker for the group")
        red.do("queue 0")
        for _ in range(3):
            friend.moves()
            old = red.worker()
            red.do("put 0 crash")
            another_worker(agent, red, old)
        t.equal(red.statuses(0), {DEVICE_FAULT: 3})
        books_are_right(t, friend.end(), "the friend")
        fresh = Actor(agent, "red")
        t.equal((fresh.row()["mode"], friend.row()["mode"]), ("isolated", "pooled"))
        t.true(fresh.worker() != friend.worker(), "red has a worker of its own now")
        fresh.do("queue 0")
        fresh.do("put 0 empty 0 5")
        t.equal(fresh.statuses(0), {OK: 5})
        unharmed(t, other)


def test_a_groups_worker_dies_and_other_groups_do_not_notice(t):
    one, two = ({"isolation": "pooled", "trust_group": name} for name in ("one", "two"))
    with world(red=one, pink=one, green=two, lime=two, blue={}) as agent:
        names = ("red", "pink", "green", "lime", "blue")
        actors = {name: Actor(agent, name) for name in names}
        for actor in actors.values():
            actor.do("job 0 adds")
            actor.do("job 1 loop")
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGKILL):
            for actor in actors.values():
                actor.moves(1)
            agent.kill_worker(actors["red"].worker(), number)
            for actor in actors.values():
                actor.moves(1, by=10)
        for name, actor in actors.items():
            adds, loop = actor.end(0), actor.end(1)
            t.equal((adds["lost"], adds["twice"], loop["wrong"]), (0, 0, 0), name)
            statuses = {key for key in {**adds, **loop} if isinstance(key, int)}
            if name in ("red", "pink"):
                t.true(statuses <= {OK, IN_DOUBT, DEVICE_FAULT}, f"{name}: {adds} {loop}")
                t.equal(actor.row()["worker_restarts"], 3)
            else:
                t.equal((statuses, actor.row()["worker_restarts"]), ({OK}, 0), name)


# --- deadlines ----------------------------------------------------------------------------------------

def deadline(t, kernel, keys):
    with world(red={"deadline": "300ms", **keys}, pink={**keys}, blue={}) as agent:
        other, friend = neighbour(agent), Actor(agent, "pink")
        friend.do("job 0 adds 2000")
        red = Actor(agent, "red")
        red.do("queue 0")
        red.do("queue 1")
        red.do("put 0 spin 1000000 10")
        red.do(f"put 0 {kernel}")
        red.do("put 0 spin 1000000 10")
        red.do("put 1 spin 1000000 10")
        began = time.monotonic()
        first = red.statuses(0)
        t.below(time.monotonic() - began, 3.3 + 5, "seconds until the slot was back (3, a deadline, a slow machine)")
        t.equal(first.get(DEADLINE), 1, repr(first))
        t.equal(red.do("status 0 10"), str(DEADLINE), "the ticket of the one that took too long")
        t.true(set(first) <= {OK, IN_DOUBT, DEADLINE} and first[OK] >= 10, repr(first))
        t.true(set(red.statuses(1)) <= {OK, IN_DOUBT}, "the other queue")
        books_are_right(t, friend.end(now=False), "the friend")
        unharmed(t, other)


def test_deadline_of_an_endless_kernel_isolated(t):
    deadline(t, "endless", {})


def test_deadline_of_a_stuck_kernel_isolated(t):
    deadline(t, "stuck", {})


def test_deadline_of_a_stuck_kernel_pooled(t):
    deadline(t, "stuck", {"isolation": "pooled", "trust_group": "one"})


def test_without_a_deadline_a_long_task_is_left_alone(t):
    with world(red={}, blue={"deadline": "100ms"}) as agent:
        red, blue = Actor(agent, "red"), Actor(agent, "blue")
        red.do("queue 0")
        red.do("put 0 spin 800000000")
        blue.do("queue 0")
        blue.do("put 0 spin 1000000 5")  # short, but it waits for the device longer than its deadline
        t.equal(red.statuses(0), {OK: 1})
        t.equal(blue.statuses(0), {OK: 5}, "tasks that waited are not tasks that ran too long")
        t.equal((red.row()["worker_restarts"], blue.row()["worker_restarts"]), (0, 0))


# --- the agent dies -----------------------------------------------------------------------------------

def test_guests_work_while_there_is_no_agent(t):
    with world() as agent:
        actors = [Actor(agent, "red"), Actor(agent, "blue")]
        for actor in actors:
            actor.do("job 0 loop")
            actor.do("job 1 adds")
            actor.do("alloc 0 1048576 device")
            actor.do(f"fill 0 {actor.session}")
        before = {row["session_id"]: row for row in agent.sessions()}
        for _ in range(2):
            with NoAgent(agent):
                for actor in actors:
                    actor.moves(0, by=50)
                    actor.do("queue 0")
                    actor.do("put 0 empty 0 5")
                    t.equal(actor.statuses(0), {OK: 5}, "a queue opened without an agent")
                    actor.do("endqueue 0")
        for number, row in {row["session_id"]: row for row in agent.sessions()}.items():
            for key in ("tenant", "pid", "worker_pid", "epoch", "attached_unix_ns", "program", "worker_restarts"):
                t.equal(row[key], before[number][key], f"{key} of session {number}")
        for actor in actors:
            t.equal(actor.do(f"count 0 {actor.session}"), "words=131072 same=131072 zero=0")
            t.equal(set(key for key in actor.end(1) if isinstance(key, int)), {OK})
            unharmed(t, actor)
        fresh = Actor(agent, "red")
        t.true(fresh.session not in before, "numbers of sessions are not used twice")


def test_what_dies_while_there_is_no_agent_is_found_afterwards(t):
    with world(red={}, green={}, pink={}, blue={}) as agent:
        other = neighbour(agent)
        dead, orphan, both = Actor(agent, "red"), Actor(agent, "green"), Actor(agent, "pink")
        for actor in (dead, orphan, both):
            actor.do("alloc 0 1048576 device")
            actor.do(f"fill 0 {CANARY}")
            actor.do("job 0 adds")
            actor.moves(0)
        workers = {actor: actor.worker() for actor in (dead, orphan, both)}
        with NoAgent(agent):
            dead.kill()
            harness.send_signal(workers[orphan], signal.SIGKILL)
            both.kill()
            harness.send_signal(workers[both], signal.SIGKILL)
        another_worker(agent, orphan, workers[orphan])
        orphan.moves(0)
        books_are_right(t, orphan.end(), "whose worker died")
        t.equal(orphan.do(f"count 0 {CANARY}"), "words=131072 same=131072 zero=0")
        for name in ("red", "pink"):
            harness.wait_until(lambda: nothing_left(agent, name), f"{name} is gone: {tenant(agent, name)}")
        harness.wait_until(lambda: not harness.alive(workers[dead]) or
                           workers[dead] in [worker["pid"] for worker in agent.workers()], "the dead guest's worker")
        unharmed(t, other)


def test_a_crash_while_there_is_no_agent_is_the_culprits_afterwards(t):
    with world() as agent:
        other, red = neighbour(agent), Actor(agent, "red")
        red.do("queue 0")
        red.do("find crash")
        red.do("find empty")
        old = red.worker()
        with NoAgent(agent):
            red.do("put 0 crash")
            red.do("put 0 empty 0 10")
            harness.wait_until(lambda: not harness.alive(old), "the worker crashed")
        seen = red.statuses(0)
        # How it died may have been the dead agent's to know: then the task is in doubt, but never run again.
        t.true(seen in ({DEVICE_FAULT: 1, OK: 10}, {IN_DOUBT: 1, OK: 10}), repr(seen))
        unharmed(t, other)


def test_a_share_is_good_for_the_next_agent_too(t):
    with world() as agent:
        ours, theirs = socket.socketpair()
        red = Actor(agent, "red", pass_fds=[ours.fileno()])
        blue = Actor(agent, "blue", pass_fds=[theirs.fileno()])
        red.do("alloc 0 65536 shared")
        red.do(f"fill 0 {CANARY}")
        red.do(f"share 0 rw {ours.fileno()}")
        with NoAgent(agent):
            blue.say(f"adopt 0 {theirs.fileno()}")  # waits for the agent to come
        blue.answer()
        t.equal(blue.do(f"count 0 {CANARY}"), "words=8192 same=8192 zero=0")


def test_attaching_while_agents_die_never_hangs_and_leaks_nothing(t):
    with world(red={"sessions": 4}, blue={}) as agent:
        other = neighbour(agent)
        actors = [Actor(agent, "red", opened=False) for _ in range(3)]
        for _ in range(3):
            old = agent.agent_pid()
            for actor in actors:
                actor.say("open 20000")
            harness.send_signal(old, signal.SIGKILL)
            agent_again(agent, old)
            for actor in actors:
                try:
                    actor.answer(40)
                    actor.do("queue 0")
                    actor.do("put 0 empty 0 5")
                    t.equal(actor.statuses(0), {OK: 5})
                    actor.do("close")
                except Refused as refused:
                    t.true(refused.status in (NO_AGENT, DETACHED), str(refused))
        for actor in actors:
            actor.do("open")
            actor.do("close")
        harness.wait_until(lambda: nothing_left(agent, "red"), f"red holds nothing: {tenant(agent, 'red')}")
        unharmed(t, other)


def test_monitor_dies_then_the_agent_with_work_going_on(t):
    with world() as agent:
        other, red = neighbour(agent), Actor(agent, "red")
        red.do("job 0 adds")
        red.do("job 1 churn")
        for _ in range(2):
            version = agent.version()
            agent.remember()
            harness.send_signal(version["monitor_pid"], signal.SIGKILL)
            harness.wait_until(lambda: agent.version()["monitor_pid"] not in (0, 1, version["monitor_pid"]) and
                               harness.alive(agent.version()["monitor_pid"]), "another monitor")
            red.moves(0)
            red.moves(1)
            harness.send_signal(version["pid"], signal.SIGKILL)
            agent_again(agent, version["pid"])
            red.moves(0)
            red.moves(1)
        t.equal(set(key for key in red.end(1) if isinstance(key, int)), {OK})
        seen = red.end(0)
        t.equal((seen["lost"], seen["twice"], seen["rounds"]), (0, 0, seen[OK]))
        unharmed(t, other)
        pids = [pid for pid in agent.pids() if pid != agent.monitor.pid]
        harness.send_signal(agent.version()["monitor_pid"], signal.SIGTERM)

        def all_ended():
            harness.reap()
            return not [pid for pid in pids if harness.alive(pid)]
        harness.wait_until(all_ended, "the second monitor ends all in order")


# --- sharing ------------------------------------------------------------------------------------------

def sharers(agent, mode):
    """An owner and an adopter of buffer 0, 65536 bytes of the canary."""
    ours, theirs = socket.socketpair()
    red = Actor(agent, "red", pass_fds=[ours.fileno()])
    blue = Actor(agent, "blue", pass_fds=[theirs.fileno()])
    red.do("alloc 0 65536 shared")
    red.do(f"fill 0 {CANARY}")
    red.do(f"share 0 {mode} {ours.fileno()}")
    blue.do(f"adopt 0 {theirs.fileno()}")
    return red, blue


def test_an_adopted_buffer_has_the_rights_it_was_given(t):
    with world() as agent:
        red, blue = sharers(agent, "r")
        t.equal(blue.do(f"count 0 {CANARY}"), "words=8192 same=8192 zero=0")
        t.equal(blue.do("sum 0"), "same")
        t.equal(blue.fails("fill 0 1"), ACCESS)
        blue.do("queue 0")
        blue.do("put 0 add 0 3")
        t.equal(blue.statuses(0), {ACCESS: 3}, "a kernel that writes")
        t.equal(red.do(f"count 0 {CANARY}"), "words=8192 same=8192 zero=0")
        red, blue = sharers(agent, "rw")
        blue.do("fill 0 5")
        t.equal(red.do("count 0 5"), "words=8192 same=8192 zero=0")
        t.equal(tenant(agent, "blue")["mem_used"] < 65536 * 2, True, "the owner is charged")


def test_the_owner_of_a_share_dies_while_the_adopter_works(t):
    with world() as agent:
        red, blue = sharers(agent, "rw")
        blue.do("queue 0")
        blue.do("put 0 spin 20000000 3")
        blue.do("put 0 sum 0 200")
        red.kill()
        seen = blue.statuses(0)
        t.equal(sum(seen.values()), 203)
        t.true(set(seen) <= {OK, *MISSING}, f"while the owner died: {seen}")
        blue.do("queue 1")
        blue.do("put 1 empty 0 5")
        t.equal(blue.statuses(1), {OK: 5}, "the adopter goes on")
        harness.wait_until(lambda: tenant(agent, "red")["sessions"] == 0, "the owner is gone")
        blue.do("free 0")
        blue.do("close")
        harness.wait_until(lambda: nothing_left(agent, "red") and nothing_left(agent, "blue"), "nothing is left")
        harness.wait_until(lambda: device_used(agent) == 0, "the device has its memory back")


def test_the_adopter_of_a_share_dies_and_the_owner_keeps_it(t):
    with world() as agent:
        red, blue = sharers(agent, "rw")
        blue.do("queue 0")
        blue.do("put 0 spin 20000000 3")
        blue.do("put 0 sum 0 200")
        blue.kill()
        harness.wait_until(lambda: nothing_left(agent, "blue"), "the adopter is gone")
        t.equal(red.do(f"count 0 {CANARY}"), "words=8192 same=8192 zero=0")
        t.equal(red.do("sum 0"), "same")


def test_a_share_survives_the_workers_of_both(t):
    with world() as agent:
        red, blue = sharers(agent, "rw")
        for actor in (red, blue, red):
            kill_worker(agent, actor)
            red.do("fill 0 7")
            t.equal(blue.do("count 0 7"), "words=8192 same=8192 zero=0")
            blue.do("fill 0 8")
            t.equal(red.do("count 0 8"), "words=8192 same=8192 zero=0")


# --- no agent, a stale socket, two agents -------------------------------------------------------------

def test_no_agent_is_said_at_once(t):
    with harness.Agent(start=False) as agent:
        guest = Actor(agent, "red", opened=False)
        t.equal(guest.fails("open", 20), NO_AGENT, "no door")
        os.makedirs(os.path.dirname(agent.door("red")))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(agent.door("red"))  # nobody listens: what a dead agent leaves
        t.equal(guest.fails("open", 20), NO_AGENT, "a stale door")
        t.code(agent.ctl("session", "list"), 5)
        with socket.socket(socket.AF_UNIX) as admin:
            admin.bind(str(agent.admin))
        ended = agent.ctl("session", "list")
        t.code(ended, 5)
        t.contains(ended.err, str(agent.admin), "the sentence names the socket")
        agent.start()  # over both stale sockets
        guest.do("open")


def test_a_door_where_nobody_accepts_ends_with_the_call_timeout(t):
    with harness.Agent(start=False) as agent:
        os.makedirs(os.path.dirname(agent.door("red")))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(agent.door("red"))
            door.listen(8)
            guest = Actor(agent, "red", opened=False)
            t.true(guest.fails("open 500", 20) in (NO_AGENT, TIMEOUT), "the status")


def test_a_second_agent_is_refused_and_the_first_goes_on(t):
    with world() as agent:
        other = neighbour(agent)
        second = harness.run(agent.argv(), timeout=20)
        t.code(second, 7, "the same run folder")
        t.contains(second.err, str(agent.run_dir), "the sentence names the folder")
        with harness.Agent(agent={"admin": str(agent.admin)}, start=False) as third:
            ended = harness.run(third.argv(), timeout=20)
            t.code(ended, 7, "another run folder, the same admin socket")
            t.contains(ended.err, str(agent.admin), "the sentence names the socket")
        t.code(agent.ctl("version"), 0)
        Actor(agent, "red").do("close")
        unharmed(t, other)


def test_all_is_killed_and_started_again_with_live_clients(t):
    """The server is killed and restarted: clients are told, and may attach again."""
    with world() as agent:
        red, blue = Actor(agent, "red"), Actor(agent, "blue")
        busy_queue(red)
        blue.do("job 0 loop")
        red.say("wait 0 60000")  # asleep when it happens
        agent.remember()
        agent.kill_all()
        try:
            red.answer(30)
            raise harness.Failure("the wait went well")
        except Refused as refused:
            t.true(refused.status in (DETACHED, -100, -107), str(refused))
        t.true(blue.fails("end 0", 40) in (DETACHED, -100, -107), "a loop that went on")
        agent.start()
        for actor in (red, blue):
            actor.do("close")
            actor.do("open")
            actor.do("queue 0")
            actor.do("put 0 empty 0 10")
            t.equal(actor.statuses(0), {OK: 10})


# --- what the field's first such system did wrong, each by name ----------------------------------------

def test_arax_absent_device_kind_is_refused_and_the_server_lives(t):
    with world() as agent:
        red = Actor(agent, "red")
        for kind in (2, 3, 4, 5):
            t.equal(red.fails(f"kind {kind}"), -6, "NO_DEVICE")
        t.true(red.fails("kind 77") in (-1, -6), "a kind that is none")
        red.do("queue 0")
        red.do("put 0 empty 0 5")
        t.equal(red.statuses(0), {OK: 5})
        t.equal(red.row()["worker_restarts"], 0)


def test_arax_waiting_twice_returns_twice(t):
    with world() as agent:
        red = Actor(agent, "red")
        red.do("queue 0")
        red.do("put 0 empty 0 20")
        red.do("put 0 fail -14")
        first = red.statuses(0)
        t.equal(sum(first.values()), 21)
        for _ in range(3):
            t.equal(red.statuses(0), first)


def test_arax_unknown_kernel_is_an_error_of_that_call(t):
    with world() as agent:
        red = Actor(agent, "red")
        red.do("queue 0")
        t.equal(red.fails("put 0 no_such_kernel"), -4)
        red.do("put 0 empty")
        t.equal(red.statuses(0), {OK: 1})


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024


def test_arax_memory_is_flat_over_a_hundred_thousand_tasks(t):
    with world() as agent:
        red = Actor(agent, "red")
        red.do("queue 0")
        red.do("many 0 10000")  # warm: rings, pools and tables are touched
        pids = {"guest": red.guest.pid, "worker": red.worker(), "agent": agent.agent_pid()}
        before = {name: resident(pid) for name, pid in pids.items()}
        red.do("many 0 100000", 60)
        for name, pid in pids.items():
            grown = resident(pid) - before[name]
            t.note(f"{name} grew by {grown} bytes")
            t.below(grown, 1 << 20, f"bytes that the {name} grew by (32 a task would be 3200000)")


if __name__ == "__main__":
    harness.main(globals())

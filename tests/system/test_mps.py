#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Packed tenants: workers of one trust group as clients of an MPS server that the agent starts, tells and ends.

The server is a fake (mps/nvidia-cuda-mps-control) and the devices are processors: what is looked at is what the agent
does, and in which order.
"""
import os
import pathlib
import shutil
import signal
import tempfile

import harness
from puppet import Puppet

E_FULL = -106
E_DEADLINE = -202
FAKE = pathlib.Path(__file__).resolve().parent / "mps" / "nvidia-cuda-mps-control"


class World:
    """An agent whose MPS control program is a fake in a folder of this test's own."""

    def __init__(self, agent=None, **tenants):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-mps-"))
        os.chmod(self.folder, 0o777)
        shutil.copy2(FAKE, self.folder / FAKE.name)
        self.agent = harness.Agent(tenants={name: {"isolation": "packed", **keys} for name, keys in tenants.items()},
                                   agent={"mps": self.folder / FAKE.name, "confine": "no", "worker_user": "none",
                                          **(agent or {})}, start=False)

    def __enter__(self):
        self.agent.start()
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and not issubclass(kind, harness.Skip):
            print("# mps: " + " | ".join(" ".join(line) for line in self.log()))
        self.agent.__exit__(kind, value, trace)
        # What a failed test left: the daemons' own processes, by the numbers that they wrote down.
        for line in self.log("daemon"):
            if harness.alive(int(line[1])):
                os.kill(int(line[1]), signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, command=None):
        path = self.folder / "log"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if command in (None, line[0])]

    def daemons(self, count=1):
        """The process ids of the daemons, once there are so many."""
        def enough():
            found = self.log("daemon")
            return found if len(found) >= count else None
        return [int(line[1]) for line in harness.wait_until(enough, f"{count} daemons")]

    def worker_of(self, guest):
        session = next(s for s in self.agent.sessions() if s["session_id"] == guest.session)
        return next(w for w in self.agent.workers() if w["worker_id"] == session["worker_id"])

    def server_of(self, guest):
        return harness.wait_until(lambda: self.worker_of(guest)["mps_server"], "the server is known")

    def event(self, kind):
        harness.wait_until(lambda: f" {kind} " in self.agent.log(), f"event {kind}")


def environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as data:
        words = data.read().decode().split("\0")
    return dict(word.partition("=")[::2] for word in words if word.startswith("CUDA_"))


def test_packed_sessions_are_clients_of_one_server(t):
    with World(red={"trust_group": "lab"}, blue={"trust_group": "lab", "compute_percent": 40}) as w:
        red, blue = Puppet(w.agent, "red"), Puppet(w.agent, "blue")
        workers = [w.worker_of(guest) for guest in (red, blue)]
        t.true(workers[0]["pid"] != workers[1]["pid"], "a worker each")
        t.equal([(x["mode"], x["trust_group"]) for x in workers], [("packed", "lab")] * 2)
        t.equal([x["compute_percent"] for x in workers], [0, 40])
        t.equal([s["mode"] for s in w.agent.sessions()], ["packed"] * 2)
        server = w.server_of(red)
        t.equal(w.server_of(blue), server)
        t.equal(len(w.daemons()), 1)
        seen = [environment(x["pid"]) for x in workers]
        t.equal(seen[0]["CUDA_MPS_PIPE_DIRECTORY"], seen[1]["CUDA_MPS_PIPE_DIRECTORY"])
        t.true(seen[0]["CUDA_MPS_PIPE_DIRECTORY"].startswith(str(w.agent.run_dir)), "a folder of the agent's")
        t.equal([x.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") for x in seen], [None, "40"])
        t.equal((red.end(), blue.end()), (0, 0))
        w.agent.stop()
        harness.wait_until(lambda: w.log("ended"), "the daemon was told to quit")
        harness.wait_until(lambda: not harness.alive(server), "the server is gone")
        t.equal([line[0] for line in w.log()][:2], ["daemon", "start_server"])
        t.equal(os.listdir(w.agent.run_dir / "mps"), [])


def test_tenants_of_negative_priority_are_clients_below_normal(t):
    with World(red={"trust_group": "lab"}, blue={"trust_group": "lab", "priority": -3, "compute_percent": 30},
               green={"trust_group": "lab", "priority": 7}) as w:
        guests = {name: Puppet(w.agent, name) for name in ("red", "blue", "green")}
        seen = {name: w.worker_of(guest) for name, guest in guests.items()}
        t.equal({name: x["mps_priority"] for name, x in seen.items()}, {"red": 0, "blue": 1, "green": 0})
        told = {name: environment(x["pid"]) for name, x in seen.items()}
        t.equal({name: x.get("CUDA_MPS_CLIENT_PRIORITY") for name, x in told.items()},
                {"red": None, "blue": "1", "green": None})
        t.equal(told["blue"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "30")
        w.server_of(guests["blue"])
        # It holds for a worker's life, through a restart of the agent too; later sessions have what is configured then.
        t.code(w.agent.ctl("tenant", "set", "red", "--priority", "-1"), 0)
        w.agent.kill_agent()
        w.agent.wait_ready()
        harness.wait_until(lambda: len(w.agent.sessions()) == 3, "the sessions are there again")
        t.equal([w.worker_of(guests[name])["mps_priority"] for name in ("red", "blue")], [0, 1])
        late = Puppet(w.agent, "red")
        t.equal(environment(w.worker_of(late)["pid"]).get("CUDA_MPS_CLIENT_PRIORITY"), "1")
        for guest in [*guests.values(), late]:
            t.equal(guest.end(), 0)


def test_programs_that_come_at_once_find_workers_under_mps(t):
    with World(agent={"warm_packed": 3}, red={}, blue={"isolation": "isolated"}) as w:
        def ready(count):
            def enough():
                found = [x["pid"] for x in w.agent.workers() if (x["mode"], x["state"]) == ("packed", "warm")]
                return found if len(found) == count else None
            return harness.wait_until(enough, f"{count} packed workers are warm")
        before = ready(3)
        programs = [Puppet(w.agent, "red", open_with=None) for _ in range(3)]
        for program in programs:
            program.start("open")
        for program in programs:
            program.session = int(program.finish("open")[0])
        t.equal(sorted(w.worker_of(program)["pid"] for program in programs), sorted(before), "who serves them")
        ready(3)
        for program in programs:
            t.equal(program.end(), 0)


def test_server_is_told_before_a_worker_is_killed(t):
    with World(red={"trust_group": "lab", "deadline": "300ms"}, blue={"trust_group": "lab"}) as w:
        red, blue = Puppet(w.agent, "red"), Puppet(w.agent, "blue")
        server, victim = w.server_of(red), w.worker_of(red)["pid"]
        red.do("kernel stuck")
        red.do("launch 0")
        try:
            red.do("wait 0")
            t.true(False, "it ended")
        except harness.Failure as failure:
            t.equal(failure.status, E_DEADLINE, str(failure))
        told = w.log("terminate_client")
        t.equal(told[0][1:], [str(server), str(victim), "alive=1"], "told while the client lived")
        t.true(w.worker_of(red)["pid"] != victim, "another worker serves it")
        t.equal(w.server_of(red), server)
        blue.do("spin 0 1000")
        t.equal((red.end(), blue.end()), (0, 0))


def test_server_is_told_before_a_busy_session_is_cut_off(t):
    with World(red={}) as w:
        red = Puppet(w.agent, "red")
        server, victim = w.server_of(red), w.worker_of(red)["pid"]
        red.do("kernel stuck")
        red.do("launch 0")
        harness.wait_until(lambda: w.agent.ctl_json("queue", "show", red.queue)["queue"]["issued"], "it runs")
        red.guest.process.kill()
        harness.wait_until(lambda: not harness.alive(victim), "its worker is gone")
        t.equal(w.log("terminate_client")[0][1:], [str(server), str(victim), "alive=1"])


def test_fault_that_does_not_come_is_waited_for_a_while(t):
    with World(red={"trust_group": "lab"}, blue={"trust_group": "lab"}) as w:
        red, blue = Puppet(w.agent, "red"), Puppet(w.agent, "blue")
        # The first runs, and the other waits for its turn.
        for guest, field in ((red, "issued"), (blue, "taken")):
            w.server_of(guest)
            guest.do("kernel stuck")
            guest.do("launch 0")
            harness.wait_until(lambda guest=guest, field=field:
                               w.agent.ctl_json("queue", "show", guest.queue)["queue"][field], f"its task is {field}")
        harness.wait_until(lambda: any((x["mode"], x["state"]) == ("packed", "warm") for x in w.agent.workers()), "one is warm")
        victim, neighbour = (w.worker_of(guest)["pid"] for guest in (red, blue))
        os.kill(victim, signal.SIGKILL)
        w.event("session-recovered")
        told = next(line for line in w.agent.log().splitlines() if " session-recovered " in line)
        # Processors have no contexts that end together: nobody says anything, and then what is there is used.
        # 400 ms from when the worker was lost; on a busy machine its death is told some time after that.
        t.true(int(told.rpartition("after ")[2].split()[0]) >= 300000, told)
        t.equal(w.worker_of(blue)["pid"], neighbour, "who serves the neighbour")
        for guest in (red, blue):
            guest.guest.process.kill()


def test_each_group_has_a_server_and_isolated_tenants_none(t):
    with World(red={"trust_group": "lab"}, green={"trust_group": "shop"}, blue={"isolation": "isolated"}) as w:
        red, green, blue = (Puppet(w.agent, name) for name in ("red", "green", "blue"))
        t.equal(len(set(w.daemons(2))), 2)
        t.true(w.server_of(red) != w.server_of(green), "two servers")
        t.equal(len({line[2] for line in w.log("daemon")}), 2, "two folders")
        t.equal(w.worker_of(blue)["mps_server"], 0)
        folder = environment(w.worker_of(blue)["pid"])["CUDA_MPS_PIPE_DIRECTORY"]
        t.true(folder.startswith(str(w.agent.run_dir)) and not os.path.exists(folder), folder)
        for guest in (red, green, blue):
            t.equal(guest.end(), 0)
        w.agent.set_tenant("green", isolation="isolated")
        w.agent.reload()
        harness.wait_until(lambda: w.log("ended"), "the server of nobody ends")
        t.equal(len(w.log("ended")), 1)


def test_agent_restart_finds_the_server_again(t):
    with World(red={"deadline": "500ms"}) as w:
        red = Puppet(w.agent, "red")
        server, victim = w.server_of(red), w.worker_of(red)["pid"]
        w.agent.kill_agent()
        w.agent.wait_ready()
        red.do("spin 0 1000")
        t.equal(w.worker_of(red)["pid"], victim)
        t.equal(w.server_of(red), server)
        red.do("kernel stuck")
        red.do("launch 0")
        harness.wait_until(lambda: not harness.alive(victim), "its worker is ended")
        t.equal(w.log("terminate_client")[0][1:], [str(server), str(victim), "alive=1"])
        t.equal(len(w.log("daemon")), 1)
        second = Puppet(w.agent, "red")
        t.equal(w.server_of(second), server)


def test_dead_daemon_is_replaced_and_sessions_go_on(t):
    with World(red={}) as w:
        red = Puppet(w.agent, "red")
        first = w.server_of(red)
        daemon = w.daemons()[0]
        os.kill(daemon, signal.SIGKILL)
        w.event("mps-died")
        red.do("spin 0 1000")
        second = Puppet(w.agent, "red")
        t.equal(len(w.daemons(2)), 2)
        t.true(w.server_of(second) != first, "another server")
        t.equal((red.end(), second.end()), (0, 0))
        harness.wait_until(lambda: not harness.alive(first), "the old server ends with its last client")


def test_server_that_is_killed_takes_its_clients_along_and_all_get_others(t):
    with World(red={"trust_group": "lab"}, blue={"trust_group": "lab"}) as w:
        guests = [Puppet(w.agent, name) for name in ("red", "blue")]
        server = w.server_of(guests[0])
        before = [w.worker_of(guest)["pid"] for guest in guests]
        # Nobody tells of it: processors go on without a server.
        os.kill(server, signal.SIGKILL)
        harness.wait_until(lambda: {s["worker_pid"] for s in w.agent.sessions()}.isdisjoint([0, *before]),
                           "both have other workers")
        for guest in guests:
            t.true(w.server_of(guest) != server, "another server")
            guest.do("spin 0 1000")
        t.contains(w.agent.log(), "the MPS server of the group ended")
        t.equal([guest.end() for guest in guests], [0, 0])


def test_full_server_refuses_or_lets_wait(t):
    with World(agent={"mps_clients": 1, "warm_workers": 0}, red={"trust_group": "lab"},
               blue={"trust_group": "lab", "on_full": "queue"}) as w:
        red = Puppet(w.agent, "red")
        t.contains(Puppet(w.agent, "red", open_with=None).fails("open", E_FULL), "MPS server")
        blue = Puppet(w.agent, "blue", open_with=None)
        blue.start("open")
        harness.wait_until(lambda: w.agent.ctl_json("tenant", "show", "blue"), "it is asked")
        t.equal(red.end(), 0)
        blue.finish("open")
        t.equal(blue.end(), 0)


def test_without_a_server_packed_sessions_are_served_all_the_same(t):
    with World(agent={"warm_workers": 0}, red={}) as w:
        (w.folder / "refuse").touch()
        red = Puppet(w.agent, "red")
        w.event("mps-failed")
        t.equal((w.worker_of(red)["mode"], w.worker_of(red)["mps_server"]), ("packed", 0))
        t.equal(red.end(), 0)


if __name__ == "__main__":
    harness.main(globals())

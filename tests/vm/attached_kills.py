# SPDX-License-Identifier: Apache-2.0
"""Deaths, standstills and failures while a machine with its device in goes to and fro (tests/migration/kills.py has the other worlds).

Whoever dies: the machine runs on one host, its session is where it is, and goes on; the program in it, which knows of nothing, compares
every result. What `gantryctl vm migrate` said of it is one of what it documents. ./dev campaign migration runs it.
"""
import random
import signal
import threading

import harness
import two_hosts

# In this order: two_hosts has made tests/migration known.
import failpoints  # pylint: disable=wrong-import-order
import kills  # pylint: disable=wrong-import-order

SETTLE_S = 120
DOOR = "ivshmem:"
OK, FAILED, UNREACHABLE, TIMEOUT = 0, 1, 5, 124


class World(two_hosts.World):
    attached = True

    def __init__(self):
        self.points = failpoints.Points()
        self.env = self.points.env
        super().__init__()

    def close(self):
        super().close()
        self.points.close()

    def where(self):
        """The one host that runs the machine, or None."""
        found = [host for host in (self.north, self.south) if two_hosts.NAME in host.machines()]
        return found[0] if len(found) == 1 else None

    def has_lost_machine(self):
        """Where it stands still it is not lost, but left so."""
        left = [h.name for h in (self.north, self.south) if two_hosts.NAME in h.libvirtd.must("list", "--name", "--state-paused")]
        return not left and super().has_lost_machine()

    def follow(self):
        """The machine, wherever it is by now."""
        host = harness.wait_until(self.where, "the machine runs on one host", SETTLE_S)
        self.machine.moved(host.libvirtd)
        return host

    def settled(self):
        """Both agents answer, and one session is left, attached, where the machine is."""
        for host in (self.host(), self.other()):
            ended = host.agent.ctl("--json", "--timeout", "2s", "session", "list")
            states = [row["state"] for row in ended.json()["sessions"]] if ended.code == 0 else None
            if states != (["attached"] if host is self.host() else []):
                return False
        return True

    def kill_other(self, chance, stalled_pid):
        """While one stands still another dies."""
        agent = chance.choice((self.north, self.south)).agent
        what = chance.choice(("gantry-mover", "gantry-worker", "gantryd"))
        found = [pid for pid in kills.pids_named(agent, what) if pid not in (stalled_pid, agent.monitor.pid)]
        if found:
            harness.send_signal(chance.choice(found), signal.SIGKILL)
        return what if found else kills.NOBODY


class Going(threading.Thread):
    """gantryctl vm migrate, while we do harm."""

    def __init__(self, world):
        super().__init__()
        self.world, self.ended = world, None
        self.start()

    def run(self):
        self.ended = self.world.ctl("--attached", "--limit", "60s")


def one_round(t, world, chance, tally, names):
    name, action = kills.choose(chance, names)
    points, source = world.points, world.host()
    points.arm(name, kills.ACTIONS[action], skip=kills.skipped(chance, name, (0, 0, 1, 3)))
    kills.lead(points, name)
    going, also = Going(world), kills.NOBODY
    try:
        harness.wait_until(lambda: points.fired(name) or not going.is_alive(), f"{name} {action}: hit, or over", SETTLE_S)
        if points.stalled(name) and chance.random() < 0.5:
            also = world.kill_other(chance, points.pid(name))
    finally:
        points.clear()
        going.join()
    told = f"{name} {action} (killed beside: {also}; told: {going.ended})"
    try:
        t.true(going.ended.code in (OK, FAILED, UNREACHABLE, TIMEOUT), f"exit status {going.ended.code}")
        host = world.follow()
        t.equal(host is not source, going.ended.code == OK, "moved, and said so")
        harness.wait_until(world.settled, "its session is where the machine is", SETTLE_S)
        two_hosts.wait_for_work(host)
    except harness.Failure as failure:
        raise harness.Failure(f"{told}: {failure}") from None
    tally.note(name, action, points.fired(name), "stayed" if host is source else "moved", also)


def rounds(t, count, seed, names=None, tally=None):
    """Fewer, where the emulated machine was reset or ended, as QEMU does to one in some eighty (two_hosts.emulated)."""
    chance, tally = random.Random(seed), tally or kills.Tally()
    names = names or kills.points_of(*kills.HOST_POINTS)
    world = World()
    try:
        guest = world.pipeline(door=DOOR)
        two_hosts.wait_for_work(world.host())
        for number in range(count):
            try:
                one_round(t, world, chance, tally, names)
            except harness.Failure as failure:
                if not world.has_lost_machine():
                    raise
                t.note(f"round {number}: {failure}; the emulated machine was reset or ended: the world ends with it")
                return tally
        two_hosts.end_pipeline(t, guest)
        for host in (world.north, world.south):
            harness.wait_until(lambda h=host: not h.agent.sessions(), f"no session is left at {host.name}", SETTLE_S)
            harness.wait_until(lambda h=host: not kills.pids_named(h.agent, "gantry-mover"), "no mover is left")
            tenant = host.agent.ctl_json("tenant", "show", "red")["tenant"]
            t.equal([tenant["mem_used"], tenant["sessions"]], [0, 0], f"the tenant's account at {host.name}")
    except BaseException:
        world.report()
        raise
    finally:
        world.close()
    return tally


# SPDX-License-Identifier: Apache-2.0
"""A session with a board goes to another host that has one: what stayed on the first board is nothing that it needs."""
import contextlib
import pathlib
import shutil
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "migration"))
import harness  # pylint: disable=wrong-import-position
from hosts import two  # pylint: disable=wrong-import-position
from test_seats import run
from test_system import install


@contextlib.contextmanager
def boards():
    """Two hosts, each with a board of its own that its steward holds."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-board-"))
    try:
        install(folder)
        device = {"backend": "fpga", "cores": None, "mem": "64M", "driver": folder / "two-regions.so", "images": folder, "board": "load_ms=2",
                  "holder": "steward"}
        keys = {"module_dirs": folder, "warm_workers": 0}
        tenant = {"isolation": "isolated", "mem": "64M", "devices": "fpga0"}
        with two(north=keys, south=keys, north_tenant=tenant, south_tenant=tenant, devices={"fpga0": device}) as hosts:
            yield hosts
    finally:
        shutil.rmtree(folder)


def follower(hosts):
    guest = hosts.north.guest("red", [harness.program("fpga-guest")], env={"GANTRY_DOOR": "stream:" + hosts.front})
    guest.read_until("ok", 90)
    return guest


def go(t, hosts, source, target):
    hosts.follow(target)
    ended = hosts.migrate(source.sessions()[0]["session_id"], source=source)
    t.code(ended, 0)


def test_session_with_buffers_on_a_board_goes_to_another_host_and_back(t):
    with boards() as hosts:
        guest = follower(hosts)
        t.equal(run(guest, "chain 5"), "ok 0")
        go(t, hosts, hosts.north, hosts.south)
        t.equal(run(guest, "more 3"), "ok 0")
        # What the first board has of it still is not what it left with.
        go(t, hosts, hosts.south, hosts.north)
        t.equal(run(guest, "more 3"), "ok 0")
        t.equal([len(agent.sessions()) for agent in (hosts.north, hosts.south)], [1, 0])


def test_session_goes_while_its_launches_are_under_way(t):
    with boards() as hosts:
        guest = follower(hosts)
        t.equal(run(guest, "chain 2"), "ok 0")
        guest.write_line("more 200")
        go(t, hosts, hosts.north, hosts.south)
        t.equal(guest.read_line(120), "ok 0")
        t.equal(len(hosts.south.sessions()), 1)


if __name__ == "__main__":
    harness.main(globals(), limit_s=240)

# SPDX-License-Identifier: Apache-2.0
"""One board, which admits one process, serves several tenants at once: through gantryd, by kernels' names."""
import os
import pathlib
import shutil
import signal
import tempfile

import harness

BUILD = pathlib.Path(os.environ["GANTRY_BUILD"]) / "tests" / "fpga"
BITSTREAMS = ("vadd", "scale", "stencil", "pair")
MODULE = """module two-regions 1
image fpga pair.bitstream
kernel board_vadd r:i32*,r:i32*,w:i32*,u64 pure
kernel board_scale r:i32*,w:i32*,i32,u64 pure
kernel board_stencil r:i32*,w:i32*,u32,u32 pure
"""


def install(folder):
    """What an administrator puts there: the driver, the bitstreams with their manifests, and a module that names the kernels."""
    os.chmod(folder, 0o755)
    for name in ["two-regions.so"] + [f"{name}.{suffix}" for name in BITSTREAMS for suffix in ("bit", "bitstream")]:
        if not (BUILD / name).exists():
            raise harness.Skip(f"the build has no {name}: it found no Verilator")
        shutil.copy(BUILD / name, folder / name)
        os.chmod(folder / name, 0o755)
    (folder / "two-regions.manifest").write_text(MODULE)
    os.chmod(folder / "two-regions.manifest", 0o644)


class World:
    """An agent with the board, and tenants that share a worker, whose the board is; or with other isolation and holder. Tenants @plain have a cpu
    device instead; loading an image loses memory (@lost), says its manifest; there are @boards, fpga0 and so on, and whoever locks lock(NUMBER) before the agent does has that one."""

    def __init__(self, tenants, board="", isolation="pooled", holder=None, pooled=(), kind=harness.Agent, plain=(), boards=1, start=True,
                 device=None, lost=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-board-"))
        try:
            install(self.folder)
            for manifest in self.folder.glob("*.bitstream") if lost else ():
                manifest.write_text(manifest.read_text().replace("memory kept", "memory lost"))
            devices = {}
            for number in range(boards):
                self.lock(number).touch()
                os.chmod(self.lock(number), 0o666)
                devices[f"fpga{number}"] = {
                    "backend": "fpga", "cores": None, "mem": "64M", "driver": self.folder / "two-regions.so",
                    "images": self.folder, "board": f"lock={self.lock(number)} load_ms=2 {board}", "holder": holder, **(device or {})}
            everywhere = ", ".join(devices)
            if plain:
                devices["cpu0"] = {}
            together = {"isolation": "pooled", "trust_group": "board", "mem": "64M"}
            alone = {"isolation": "isolated", "mem": "64M", "queues": 63}
            for keys in (together, alone):
                keys["devices"] = everywhere
            kinds = {"pooled": together, "isolated": alone}
            self.agent = kind(devices=devices, start=start,
                              tenants={**{name: kinds[isolation] for name in tenants},
                                       **{name: together for name in pooled},
                                       **{name: {**alone, "devices": "cpu0"} for name in plain}, "loner": alone},
                              agent={"module_dirs": self.folder, "warm_workers": 0})
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def lock(self, number=0):
        return self.folder / f"lock{number}"

    def __enter__(self):
        self.agent.__enter__()
        return self

    def __exit__(self, *what):
        try:
            return self.agent.__exit__(*what)
        finally:
            shutil.rmtree(self.folder)

    def guest(self, tenant):
        guest = self.agent.guest(tenant, [harness.program("fpga-guest")])
        guest.read_until("ok")
        return guest


def answers(guests, timeout=90):
    return [guest.read_line(timeout) for guest in guests]


def test_tenants_share_the_board_at_once(t):
    with World(["red", "blue", "green"]) as world:
        guests = [world.guest(name) for name in ("red", "blue", "green", "red")]
        for guest, line in zip(guests, ("vadd 20", "scale 20", "vadd 20", "scale 20")):
            guest.write_line(line)
        t.equal(answers(guests), ["ok 0"] * 4)
        # The other way round: what one left on the board is no other's.
        for guest, line in zip(guests, ("scale 5", "vadd 5", "scale 5", "vadd 5")):
            guest.write_line(line)
        t.equal(answers(guests), ["ok 0"] * 4)
        t.equal(len([w for w in world.agent.workers() if w["sessions"] > 0]), 1)


def test_worker_that_dies_gives_the_board_to_the_next(t):
    with World(["red", "blue"]) as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        for guest, line in zip(guests, ("vadd 300", "scale 300")):
            guest.write_line(line)
        worker = [w for w in world.agent.workers() if w["sessions"] > 0][0]["pid"]
        os.kill(worker, signal.SIGKILL)
        # All of these may run again, so nothing of it is to be seen.
        t.equal(answers(guests), ["ok 0"] * 2)
        t.equal([w for w in world.agent.workers() if w["pid"] == worker], [])


def test_worker_of_another_group_is_told_who_has_the_board(t):
    with World(["red"]) as world:
        red = world.guest("red")
        loner = world.agent.guest("loner", [harness.program("fpga-guest")])
        t.equal(loner.read_line(), "err -106 a device of the tenant has no room for another session")
        harness.wait_until(lambda: "another process has the board" in world.agent.log(), "the reason in the log")
        # The board serves on where it is.
        red.write_line("vadd 3")
        t.equal(answers([red]), ["ok 0"])


def test_endless_launch_ends_for_its_own_session_only(t):
    with World(["red", "blue"], board="hang_n=100", device={"longest": "3s"}) as world:
        red, blue = world.guest("red"), world.guest("blue")
        red.write_line("vadd 3")
        t.equal(answers([red]), ["ok 0"])
        blue.write_line("scale 400")
        red.write_line("endless 1")
        answer, = answers([red])
        t.true(answer.startswith("err -202 "), answer)  # DEADLINE
        t.equal(answers([blue]), ["ok 0"])
        for guest, line in ((red, "vadd 3"), (blue, "scale 3")):
            guest.write_line(line)
        t.equal(answers([red, blue]), ["ok 0"] * 2)


def test_failed_loading_is_no_tenants_affair(t):
    with World(["red", "blue"], board="fail_loads=2") as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        for guest, line in zip(guests, ("vadd 3", "scale 3")):
            guest.write_line(line)
        t.equal(answers(guests), ["ok 0"] * 2)


if __name__ == "__main__":
    harness.main(globals(), limit_s=150)

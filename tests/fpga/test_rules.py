# SPDX-License-Identifier: Apache-2.0
"""A board behind its vendor's OpenCL, through gantryd: the driver opencl over PoCL, on which tests/fpga/rules imposes what FPGAs impose.
One process has the board, one image is on it, what changes it takes time and loses memory, and anything may fail."""
import os
import pathlib
import shutil
import signal
import tempfile

import harness
import rules

IMAGES = [rules.Image("vadd", {"board_vadd": (1, 2000)}),
          rules.Image("scale", {"board_scale": (1, 2000)}),
          rules.Image("pair", {"board_vadd": (1, 2000), "board_scale": (1, 2000)}),
          rules.Image("grid", {"board_grid": (1, 2000)}),
          rules.Image("vadd-0", {"board_vadd": (1, 2000)}, regions=[0]),
          rules.Image("grid-0", {"board_grid": (1, 2000)}, regions=[0]),
          rules.Image("scale-1", {"board_scale": (1, 150000)}, regions=[1]),
          rules.Image("scale-01", {"board_scale": (1, 2000)}, regions=[0, 1]),
          rules.Image("long", {"board_scale": (2, 10000)}, slower=0),
          rules.Image("slow", {"board_vadd": (1, 100), "board_scale": (1, 5000000)}, slower=0),
          rules.Image("late", {"board_scale": (1, 2000), "gantry_loaded_x": (1, 2000)}, first=False)]
CONFIGURE_US = 2000
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gantry-rules-"))
harness.atexit.register(shutil.rmtree, FOLDER, True)
POOLED = {"isolation": "pooled", "trust_group": "board", "mem": "64M"}
LONG_S = 120


def images():
    """Made once for all tests of the file."""
    if not (FOLDER / "pair.bitstream").exists():
        os.chmod(FOLDER, 0o755)
        rules.make_images(FOLDER, IMAGES, CONFIGURE_US)
        rules.module(FOLDER, "pair", ["board_vadd", "board_scale"])
    return FOLDER


class World:
    """An agent with the board, and tenants that share its worker; @device: more of its section, @more: rules."""

    def __init__(self, tenants=("red", "blue"), names=None, device=None, env=None, **more):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-rules-"))
        try:
            os.chmod(self.folder, 0o755)
            images()
            for name in names or ("vadd", "scale", "pair"):
                for suffix in ("bin", "bitstream"):
                    shutil.copy(FOLDER / f"{name}.{suffix}", self.folder)
            self.images = self.folder
            self.board = rules.Board(self.folder)
            self.agent = harness.Agent(devices={"fpga0": rules.device(self.folder, **(device or {}))},
                                       tenants={**{name: POOLED for name in tenants}, "loner": {"isolation": "isolated", "mem": "64M"}},
                                       agent={"module_dirs": self.folder, "warm_workers": 0},
                                       env={**self.board.environment(configure_us=CONFIGURE_US, **more), **(env or {})})
        except BaseException:
            shutil.rmtree(self.folder)
            raise

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
        guest.read_until("ok", LONG_S)
        return guest


def ask(guests, lines):
    for guest, line in zip(guests, lines):
        guest.write_line(line)
    return [guest.read_line(LONG_S) for guest in guests]


def test_tenants_share_the_board_and_an_image(t):
    with World(("red", "blue", "green")) as world:
        guests = [world.guest(name) for name in ("red", "blue", "green", "red")]
        t.equal(ask(guests, ["vadd 20", "scale 20", "vadd 20", "scale 20"]), ["ok 0"] * 4)
        # What one left on the board is no other's.
        t.equal(ask(guests, ["scale 5", "vadd 5", "scale 5", "vadd 5"]), ["ok 0"] * 4)
        t.equal(len([w for w in world.agent.workers() if w["sessions"] > 0]), 1)
        t.equal(world.board["most_running"], 2, "kernels of two tenants at once")


def change_images(t, **more):
    """Images of one kernel only: each change takes the memory along, and what comes out is right all the same."""
    with World(names=("vadd", "scale"), **more) as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        before = world.board["nloads"]
        t.equal(ask(guests, ["vadd 20", "scale 20"]), ["ok 0"] * 2)
        t.equal(ask(guests, ["scale 3", "vadd 3"]), ["ok 0"] * 2)
        t.true(world.board["nloads"] - before >= 2, "the board was changed")
        t.equal(world.board["most_running"], 1)


def test_images_are_changed_as_intels_runtime_does_it(t):
    change_images(t)


def test_images_are_changed_as_xilinxs_runtime_does_it(t):
    change_images(t, vendor="xilinx")


def test_images_are_changed_on_a_board_that_keeps_its_memory(t):
    change_images(t, memory="kept")


def two_regions(names, **more):
    """A board whose two regions are devices to OpenCL."""
    return World(names=names, device={"words": "regions=2"}, memory="kept", env={"POCL_DEVICES": "pthread pthread"}, **more)


def change_one_region(t, **more):
    with two_regions(("vadd-0", "grid-0", "scale-1"), **more) as world:
        red, blue = world.guest("red"), world.guest("blue")
        t.equal(ask([red, blue], ["vadd 1", "scale 1"]), ["ok 0"] * 2)
        before, beside = world.board["nloads"], world.board["nbeside"]
        # Region 0 has two images by turns, region 1 one, whose launches take long.
        blue.write_line("scale 12")
        for _ in range(3):
            t.equal(ask([red] * 2, ["grid 1", "vadd 1"]), ["ok 0"] * 2)
        t.equal(blue.read_line(LONG_S), "ok 0")
        t.equal(world.board["most_running"], 2, "both regions at once")
        t.true(world.board["nloads"] - before >= 5, f"{world.board['nloads'] - before} loadings")
        t.true(world.board["nbeside"] - beside >= 3, f"{world.board['nbeside'] - beside} while the other region was at work")


def test_one_region_is_changed_as_intels_runtime_does_it_while_the_other_works(t):
    change_one_region(t)


def test_one_region_is_changed_as_xilinxs_runtime_does_it_while_the_other_works(t):
    change_one_region(t, vendor="xilinx")


def test_image_for_either_region_is_where_there_is_room(t):
    with two_regions(("vadd-0", "scale-01")) as world:
        guests = [world.guest(name) for name in ("red", "blue", "red")]
        t.equal(ask(guests, ["vadd 20", "scale 20", "scale 20"]), ["ok 0"] * 3)
        t.equal(ask(guests, ["scale 5", "vadd 5", "vadd 5"]), ["ok 0"] * 3)


def test_board_with_regions_takes_no_image_of_the_whole_and_one_without_none_of_a_region(t):
    for names, words, why in ((("vadd-0", "pair"), "regions=2", "images for one of them only"), (("vadd-0",), "", "this board has no regions"),
                              (("vadd-0",), "regions=3", "the platform has 2 devices"), (("vadd-0",), "regions=9", "regions")):
        with World(names=names, device={"words": words}, env={"POCL_DEVICES": "pthread pthread"}) as world:
            guest = world.agent.guest("red", [harness.program("fpga-guest")])
            t.true(guest.read_line(LONG_S).startswith("err "), f"{names} {words}")
            harness.wait_until(lambda: why in world.agent.log(), why)


def test_worker_of_another_group_is_told_who_has_the_board(t):
    with World() as world:
        red = world.guest("red")
        loner = world.agent.guest("loner", [harness.program("fpga-guest")])
        t.equal(loner.read_line(LONG_S), "err -106 a device of the tenant has no room for another session")
        harness.wait_until(lambda: "another process has the board" in world.agent.log(), "the reason in the log")
        t.true(world.board["nrefused"] >= 1)
        t.equal(ask([red], ["vadd 3"]), ["ok 0"])


def test_worker_that_dies_gives_the_board_to_the_next(t):
    with World() as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        for guest, line in zip(guests, ("vadd 100", "scale 100")):
            guest.write_line(line)
        harness.wait_until(lambda: world.board["nlaunches"] > 10, "launches")
        worker = [w for w in world.agent.workers() if w["sessions"] > 0][0]["pid"]
        os.kill(worker, signal.SIGKILL)
        t.equal([guest.read_line(LONG_S) for guest in guests], ["ok 0"] * 2)


def test_loading_that_fails_is_tried_again(t):
    with World() as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        before = world.board["nloads"]
        world.board["fail_loads"] = 2
        t.equal(ask(guests, ["vadd 3", "scale 3"]), ["ok 0"] * 2)
        t.equal(world.board["fail_loads"], 0)
        t.true(world.board["nloads"] - before >= 3)


def test_loading_that_fails_for_good_is_told_and_the_board_serves_on(t):
    # Where an image is loaded with its first launch (vendor=intel) and has no gantry_loaded, it would be a launch that fails.
    with World(names=("vadd", "scale"), vendor="xilinx") as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([red], ["vadd 3"]), ["ok 0"])
        world.board["fail_loads"] = 3
        answer = ask([blue], ["scale 3"])[0]
        t.true(answer.startswith("err -"), answer)
        t.equal(world.board["fail_loads"], 0)
        harness.wait_until(lambda: "bitstream scale did not load" in world.agent.log(), "what was given up, and why, in the log")
        # The image rests; the other one comes back.
        t.equal(ask([red], ["vadd 3"]), ["ok 0"])


def test_copy_that_fails_is_its_tasks_affair(t):
    with World(names=("pair",)) as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([red, blue], ["vadd 2", "scale 2"]), ["ok 0"] * 2)
        world.board["fail_copies"] = 1
        answer = ask([red], ["vadd 1"])[0]
        t.true(answer.startswith("err -"), answer)
        t.equal(ask([blue, red], ["scale 2", "vadd 2"]), ["ok 0"] * 2)


def test_launch_that_the_board_ends_with_an_error_is_its_tasks_affair(t):
    with World(names=("pair",)) as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([red, blue], ["vadd 2", "scale 2"]), ["ok 0"] * 2)
        world.board["fail_launches"] = 1
        answer = ask([red], ["vadd 1"])[0]
        t.true(answer.startswith("err -"), answer)
        t.equal(ask([blue, red], ["scale 2", "vadd 2"]), ["ok 0"] * 2)


def test_board_that_is_gone_ends_its_tasks(t):
    with World() as world:
        red = world.guest("red")
        t.equal(ask([red], ["vadd 2"]), ["ok 0"])
        world.board["gone"] = 1
        answer = ask([red], ["vadd 1"])[0]
        t.true(answer.startswith("err -"), answer)
        # Whoever administers it can still ask.
        t.equal(world.agent.ctl("device", "list").code, 0)


def test_board_that_is_gone_while_an_image_is_loaded_ends_its_tasks_and_no_others(t):
    with World(names=("vadd", "scale")) as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([red], ["vadd 2"]), ["ok 0"])
        loads = world.board["nloads"]
        # Found out by the loading that the first launch of another image needs: nothing else asks the board before.
        world.board["gone"] = 1
        answer = ask([blue], ["scale 1"])[0]
        t.true(answer.startswith("err -"), answer)
        t.equal(world.board["nloads"], loads)
        # When it is there again another worker has it, and loads what is wanted.
        world.board["gone"] = 0
        again = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask(again, ["vadd 2", "scale 2"]), ["ok 0"] * 2)


def followed(world):
    """Launches that the board began by itself."""
    rows = {row["name"]: row["value"] for row in world.agent.ctl_json("stats")["metrics"]}
    return rows.get("gantry_device_board_followed_total", 0)


def held(**more):
    """A board that a steward holds, which counts; its launches of scale take long enough to be found at work."""
    return World(("red", "blue"), names=("long",), device={"holder": "steward"}, **more)


def test_launches_of_a_queue_follow_each_other(t):
    with held() as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        # Each reads what the one before wrote. The other tenant's have the second unit.
        t.equal(ask([red, blue], ["chain 20", "chain 10"]), ["ok 0"] * 2)
        t.equal(ask([red, blue], ["more 5", "more 5"]), ["ok 0"] * 2)
        harness.wait_until(lambda: followed(world) >= 30, f"of 80 launches {followed(world)} followed another")
        t.equal(world.board["most_running"], 2)


def test_launch_behind_one_that_failed_is_what_it_would_be(t):
    with held() as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([red, blue], ["chain 3", "chain 3"]), ["ok 0"] * 2)
        for fault in ("fail_launches", "fail_copies"):
            red.write_line("chain 20")
            before = world.board["nlaunches"]
            harness.wait_until(lambda: world.board["nlaunches"] > before + 5, "launches")  # pylint: disable=cell-var-from-loop
            world.board[fault] = 1
            answer = red.read_line(LONG_S)
            # A copy between two launches that cannot be made is made after the first of them instead.
            t.true(answer.startswith("err -") or (fault == "fail_copies" and answer == "ok 0"), f"{fault}: {answer}")
            t.equal(world.board[fault], 0)
            t.equal(ask([red, blue], ["chain 5", "chain 5"]), ["ok 0"] * 2)


def test_next_launch_that_the_board_refuses_keeps_nobody_waiting(t):
    with World(("red", "blue"), names=("slow",), device={"holder": "steward"}) as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([blue], ["vadd 1"]), ["ok 0"])
        world.board["refuse_behind"] = 1
        red.write_line("chain 2")
        harness.wait_until(lambda: world.board["refuse_behind"] == 0, "a launch is tried behind another", LONG_S)
        before = world.board["nlaunches"]
        t.equal(ask([blue], ["vadd 1"]), ["ok 0"])
        # Its own; red's that was at work is still, five seconds long.
        t.equal(world.board["nlaunches"], before + 1)
        t.equal(red.read_line(LONG_S), "ok 0")


def test_board_that_is_gone_with_launches_behind_each_other_ends_them(t):
    with held() as world:
        red = world.guest("red")
        t.equal(ask([red], ["chain 3"]), ["ok 0"])
        before = world.board["nlaunches"]
        red.write_line("chain 40")
        harness.wait_until(lambda: world.board["nlaunches"] > before + 5, "launches")
        world.board["gone"] = 1
        answer = red.read_line(LONG_S)
        t.true(answer.startswith("err -"), answer)
        t.equal(world.agent.ctl("device", "list").code, 0)


def refused(t, reason, names=("pair",), spoil=None):
    """The device cannot be opened; its log says why."""
    images()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-rules-"))
    try:
        os.chmod(folder, 0o755)
        for name in names:
            for suffix in ("bin", "bitstream"):
                shutil.copy(FOLDER / f"{name}.{suffix}", folder)
        spoil(folder)
        board = rules.Board(folder)
        with harness.Agent(devices={"fpga0": rules.device(folder)}, tenants={"red": POOLED},
                           agent={"module_dirs": folder, "warm_workers": 0}, env=board.environment()) as agent:
            guest = agent.guest("red", [harness.program("fpga-guest")])
            t.true(guest.read_line(LONG_S).startswith("err -"))
            harness.wait_until(lambda: reason in agent.log(), reason)
            t.equal(agent.ctl("device", "list").code, 0)
    finally:
        shutil.rmtree(folder)


def rewrite(folder, bytes_of):
    """Another file, with a manifest that stands for it: as if whoever registered it had been wrong."""
    path = folder / "pair.bin"
    path.write_bytes(bytes_of(path.read_bytes()))
    rules.put_manifest(folder, IMAGES[2], CONFIGURE_US)


def test_kernel_with_a_grid_runs_one_and_others_refuse_it(t):
    with World(names=("vadd", "grid")) as world:
        red = world.guest("red")
        # 64 x 4 blocks of 16: each element by a work-item of its own.
        t.equal(ask([red], ["grid 3"]), ["ok 0"])
        t.true(ask([red], ["gridded 1"])[0].startswith("err -1 "), "vadd has none")
        # Nor may one be so large that nobody would have the board again.
        t.true(ask([red], ["huge 1"])[0].startswith("err -1 "), "the manifest bounds it")
        t.true(ask([red], ["wide 1"])[0].startswith("err -14 "), "the board takes no such block")
        t.equal(ask([red], ["grid 1"]), ["ok 0"])
        t.equal(ask([red], ["vadd 3"]), ["ok 0"])


def test_altered_image_is_refused(t):
    refused(t, "is not the file that the manifest", spoil=lambda folder: (folder / "pair.bin").write_bytes(b"poclbin"))


def test_truncated_image_never_reaches_a_vendors_loader(t):
    refused(t, "cut short or altered", spoil=lambda folder: rewrite(folder, lambda bytes_: bytes_[:len(bytes_) // 2]))


def test_text_is_no_image(t):
    refused(t, "boards take what was compiled for them", spoil=lambda folder: rewrite(folder, lambda bytes_: b"__kernel void a(){}"))


def test_manifest_that_lies_about_kernels_is_found_out_when_its_image_is_loaded(t):
    def lie(folder):
        (folder / "vadd.bin").write_bytes((FOLDER / "scale.bin").read_bytes())
        rules.put_manifest(folder, IMAGES[0], CONFIGURE_US)

    images()
    with World(names=("vadd", "scale")) as world:
        lie(world.images)
        red, blue = [world.guest(name) for name in ("red", "blue")]
        answer = ask([red], ["vadd 1"])[0]
        t.true(answer.startswith("err -"), answer)
        t.equal(ask([blue], ["scale 2"]), ["ok 0"])


def test_image_without_a_first_kernel_is_refused_where_kernels_bring_images(t):
    images()
    with World(names=("vadd", "late")) as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([red], ["vadd 2"]), ["ok 0"])
        answer = ask([blue], ["scale 1"])[0]
        t.true(answer.startswith("err -"), answer)
        harness.wait_until(lambda: "no kernel gantry_loaded" in world.agent.log(), "the log says which is missing")
        t.equal(ask([red], ["vadd 2"]), ["ok 0"])
    with World(names=("vadd", "late"), device={"board": f"platform={rules.PLATFORM} model={rules.MODEL} memory=16M loads=program"},
               vendor="xilinx") as world:
        red, blue = [world.guest(name) for name in ("red", "blue")]
        t.equal(ask([red, blue], ["vadd 5", "scale 5"]), ["ok 0"] * 2)


if __name__ == "__main__":
    harness.main(globals(), limit_s=240)

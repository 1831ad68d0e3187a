# SPDX-License-Identifier: Apache-2.0
"""Images of a board that the administrator registers while tenants are at work: gantryctl image."""
import hashlib
import os
import pathlib
import shutil
import signal
import tempfile
import time

import harness
from scripted import events

BUILD = pathlib.Path(os.environ["GANTRY_BUILD"]) / "tests" / "fpga"
VADD = "kernel board_vadd r:i32*,r:i32*,w:i32*,u64 window 0 run 100us pure"
SCALE = "kernel board_scale r:i32*,w:i32*,i32,u64 window 0 run 100us pure"
NO_KERNEL, IMAGE = "-4", "-7"


class World:
    """An agent whose board has no images yet, tenants red and blue who share its worker, and a folder where images are made."""

    def __init__(self, load_ms=2):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-images-"))
        os.chmod(self.folder, 0o755)
        self.store = self.folder / "store"
        self.made = self.folder / "made"
        for folder in (self.store, self.made):
            folder.mkdir(mode=0o755)
        try:
            for name in ("two-regions.so", "vadd.bit", "scale.bit", "pair.bit"):
                if not (BUILD / name).exists():
                    raise harness.Skip(f"the build has no {name}: it found no Verilator")
            shutil.copy(BUILD / "two-regions.so", self.folder)
            (self.folder / "lock").touch()
            os.chmod(self.folder / "lock", 0o666)
            device = {"backend": "fpga", "cores": None, "mem": "64M", "driver": self.folder / "two-regions.so", "images": self.store,
                      "board": f"lock={self.folder / 'lock'} load_ms={load_ms}"}
            tenant = {"isolation": "pooled", "trust_group": "board", "mem": "64M"}
            self.agent = harness.Agent(devices={"fpga0": device}, tenants={"red": tenant, "blue": tenant}, agent={"warm_workers": 0})
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

    def make(self, name, kernels, bits="vadd.bit", board="two-regions", region=0, change=lambda data: data, extra="",
             before=lambda data: data):
        """A manifest, for the file as @before makes it, and that file as @change makes it then."""
        data = before((BUILD / bits).read_bytes())
        (self.made / f"{name}.bit").write_bytes(change(data))
        path = self.made / f"{name}.bitstream"
        path.write_text(f"bitstream {name} 1\nboard {board}\nload {region} {name}.bit {hashlib.sha256(data).hexdigest()}\n"
                        f"configure 2ms\nmemory kept\n{extra}" + "".join(f"{kernel}\n" for kernel in kernels))
        return str(path)

    def ctl(self, *words):
        return self.agent.ctl("image", *words)

    def images(self):
        return {row["name"]: row for row in self.agent.ctl_json("image", "list")["images"]}

    def files(self):
        return sorted(path.name for path in self.store.iterdir())

    def guest(self, tenant):
        guest = self.agent.guest(tenant, [harness.program("fpga-guest")])
        guest.read_until("ok")
        return guest


def told(guest, line):
    guest.write_line(line)
    return guest.read_line(90)


def test_image_is_used_by_sessions_that_were_there_before_it(t):
    with World() as world:
        red, blue = world.guest("red"), world.guest("blue")
        t.true(told(red, "vadd 3").startswith(f"err {NO_KERNEL} "), "no image has it")
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        t.equal([told(guest, "vadd 3") for guest in (red, blue)], ["ok 0"] * 2)
        t.code(world.ctl("add", world.make("times", [SCALE], bits="scale.bit", region=1)), 0)
        t.equal([told(guest, line) for guest in (red, blue) for line in ("vadd 2", "scale 2")], ["ok 0"] * 4)
        t.equal(world.files(), ["sum.bit", "sum.bitstream", "times.bit", "times.bitstream"])
        shown = world.agent.ctl_json("image", "show", "times")["image"]
        t.equal((shown["board"], shown["kernels"][0]["name"], shown["files"][0]["place"]), ("two-regions", "board_scale", "1"))
        t.equal([event["text"] for event in events(world.agent, "image-added")],
                ["image sum for device fpga0, with 1 kernels", "image times for device fpga0, with 1 kernels"])
        harness.wait_until(lambda: "verb=image_end code=0" in world.agent.log(), "the audit")
        # They are there for the next agent.
        world.agent.kill_agent()
        world.agent.wait_ready()
        t.equal(sorted(world.images()), ["sum", "times"])
        t.equal(told(red, "scale 2"), "ok 0")


def looking(world):
    return [row["worker_id"] for row in world.agent.ctl_json("worker", "list")["workers"] if row["looking"]]


def test_image_is_registered_once_the_workers_know_it(t):
    with World() as world:
        red = world.guest("red")
        t.true(told(red, "vadd 1").startswith(f"err {NO_KERNEL} "), "no image has it")
        row = next(session for session in world.agent.sessions() if session["worker_pid"])
        os.kill(row["worker_pid"], signal.SIGSTOP)
        try:
            ended = world.ctl("add", world.make("sum", [VADD]), "--timeout", "3s")
            t.code(ended, 124)
            t.contains(ended.err, "the image is registered, but worker ")
            t.equal(len(looking(world)), 1)
            t.equal(sorted(world.images()), ["sum"])
        finally:
            os.kill(row["worker_pid"], signal.SIGCONT)
        t.code(world.ctl("add", world.make("times", [SCALE], bits="scale.bit", region=1)), 0)
        t.equal([told(red, line) for line in ("vadd 2", "scale 2")], ["ok 0"] * 2)


def paused_queue(world):
    """The only queue of the only session that has one, which issues nothing from now on."""
    queue = next(f"{row['session_id']}:{row['slot']}" for row in world.agent.ctl_json("queue", "list")["queues"] if row["slot"])
    world.agent.ctl("queue", "pause", queue)
    return queue


def accepted(world, count):
    """Until so many tasks of a queue are the host's."""
    harness.wait_until(lambda: any(row["taken"] - row["done"] >= count for row in world.agent.ctl_json("queue", "list")["queues"]),
                       "they are accepted")


def leaving(world, name):
    return world.images().get(name, {}).get("leaving")


def test_image_that_nobody_has_queued_work_for_is_removed(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red = world.guest("red")
        t.equal([told(red, line) for line in ("find 0", "held 2")], ["ok 0"] * 2)
        t.equal(world.images()["sum"]["sessions"], 1)
        ended = world.ctl("remove", "sum")
        t.code(ended, 0)
        t.contains(ended.out, "sum: removed")
        t.equal(world.files(), [])
        # Neither by the handle of before nor by a new one, and nothing of the session's is lost.
        t.true(told(red, "held 1").startswith(f"err {NO_KERNEL} "), "a launch by the handle of before")
        t.true(told(red, "find 0").startswith(f"err {NO_KERNEL} "), "a new handle")
        t.code(world.ctl("remove", "sum"), 3)
        # Another one of the name, and the old handle works again.
        t.code(world.ctl("add", world.make("sum", [VADD], region=1)), 0)
        t.equal([told(red, line) for line in ("held 2", "vadd 3")], ["ok 0"] * 2)
        t.equal([event["text"] for event in events(world.agent, "image-removed")], ["image sum of device fpga0"])


def test_image_with_queued_work_leaves_when_that_has_ended(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red = world.guest("red")
        t.equal([told(red, line) for line in ("find 0", "held 1")], ["ok 0"] * 2)
        queue = paused_queue(world)
        t.equal(told(red, "start 5"), "ok 0")
        accepted(world, 5)
        ended = world.ctl("remove", "sum", "--no-wait")
        t.code(ended, 0)
        image = world.images()["sum"]
        t.equal((image["leaving"], image["tasks"], image["waits_for"]), (True, 5, 1))
        t.contains(image["waits_first"], "of tenant red")
        # A second removal waits for the same; nobody finds its kernels, and no image takes its name.
        t.code(world.ctl("remove", "sum", "--timeout", "300ms"), 124)
        answer = told(world.guest("blue"), "vadd 1")
        t.true(answer.startswith(f"err {NO_KERNEL} ") and "is being removed" in answer, answer)
        again = world.ctl("add", world.make("sum", [VADD], region=1))
        t.true(again.code == 7 and "is being removed" in again.err, f"{again}")
        t.equal(len(events(world.agent, "image-leaving")), 1)
        # Its work outlives the worker and the agent, and so does its leaving.
        world.agent.kill_agent()
        world.agent.wait_ready()
        t.true(leaving(world, "sum"), "after the agent's death")
        t.equal(told(red, "start 1"), "ok 0")
        t.code(world.agent.ctl("queue", "resume", queue), 0)
        harness.wait_until(lambda: "sum" not in world.images(), "it is gone")
        t.true(told(red, "finish 0").startswith(f"err {NO_KERNEL} "), "what came after the removal had begun")
        t.equal(told(red, "before 0"), "ok 0")
        t.equal(world.files(), [])


def test_image_leaves_also_where_its_store_could_not_be_read_for_a_while(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red = world.guest("red")
        t.equal([told(red, line) for line in ("find 0", "held 1")], ["ok 0"] * 2)
        queue = paused_queue(world)
        t.equal(told(red, "start 5"), "ok 0")
        accepted(world, 5)
        t.code(world.ctl("remove", "sum", "--no-wait"), 0)
        world.store.rename(world.folder / "elsewhere")
        time.sleep(1)
        (world.folder / "elsewhere").rename(world.store)
        t.code(world.agent.ctl("queue", "resume", queue), 0)
        harness.wait_until(lambda: "sum" not in world.images(), "it is gone")


def test_image_stays_while_a_worker_has_not_said_that_it_looked(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red = world.guest("red")
        t.equal(told(red, "vadd 1"), "ok 0")
        worker = next(session["worker_pid"] for session in world.agent.sessions() if session["worker_pid"])
        os.kill(worker, signal.SIGSTOP)
        try:
            t.code(world.ctl("remove", "sum", "--no-wait"), 0)
            harness.wait_until(lambda: events(world.agent, "worker-silent"), "it has not answered", 30)
            time.sleep(3)
            t.true(leaving(world, "sum"), "a worker may still take tasks for it")
        finally:
            os.kill(worker, signal.SIGCONT)
        harness.wait_until(lambda: "sum" not in world.images(), "it is gone")


def test_image_that_leaves_may_stay_after_all_or_go_at_once(t):
    with World() as world:
        for name, region in (("sum", 0), ("spare", 1)):
            t.code(world.ctl("add", world.make(name, [VADD if name == "sum" else SCALE], bits="vadd.bit" if name == "sum" else "scale.bit",
                                               region=region)), 0)
        red = world.guest("red")
        t.equal(told(red, "find 0"), "ok 0")
        queue = paused_queue(world)
        t.equal(told(red, "start 3"), "ok 0")
        accepted(world, 3)
        t.code(world.ctl("remove", "sum", "--cancel"), 2)
        t.code(world.ctl("remove", "sum", "--no-wait"), 0)
        t.code(world.ctl("remove", "sum", "--cancel", "--now"), 2)
        t.code(world.ctl("remove", "sum", "--cancel"), 0)
        t.equal(leaving(world, "sum"), False)
        t.equal(told(red, "start 2"), "ok 0")
        # It never was on the board: what was queued fails, and the queue goes on.
        t.code(world.ctl("remove", "sum", "--no-wait"), 0)
        t.code(world.ctl("remove", "sum", "--now"), 0)
        t.equal(sorted(world.images()), ["spare"])
        t.code(world.agent.ctl("queue", "resume", queue), 0)
        answer = told(red, "finish 0")
        t.true(answer.startswith(f"err {IMAGE} "), answer)
        t.equal(told(red, "scale 2"), "ok 0")


def test_removal_is_told_of_while_it_waits(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red = world.guest("red")
        t.equal(told(red, "find 0"), "ok 0")
        paused_queue(world)
        t.equal(told(red, "start 4"), "ok 0")
        accepted(world, 4)
        ended = world.ctl("remove", "sum", "--timeout", "300ms")
        t.code(ended, 124)
        t.contains(ended.err, "image sum: 4 accepted tasks have not ended, of 1 sessions, the first is session")
        # Whoever they were of is gone: nothing is left to wait for.
        red.kill()
        harness.wait_until(lambda: "sum" not in world.images(), "it is gone")


def test_image_leaves_while_the_board_loads_it_and_while_its_guest_goes_on_asking(t):
    with World(load_ms=300) as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        t.code(world.ctl("add", world.make("times", [SCALE], bits="scale.bit")), 0)
        red, blue = world.guest("red"), world.guest("blue")
        t.equal([told(red, "find 0"), told(blue, "scale 1")], ["ok 0"] * 2)
        t.equal(told(red, "start 3"), "ok 0")  # the region has to be loaded first
        accepted(world, 3)
        t.code(world.ctl("remove", "sum", "--no-wait"), 0)

        def is_refused():
            for _ in range(3):
                t.equal(told(red, "start 20"), "ok 0")
            return told(red, "finish 0").startswith(f"err {NO_KERNEL} ")

        # What its worker takes before it has heard of the removal still runs.
        harness.wait_until(is_refused, "what comes too late is refused")
        harness.wait_until(lambda: "sum" not in world.images(), "it is gone")
        t.equal([told(blue, "scale 2"), told(red, "scale 2")], ["ok 0"] * 2)


def test_image_of_whose_kernels_another_has_each_goes_unnoticed(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red, green = world.guest("red"), world.guest("blue")
        t.equal(told(red, "find 0"), "ok 0")
        t.equal(told(green, "vadd 2"), "ok 0")
        t.code(world.ctl("add", world.make("pair", [VADD, SCALE.replace("window 0", "window 1")], bits="pair.bit", region=1)), 0)
        green.write_line("vadd 300")
        t.code(world.ctl("remove", "sum"), 0)
        t.equal(green.read_line(90), "ok 0")
        t.equal(world.files(), ["pair.bit", "pair.bitstream"])
        # Also by a handle that had been found in the one, and never used.
        t.equal([told(red, line) for line in ("held 3", "vadd 3", "scale 3")], ["ok 0"] * 3)
        t.equal(told(red, "vadd 2"), "ok 0")


def test_private_image_is_found_by_its_tenant_only(t):
    with World() as world:
        t.code(world.ctl("add", world.make("mine", [VADD]), "--tenant", "red"), 0)
        t.equal(world.images()["mine"]["tenant"], "red")
        red, blue = world.guest("red"), world.guest("blue")
        t.true(told(blue, "vadd 1").startswith(f"err {NO_KERNEL} "), "blue asks first")
        t.equal(told(red, "vadd 3"), "ok 0")
        t.true(told(blue, "vadd 1").startswith(f"err {NO_KERNEL} "), "what red loaded is not blue's")
        # Everybody's, by the same name: both find it.
        t.code(world.ctl("add", world.make("ours", [VADD], region=1)), 0)
        t.equal([told(guest, "vadd 3") for guest in (red, world.guest("blue"))], ["ok 0"] * 2)


def test_files_of_other_sorts_are_their_drivers_affair(t):
    with World() as world:
        # A program for a soft processor: an ELF file of 32 bits, the other way round.
        soft = world.make("soft", [VADD], before=lambda data: data[:4] + b"\1\2\1" + data[7:64])
        t.code(world.ctl("add", soft), 0)
        t.code(world.ctl("remove", "soft"), 0)


def test_bad_images_are_refused_and_leave_nothing(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red = world.guest("red")
        before = world.files()
        other = VADD.replace("u64", "u32")
        bad = {
            "cut": (world.make("cut", [VADD], change=lambda data: data[:-1]), "is not the file"),
            "longer": (world.make("longer", [VADD], change=lambda data: data + b"x"), "is not the file"),
            "altered": (world.make("altered", [VADD], change=lambda data: data[:999] + b"\0\1" + data[1001:]), "is not the file"),
            "empty": (world.make("empty", [VADD], change=lambda data: b""), "is not the file"),
            # As these were when their manifests were written.
            "short": (world.make("short", [VADD], before=lambda data: data[:len(data) // 2]), "short.bit: "),
            "head": (world.make("head", [VADD], before=lambda data: data[:40]), "head.bit: "),
            "nothing": (world.make("nothing", [VADD], before=lambda data: b""), "nothing.bit is empty"),
            "tables": (world.make("tables", [VADD], before=lambda data: data[:40] + b"\xff" * 8 + data[48:]), "tables.bit: "),
            "foreign": (world.make("foreign", [VADD], board="four-regions"), "for boards four-regions"),
            "region": (world.make("region", [VADD], region=5), "region 5"),
            "other": (world.make("other", [other]), "another signature"),
            "nobodys": (world.make("nobodys", [VADD], extra="tenant green\n"), "no tenant green"),
            "text": (world.make("text", [VADD], extra="kernel\n"), "line"),
            "sum": (world.make("sum", [VADD]), "already"),
        }
        red.write_line("vadd 200")
        for name, (path, why) in bad.items():
            ended = world.ctl("add", path)
            t.true(ended.code in (2, 3) and why in ended.err, f"{name}: {ended}")
        os.unlink(world.made / "cut.bit")
        t.code(world.ctl("add", str(world.made / "cut.bitstream")), 1)
        t.equal(red.read_line(90), "ok 0")
        t.equal(sorted(world.images()), ["sum"])
        # The last one had begun to come: its file goes with the next that comes, or with the agent.
        t.equal([name for name in world.files() if not name.startswith(".image-")], before)


def test_image_that_is_longer_than_any_is_not_sent(t):
    with World() as world:
        path = world.make("huge", [VADD])
        os.truncate(world.made / "huge.bit", (512 << 20) + 1)  # a hole
        ended = world.ctl("add", path)
        t.true(ended.code == 2 and "has more than 536870912 bytes" in ended.err, f"huge: {ended}")
        t.equal(world.images(), {})
        # Put into the store by hand it keeps the board from being opened, by name, and is not read.
        shutil.move(world.made / "huge.bit", world.store)
        shutil.copy(path, world.store)
        guest = world.agent.guest("red", [harness.program("fpga-guest")])
        t.true(guest.read_line(90).startswith("err "), "the board is not there")
        harness.wait_until(lambda: "huge.bit has more than 536870912 bytes" in world.agent.log(), "the reason")


def test_manifest_that_lies_about_its_kernels_is_found_out(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        # The file has a kernel of four arguments, three of which are buffers.
        t.code(world.ctl("add", world.make("liar", [SCALE], region=1)), 0)
        red, blue = world.guest("red"), world.guest("blue")
        answer = told(red, "scale 1")
        t.true(answer.startswith(f"err {IMAGE} "), answer)
        t.equal(told(blue, "vadd 3"), "ok 0")
        t.code(world.ctl("remove", "liar"), 0)
        t.true(told(red, "scale 1").startswith(f"err {NO_KERNEL} "), "it is gone")
        t.equal(told(blue, "vadd 3"), "ok 0")


if __name__ == "__main__":
    harness.main(globals(), limit_s=150)

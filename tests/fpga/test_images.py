# SPDX-License-Identifier: Apache-2.0
"""Images of a board that the administrator registers while tenants are at work: gantryctl image."""
import hashlib
import os
import pathlib
import shutil
import tempfile

import harness
from scripted import events

BUILD = pathlib.Path(os.environ["GANTRY_BUILD"]) / "tests" / "fpga"
VADD = "kernel board_vadd r:i32*,r:i32*,w:i32*,u64 window 0 run 100us pure"
SCALE = "kernel board_scale r:i32*,w:i32*,i32,u64 window 0 run 100us pure"
NO_KERNEL, IMAGE = "-4", "-7"


class World:
    """An agent whose board has no images yet, tenants red and blue who share its worker, and a folder where images are made."""

    def __init__(self):
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
                      "board": f"lock={self.folder / 'lock'} load_ms=2"}
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


def test_image_that_a_session_depends_on_stays(t):
    with World() as world:
        t.code(world.ctl("add", world.make("sum", [VADD])), 0)
        red = world.guest("red")
        t.equal(told(red, "vadd 2"), "ok 0")
        t.equal(world.images()["sum"]["sessions"], 1)
        ended = world.ctl("remove", "sum")
        t.code(ended, 7)
        t.contains(ended.err, "of tenant red")
        # Another one with the kernel, and it is free, while its launches are under way.
        t.code(world.ctl("add", world.make("pair", [VADD, SCALE.replace("window 0", "window 1")], bits="pair.bit", region=1)), 0)
        red.write_line("vadd 300")
        t.code(world.ctl("remove", "sum"), 0)
        t.equal(red.read_line(90), "ok 0")
        t.equal(world.files(), ["pair.bit", "pair.bitstream"])
        t.equal([told(red, line) for line in ("vadd 3", "scale 3")], ["ok 0"] * 2)
        t.code(world.ctl("remove", "pair"), 7)
        red.end()
        harness.wait_until(lambda: world.images()["pair"]["sessions"] == 0, "red is gone")
        t.code(world.ctl("remove", "pair"), 0)
        t.code(world.ctl("remove", "pair"), 3)
        t.equal(world.files(), [])


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
        red.end()
        harness.wait_until(lambda: world.images()["liar"]["sessions"] == 0, "red is gone")
        t.code(world.ctl("remove", "liar"), 0)
        t.equal(told(blue, "vadd 3"), "ok 0")


if __name__ == "__main__":
    harness.main(globals(), limit_s=150)

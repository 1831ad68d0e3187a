# SPDX-License-Identifier: Apache-2.0
"""Boards under tests/fpga/rules: the file that stands for one, and images for it, made on the spot (they are for this machine's processor)."""
import hashlib
import mmap
import os
import pathlib
import struct

import harness

HERE = pathlib.Path(__file__).resolve().parent
PLATFORM = "Portable"
MODEL = "test-board"
SIGNATURES = {"board_vadd": "r:i32*,r:i32*,w:i32*,u64", "board_scale": "r:i32*,w:i32*,i32,u64", "board_grid": "w:i32*,i32"}
NDRANGE = ("board_grid",)
PROGRAM = "r:i32*,w:i32*,u32"


def layer():
    """The layer's path; Skip where the build has none."""
    path = harness.find_in_build("fpga-rules.so", lambda path: True)
    if not path:
        raise harness.Skip("the build has no layer of FPGA rules: there were no OpenCL headers")
    return path


class Board:
    """struct board_file of rules.h, to look at and to write into while the board is in use."""

    WORDS = {"fail_loads": 0, "fail_copies": 4, "fail_launches": 8, "gone": 12, "nloads": 16, "nrefused": 20, "nlaunches": 24,
             "nrunning": 28, "most_running": 32, "free_loads": 36, "nbeside": 56, "refuse_behind": 60}
    LONGS = {"first_load_ns": 40, "last_load_ns": 48}

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "board"
        self.path.write_bytes(bytes(4096))
        os.chmod(self.path, 0o666)
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 4096)

    def __getitem__(self, name):
        form, off = ("<I", self.WORDS[name]) if name in self.WORDS else ("<Q", self.LONGS[name])
        return struct.unpack_from(form, self.memory, off)[0]

    def __setitem__(self, name, value):
        form, off = ("<I", self.WORDS[name]) if name in self.WORDS else ("<Q", self.LONGS[name])
        struct.pack_into(form, self.memory, off, value)

    def environment(self, **rules):
        words = [f"board={self.path}"] + [f"{key}={value}" for key, value in rules.items()]
        return {"OPENCL_LAYERS": str(layer()), "GANTRY_FPGA_RULES": " ".join(words)}


class Image:
    """An image: kernels as {name: (units, microseconds of a launch)}. @slower: per cent; None: as the paper's are, by the number of units.
    @regions: where it may go; none: it is the whole board's."""

    def __init__(self, name, kernels, slower=None, first=True, regions=()):
        self.name, self.kernels, self.slower, self.first, self.regions = name, kernels, slower, first, regions

    def units(self):
        return sum(units for units, _ in self.kernels.values())

    def percent(self):
        return self.slower if self.slower is not None else {1: 0, 2: 17, 3: 35}.get(self.units(), 52)

    def text(self):
        rules = "rules" + "".join(f"__{kernel}_u{units}_t{micros}" + ("" if self.slower is None else f"_s{self.slower}")
                                  for kernel, (units, micros) in self.kernels.items())
        options = [f"-DWITH_{kernel}" for kernel in self.kernels] + [f"-DRULES={rules}"] + (["-DWITH_FIRST"] if self.first else [])
        return "//gantry-options: " + " ".join(options) + "\n" + (HERE / "rules" / "kernels.cl").read_text()

    def manifest(self, digest, configure_us):
        lines = [f"bitstream {self.name} 1", f"board {MODEL}", f"configure {configure_us}us", f"memory {'kept' if self.regions else 'lost'}"]
        lines += [f"load {place} {self.name}.bin {digest}" for place in self.regions or ("whole",)]
        window = 0
        for kernel, (units, micros) in self.kernels.items():
            lines.append(f"kernel {kernel} {SIGNATURES.get(kernel, PROGRAM)} window {window} units {units} slower {self.percent()}%"
                         f" run {micros}us pure{' ndrange' if kernel in NDRANGE else ''}")
            window += units
        return "\n".join(lines) + "\n"


def put_manifest(folder, image, configure_us):
    digest = hashlib.sha256((folder / f"{image.name}.bin").read_bytes()).hexdigest()
    (folder / f"{image.name}.bitstream").write_text(image.manifest(digest, configure_us))


def make_images(folder, images, configure_us):
    """Compiles them into @folder, with their manifests; Skip where there is no PoCL."""
    layer()
    folder = pathlib.Path(folder)
    words = []
    for image in images:
        (folder / f"{image.name}.cl").write_text(image.text())
        words += [folder / f"{image.name}.cl", folder / f"{image.name}.bin"]
    made = harness.run([harness.program("board-image"), PLATFORM] + words, timeout=600)
    if made.code == 77:
        raise harness.Skip(f"no PoCL: {made.err}")
    if made.code != 0:
        raise harness.Failure(f"board-image: {made.err}")
    for image in images:
        put_manifest(folder, image, configure_us)


def module(folder, image, kernels):
    """The module by which programs know the board's kernels."""
    lines = ["module test-board 1", f"image fpga {image}.bitstream"]
    lines += [f"kernel {kernel} {SIGNATURES.get(kernel, PROGRAM)} pure" for kernel in kernels]
    (pathlib.Path(folder) / "test-board.manifest").write_text("\n".join(lines) + "\n")


def device(folder, words="", **more):
    """The section of the board's device; @words: more for the driver."""
    return {"backend": "fpga", "cores": None, "mem": "64M", "driver": "opencl", "images": folder,
            "board": f"platform={PLATFORM} model={MODEL} memory=16M {words}", **more}

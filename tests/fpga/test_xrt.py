# SPDX-License-Identifier: Apache-2.0
"""Xilinx's own runtime (XRT 2.13) behind the driver opencl, on its noop device: it is found, .xclbin files are registered, loaded and
exchanged, buffers are written and read, launches end. Nothing is computed there. Skipped by name where the package libxrt1 is not installed."""
import glob
import hashlib
import os
import pathlib
import shutil
import tempfile

import harness
import xclbin

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
OPENCL = f"{LIBRARIES}/libxilinxopencl.so.2"
MODEL = "xilinx-noop"
MEMORY, COUNT, FACTOR = xclbin.POINTER, (xclbin.SCALAR, 8), (xclbin.SCALAR, 4)
VADD = [("a", MEMORY, 8), ("b", MEMORY, 8), ("c", MEMORY, 8), ("n", *COUNT)]
SCALE = [("a", MEMORY, 8), ("c", MEMORY, 8), ("f", *FACTOR), ("n", *COUNT)]
SIGNATURES = {"board_vadd": "r:i32*,r:i32*,w:i32*,u64", "board_scale": "r:i32*,w:i32*,i32,u64"}
LONG_S = 120


def environment(folder):
    """As XRT wants it: a folder of its libraries, a vendor's file for the loader, and its noop mode."""
    if not os.path.exists(OPENCL):
        raise harness.Skip("package libxrt1 is not installed")
    (folder / "root" / "lib").mkdir(parents=True)
    for library in glob.glob(f"{LIBRARIES}/libx*"):
        (folder / "root" / "lib" / os.path.basename(library)).symlink_to(library)
    (folder / "vendors").mkdir()
    (folder / "vendors" / "xilinx.icd").write_text(OPENCL + "\n")
    return {"XILINX_XRT": str(folder / "root"), "OCL_ICD_VENDORS": str(folder / "vendors"), "XCL_EMULATION_MODE": "noop"}


def put_image(folder, name, kernels, spoil=lambda bytes_: bytes_):
    data = spoil(xclbin.make(name, kernels))
    (folder / f"{name}.xclbin").write_bytes(data)
    lines = [f"bitstream {name} 1", f"board {MODEL}", f"load whole {name}.xclbin {hashlib.sha256(data).hexdigest()}", "configure 2ms",
             "memory lost"]
    lines += [f"kernel {kernel} {SIGNATURES[kernel]} window {i} run 100us pure" for i, kernel in enumerate(kernels)]
    (folder / f"{name}.bitstream").write_text("\n".join(lines) + "\n")


class World:
    """An agent with XRT's noop device as a board, and images by put(folder)."""

    def __init__(self, put):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-xrt-"))
        try:
            os.chmod(self.folder, 0o755)
            env = environment(self.folder)
            images = self.folder / "images"
            images.mkdir(mode=0o755)
            put(images)
            first = sorted(images.glob("*.bitstream"))[0].name
            (images / "xrt.manifest").write_text("\n".join(["module xrt 1", f"image fpga {first}"] + [
                f"kernel {name} {signature} pure" for name, signature in SIGNATURES.items()]) + "\n")
            tenant = {"isolation": "pooled", "trust_group": "board", "mem": "64M"}
            device = {"backend": "fpga", "cores": None, "mem": "64M", "driver": "opencl", "images": images,
                      "board": f"platform=Xilinx model={MODEL} memory=1M"}
            self.agent = harness.Agent(devices={"fpga0": device}, tenants={"red": tenant, "blue": tenant},
                                       agent={"module_dirs": images, "warm_workers": 0}, env=env)
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
        return self.agent.guest(tenant, [harness.program("fpga-guest")])


def ran(t, answer):
    """Launches have ended, and what was to be computed was not: a result that nobody wrote."""
    t.true(answer.startswith("ok ") and int(answer.split()[1]) > 4000, answer)


def test_tenants_share_an_xclbin(t):
    with World(lambda folder: put_image(folder, "pair", {"board_vadd": VADD, "board_scale": SCALE})) as world:
        guests = [world.guest(name) for name in ("red", "blue")]
        for guest in guests:
            guest.read_until("ok", LONG_S)
        for guest, line in zip(guests, ("vadd 20", "scale 20")):
            guest.write_line(line)
        for guest in guests:
            ran(t, guest.read_line(LONG_S))


def test_xclbins_are_exchanged(t):
    def put(folder):
        put_image(folder, "vadd", {"board_vadd": VADD})
        put_image(folder, "scale", {"board_scale": SCALE})

    with World(put) as world:
        guest = world.guest("red")
        guest.read_until("ok", LONG_S)
        for line in ("vadd 3", "scale 3", "vadd 3"):
            guest.write_line(line)
            ran(t, guest.read_line(LONG_S))


def test_truncated_xclbin_never_reaches_xilinxs_loader(t):
    with World(lambda folder: put_image(folder, "pair", {"board_vadd": VADD, "board_scale": SCALE}, lambda bytes_: bytes_[:1000])) as world:
        guest = world.guest("red")
        t.true(guest.read_line(LONG_S).startswith("err -"))
        harness.wait_until(lambda: "xclbin that is cut short or altered" in world.agent.log(), "the reason in the log")


if __name__ == "__main__":
    harness.main(globals(), limit_s=200)

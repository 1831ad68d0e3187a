#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Unlike devices in one agent, and in one session: cpu, PoCL, a board of RTL, and AMD's runtime by its stand-in. Queues move between
every pair of them, by command and for a kernel that their device lacks, and tenants share each. What a build or a machine lacks
of these is left out by name, as long as two are there."""
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "fpga"))
import harness  # pylint: disable=wrong-import-position
import rules  # pylint: disable=wrong-import-position
from scripted import Scripted, session_of

CPU = 1
# Who else has it is said by no device: launched anywhere, it can have run on that one only.
ALONE = {"cpu0": "kinds_cpu_scale", "hip0": "kinds_hip_scale", "opencl0": "kinds_opencl_scale", "fpga0": "board_scale"}
VADD, SCALE = "r:i32*,r:i32*,w:i32*,u64 pure", "r:i32*,w:i32*,i32,u64 pure"
N = 2048
SIZE = 4 * N
SLOW_S = 120  # the first use of PoCL compiles, on whatever else the machine does
BOARD = ("two-regions.so", "vadd.bit", "scale.bit", "pair.bit", "vadd.bitstream", "scale.bitstream", "pair.bitstream")


def manifest(name, kind, image, kernels):
    lines = [f"module {name} 1", f"image {kind} {image}", *(f"kernel {kernel} {sig}" for kernel, sig in kernels.items())]
    return "\n".join(lines) + "\n"


class Parts:
    """A folder with the modules, and the devices that can be had, as sections of a configuration."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gantry-kinds-"))
        harness.atexit.register(shutil.rmtree, self.folder, True)
        os.chmod(self.folder, 0o755)
        self.devices = {}
        self.env = {}
        self.missing = []
        if self.take("cpu", ["kinds-cpu.so"]):
            self.module("cpu", "kinds-cpu.so", "cpu0")
            self.devices["cpu0"] = {"mem": "512M"}
        if self.take("hip", ["kinds-hip.so", "libamdhip64.so.6"]):
            self.module("hip", "kinds-hip.so", "hip0")
            self.devices["hip0"] = {"backend": "hip", "library": harness.find_in_build("libamdhip64.so.6", os.path.exists), "mem": "256M"}
        if self.take("opencl", ["kinds-opencl.so"]) and pathlib.Path("/etc/OpenCL/vendors/pocl.icd").exists():
            self.module("opencl", "kinds-opencl.so", "opencl0")
            (self.folder / "cache").mkdir()
            os.chmod(self.folder / "cache", 0o777)
            self.devices["opencl0"] = {"backend": "opencl", "platform": "Portable Computing Language", "cache": self.folder / "cache",
                                       "mem": "512M"}
        if self.take("fpga", BOARD):
            self.module("fpga", "pair.bitstream", "fpga0")
            (self.folder / "lock").touch()
            os.chmod(self.folder / "lock", 0o666)
            self.devices["fpga0"] = {"backend": "fpga", "cores": None, "mem": "64M", "driver": self.folder / "two-regions.so",
                                     "images": self.folder, "board": f"lock={self.folder / 'lock'} load_ms=2"}

    def take(self, kind, names):
        """Copies of what the build made, which any user may read; False: it has them not."""
        found = [harness.find_in_build(name, os.path.exists) for name in names]
        if not all(found):
            self.missing.append(kind)
            return False
        for name, path in zip(names, found):
            if not name.startswith("lib"):
                shutil.copy(path, self.folder / name)
                os.chmod(self.folder / name, 0o755)
        return True

    def module(self, kind, image, device):
        path = self.folder / f"kinds-{kind}.manifest"
        path.write_text(manifest(f"kinds-{kind}", kind, image, {"board_vadd": VADD, ALONE[device]: SCALE}))
        os.chmod(path, 0o644)

    def agent(self, tenants):
        if len(self.devices) < 2:
            raise harness.Skip(f"fewer than two kinds of devices: the build or the machine lacks {', '.join(self.missing)}")
        dirs = [*harness.module_dirs(), str(self.folder)]
        links = []
        for number, folder in enumerate(dirs):
            links.append(str(self.folder / f"m{number}"))
            if not os.path.islink(links[-1]):
                os.symlink(folder, links[-1])
        return harness.Agent(devices={name: dict(keys) for name, keys in self.devices.items()}, tenants=tenants,
                             agent={"module_dirs": ":".join(links), "warm_workers": 0}, env=self.env)


class Boards(Parts):
    """With a second model of board in place of PoCL as it is: PoCL under the rules of an FPGA. It has images of its own, of one of the kernels only."""

    def __init__(self):
        super().__init__()
        if "fpga0" not in self.devices:
            raise harness.Skip(f"the build or the machine lacks {', '.join(self.missing)}")
        self.devices.pop("opencl0", None)
        store = self.folder / "pocl"
        store.mkdir()
        os.chmod(store, 0o755)
        rules.make_images(store, [rules.Image("pocl-vadd", {"board_vadd": (1, 1000)})], 2000)
        self.devices["fpga1"] = rules.device(store)
        self.env = rules.Board(self.folder).environment(configure_us=2000)


PARTS = None


def world(tenants, kind=Parts):
    global PARTS
    if type(PARTS) is not kind:  # pylint: disable=unidiomatic-typecheck
        PARTS = kind()
    return PARTS.agent(tenants(list(PARTS.devices)))


def queues(agent, guest):
    session = str(session_of(agent, guest)["session_id"])
    return {f"{session}:{row['slot']}": row["device"] for row in agent.ctl_json("queue", "list", "--session", session)["queues"]}


class Chain:
    """A queue whose tasks each need the ones before: z = x + y, y = z + x, x = y + z, and again. What comes of them tells whether each
    ran once, in order, on the bytes that the one before left."""

    def __init__(self, agent, guest, name, home):
        self.agent, self.guest, self.queue, self.ticket = agent, guest, f"q{name}", f"t{name}"
        self.buffers = [f"{letter}{name}" for letter in "xyz"]
        before = queues(agent, guest)
        guest.ask(f"queue {self.queue}", SLOW_S)
        self.name, = queues(agent, guest).keys() - before.keys()
        if self.device() != home:
            ended = self.move(home)
            if ended.code != 0:
                raise harness.Failure(f"to {home}: {ended.err}")
        for seed, buffer in enumerate(self.buffers, 1):
            guest.ask(f"buffer {buffer} {SIZE} device")
            guest.ask(f"random {buffer} {SIZE} {seed}")

    def device(self):
        return queues(self.agent, self.guest)[self.name]

    def move(self, to):
        return self.agent.ctl("queue", "migrate", self.name, "--to", to, "--timeout", f"{SLOW_S}s")

    def launch(self, kernel, args):
        self.guest.ask(f"find {kernel} {kernel}")
        self.guest.ask(f"launch {self.queue} {self.ticket} {kernel} 1 - - 0 {args} u64={N}", SLOW_S)

    def add(self, rounds):
        x, y, z = self.buffers
        for _ in range(rounds):
            for one, two, out in ((x, y, z), (z, x, y), (y, z, x)):
                self.launch("board_vadd", f"r:{one} r:{two} w:{out}")

    def scale(self, kernel, factor):
        x, _, z = self.buffers
        self.launch(kernel, f"r:{x} w:{z} i32={factor}")

    def wait(self):
        self.guest.ask(f"wait {self.ticket} {SLOW_S * 1000}", SLOW_S)

    def sums(self):
        """All bytes, as sums that the cpu device makes of them."""
        self.wait()
        return [self.guest.ask(f"sum sums {buffer} {SIZE}", SLOW_S) for buffer in self.buffers]


def opened(agent, tenant):
    guest = Scripted(agent, tenant, opened=False)
    guest.ask("open timeout_ms 60000", SLOW_S)
    guest.ask(f"queue sums 0 0 {CPU}")
    return guest


def circuit(devices):
    """A walk over every ordered pair once (Hierholzer)."""
    left = {one: [other for other in devices if other != one] for one in devices}
    stack, walk = [devices[0]], []
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return walk[::-1]


def alone(devices):
    return {"red": {"devices": ",".join(devices), "isolation": "isolated"}}


def moves_between_all(t, kind):
    with world(alone, kind) as agent:
        guest = opened(agent, "red")
        walk = circuit(list(PARTS.devices))
        chain, model = Chain(agent, guest, "a", walk[0]), Chain(agent, guest, "b", "cpu0")
        t.equal(len(set(zip(walk, walk[1:]))), len(PARTS.devices) * (len(PARTS.devices) - 1), "pairs")
        for to in walk[1:]:
            # Some before, some that are queued while it goes, some there.
            chain.add(2)
            ended = chain.move(to)
            t.code(ended, 0)
            t.equal(chain.device(), to)
            chain.add(1)
        model.add(3 * (len(walk) - 1))
        t.equal(chain.sums(), model.sums(), f"after {walk}")


def test_queue_moves_between_every_pair_of_kinds_by_command(t):
    moves_between_all(t, Parts)


def test_queue_moves_between_two_models_of_boards_and_other_kinds_by_command(t):
    moves_between_all(t, Boards)


def test_queue_follows_a_kernel_to_the_model_of_board_that_has_it_and_comes_back(t):
    with world(alone, Boards) as agent:
        guest = opened(agent, "red")
        sums = []
        for number, home in enumerate(PARTS.devices):
            chain = Chain(agent, guest, str(number), home)
            chain.add(1)
            chain.scale("board_scale", 3)
            chain.wait()
            t.equal(chain.device(), "fpga0", f"a queue of {home}, with the kernel that fpga0 alone has")
            chain.add(1)
            chain.wait()
            t.equal(chain.device(), home, "and back")
            if home == "fpga0":
                ended = chain.move("fpga1")
                t.code(ended, 8)
                t.contains(ended.err, "device fpga1 has no form of its kernel board_scale")
            sums.append(chain.sums())
            guest.ask(f"close_queue {chain.queue}")
        t.equal(sums, [sums[0]] * len(sums))


def test_queue_follows_kernels_that_single_kinds_have_and_comes_back(t):
    with world(alone) as agent:
        guest = opened(agent, "red")
        model = Chain(agent, guest, "m", "cpu0")
        for number, home in enumerate(PARTS.devices):
            chain = Chain(agent, guest, str(number), home)
            for factor, device in enumerate(PARTS.devices, 3):
                chain.add(1)
                chain.scale(ALONE[device], factor)
                chain.wait()
                t.equal(chain.device(), device, f"a queue of {home}, with {ALONE[device]}")
                chain.add(1)
                chain.wait()
                t.equal(chain.device(), home, "and back")
            if number == 0:
                for factor, _ in enumerate(PARTS.devices, 3):
                    model.add(1)
                    model.scale(ALONE["cpu0"], factor)
                    model.add(1)
            t.equal(chain.sums(), model.sums(), f"a queue of {home}")
            guest.ask(f"close_queue {chain.queue}")


def test_queue_stays_where_the_other_device_lacks_a_kernel_it_used(t):
    with world(alone) as agent:
        guest = opened(agent, "red")
        chain = Chain(agent, guest, "a", "cpu0")
        chain.add(1)
        chain.scale(ALONE["cpu0"], 3)
        chain.wait()
        for other in [device for device in PARTS.devices if device != "cpu0"]:
            ended = chain.move(other)
            t.code(ended, 8)
            t.contains(ended.err, ALONE["cpu0"])
            t.equal(chain.device(), "cpu0")


def crowd(devices):
    """Four tenants of each device. A board has one worker: its tenants share that, and those of hip, which has one for each session, are
    others."""
    plain = [name for name in devices if name != "fpga0"]
    shared = [name for name in devices if name != "hip0"]
    return {**{f"alone{n}": {"devices": ",".join(plain), "isolation": "isolated", "mem": "64M"} for n in range(4)},
            **({f"group{n}": {"devices": ",".join(shared), "isolation": "pooled", "trust_group": "board", "mem": "64M"}
                for n in range(4)} if "fpga0" in devices else {})}


def test_two_and_four_tenants_on_each_device_at_once(t):
    with world(crowd) as agent:
        guests = {}
        for count in (2, 4):
            # The worker of the group has to have the board before another opens it.
            for tenant, keys in sorted(crowd(list(PARTS.devices)).items(), reverse=True):
                if tenant not in guests and int(tenant[-1]) < count:
                    guests[tenant] = (opened(agent, tenant), keys["devices"].split(","))
            chains = [Chain(agent, guest, f"{count}{device}", device) for guest, devices in guests.values() for device in devices]
            for _ in range(4):
                for chain in chains:
                    chain.add(1)
            found = [(chain.device(), *chain.sums()) for chain in chains]
            t.equal(len({row[1:] for row in found}), 1, f"{count} tenants, the same everywhere: {found}")
            for device in PARTS.devices:
                t.true([row[0] for row in found].count(device) >= count, f"{count} tenants on {device}")


if __name__ == "__main__":
    harness.main(globals(), limit_s=240)

# SPDX-License-Identifier: Apache-2.0
"""Makes a code object for the stand-ins of AMD's runtime, in a bundle:
wrap.py KERNELS OUTPUT --path SO|--text FILE|--fakecuda SO ARCH....

KERNELS is a text: a line for each kernel, its name and what its parameters are, "probe_set ptr,u32,u64". The code object has
AMD's metadata, which devices/hip reads, and a note that says what runs in place of machine code (payload.h)."""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import offload_bundle  # noqa: E402

FAKE_PTX = ".version 8.0\n.target sm_90\n.address_size 64\n// FAKECUDA so={} arch=sm_90\n"
SIZES = {"ptr": 8, "u32": 4, "i32": 4, "u64": 8, "f32": 4, "f64": 8}


def pack(value):
    """MessagePack of what metadata hold."""
    if isinstance(value, bool) or value is None:
        raise TypeError(value)
    if isinstance(value, int):
        return bytes([value]) if value < 0x80 else b"\xcd" + struct.pack(">H", value)
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text
    if isinstance(value, list):
        head = bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdc" + struct.pack(">H", len(value))
        return head + b"".join(map(pack, value))
    head = bytes([0x80 | len(value)])
    return head + b"".join(pack(key) + pack(item) for key, item in value.items())


def kernel(line):
    name, _, params = line.partition(" ")
    args, off = [], 0
    for param in filter(None, params.strip().split(",")):
        size = SIZES[param]
        off = (off + size - 1) // size * size
        kind = "global_buffer" if param == "ptr" else "by_value"
        args.append({".offset": off, ".size": size, ".value_kind": kind})
        off += size
    # As the compiler does; the runtime fills these.
    args.append({".offset": (off + 7) // 8 * 8, ".size": 8, ".value_kind": "hidden_global_offset_x"})
    return {
        ".args": args, ".kernarg_segment_size": 256, ".max_flat_workgroup_size": 1024, ".name": name,
        ".symbol": name + ".kd", ".wavefront_size": 64,
    }


def note(name, kind, data):
    pad = lambda some: some + b"\0" * (-len(some) % 4)
    return struct.pack("<III", len(name) + 1, len(data), kind) + pad(name + b"\0") + pad(data)


def code_object(lines, arch, payload):
    metadata = {
        "amdhsa.kernels": [kernel(line) for line in lines],
        "amdhsa.target": "amdgcn-amd-amdhsa--" + arch,
        "amdhsa.version": [1, 1],
    }
    notes = note(b"AMDGPU", 32, pack(metadata)) + note(b"GANTRY", 1, payload + b"\0")
    # One segment; one section behind it, as linkers put the table of sections last.
    at = 64 + 56
    end = at + len(notes)
    end += -end % 8
    header = b"\x7fELF" + bytes([2, 1, 1, 64, 2]) + b"\0" * 7
    header += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, end, 0x3F, 64, 56, 1, 64, 1, 0)
    segment = struct.pack("<IIQQQQQQ", 4, 4, at, at, at, len(notes), len(notes), 4)
    return (header + segment + notes).ljust(end, b"\0") + b"\0" * 64


def main():
    kernels, output, how, what, *archs = sys.argv[1:]
    if how == "--path":
        payload = what.encode()
    elif how == "--fakecuda":  # what tests/fakecuda takes for PTX
        payload = FAKE_PTX.format(what).encode()
    else:
        with open(what, "rb") as file:
            payload = file.read()
    with open(kernels, encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if line and not line.startswith("#")]
    with open(output, "wb") as out:
        out.write(offload_bundle.for_amd({arch: code_object(lines, arch, payload) for arch in archs}))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Makes .xclbin files, as XRT reads them, without a bitstream in them: for its noop device, which computes nothing."""
import hashlib
import struct

SECTION_BYTES, HEAD_BYTES = 40, 456
BITSTREAM, EMBEDDED_METADATA, MEM_TOPOLOGY, CONNECTIVITY, IP_LAYOUT, GROUP_TOPOLOGY, GROUP_CONNECTIVITY = 0, 2, 6, 7, 8, 26, 27
BASE, STEP = 0x1800000, 0x10000
POINTER, SCALAR = 1, 0


def argument(number, name, kind, bytes_, offset):
    port, type_ = ("m0", "int*") if kind == POINTER else ("s", "ulong" if bytes_ == 8 else "int")
    return (f'<arg name="{name}" addressQualifier="{kind}" id="{number}" port="{port}" size="{bytes_:#x}" offset="{offset:#x}" '
            f'hostOffset="0x0" hostSize="{bytes_:#x}" type="{type_}"/>')


def kernel(number, name, args):
    """@args: (name, POINTER or SCALAR, bytes)."""
    text = (f'<kernel name="{name}" language="c" type="pl" workGroupSize="1" hwControlProtocol="ap_ctrl_chain" interrupt="true">'
            '<port name="m0" mode="master" range="0xFFFFFFFF" dataWidth="512" portType="addressable" base="0x0"/>'
            '<port name="s" mode="slave" range="0x1000" dataWidth="32" portType="addressable" base="0x0"/>')
    offset = 0x10
    for i, (arg, kind, bytes_) in enumerate(args):
        text += argument(i, arg, kind, bytes_, offset)
        offset += bytes_ + 4
    return text + (f'<instance name="{name}_1"><addrRemap base="{BASE + STEP * number:#x}" port="s" range="{STEP:#x}"/></instance></kernel>')


def metadata(kernels):
    return ('<?xml version="1.0"?><project name="p"><platform vendor="x" boardid="b" name="n"><device name="d" fpgaDevice="f">'
            '<core name="OCL_REGION_0" target="bitstream" type="clc_region"><kernelClocks><clock port="CLK" frequency="300MHz"/>'
            '</kernelClocks>' + "".join(kernel(i, name, args) for i, (name, args) in enumerate(kernels.items())) +
            '</core></device></platform></project>').encode()


def sections(kernels):
    memory = struct.pack("<i4xBB6xQQ16s", 1, 1, 1, 1 << 20, 0, b"DDR[0]")
    units = struct.pack("<i4x", len(kernels))
    units += b"".join(struct.pack("<IIQ64s", 1, 1, BASE + STEP * i, f"{name}:{name}_1".encode()) for i, name in enumerate(kernels))
    ends = [(arg, unit, 0) for unit, args in enumerate(kernels.values()) for arg, (_, kind, _) in enumerate(args) if kind == POINTER]
    wires = struct.pack("<i", len(ends)) + b"".join(struct.pack("<iii", *end) for end in ends)
    return [(EMBEDDED_METADATA, b"EMBEDDED_META", metadata(kernels)), (MEM_TOPOLOGY, b"mem", memory), (CONNECTIVITY, b"conn", wires),
            (IP_LAYOUT, b"ip", units), (GROUP_TOPOLOGY, b"gmem", memory), (GROUP_CONNECTIVITY, b"gconn", wires),
            (BITSTREAM, b"bit", bytes(64))]


def make(name, kernels):
    """The file's bytes; @kernels: {name: [(argument, POINTER or SCALAR, bytes), ...]}."""
    parts = sections(kernels)
    at = (HEAD_BYTES + SECTION_BYTES * len(parts) + 7) // 8 * 8
    table, body = b"", b""
    for kind, label, data in parts:
        padding = bytes(-len(data) % 8)
        table += struct.pack("<I16s4xQQ", kind, label, at, len(data))
        body += data + padding
        at += len(data) + len(padding)
    uuid = hashlib.md5(name.encode()).digest()
    head = struct.pack("<QQQHBBHH16s64s16s16sI4x", at, 1700000000, 0, 0, 2, 1, 0, 0, bytes(16), b"xilinx_no_platform_1", uuid, b"",
                       len(parts))
    front = b"xclbin2\0" + struct.pack("<i", -1) + b"\xff" * 28 + bytes(256) + struct.pack("<Q", 1) + head
    whole = front + table
    return whole + bytes((len(whole) + 7) // 8 * 8 - len(whole)) + body

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Puts code objects for AMD GPUs into one bundle, as clang lays them out: offload_bundle.py OUTPUT ARCH... FILE..., as many
files as processors. clang's own tool for it is in none of the packages that a build needs."""
import struct
import sys

ALIGN = 4096


def bundle(entries):
    """The bytes of a bundle of [(name, bytes)]."""
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    room = len(head) + sum(24 + len(name) for name, _ in entries)
    body, table, at = b"", b"", (room + ALIGN - 1) // ALIGN * ALIGN
    for name, data in entries:
        body += b"\0" * (-len(body) % ALIGN)
        table += struct.pack("<QQQ", at + len(body), len(data), len(name)) + name.encode()
        body += data
    return (head + table).ljust(at, b"\0") + body


def for_amd(objects):
    """The bundle of {processor: code object}; by custom the host comes first, with nothing."""
    return bundle([("host-x86_64-unknown-linux", b"")] +
                  [("hipv4-amdgcn-amd-amdhsa--" + arch, data) for arch, data in objects.items()])


def main():
    output, *words = sys.argv[1:]
    archs, paths = words[: len(words) // 2], words[len(words) // 2 :]
    objects = {}
    for arch, path in zip(archs, paths):
        with open(path, "rb") as file:
            objects[arch] = file.read()
    with open(output, "wb") as out:
        out.write(for_amd(objects))


if __name__ == "__main__":
    main()

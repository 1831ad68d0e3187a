# SPDX-License-Identifier: Apache-2.0
"""embed.py [--bare] FILE OUTPUT: FILE's bytes as a C array, probe_code; bare: what stands between its braces."""
import sys

bare = sys.argv[1] == "--bare"
source, output = sys.argv[-2:]
data = open(source, "rb").read()
with open(output, "w") as out:
    if not bare:
        out.write("static const unsigned char __attribute__((aligned(16))) probe_code[] = {\n")
    for i in range(0, len(data), 24):
        out.write(" ".join(f"{byte}," for byte in data[i : i + 24]) + "\n")
    if not bare:
        out.write("};\n")

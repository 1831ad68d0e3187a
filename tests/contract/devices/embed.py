# SPDX-License-Identifier: Apache-2.0
"""embed.py FILE OUTPUT: FILE's bytes as a C array, probe_code."""
import sys

data = open(sys.argv[1], "rb").read()
with open(sys.argv[2], "w") as out:
    out.write("static const unsigned char __attribute__((aligned(16))) probe_code[] = {\n")
    for i in range(0, len(data), 24):
        out.write(" ".join(f"{byte}," for byte in data[i : i + 24]) + "\n")
    out.write("};\n")

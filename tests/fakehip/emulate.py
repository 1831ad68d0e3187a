# SPDX-License-Identifier: Apache-2.0
"""emulate.py TEXT KERNELS GLUE: for the kernels of an OpenCL text, what wrap.py wants to know (KERNELS), and C that runs them on
the CPU for the stand-ins (GLUE; cl_builtins.c has what both it and the text, compiled for the host, call)."""
import re
import sys

KINDS = {"ulong": ("u64", "uint64_t"), "uint": ("u32", "uint32_t"), "int": ("i32", "int32_t"), "float": ("f32", "float"),
         "double": ("f64", "double")}
POINTER = ("ptr", "void *")
SIZES = {"ptr": 8, "u64": 8, "u32": 4, "i32": 4, "f32": 4, "f64": 8}
HEAD = """/* Made by emulate.py. */
#include "tests/fakehip/cl_builtins.h"
"""
KERNEL = """
void {name}({types});
static void call_{name}(const void *args)
{{
\tvoid *const *params = args;

\t{name}({values});
}}
VISIBLE extern const struct fakecuda_param fakecuda_params_{name}[];
const struct fakecuda_param fakecuda_params_{name}[] = {{ {layout} {{ 0, 0 }} }};
VISIBLE fakecuda_kernel fakecuda_{name};
int fakecuda_{name}(void **params, const struct fakecuda_geometry *geometry)
{{
\treturn cl_run(call_{name}, params, geometry);
}}
"""


def kind(param):
    if "*" in param:
        return POINTER
    return KINDS[param.split()[0]]


def glue(name, kinds):
    layout, off = [], 0
    for word, _ in kinds:
        size = SIZES[word]
        off = (off + size - 1) // size * size
        layout.append(f"{{ {off}, {size} }},")
        off += size
    values = [f"*({ctype}{'' if ctype.endswith('*') else ' '}*)params[{i}]" for i, (_, ctype) in enumerate(kinds)]
    return KERNEL.format(name=name, types=", ".join(ctype for _, ctype in kinds), values=", ".join(values), layout=" ".join(layout))


def main():
    text, kernels, output = sys.argv[1:]
    with open(text, encoding="utf-8") as file:
        found = re.findall(r"^__kernel void (\w+)\(([^)]*)\)", file.read(), re.M)
    rows = [(name, [kind(param.strip()) for param in params.split(",")]) for name, params in found]
    with open(kernels, "w", encoding="utf-8") as out:
        for name, kinds in rows:
            out.write(f"{name} {','.join(word for word, _ in kinds)}\n")
    with open(output, "w", encoding="utf-8") as out:
        out.write(HEAD)
        for name, kinds in rows:
            out.write(glue(name, kinds))


main()

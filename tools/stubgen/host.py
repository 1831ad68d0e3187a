# SPDX-License-Identifier: Apache-2.0
"""Functions that work on the program's memory: how long their arrays are, and what has to be true of what lies in them.

A library on the host follows indices without looking, so the worker looks before: a sparse matrix is one, a permutation is
one, and functions that go through an object step by step come in their order, with the numbers that they began with.
"""
import dataclasses
import re

from annotations import Kind

NAME = re.compile(r"\w+Host")
# Of a sparse matrix: rows, columns, values, of one that the suffix names.
ROWS, COLUMNS, VALUES = (re.compile(r"(?:h_)?csr%s([A-Z]?)" % word) for word in ("RowPtr", "ColInd", "Val"))
ENDS = re.compile(r"(?:h_)?csrEndPtr([A-Z]?)")
PERMUTATION = re.compile(r"(?:h_)?[pqPQ]")
# Objects of libraries that go step by step; what a function's name says about the step.
STEPPED = re.compile(r"\w+InfoHost_t")
STEPS = {"Analysis": "ANALYSE", "BufferInfo": "MEASURE", "Setup": "SET_UP", "Factor": "FACTOR"}
STEP = re.compile(r"\w+?Sp([SDCZX])csr\w+?(?:(%s)|[A-Z]\w*)Host" % "|".join(STEPS))


def _has(function, name):
    return any(p.name == name and p.depth == 0 and p.sort == "int" for p in function.params)


def _nonzeros(function, suffix):
    return next((n for n in ("nnz" + suffix, "nnz") if _has(function, n)), None)


def _rows(function):
    return next((n for n in ("m", "n") if _has(function, n)), None)


def array(function, param):
    """The kind of a host function's array, by its name; None: nobody knows."""
    if not NAME.fullmatch(function.name):
        return None
    word = "in" if param.const or param.name.startswith("h_") else "inout"
    if ROWS.fullmatch(param.name) and _rows(function):
        return Kind(word, _rows(function) + "+1")
    inner = COLUMNS.fullmatch(param.name) or VALUES.fullmatch(param.name)
    if inner:
        count = _nonzeros(function, inner[1])
        return Kind(word, count) if count else None
    if PERMUTATION.fullmatch(param.name) and word == "in" and _has(function, "n"):
        return Kind("in", "m" if param.name == "p" and _has(function, "m") else "n")
    return None


def is_buffer(function, param):
    """Memory that the library works in."""
    return param.name == "pBuffer" and param.sort == "void" and bool(NAME.fullmatch(function.name))


def buffer(function, others):
    """As long as the function's own query says, which takes what it takes; or as the query of the object's step said."""
    query = others.get(function.name[:-len("Host")] + "_bufferSizeHost")
    if query:
        names = [p.name for p in query.params[:-1]]
        if all(any(p.name == n for p in function.params) for n in names):
            return Kind("scratch", "$%s(%s)" % (query.name, ", ".join(names)))
    return Kind("work") if stepped(function) else None


def stepped(function):
    """The parameter whose object goes step by step, or None."""
    if not STEP.fullmatch(function.name):
        return None
    return next((p for p in function.params if p.depth == 0 and STEPPED.fullmatch(p.base)), None)


@dataclasses.dataclass
class Matrix:
    """One sparse matrix among a function's arguments, in C."""
    rows: str
    nrows: str
    ends: str            # "NULL" where the rows say it
    columns: str
    ncolumns: str
    nonzeros: str
    descriptor: str      # "NULL": it counts from 0


def matrices(pairs):
    """Those that lie on the host."""
    def on_host(pattern):
        return {pattern.fullmatch(p.name)[1]: (p, k) for p, k in pairs if pattern.fullmatch(p.name) and k.word in ("in", "inout")}
    names = {p.name for p, k in pairs if k.word == "value"}
    rows, columns, ends = on_host(ROWS), on_host(COLUMNS), on_host(ENDS)
    found = []
    for suffix, (param, kind) in rows.items():
        if suffix not in columns or not kind.count.endswith("+1"):
            continue
        descriptors = [p.name for p, k in pairs if k.word == "handle" and p.base == "cusparseMatDescr_t"]
        descriptor = "descr" + suffix if "descr" + suffix in descriptors else descriptors[0] if descriptors else "NULL"
        nrows = kind.count[:-len("+1")]
        found.append(Matrix(param.name, nrows, ends[suffix][0].name if suffix in ends else "NULL", columns[suffix][0].name,
                            "n" if "n" in names else nrows, columns[suffix][1].count, descriptor))
    return found


def permutations(pairs):
    """(name, count) of those that lie on the host."""
    return [(p.name, k.count) for p, k in pairs if PERMUTATION.fullmatch(p.name) and k.word == "in" and p.sort == "int"]


def step(function, pairs, others):
    """The step that @function is, as C initializers of a struct gantry_calls_step; None: it is none."""
    if not stepped(function):
        return None
    match = STEP.fullmatch(function.name)
    fields = [".what = GANTRY_CALLS_%s" % STEPS.get(match[2], "USE"), ".letter = '%s'" % match[1]]
    fields += [".%s = %s" % (field, name if _has(function, name) else "GANTRY_CALLS_LEFT_OUT") for field, name in
               (("m", "m"), ("n", "n"), ("nonzeros", "nnzA"))]
    for matrix in matrices(pairs):
        fields += [".rows = %s" % matrix.rows, ".columns = %s" % matrix.columns]
    if match[2] == "Factor" and function.name.replace("Factor", "Setup") in others:
        fields.append(".wants_setup = true")
    return "{ %s }" % ", ".join(fields)

# SPDX-License-Identifier: Apache-2.0
"""Vendor headers to an API description: what each function takes and returns, by shape, without meaning.

The headers are preprocessed by the C compiler and parsed by pycparser. Of the C library they get the few types in
libc/, so that no extension of the machine's own headers comes in the way.
"""
import dataclasses
import os
import pathlib
import re
import subprocess

from pycparser import c_ast, c_generator, c_parser

HERE = pathlib.Path(__file__).resolve().parent
# Extensions that say nothing about a call.
ERASED = ["-D__attribute__(x)=", "-D__extension__=", "-D__inline__=inline", "-D__inline=inline", "-D__restrict=",
          "-D__asm__(x)=", "-D__builtin_va_list=int", "-D_Alignas(x)="]
STREAMS = {"cudaStream_t", "CUstream"}


class HeaderError(Exception):
    """The headers cannot be read; the sentence says which and why."""


@dataclasses.dataclass
class Param:
    """One parameter. Of a pointer, what counts is what it points at."""
    name: str
    text: str            # its declaration
    base: str            # the type without const and pointers: "float", "cublasHandle_t"
    depth: int           # pointers around base
    const: bool          # what it points at (of an array of pointers: the innermost) is const
    array: bool          # it was written x[]
    sort: str            # of base: int, float, enum, struct, void, char, handle, stream, function, file
    pointee: str         # C type that it points at; "" where there is no pointer


@dataclasses.dataclass
class Function:
    """One function as its header declares it."""
    name: str
    header: str
    ret: str             # C type
    ret_sort: str        # as Param.sort, or "string", "pointer"
    params: list

    @property
    def declaration(self):
        """As C."""
        return "%s %s(%s)" % (self.ret, self.name, ", ".join(p.text for p in self.params) or "void")


class Types:
    """The typedefs of a translation unit, followed to their ends."""

    def __init__(self, ast):
        self.typedefs = {}
        self.structs = {}
        for node in ast.ext:
            if isinstance(node, c_ast.Typedef):
                self.typedefs[node.name] = node.type
            self._note_structs(node)

    def _note_structs(self, node):
        for _, child in node.children():
            self._note_structs(child)
        if isinstance(node, (c_ast.Struct, c_ast.Union)) and node.decls and node.name:
            self.structs[node.name] = node

    def resolve(self, node):
        """Typedefs taken off."""
        seen = 0
        while True:
            if isinstance(node, c_ast.TypeDecl):
                inner = node.type
                if isinstance(inner, c_ast.IdentifierType) and len(inner.names) == 1 and inner.names[0] in self.typedefs:
                    node = self.typedefs[inner.names[0]]
                    seen += 1
                    if seen > 50:
                        raise HeaderError("typedef %s goes round" % inner.names[0])
                    continue
            return node

    def is_whole(self, record):
        """Whether a struct's members are known, and none of them is a pointer."""
        record = record if record.decls else self.structs.get(record.name)
        return bool(record) and all(self._is_plain(d.type) for d in record.decls if d.type is not None)

    def _is_plain(self, node):
        node = self.resolve(node)
        if isinstance(node, c_ast.ArrayDecl):
            return self._is_plain(node.type)
        if isinstance(node, (c_ast.PtrDecl, c_ast.FuncDecl)):
            return False
        inner = node.type if isinstance(node, c_ast.TypeDecl) else node
        if isinstance(inner, (c_ast.Struct, c_ast.Union)):
            return self.is_whole(inner)
        return True

    def sort(self, node):
        """What a type without pointers of its own writing is."""
        inner = node.type
        if isinstance(inner, c_ast.IdentifierType):
            name = " ".join(inner.names)
            if name in STREAMS:
                return "stream"
            if name == "FILE":
                return "file"
        end = self.resolve(node)
        if isinstance(end, c_ast.PtrDecl):
            target = self.resolve(end.type)
            if isinstance(target, c_ast.FuncDecl):
                return "function"
            target = target.type if isinstance(target, c_ast.TypeDecl) else target
            if isinstance(target, (c_ast.Struct, c_ast.Union)):
                return "handle"
            return "pointer"
        if isinstance(end, c_ast.ArrayDecl):
            return "array"
        inner = end.type
        if isinstance(inner, c_ast.Enum):
            return "enum"
        if isinstance(inner, (c_ast.Struct, c_ast.Union)):
            return "struct" if self.is_whole(inner) else "opaque"
        names = set(inner.names)
        if "void" in names:
            return "void"
        if names & {"float", "double"}:
            return "float"
        if "char" in names and not names & {"unsigned", "signed"}:
            return "char"
        return "int"


def preprocess(home, headers, cc="cc"):
    """The text that the compiler sees of @headers, which lie in @home/include."""
    include = os.path.join(home, "include")
    source = "".join('#include <%s>\n' % h for h in headers)
    command = [cc, "-E", "-x", "c", "-std=c11", "-nostdinc", "-isystem", str(HERE / "libc"), "-I" + include,
               "-include", "stddef.h", *ERASED, "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HeaderError("%s does not take %s: %s" % (cc, " ".join(headers), done.stderr.strip()[:500]))
    return done.stdout


def lighten(text, declared):
    """@text without the functions of headers that are not wanted: the parser is slow, and they are most of it."""
    out, foreign, name = [], [], ""

    def flush():
        out.append(_without_functions("".join(foreign)))
        foreign.clear()
    for line in text.splitlines(keepends=True):
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            if marker[1] != name:
                flush()
                name = marker[1]
            if re.fullmatch(declared, os.path.basename(name)):
                out.append(line)
        elif re.fullmatch(declared, os.path.basename(name)):
            out.append(line)
        else:
            foreign.append(line)
    flush()
    return "".join(out)


def _without_functions(text):
    """Declarations of functions, and functions, taken out of a text that has whole ones."""
    kept, begin, depth = [], 0, 0
    for mark in re.finditer(r"[;{}]", text):
        depth += {"{": 1, "}": -1, ";": 0}[mark[0]]
        if depth or mark[0] == "{":
            continue
        statement = text[begin:mark.end()]
        head = statement.split("{")[0].strip()
        is_function = "(" in head and not head.startswith("typedef") and (mark[0] == ";" or head.endswith(")"))
        if mark[0] == "}" and not is_function:
            continue    # a struct goes on to its semicolon
        if not is_function:
            kept.append(statement)
        begin = mark.end()
    return "".join(kept) + text[begin:]


def _strip(node):
    """Pointers and arrays off a declarator: (depth, whether the innermost is const, written as an array, the rest)."""
    depth, array = 0, False
    while isinstance(node, (c_ast.PtrDecl, c_ast.ArrayDecl)):
        array = array or isinstance(node, c_ast.ArrayDecl)
        depth += 1
        node = node.type
    return depth, "const" in getattr(node, "quals", []), array, node


def _c_type(node):
    """@node's type as C, without a name."""
    text = c_generator.CGenerator().visit(c_ast.Typename(None, [], None, _anonymous(node)))
    return re.sub(r"\s+", " ", text).strip()


def _anonymous(node):
    if isinstance(node, c_ast.TypeDecl):
        return c_ast.TypeDecl(None, node.quals, None, node.type)
    if isinstance(node, c_ast.PtrDecl):
        return c_ast.PtrDecl(node.quals, _anonymous(node.type))
    if isinstance(node, c_ast.ArrayDecl):
        return c_ast.ArrayDecl(_anonymous(node.type), node.dim, [])
    return node


def _param(node, index, types):
    depth, const, array, core = _strip(node.type)
    name = node.name or "arg%d" % index
    if isinstance(core, c_ast.FuncDecl):
        text = c_generator.CGenerator().visit(node)
        return Param(name, text, "function", 1, False, False, "function", "")
    base = " ".join(core.type.names) if isinstance(core.type, c_ast.IdentifierType) else _c_type(core)
    sort = types.sort(core)
    pointee = _c_type(node.type.type) if depth else ""
    if depth == 0 and sort == "array":     # a typedef of an array, passed as a pointer
        depth, sort = 1, "int"
    if node.name:
        text = re.sub(r"\s+", " ", c_generator.CGenerator().visit(node)).strip()
    else:
        text = _c_type(node.type) + " " + name
    return Param(name, text, base, depth, const, array, sort, pointee)


def _function(decl, types):
    params = []
    for index, node in enumerate(decl.type.args.params if decl.type.args else []):
        if isinstance(node, c_ast.EllipsisParam):
            raise HeaderError("%s takes any number of arguments" % decl.name)
        if isinstance(node, c_ast.Typename) and _c_type(node.type) == "void":
            continue
        params.append(_param(node, index, types))
    depth, _, _, core = _strip(decl.type.type)
    sort = types.sort(core)
    if depth:
        sort = "string" if depth == 1 and sort == "char" else "pointer"
    return Function(decl.name, os.path.basename(decl.coord.file), _c_type(decl.type.type), sort, params)


def parse(home, headers, declared, cc="cc"):
    """The functions that the headers whose names match the regular expression @declared declare, in order."""
    try:
        ast = c_parser.CParser().parse(lighten(preprocess(home, headers, cc), declared))
    except c_parser.ParseError as error:
        raise HeaderError("pycparser does not take %s: %s" % (" ".join(headers), error)) from error
    types = Types(ast)
    functions = {}
    for node in ast.ext:
        if not isinstance(node, c_ast.Decl) or not isinstance(node.type, c_ast.FuncDecl):
            continue
        if "static" in node.storage or not re.fullmatch(declared, os.path.basename(node.coord.file)):
            continue
        functions.setdefault(node.name, _function(node, types))
    return list(functions.values())

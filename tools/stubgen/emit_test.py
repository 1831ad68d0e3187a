# SPDX-License-Identifier: Apache-2.0
"""C that tries every generated function: a library that notes what it was called with, and calls with random arguments.

Both sides note each argument in the order of the declaration, and a test compares the notes: what arrived is what was
sent, and what the library answered is where the caller wanted it.
"""
import emit
import host

SMALL = 7    # elements of an array, at most


def _note(param, kind, size, native):
    """What both sides note of an argument; @native: the library's side, where a handle is what the table has."""
    name, word = param.name, kind.word
    if word == "value":
        return "note_bytes(&%s, sizeof(%s));" % (name, name)
    if word in ("handle", "drop"):
        cast = "(uint64_t)(uint32_t)" if param.sort == "int" else "(uint64_t)(uintptr_t)"
        if not native:
            return "note_u64(native_of(0x%08xu, %s%s));" % (emit.kind_of(param, kind), cast, name)
        may_be_null = kind.null or param.sort == "int"
        return "note_%s(%s%s);" % ("u64" if may_be_null else "object", cast, name)
    if word == "end":
        return "note_object((uint64_t)(uintptr_t)*%s);" % name if native else \
            "note_u64(native_of(0x%08xu, (uint64_t)(uintptr_t)*%s));" % (emit.handle_kind(param.base), name)
    if word == "stream":
        return "note_u64((uint64_t)(uintptr_t)%s);" % name
    if word in ("device", "null"):
        return "note_u64((uint64_t)(uintptr_t)%s);" % name
    if word == "string":
        return "note_text(%s);" % name
    if word == "strings":
        return "note_texts((const char *const *)%s, (int64_t)(%s));" % (name, size)
    if word == "scalar":
        return "note_memory((const void *)%s, 16);" % name if param.base == "void" else \
            "note_memory((const void *)%s, sizeof(*%s));" % (name, name)
    if word == "immediate":
        return "note_memory((const void *)%s, 16);" % name
    if word == "plain":
        return "note_memory(%s ? gantry_plain_%s(&(%s){ 0 }, %s) : NULL, sizeof(%s));" % (name, param.base, param.base, name, param.base)
    if word in ("in", "either", "inout", "either-inout"):
        return "note_memory((const void *)%s, %s);" % (name, size)
    if word == "out" and not kind.null:
        return "note_u64(1); /* the library has a place in any case */"
    if word in ("scratch", "work"):
        return "note_u64(0);"
    if word == "devices":
        return "note_memory((const void *)%s, %s);" % (name, size)
    if word == "record":
        return "note_%s(%s);" % (param.base, name)
    if word == "addresses":
        return "note_addresses((const void *)%s, %s);" % (name, size)
    return "note_u64(%s ? 1 : 0);" % name


def _size(call, param, kind, native):
    if kind.word == "strings":
        return kind.count
    if kind.word == "work":
        return "MOCK_LENGTH"
    if kind.word == "devices":
        return "gantry_pack_span(%s, sizeof(int))" % (kind.count if call.parts_said else "1")
    if kind.word in ("out", "in", "inout", "either", "either-out", "either-inout", "scratch", "addresses"):
        if "$" in kind.count:
            return "MOCK_LENGTH" if param.pointee == "char" else "gantry_pack_span(MOCK_LENGTH, sizeof(%s))" % param.pointee
        return call.bytes(param, kind, None)
    return "0"


def _answer(call, param, kind):
    """What the library writes."""
    name, word = param.name, kind.word
    if word in ("out", "inout", "either-out", "either-inout"):
        return "\tfill((void *)%s, %s);\n" % (name, _size(call, param, kind, True))
    if word == "new":
        return "\tif (%s)\n\t\tnew_handle(%s, sizeof(*%s));\n" % (name, name, name)
    if word == "text":
        return "\tif (%s)\n\t\t*%s = mock_text();\n" % (name, name)
    if word == "table":
        return "\tif (%s)\n\t\t*%s = mock_table(%s);\n" % (name, name, call.bytes(param, kind, None))
    if word in ("scratch", "work"):
        return "\tif (%s)\n\t\tmemset(%s, 0x5a, %s);\n" % (name, name, _size(call, param, kind, True))
    return "\tfill_%s(%s);\n" % (param.base, name) if word == "record" else ""


def _wants_parts(call):
    return call.parted and any(call.in_parts(k) for _, k in call.pairs)


def _mock(call, lengths):
    text = ["static %s\n{\n" % call.function.declaration.replace(call.name + "(", "mock_%s(" % call.name, 1)]
    if call.name in lengths:
        *first, last = [p.name for p in call.function.params]
        text += ["\t(void)%s;\n" % n for n in first]
        text.append("\tif (%s)\n\t\t*%s = (__typeof__(*%s))MOCK_LENGTH;\n\treturn 0;\n}\n\n" % ((last,) * 3))
        return "".join(text)
    if call.local == "set":
        text.append("\tbound_to(%s);\n\treturn 0;\n}\n\n" % call.function.params[1].name)
        return "".join(text).replace("{\n", "{\n\t(void)%s;\n" % call.function.params[0].name, 1)
    for function, arguments in call.library.modes.values():
        if function == call.name:
            place = call.function.params[arguments.index("&mode")].name
            text.append("\tif (!is_expected(\"%s\")) {\n\t\t*(int *)%s = mock_mode();\n\t\treturn 0;\n\t}\n" % (
                call.name, place))
    if _wants_parts(call):
        text.append("\tconst int64_t parts_ = mock_parts(0x%08xu, (uint64_t)(uint32_t)%s);\n\n" % (emit.kind_of(call.parted, emit.rules.Kind("handle")), call.parted.name))
    text.append("\tnote_name(\"%s\");\n" % call.name)
    text += ["\t%s\n" % _note(p, k, _size(call, p, k, True), True) for p, k in call.pairs]
    text += [_answer(call, p, k) for p, k in call.pairs]
    if call.function.ret_sort == "string":
        text.append("\treturn mock_text();\n")
    elif call.function.ret_sort != "void":
        text.append("\treturn (%s)%s;\n" % (call.function.ret, "0" if call.is_status else "77"))
    return "".join(text) + "}\n\n"


def _count_names(call):
    """Parameters that lengths depend on: they must be small."""
    # Those of devices: there is one.
    text = " ".join(k.count for _, k in call.pairs if k.word != "devices")
    text += "".join(" %s" % m.ncolumns for m in host.matrices(call.pairs)) + (" m n nnzA" if call.step else "")
    return {p.name for p in call.function.params if p.name in text.replace("(", " ").replace(")", " ").replace(
        ",", " ").replace("*", " ").replace("+", " ").split()}


def _argument(call, param, kind, counts):
    """Declares and makes one random argument."""
    name, word = param.name, kind.word
    null = "true" if kind.null or word == "out" else "false"
    if word == "value":
        if any(param.name in k.count.split("*") for _, k in call.pairs if k.word == "devices"):
            return "\t%s %s = %s;\n" % (param.base, name, "1 + small()" if call.parts_said else "1")
        if param.name in counts:
            if param.base in ("cublasOperation_t", "cublasSideMode_t"):
                return "\t%s %s = (%s)(small() %% 2);\n" % (param.base, name, param.base)
            if any("turned_span" in k.count or "sided_span" in k.count for _, k in call.pairs) and name.startswith("ld"):
                return "\t%s %s = (%s)(7 + small());\n" % (param.base, name, param.base)
            # There is room for what a matrix has in it.
            return "\t%s %s = (%s)(%ssmall());\n" % (param.base, name, param.base, "1 + " if call.step or host.matrices(call.pairs) else "")
        return "\t%s %s;\n\trandom_bytes(&%s, sizeof(%s));\n" % (param.base, name, name, name)
    if word in ("handle", "drop"):
        c_type = "void *" if kind.count else param.base
        cast = "(%s)" % c_type if param.sort == "int" else "(%s)(uintptr_t)" % c_type
        return "\t%s %s = %ssome_handle(0x%08xu, %s);\n" % (c_type, name, cast, emit.kind_of(param, kind), null)
    if word == "end":
        return "\t%s place_%s = (%s)(uintptr_t)some_handle(0x%08xu, false), *%s = &place_%s;\n" % (
            param.base, name, param.base, emit.handle_kind(param.base), name, name)
    if word == "stream":
        return "\t%s %s = (%s)some_stream();\n" % (param.base, name, param.base)
    if word == "device":
        return "\tvoid *%s = some_device();\n" % name
    if word in ("null", "scratch", "work"):
        return "\tvoid *%s = NULL;\n" % name
    if word == "devices":
        return "\tvoid *%s = own_devices(%s);\n" % (name, kind.count if call.parts_said else "1")
    if word == "record":
        return "\t%s *%s = some_%s(%s);\n" % (param.base, name, param.base, "parts_" if call.parted else "1")
    if word == "addresses":
        return "\tvoid *%s = some_addresses(%s);\n" % (name, call.wide(kind))
    if word == "string":
        return "\tconst char *%s = some_text();\n" % name
    if word == "strings":
        return "\tvoid *%s = some_texts((int64_t)(%s), %s);\n" % (name, kind.count, null)
    if word == "new":
        c_type = "void *" if kind.count else param.base + " "
        return "\t%splace_%s = 0, *%s%s = &place_%s;\n" % (c_type, name, "*" if kind.count else "", name, name)
    if word == "table":
        return "\t%s *place_%s = NULL, **%s = &place_%s;\n" % (param.base, name, name, name)
    if word == "text":
        return "\tconst char *place_%s = NULL, **%s = &place_%s;\n" % (name, name, name)
    size = "16" if word in ("scalar", "immediate") else "sizeof(%s)" % param.base if word == "plain" else _size(call, param, kind, False)
    return "\tvoid *%s = some_memory(%s, %s, %s);\n" % (
        name, size, "true" if word.startswith("either") or word == "scalar" else "false", null)


def _check(call, param, kind):
    name, word = param.name, kind.word
    if word in ("out", "inout", "either-out", "either-inout"):
        return "\tcheck_fill(%s, %s, %s);\n" % (name, _size(call, param, kind, False), "true" if word == "out" and not kind.null else "false")
    if word == "record":
        return "\tcheck_%s(%s);\n" % (param.base, name)
    if word == "end":
        return "\tcheck_ended(place_%s);\n" % name
    if word == "new":
        cast = "(uint64_t)(uint32_t)" if param.sort == "int" else "(uint64_t)(uintptr_t)"
        return "\tcheck_new(0x%08xu, %splace_%s, sizeof(place_%s));\n" % (emit.kind_of(param, kind), cast, name, name)
    if word == "table":
        return "\tcheck_table(place_%s, %s);\n" % (name, call.bytes(param, kind, None))
    return "\tcheck_text(place_%s);\n" % name if word == "text" else ""


def _contents(call):
    """What has to lie in host memory, and what has to have gone before."""
    lines = ["\tsome_matrix(%s, %s, %s, %s, %s, %s);\n" % (m.rows, m.ends, m.nrows, m.columns, m.ncolumns, m.nonzeros)
             for m in host.matrices(call.pairs)]
    lines += ["\tsome_permutation(%s, %s);\n" % pair for pair in host.permutations(call.pairs)]
    if call.step:
        param = host.stepped(call.function)
        lines.append("\tgo_before(0x%08xu, (uint64_t)(uintptr_t)%s, &(const struct gantry_calls_step)%s);\n" % (
            emit.kind_of(param, emit.rules.Kind("handle")), param.name, call.step))
    return ["\n"] + lines if lines else []


def _try(call):
    counts = _count_names(call)
    text = ["static void try_%s(void)\n{\n" % call.name]
    # Values first: sizes of others depend on them.
    for p, k in call.wire:
        text.append(_argument(call, p, k, counts))
        if p is call.parted and (_wants_parts(call) or any(k.word == "record" for _, k in call.pairs)):
            text.append("\tconst int64_t parts_ = some_parts(0x%08xu, (uint64_t)(uint32_t)%s);\n" % (emit.kind_of(p, k), p.name))
    if call.function.ret_sort != "void":
        text.append("\t%s ret_;\n" % call.function.ret)
    bound = [p for p, k in call.pairs if k.word in ("handle", "drop") and p.base in call.library.binds]
    text += ["\tsome_side(0x%08xu, (uint64_t)(uintptr_t)%s);\n" % (emit.kind_of(p, k), p.name) for p, k in call.pairs
             if k.word == "handle" and p.base in call.library.hosted]
    text += _contents(call)
    text.append("\n\texpect(\"%s\");\n" % call.name)
    for param in bound:
        cast = "(uint64_t)(uint32_t)" if param.sort == "int" else "(uint64_t)(uintptr_t)"
        text.append("\texpect_bound(%s%s);\n" % (cast, param.name))
    text += ["\t%s\n" % _note(p, k, _size(call, p, k, False), False) for p, k in call.pairs]
    arguments = ", ".join(p.name for p in call.function.params)
    assign = "" if call.function.ret_sort == "void" else "ret_ = "
    text.append("\tdone_expecting();\n\t%s%s(%s);\n" % (assign, call.name, arguments))
    text.append("\tcheck_notes();\n")
    text += [_check(call, p, k) for p, k in call.pairs]
    if call.function.ret_sort == "string":
        text.append("\tcheck_text(ret_);\n")
    elif call.function.ret_sort != "void":
        text.append("\tcheck_ret((uint64_t)ret_, %s);\n" % ("0" if call.is_status else "77"))
    return "".join(text) + "\tclean_up();\n}\n\n"


def roundtrip(library, calls):
    """The whole file; tests/unit/devices/calls/roundtrip.h has what it is made of."""
    # Where groups span devices, what opens and closes them goes with what is in them.
    remote = [c for c in calls if c.remote and not c.by_hand and not (
        "several" in library.words and (library.says("opens", c.function) or library.says("closes", c.function)))]
    lengths = {name for c in remote for _, k in c.pairs for name in _companions(k.count)}
    mocks = [c for c in calls if (c.remote and not c.by_hand) or c.local == "set"]
    text = [emit.includes(library, "tests/unit/devices/calls/roundtrip.h", "tests/unit/devices/calls/records.h", "proto/calls_types.h")]
    text += [_mock(c, lengths) for c in mocks]
    text.append("const struct gantry_calls_library *const tried = &gantry_calls_%s;\n\nconst struct mock mocks[] = {\n" %
                library.library)
    text += ["\t{ \"%s\", (void *)mock_%s },\n" % (c.name, c.name) for c in mocks]
    # The fuzzer wants the library alone.
    text.append("\t{ NULL, NULL },\n};\n\n#ifndef MOCKS_ONLY\n")
    text += [_try(c) for c in remote if c.name not in lengths]
    text.append("const struct attempt attempts[] = {\n")
    text += ["\t{ \"%s\", try_%s },\n" % (c.name, c.name) for c in remote if c.name not in lengths]
    text.append("\t{ NULL, NULL },\n};\n#endif\n")
    return "".join(text).replace('#include "proto/calls_types.h"\n', '#include "proto/calls_types.h"\n\nextern const struct '
                                 'gantry_calls_library gantry_calls_%s;\n' % library.library, 1)


def _companions(count):
    return [part.split("(")[0] for part in count.split("$")[1:]]

# SPDX-License-Identifier: Apache-2.0
"""What a parameter is, where no annotation says so: rules that hold for all of the vendor's libraries."""
import dataclasses
import re

import host
from annotations import Kind

COMPLEX = {"cuComplex", "cuDoubleComplex", "cuFloatComplex", "cufftComplex", "cufftDoubleComplex", "float2", "double2"}
# Integers that a function answers with, by name.
ANSWERS = re.compile(r".*(version|[sS]ize(InBytes|Ret)?|[cC]ount|value|[bB]ytes|sizeWritten|capacity|major|minor|nbDims)")
# Parameters that say how long an array beside them is.
COUNTS = re.compile(r"nbDims|nbDimsRequested|rank|arrayLength(Requested)?|count|num\w+|requestedAlgoCount|n\w*Count")
# Where the library's own log goes: the guest's stubs have one of their own.
LOGGER = re.compile(r"\w+Logger(SetCallback|SetFile|OpenFile|SetLevel|SetMask|ForceDisable|Configure)|\w+?([SG]etLoggerCallback)")
# One address of device memory for each GPU, in an array of the host's; the objects of a session have one GPU.
ADDRESSES = re.compile(r"array_d_\w+")
# Which GPUs something is to work on.
DEVICES = re.compile(r"deviceIds?|whichGPUs")
# Makes an object in memory of the caller's.
PLACED = re.compile(r"(\w+)Init_internal")
# Answers from the host, whatever it takes.
ASKS = re.compile(r"\w+?(Get[A-Z]\w*|_bufferSize\w*|BufferSize\w*)")
# Says something of an object, addresses perhaps, and looks at nothing that lies there.
DESCRIBES = re.compile(r"\w+?(Create|Destroy|Set[A-Z]|Get[A-Z])\w*")
# Changes what an object is. Copies between the sides have such names too.
SETS = re.compile(r"(?!cublasSet(Vector|Matrix))\w+?(Set[A-Z]|MakePlan|Finalize|[a-z]Init$)\w*|cudnnDerive\w+|cufftReset\w+")
# Its first value says what of an object it sets; another call with another one takes nothing from that.
NAMES_ONE = re.compile(r"attr\w*|attribute\w*|name|option|param|configParam|property|which")
# Says where something may work, and looks at nothing there.
WORKSPACES = re.compile(r"cublasSetWorkspace\w*|cufft(Xt)?SetWorkArea")
RECIPES_BY_HAND = {"cudnnBackendSetAttribute": "SETS_ONE", "cudnnBackendGetAttribute": "FILLS", "cudnnBackendFinalize": "SETS"}
TOUCHES = {"device", "addresses", "scalar", "either", "either-out", "either-inout"}
# What ends its first object. A finalized one is whole, or wants to be destroyed still.
ENDS = re.compile(r".*([dD]estroy|Abort).*")


@dataclasses.dataclass
class Decided:
    """A function with what each of its parameters is."""
    function: object
    how: str             # automatic, annotated, unsupported, by-hand, here (by hand, of other functions, in the guest)
    kinds: list          # one for each parameter; empty where unsupported
    why: str = ""        # of an unsupported one

    @property
    def pairs(self):
        """(parameter, kind)"""
        return list(zip(self.function.params, self.kinds))


def local(function):
    """How a function is answered in the guest alone, whatever the library: "log", "place", or ""."""
    return "log" if LOGGER.fullmatch(function.name) else "place" if PLACED.fullmatch(function.name) else ""


def is_apart(decided, binds):
    """Whether it is no part of what streams do: without a stream, and without a look at device memory."""
    words = {k.word for k in decided.kinds}
    if "stream" in words or any(p.base in binds and k.word != "new" for p, k in decided.pairs):
        return False
    return not words & TOUCHES or bool(words & {"handle", "new", "drop", "end"} and DESCRIBES.fullmatch(decided.function.name))


def handle_type(name):
    """Two types of one object: what is written Const may only be read."""
    return re.sub(r"Const(?=[A-Z])", "", name)


def log_word(function):
    """What a LOGGER does: SetCallback, SetLevel and so on."""
    match = LOGGER.fullmatch(function.name)
    return match[1] or match[2]


def _length_beside(function, param):
    index = function.params.index(param)
    near = [p for p in reversed(function.params[:index]) if p.depth == 0 and p.sort == "int" and COUNTS.fullmatch(p.name)]
    return near[0].name if near else None


def _plain(function, param, is_handle):
    """Of a parameter that is no pointer of its own writing."""
    if param.sort == "stream":
        return Kind("stream")
    if is_handle or param.sort == "handle":
        ends = ENDS.fullmatch(function.name) and function.params[0] is param
        return Kind("drop" if ends else "handle")
    if param.sort in ("int", "float", "enum", "struct", "char"):
        return Kind("value")
    return None


def _array(function, param):
    """Of integers, enums and structs written x[]."""
    length = _length_beside(function, param)
    return Kind("in" if param.const else "out", length) if length else None


def _devices(function, param):
    """As many as the counts of devices before it multiply to."""
    before = function.params[:function.params.index(param)]
    counts = [p.name for p in before if p.depth == 0 and p.sort == "int" and re.fullmatch(r"n\w*(Devices|GPUs)", p.name)]
    return Kind("devices", "*".join(counts)) if counts else None


def _integers(function, param):
    if DEVICES.fullmatch(param.name):
        return _devices(function, param)
    if param.array:
        return _array(function, param)
    if re.match(r"d_|dev|d[A-Z]", param.name):
        return Kind("device")
    if not param.const and ANSWERS.fullmatch(param.name):
        return Kind("out", "1")
    return None


def _pointer(function, param, is_handle):
    """Of a pointer to something that is none."""
    if is_handle or param.sort == "handle":
        if ENDS.fullmatch(function.name) and function.params[0] is param:
            return Kind("end")
        return None if param.const or param.array else Kind("new")
    if param.sort == "char":
        return Kind("string") if param.const else None
    if param.base in COMPLEX or param.sort in ("float", "void"):
        return Kind("device")
    if param.sort in ("enum", "struct"):
        return _array(function, param) if param.array else Kind("in" if param.const else "out", "1")
    return _integers(function, param) if param.sort == "int" else None


def automatic(function, param, handles, others):
    """The kind of @param, or None: somebody has to say. @others: the library's functions by name."""
    is_handle = param.base in handles
    if param.depth == 0:
        return _plain(function, param, is_handle)
    # A text that the library has.
    if param.depth == 2 and param.sort == "char" and param.const and not param.array and len(function.params) > 1:
        return Kind("text") if function.params[-1] is param else None
    if param.depth == 2 and ADDRESSES.fullmatch(param.name):
        return Kind("addresses", "1")
    if param.depth == 1 and host.is_buffer(function, param):
        return host.buffer(function, others)
    return host.array(function, param) or _pointer(function, param, is_handle) if param.depth == 1 else None


def _shape(param, kind):
    """A kind as far as it depends on the declaration."""
    if kind.word == "buffer":
        return Kind("in" if param.const else "out", kind.count, kind.null)
    if kind.word == "scalar" and param.base != "void":
        return Kind("either", "1", kind.null)
    return kind


def _ending(function, param, kind):
    """What a rule calls an object by its name ends all the same where the function ends it."""
    if kind.word == "handle" and param.depth == 0 and ENDS.fullmatch(function.name) and function.params[0] is param:
        return Kind("drop")
    return kind


def decide(library, function):
    """A Decided: by the annotation's fn line, then its rules, then those above."""
    note = library.note(function)
    if note and note.unsupported:
        return Decided(function, "unsupported", [], note.unsupported)
    if note and note.by_hand:
        return Decided(function, "by-hand", [], note.by_hand)
    if note and note.here:
        return Decided(function, "here", [], note.here)
    if local(function):
        return Decided(function, "automatic", [Kind("value")] * len(function.params))
    if function.ret_sort == "pointer":
        return Decided(function, "unsupported", [], "returns a pointer")
    kinds = []
    for param in function.params:
        kind = (note.params.get(param.name) if note else None) or library.rule(function, param) \
            or (Kind("record") if param.depth == 1 and param.base in library.records else None) \
            or automatic(function, param, library.handle, library.functions)
        if not kind:
            return Decided(function, "unsupported", [], "nothing says what %s is" % param.text)
        kinds.append(_shape(param, _ending(function, param, kind)))
    return Decided(function, "annotated" if note else "automatic", kinds)

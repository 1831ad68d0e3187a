# SPDX-License-Identifier: Apache-2.0
"""Annotation files: what headers do not say of a library. HACKING.md, "How to annotate a library", has the grammar."""
import dataclasses
import re

KINDS = {"plain", "record", "immediate", "end", "text", "value", "device", "handle", "new", "drop", "stream", "string", "scalar", "null", "absent", "work"}
SIZED = {"in", "out", "inout", "either", "either-out", "either-inout", "buffer", "scratch", "handles", "strings", "list", "table", "addresses", "devices"}
TYPED = {"handle", "new", "drop"}    # [TYPE]: of objects that the header calls void *
KIND = re.compile(r"([a-z-]+?)(-or-null)?(?:\[(.+)\])?$")


class AnnotationError(Exception):
    """A line that cannot be understood; names file and line."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a parameter is. @count: elements that it points at (bytes of a void), as a C expression of other parameters."""
    word: str
    count: str = ""
    null: bool = False   # NULL means something to the function; of others it is refused

    def __str__(self):
        return self.word + ("-or-null" if self.null else "") + ("[%s]" % self.count if self.count else "")


def kind(text):
    """"out[n]" to a Kind; ValueError."""
    match = KIND.match(text)
    if not match or match[1] not in KINDS | SIZED:
        raise ValueError("no kind of parameter: %s" % text)
    if match[3] and match[1] not in SIZED | TYPED:
        raise ValueError("%s has no size" % match[1])
    if not match[3] and match[1] in {"handles", "strings", "list", "scratch", "table", "addresses", "devices"}:
        raise ValueError("%s wants a size" % match[1])
    return Kind(match[1], match[3] or ("1" if match[1] in SIZED else ""), bool(match[2]))


@dataclasses.dataclass
class Rule:
    """Holds for every parameter that matches, of every function that matches."""
    functions: str
    name: str
    sort: str            # "" any; else "const ..." is looked for in the declaration
    kind: Kind
    used: int = 0


@dataclasses.dataclass
class Note:
    """One fn line."""
    functions: str
    params: dict
    unsupported: str = ""
    by_hand: str = ""
    here: str = ""
    used: int = 0


class Library:
    """One annotation file."""

    def __init__(self, path):
        self.path = path
        self.words = {"needs": [], "handle": [], "include": [], "waits": [], "proves": [], "settles": [], "keeps": [], "later": [], "opens": [], "closes": [],
                      "chosen": [], "bars": [], "noted": [], "here": [], "records": []}
        self.rules, self.notes, self.binds, self.modes, self.stands, self.ends = [], [], {}, {}, {}, {}
        self.parts = {}      # type of objects: (the function that says over how many devices one is, its parameter, its word for devices that are not the session's)
        self.hosted = {}     # type of objects: the function that makes those which work on host memory
        self.mode_setters = []
        self.functions = {}  # of its headers, by name, once they are read
        self.also = []       # (name, what it answers): exported, and in no header
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.split("#")[0].strip()
                if not line:
                    continue
                try:
                    self._line(line)
                except (ValueError, IndexError) as error:
                    raise AnnotationError("%s:%d: %s" % (path, number, error)) from error
        needed = ["library", "soname", "refused", "unsupported", "failed"]
        for word in needed + (["declared", "status"] if self.include else []):
            if word not in self.words:
                raise AnnotationError("%s: no line %s" % (path, word))

    def _line(self, line):
        word, rest = (line.split(None, 1) + [""])[:2]
        if word in ("include", "needs", "handle", "waits", "proves", "settles", "keeps", "later", "opens", "closes", "chosen", "bars", "noted", "here", "records"):
            self.words[word] += rest.split()
        elif word in ("library", "soname", "declared", "status", "refused", "unsupported", "failed", "version", "loads", "placed", "several"):
            self.words[word] = rest
        elif word == "bind":                     # bind HANDLE-TYPE SET-STREAM-FUNCTION GET-STREAM-FUNCTION
            handle, setter, getter = (rest.split() + ["", ""])[:3]
            self.binds[handle] = (setter, getter)
        elif word == "mode":                     # mode HANDLE-TYPE FUNCTION ARGUMENTS [SET-MODE-FUNCTION]
            handle, function, arguments = rest.split()[:3]
            self.modes[handle] = (function, arguments.split(","))
            self.mode_setters += rest.split()[3:]
        elif word == "rule":                     # rule [in FUNCTIONS] [const|mutable] NAMES: KIND
            self._rule(rest)
        elif word == "stands":                   # stands HANDLE-TYPE OTHER-TYPE
            other, handle = rest.split()
            self.stands[handle] = other
        elif word == "ends":                     # ends HANDLE-TYPE FUNCTION
            handle, self.ends[handle] = rest.split()
        elif word == "hosted":                   # hosted HANDLE-TYPE FUNCTION
            handle, self.hosted[handle] = rest.split()
        elif word == "parts":                    # parts HANDLE-TYPE FUNCTION PARAMETER ELSEWHERE
            handle, *said = rest.split()
            self.parts[handle] = tuple(said)
            if len(said) != 3:
                raise ValueError("parts wants a function, its parameter and a status")
        elif word == "also":                     # also ANSWER NAMES...
            answer, *names = rest.split()
            self.also += [(name, int(answer)) for name in names]
        elif word == "fn":
            self._note(rest)
        else:
            raise ValueError("no such line: %s" % word)

    def _rule(self, text):
        left, right = text.rsplit(":", 1)
        words, functions, sort = left.split(), ".*", ""
        if words[0] == "in":
            functions, words = words[1], words[2:]
        if words[0] in ("const", "mutable"):
            sort, words = words[0], words[1:]
        for name in words:
            self.rules.append(Rule(functions, name, sort, kind(right.strip())))
        if not words:
            raise ValueError("a rule without names")

    def _note(self, text):
        functions, rest = (text.split(None, 1) + [""])[:2]
        note = Note(functions, {})
        if rest.startswith("unsupported:"):
            note.unsupported = rest.split(":", 1)[1].strip()
        elif rest.startswith("by-hand:"):
            note.by_hand = rest.split(":", 1)[1].strip()
        elif rest.startswith("here:"):
            note.here = rest.split(":", 1)[1].strip()
        else:
            for word in rest.split():
                name, value = word.split("=", 1)
                note.params[name] = kind(value)
        self.notes.append(note)

    def __getattr__(self, name):
        try:
            return self.__dict__["words"][name]
        except KeyError as error:
            raise AttributeError(name) from error

    def says(self, word, function):
        """Whether a line @word names @function."""
        return any(re.fullmatch(pattern, function.name) for pattern in self.words[word])

    def note(self, function):
        """The fn line of @function, or None."""
        for note in self.notes:
            if re.fullmatch(note.functions, function.name):
                note.used += 1
                return note
        return None

    def rule(self, function, param):
        """The kind that a rule gives @param, or None."""
        for rule in self.rules:
            if rule.sort and (rule.sort == "const") != param.const:
                continue
            if rule.kind.word not in ("handle", "new", "value", "drop", "end", "table") and (param.depth == 0 or param.sort == "handle"):
                continue
            if rule.kind.word in ("handle", "drop") and param.depth != (1 if rule.kind.count else 0):
                continue
            if re.fullmatch(rule.name, param.name) and re.fullmatch(rule.functions, function.name):
                rule.used += 1
                return rule.kind
        return None

    def idle(self):
        """Lines that no function or parameter matched: of other versions of the headers, or mistaken."""
        return ["fn " + n.functions for n in self.notes if not n.used] + \
               ["rule %s" % r.name for r in self.rules if not r.used]

# SPDX-License-Identifier: Apache-2.0
"""Reads proto/ops.def and the statuses of proto/vocab.h, for the generators beside this file."""
import re
from dataclasses import dataclass, field

BEGIN = re.compile(r"^GANTRY_OP_BEGIN\((\d+), (\w+), (\d+), (.+)\)$")
FIELD = re.compile(r"^\tGANTRY_FIELD\((\w+), (\w+), (.+)\)$")
END = re.compile(r"^GANTRY_OP_END\((\w+)\)$")
STATUS = re.compile(r'^\tS\((\w+), (-\d+), "([^"]+)"\)')
GROUP = re.compile(r"^\t/\* (.+?) \*/")
BYTES = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "int32_t": 4, "uint64_t": 8}


class BadTable(Exception):
    pass


@dataclass
class Field:
    name: str
    type: str
    rule: str
    off: int

    @property
    def bytes(self):
        return BYTES[self.type]


@dataclass
class Operation:
    id: int
    name: str
    since: int
    flags: list
    comment: str
    fields: list = field(default_factory=list)


@dataclass
class Status:
    name: str
    value: int
    text: str
    group: str


def strip_comment(lines):
    """The text of a C comment, without its frame."""
    words = [line.strip().removeprefix("/*").removesuffix("*/").strip().removeprefix("* ").strip() for line in lines]
    return " ".join(word for word in words if word and word != "*")


def read_operations(path):
    operations, comment, current = [], [], None
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            if match := BEGIN.match(line):
                flags = [flag.strip().removeprefix("GANTRY_OPF_") for flag in match.group(4).split("|")]
                current = Operation(int(match.group(1)), match.group(2), int(match.group(3)), flags,
                                    strip_comment(comment))
                operations.append(current)
                comment = []
            elif match := FIELD.match(line):
                last = current.fields[-1] if current.fields else None
                current.fields.append(Field(match.group(2), match.group(1), match.group(3),
                                            last.off + last.bytes if last else 0))
            elif line.startswith("GANTRY_") and not END.match(line):
                raise BadTable(f"{path}:{number}: not understood: {line}")
            elif line.startswith("/*"):
                comment = [line]
            elif line.startswith(" *"):
                comment.append(line)
    if not operations:
        raise BadTable(f"{path}: no operations")
    return operations


def read_statuses(path):
    statuses, group = [], ""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if match := GROUP.match(line):
                group = match.group(1)
            elif match := STATUS.match(line):
                statuses.append(Status(match.group(1), int(match.group(2)), match.group(3), group))
    if not statuses:
        raise BadTable(f"{path}: no statuses")
    return statuses

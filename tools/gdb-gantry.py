# SPDX-License-Identifier: Apache-2.0
"""gdb helpers: `source tools/gdb-gantry.py`.

  gantry-handle EXPR  "buffer 3, generation 1"
  gantry-ticket EXPR  "queue 2, sequence number 17"
  gantry-status EXPR  "GANTRY_E_SPAN (-3)"

Values of the types gantry_buffer, gantry_kernel, gantry_image, gantry_queue and gantry_ticket print that way by
themselves.
"""
import gdb
import gdb.printing

TYPES = {0: "none", 1: "buffer", 2: "kernel", 3: "image", 4: "queue"}
HANDLES = ("gantry_buffer", "gantry_kernel", "gantry_image", "gantry_queue")


def describe_handle(value):
    value = int(value) & (1 << 64) - 1
    if value == 0:
        return "none"
    kind = value >> 56
    return f"{TYPES.get(kind, f'type {kind}')} {value & 0xFFFFFF}, generation {value >> 24 & 0xFFFFFFFF}"


def describe_ticket(value):
    value = int(value) & (1 << 64) - 1
    if value == 0:
        return "finished"
    return f"queue {value >> 56}, sequence number {value & (1 << 56) - 1}"


class Printer:
    def __init__(self, value, describe):
        self.value = value
        self.describe = describe

    def to_string(self):
        # Without its typedef, or this printer would be asked again.
        return f"{int(self.value):#x} ({self.describe(self.value)})"


class Printers(gdb.printing.PrettyPrinter):
    """By the name of the typedef, which gdb's own collection strips."""

    def __init__(self):
        super().__init__("gantry")

    def __call__(self, value):
        name = value.type.name
        if name in HANDLES:
            return Printer(value, describe_handle)
        if name == "gantry_ticket":
            return Printer(value, describe_ticket)
        return None


class Describe(gdb.Command):
    def __init__(self, name, describe):
        super().__init__(name, gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)
        self.describe = describe

    def invoke(self, argument, from_tty):
        print(self.describe(gdb.parse_and_eval(argument)))


def describe_status(value):
    """By the program's own enum, so that it needs no list here."""
    number = int(value)
    if number >= 0:
        return f"GANTRY_OK ({number})"
    for field in gdb.lookup_type("enum gantry_status").fields():
        if field.enumval == number:
            return f"{field.name} ({number})"
    return f"unknown ({number})"


gdb.printing.register_pretty_printer(gdb.current_objfile(), Printers(), replace=True)
Describe("gantry-handle", describe_handle)
Describe("gantry-ticket", describe_ticket)
Describe("gantry-status", describe_status)

# SPDX-License-Identifier: Apache-2.0
"""Sessions that were about to go with their machine, and of whose machine nobody says anything any more: they wait for as long as is
configured, and end. The machine is a thread here (ivpeer.py); what `gantryctl vm migrate` asks for first is asked for by us."""
import contextlib
import json
import socket
import struct

import harness
import ivpeer
import puppet
from hosts import run_chain, two

SESSION_MIGRATE, MIGRATION_PROCEED = 120, 125
DOOR = {"ivshmem": "yes", "ivshmem_size": "16M"}
SHORT = {"machine_grace": "300ms", "adoption_grace": "300ms"}


def varint(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, value):
    """Of a protobuf message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def ask(agent, number, body):
    """The admin verb with that field number; only that it is answered counts here."""
    message = field(1, 1) + field(number, body)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(harness.WAIT_S)
        sock.connect(str(agent.admin))
        sock.sendall(struct.pack("<I", len(message)) + message)
        return sock.recv(4096)


def kinds(agent):
    return [event["kind"] for event in map(json.loads, agent.ctl("--json", "events").out.splitlines())]


@contextlib.contextmanager
def world(**north):
    with two(north={**SHORT, **north}, north_tenant=DOOR, south_tenant=DOOR) as hosts, \
            ivpeer.Machine(str(hosts.north.run_dir / "doors" / "red" / "ivshmem.sock")) as machine:
        program = hosts.north.guest("red", [harness.program("puppet-guest")], env={"GANTRY_DOOR": machine.door()})
        guest = puppet.Puppet(hosts.north, "red", guest=program)
        run_chain(guest)
        yield hosts, machine, guest


def copy_ahead(hosts, guest):
    """With its machine: it is copied ahead, and then a word is waited for."""
    ask(hosts.north, SESSION_MIGRATE, field(1, guest.session) + field(2, f"{hosts.south.address}:{hosts.south.port}".encode()) + field(5, 1))
    harness.wait_until(lambda: [row["state"] for row in hosts.migrations(hosts.north)] == ["ready"], "that all is copied ahead")


def over(t, hosts, text):
    """It has ended on both sides, as is told, and nothing is left of it."""
    harness.wait_until(lambda: not hosts.north.sessions(), "its end")
    row, = hosts.migrations(hosts.north)
    t.equal(row["state"], "failed")
    t.contains(row["text"], text)
    t.true("session-unadopted" in kinds(hosts.north), f"session-unadopted not in {kinds(hosts.north)}")
    t.equal(hosts.south.sessions(), [])
    harness.wait_until(lambda: hosts.north.ctl_json("tenant", "show", "red")["tenant"]["mem_used"] == 0, "that its memory is back")


def test_session_whose_machine_left_without_a_word_waits_and_ends(t):
    with world() as (hosts, machine, guest):
        copy_ahead(hosts, guest)
        machine.close()
        over(t, hosts, "nobody has said within 300ms whether its machine is at the other host")


def test_session_whose_machine_stands_still_without_a_word_works_on(t):
    with world(adoption_grace="60s") as (hosts, _machine, guest):
        copy_ahead(hosts, guest)
        number = hosts.migrations(hosts.north)[-1]["migration_id"]
        ask(hosts.north, MIGRATION_PROCEED, field(1, number))
        harness.wait_until(lambda: hosts.migrations(hosts.north)[-1]["state"] == "failed", "that it stays")
        t.contains(hosts.migrations(hosts.north)[-1]["text"], "the session stays here")
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        t.equal(([row["state"] for row in hosts.north.sessions()], hosts.south.sessions()), (["attached"], []))


def test_session_adrift_that_nobody_sends_after_its_machine_waits_and_ends(t):
    """The agent that was to send it is another by then."""
    with world() as (hosts, machine, guest):
        copy_ahead(hosts, guest)
        hosts.north.kill_agent()
        hosts.north.wait_ready()
        machine.close()
        harness.wait_until(lambda: "session-adrift" in kinds(hosts.north), "that it is adrift")
        harness.wait_until(lambda: not hosts.north.sessions(), "its end")
        t.true("session-unadopted" in kinds(hosts.north), f"session-unadopted not in {kinds(hosts.north)}")
        t.equal(hosts.south.sessions(), [])


def test_session_that_was_not_about_to_follow_ends_with_its_machine(t):
    """What is waited for above is not waited for here."""
    with world(machine_grace="3600s", adoption_grace="3600s") as (hosts, machine, guest):
        del guest
        machine.close()
        harness.wait_until(lambda: not hosts.north.sessions(), "its end")
        t.true("session-adrift" not in kinds(hosts.north), "it was adrift")


harness.main(globals())

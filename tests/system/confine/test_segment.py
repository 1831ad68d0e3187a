# SPDX-License-Identifier: Apache-2.0
"""Worker and guest have a segment at the same address, out of the configured range, or both sides' people are told."""
import os
import re
import socket
import struct

import harness

BASE, END = 0x7E8000000000, 0x7F0000000000
HELLO = "<IHHIIIIQQQIIII16s32s"
MAGIC = 0x52444E47


def segments_of(pid):
    """(begin, end) of each mapping of a segment that is larger than its header page."""
    found = []
    try:
        with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
            lines = maps.read().splitlines()
    except PermissionError:
        raise harness.Skip("needs root: a worker's memory map is its own affair") from None
    for line in lines:
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) .*memfd:gantry-segment", line)
        if match:
            found.append((int(match.group(1), 16), int(match.group(2), 16)))
    return found


def hold(agent, *args, tenant="red"):
    guest = agent.guest(tenant, [harness.program("confine-guest"), "hold", *args])
    line = guest.read_until("session")
    number, translated = int(line.split()[1]), int(line.split()[3])
    session = next(s for s in agent.sessions() if s["session_id"] == number)
    return guest, session, bool(translated)


def test_both_sides_have_it_at_the_proposed_address(t):
    with harness.Agent() as agent:
        guest, session, translated = hold(agent)
        t.equal(translated, False, "the guest's property")
        t.equal(session["translated"], False, "the administrator's")
        t.true(BASE <= session["address"] < END, f"address {session['address']:#x}")
        place = (session["address"], session["address"] + session["segment_bytes"])
        t.equal(segments_of(guest.pid), [place], "in the guest")
        t.equal(segments_of(session["worker_pid"]), [place], "in the worker")


def test_sessions_have_places_of_their_own_and_a_place_is_used_again(t):
    with harness.Agent(tenants={"red": {"isolation": "pooled"}}) as agent:
        places, guests = set(), []
        for _ in range(3):
            guest, session, translated = hold(agent)
            t.equal(translated, False)
            guests.append(guest)
            places.add(session["address"])
        t.equal(len(places), 3)
        t.equal({begin for begin, _ in segments_of(session["worker_pid"])}, places, "in the pooled worker")
        guests[0].kill()
        harness.wait_until(lambda: len(agent.sessions()) == 2, "one session ends")
        _, session, _ = hold(agent)
        t.equal(session["address"], min(places), "the lowest free place")


def test_a_taken_address_in_the_guest_is_left_alone_and_told(t):
    with harness.Agent() as agent:
        guest, session, translated = hold(agent, f"{BASE:x}")
        t.equal(session["address"], BASE, "what was proposed")
        t.equal(translated, True, "the guest's property")
        t.equal(session["translated"], True, "the administrator's")
        t.true(segments_of(guest.pid)[0][0] != BASE, "mapped over what was there")
        t.equal(segments_of(session["worker_pid"])[0][0], BASE, "the worker has it there")


def worker_mapping(pid):
    """A place that every worker of this build has occupied: its program. Without ASLR it is the same in the next."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
        return next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith("/gantry-worker"))


def test_a_taken_address_in_the_worker_is_left_alone_and_told(t):
    if os.geteuid() != 0:
        t.skip("needs root: reading where a worker's program is")
    with harness.Agent(start=False) as agent:
        # The same places in every worker, so that a range can be chosen that is occupied.
        plain = agent.argv
        agent.argv = lambda: ["setarch", "x86_64", "-R"] + plain()
        agent.start()
        pid = harness.wait_until(lambda: next((w["pid"] for w in agent.workers() if w["state"] == "warm"), None),
                                 "a worker is ready")
        begin = worker_mapping(pid) & ~((2 << 20) - 1)
        agent.sections["agent"]["segment_range"] = f"{begin:#x}-{begin + (1 << 30):#x}"
        agent.write_config()
        t.code(agent.reload(), 0)
        guest, session, translated = hold(agent)
        t.equal(session["address"], begin, "what was proposed")
        t.equal(translated, True, "the guest's property")
        t.equal(session["translated"], True, "the administrator's")
        t.true(segments_of(session["worker_pid"])[0][0] != begin, "the worker mapped over itself")
        # The guest is not told where the worker's kernel put it.
        t.true(segments_of(guest.pid)[0][0] != segments_of(session["worker_pid"])[0][0], "the guest knows the place")


def test_a_range_that_is_full_or_none_gives_translated_sessions(t):
    with harness.Agent(agent={"segment_range": "0x7e8000000000-0x7e8000200000"}) as agent:
        _, session, translated = hold(agent)
        t.equal((session["address"], session["translated"], translated), (0, True, True), "full")
        agent.sections["agent"]["segment_range"] = "none"
        agent.write_config()
        t.code(agent.reload(), 0)
        _, session, translated = hold(agent)
        t.equal((session["address"], session["translated"], translated), (0, True, True), "none")


def test_an_address_outlives_worker_and_agent(t):
    with harness.Agent() as agent:
        guest, session, _ = hold(agent)
        agent.kill_worker(session["worker_pid"])
        after = harness.wait_until(lambda: next((s for s in agent.sessions() if s["state"] == "attached" and
                                                 s["worker_pid"] not in (0, session["worker_pid"])), None),
                                   "a successor serves it")
        t.equal(after["address"], session["address"])
        t.equal(segments_of(after["worker_pid"])[0][0], session["address"], "in the successor")
        before = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.answers() and agent.ctl("version").code == 0 and agent.agent_pid() != before,
                           "another agent serves")
        harness.wait_until(lambda: [s["state"] for s in agent.sessions()] == ["attached"], "the session is taken over")
        _, second, _ = hold(agent)
        found = next(s for s in agent.sessions() if s["session_id"] == session["session_id"])
        t.equal(found["address"], session["address"])
        t.true(second["address"] != session["address"], "the place was given twice")
        del guest


def hello(**fields):
    values = dict(version_min=1, version_max=1, heap=0, virtual=0, mem=0, nqueues=0, nslots=0, flags=0, pid=0,
                  nonce=b"", name=b"by hand")
    values.update(fields)
    return struct.pack(HELLO, MAGIC, 1, 0, 112, 0, values["version_min"], values["version_max"], values["heap"],
                       values["virtual"], values["mem"], values["nqueues"], values["nslots"], values["flags"],
                       values["pid"], values["nonce"], values["name"])


def test_nothing_a_guest_says_makes_the_host_map_anywhere_else(t):
    """Every number of HELLO as an address, and a header full of them: mappings stay in the range."""
    address = 0x10000000000
    with harness.Agent(tenants={"red": {"sessions": 64}}) as agent:
        socks = []
        for fields in ({"heap": address}, {"virtual": address}, {"mem": address}, {"nqueues": 0xFFFFFFFF},
                       {"nslots": 0xFFFFFFFF}, {"pid": 0xFFFFFFFF}, {"flags": 1},
                       {"nonce": struct.pack("<QQ", address, address)}):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect(agent.door("red"))
            sock.sendall(hello(**fields))
            data, fds, _, _ = socket.recv_fds(sock, 256, 2)
            kind = struct.unpack_from("<IH", data)[1] if data else 0
            t.true(kind in (0, 2, 3), f"{fields}: kind {kind}")
            if kind == 2:
                t.true(BASE <= struct.unpack_from("<Q", data, 40)[0] < END, f"{fields}: an address of ours")
                # All of the header's constants now say an address.
                os.pwrite(fds[0], struct.pack("<Q", address) * 16, 0)
                socks.append(sock)
            for fd in fds:
                os.close(fd)
        t.true(len(socks) > 3, "few were welcome")
        for session in agent.sessions():
            for begin, end in segments_of(session["worker_pid"]):
                t.true(BASE <= begin and end <= END, f"{begin:#x}-{end:#x}")
        # A successor takes the segment over from what the host remembers.
        worker = agent.sessions()[0]["worker_pid"]
        agent.kill_worker(worker)
        harness.wait_until(lambda: all(s["worker_pid"] not in (0, worker) and s["state"] == "attached"
                                       for s in agent.sessions()), "successors serve")
        for session in agent.sessions():
            for begin, end in segments_of(session["worker_pid"]):
                t.true(BASE <= begin and end <= END, f"{begin:#x}-{end:#x} in the successor")


def test_bad_ranges_are_refused(t):
    with harness.Agent(start=False) as agent:
        for value in ("", "0x7e8000000000", "0x7f0000000000-0x7e8000000000", "0x1000-0x200000",
                      "0x7e8000000001-0x7f0000000000", "0x7e8000000000-0xffff800000000000",
                      "0x7e8000000000-0x7f0000000000x", "7e8000000000-7f0000000000", "-"):
            agent.sections["agent"]["segment_range"] = value
            agent.write_config()
            ended = harness.run(agent.argv() + ["--check-config"])
            t.true(ended.code != 0, f"segment_range = {value} was taken")
            t.contains(ended.err + ended.out, "segment_range")


harness.main(globals())

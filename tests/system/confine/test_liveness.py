# SPDX-License-Identifier: Apache-2.0
"""A session ends with the process that opened it, whoever else holds its connection."""
import os
import socket
import struct
import subprocess

import harness

# struct gantry_door_hello of proto/door.h
HELLO = struct.pack("<IHHIIIIQQQIIII16s32s", 0x52444E47, 1, 0, 112, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, b"", b"by hand")
WELCOME = 2


def attach_by_hand(door):
    """A session without the library: nothing closes the socket in a child."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(door)
    sock.sendall(HELLO)
    data, _, _, _ = socket.recv_fds(sock, 256, 2)
    if struct.unpack_from("<IH", data)[1] != WELCOME:
        raise harness.Failure(f"no welcome: {data!r}")
    return sock


def fork_with_pipe(body):
    """A child that runs @body(answer), a descriptor it writes to; (pid, what came first)."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        try:
            body(write_end)
        finally:
            os._exit(1)
    os.close(write_end)
    text = os.read(read_end, 100)
    os.close(read_end)
    return pid, text


def no_sessions(agent):
    return not agent.sessions()


def test_a_dead_guest_whose_child_holds_the_door_is_gone(t):
    with harness.Agent() as agent:
        def guest(answer):
            sock = attach_by_hand(agent.door("red"))
            child = os.fork()
            if child == 0:
                os.close(answer)
                while sock.recv(256):  # until the agent hangs up
                    pass
                os._exit(0)
            os.write(answer, str(child).encode())
            os._exit(0)

        pid, text = fork_with_pipe(guest)
        child = int(text)
        os.waitpid(pid, 0)
        harness.wait_until(lambda: no_sessions(agent), "the dead guest's session ends", 10)
        # The agent hung up, so the child ends too: it had been alive until then.
        harness.wait_until(lambda: not harness.alive(child), "the child sees the end", 10)
        tenant = next(x for x in agent.ctl_json("tenant", "list")["tenants"] if x["name"] == "red")
        t.equal(tenant["host_mem_used"], 0, "its memory is charged no more")


def test_a_guest_that_lives_keeps_its_session_when_its_child_dies(t):
    with harness.Agent() as agent:
        sock = attach_by_hand(agent.door("red"))
        pid, _ = fork_with_pipe(lambda answer: (os.write(answer, b"x"), os._exit(0)))
        os.waitpid(pid, 0)
        t.equal(len(agent.sessions()), 1)
        sock.close()
        harness.wait_until(lambda: no_sessions(agent), "the hang-up ends it", 10)


def test_the_librarys_guest_that_forked_and_died_is_gone(t):
    with harness.Agent() as agent:
        guest = agent.guest("red", [harness.program("confine-guest"), "orphan"])
        child = int(guest.read_until("child").split()[1])
        guest.process.wait(harness.WAIT_S)
        t.true(harness.alive(child), "the child lives")
        harness.wait_until(lambda: no_sessions(agent), "the session ends", 10)
        t.true(harness.alive(child), "the child lives on")
        guest.process.stdin.close()
        harness.wait_until(lambda: not harness.alive(child), "the child ends", 10)


def test_a_restarted_agent_watches_the_guest_again(t):
    with harness.Agent() as agent:
        def guest(answer):
            sock = attach_by_hand(agent.door("red"))
            wait_read, wait_write = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(answer)
                while sock.recv(256):
                    pass
                os._exit(0)
            os.write(answer, f"{child} {wait_write}".encode())
            os.read(wait_read, 1)  # until it is killed

        pid, _ = fork_with_pipe(guest)
        before = agent.agent_pid()
        agent.kill_agent()
        harness.wait_until(lambda: agent.answers() and agent.ctl("version").code == 0 and agent.agent_pid() != before,
                           "another agent serves")
        harness.wait_until(lambda: [s["state"] for s in agent.sessions()] == ["attached"], "the session is taken over")
        harness.send_signal(pid, 9)
        os.waitpid(pid, 0)
        harness.wait_until(lambda: no_sessions(agent), "the session ends with its guest", 10)


def test_a_guest_of_a_pid_namespace_that_the_agent_cannot_see_ends_by_hanging_up(t):
    """The agent is in the namespace, the guest is not: then the kernel tells the agent no number."""
    if os.geteuid() != 0:
        t.skip("needs root: making a pid namespace")
    probe = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=False, capture_output=True)
    if probe.returncode != 0:
        t.skip(f"unshare --pid: {probe.stderr.decode().strip()}")
    with harness.Agent(start=False) as agent:
        plain = agent.argv
        agent.argv = lambda: ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] + plain()
        agent.start()
        sock = attach_by_hand(agent.door("red"))
        t.equal([s["pid"] for s in agent.sessions()], [0], "the guest's number")
        sock.close()
        harness.wait_until(lambda: no_sessions(agent), "the hang-up ends it", 10)


harness.main(globals())

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Device memory: limits are exact, it is clean, and it outlives workers and agents, in the same place."""
import gpu
import harness
from gpu import MIB

CANARY = 0xCA9A51E5CA9A51E5


def another_worker(agent, made, old):
    # An agent that has just started has its sessions a moment later.
    return harness.wait_until(lambda: any(row["pid"] == made.pid and row["worker_pid"] not in (0, old) and
                                          row["state"] == "attached" for row in agent.sessions()),
                              "another worker serves it")


def another_agent(agent, old):
    def other():
        ended = agent.ctl("--json", "--timeout", "2s", "version")
        return ended.code == 0 and ended.json()["agent"]["pid"] != old
    harness.wait_until(other, "another agent answers", 20)


def tenant(agent, name="red"):
    return agent.ctl_json("tenant", "show", name)["tenant"]


# --- limits -------------------------------------------------------------------------------------------

def test_memory_limit_is_exact(t):
    """Bytes handed out count: what rounding to slabs adds is the host's affair."""
    with gpu.world(tenants={"red": {"mem": "64M", "virtual": "1G"}}) as agent:
        made = gpu.guest(agent)
        for number in range(4):
            made.ask(f"buffer b{number} {16 * MIB} device")
            made.ask(f"pattern q t b{number} 0 {16 * MIB} 5")
            made.ask("wait t 30000")
        t.equal(tenant(agent)["mem_used"], 64 * MIB, "bytes in use at the limit")
        made.ask("buffer more 4096 device")
        made.ask("pattern q t more 0 4096 5")
        made.refused("wait t 30000", "LIMIT")
        made.ask("free b0")
        harness.wait_until(lambda: tenant(agent)["mem_used"] == 48 * MIB, "what was freed is given back")
        made.ask("pattern q t more 0 4096 5")
        made.ask("wait t 30000")
        t.equal(tenant(agent)["mem_used"], 48 * MIB + 4096, "bytes in use after one was freed")
        for number in (1, 2, 3):
            t.equal(made.ask(f"count b{number} {16 * MIB} 5"), str(2 * MIB), f"words of buffer {number}")


def test_virtual_limit_is_refused_at_the_call(t):
    with gpu.world(tenants={"red": {"mem": "64M", "virtual": "128M"}}) as agent:
        made = gpu.guest(agent)
        made.ask(f"buffer a {100 * MIB} device")
        made.refused(f"buffer b {29 * MIB} device", "LIMIT")
        made.ask(f"buffer b {27 * MIB} device")


def test_two_sessions_of_a_tenant_share_its_limit(t):
    with gpu.world(tenants={"red": {"mem": "64M"}}) as agent:
        first, second = gpu.guest(agent), gpu.guest(agent)
        first.ask(f"buffer a {48 * MIB} device")
        first.ask(f"pattern q t a 0 {48 * MIB} 1")
        first.ask("wait t 30000")
        second.ask(f"buffer a {32 * MIB} device")
        second.ask(f"pattern q t a 0 {32 * MIB} 1")
        second.refused("wait t 30000", "LIMIT")
        first.ask("free a")
        harness.wait_until(lambda: tenant(agent)["mem_used"] == 0, "what the first freed is given back")
        second.ask(f"pattern q t a 0 {32 * MIB} 1")
        second.ask("wait t 30000")


def test_full_device_says_no_memory_and_serves_when_there_is_room(t):
    pool = 256 * MIB
    tenants = {"red": {"mem": "1G"}, "blue": {"mem": "1G"}}
    with gpu.world(tenants=tenants, device={"mem": "256M"}) as agent:
        holder, other = gpu.guest(agent, "red"), gpu.guest(agent, "blue")
        holder.ask(f"buffer a {pool - 32 * MIB} device")
        holder.ask(f"pattern q t a 0 {pool - 32 * MIB} 9")
        holder.ask("wait t 60000", timeout=70)
        other.ask(f"buffer a {64 * MIB} device")
        other.ask(f"pattern q t a 0 {64 * MIB} 9")
        other.refused("wait t 30000", "NO_MEMORY")
        holder.ask("free a")

        def fits():
            other.ask(f"pattern q t a 0 {64 * MIB} 9")
            return other.tell("wait t 30000").startswith("ok")
        harness.wait_until(fits, "room that was freed serves the other tenant", 30)
        t.equal(other.ask(f"count a {64 * MIB} 9"), str(8 * MIB))


def test_program_that_finds_all_sessions_in_use_waits_or_is_refused_as_configured(t):
    tenants = {"red": {"sessions": 1, "on_full": "refuse"}, "blue": {"sessions": 1, "on_full": "queue"}}
    with gpu.world(tenants=tenants) as agent:
        first = gpu.guest(agent, "red")
        late = gpu.guest_without_session(agent, "red")
        late.refused("open timeout_ms 20000", "FULL")
        first.ask("close")
        harness.wait_until(lambda: late.tell("open timeout_ms 20000").startswith("ok"), "a place that was given up", 20)
        holder, waiter = gpu.guest(agent, "blue"), gpu.guest_without_session(agent, "blue")
        waiter.start("open timeout_ms 60000")
        t.true(not gpu.harness.select.select([waiter.process.process.stdout], [], [], 0.5)[0], "it waits")
        holder.ask("close")
        t.true(waiter.answer(30).startswith("ok"), "it is served when there is a place")


# --- clean --------------------------------------------------------------------------------------------

def test_memory_of_one_tenant_is_never_seen_by_the_next(t):
    size = gpu.BIG // 4
    with gpu.world(tenants={"red": {}, "blue": {}}) as agent:
        made = gpu.guest(agent, "red")
        made.ask(f"buffer b {size} device")
        made.ask(f"pattern q t b 0 {size} {CANARY}")
        made.ask("wait t 60000", timeout=70)
        made.kill()
        harness.wait_until(lambda: not agent.sessions(), "the dead guest's session is gone", 20)
        heir = gpu.guest(agent, "blue")
        heir.ask(f"buffer b {size} device")
        t.equal(heir.ask(f"count b {size} {CANARY}", timeout=90), "0", "canaries of another tenant")


def test_memory_given_back_within_a_session_is_clean_too(t):
    with gpu.world() as agent:
        made = gpu.guest(agent)
        for round_number in range(3):
            made.ask(f"buffer a {8 * MIB} device")
            t.equal(made.ask(f"count a {8 * MIB} {CANARY}"), "0", f"round {round_number}")
            made.ask(f"pattern q t a 0 {8 * MIB} {CANARY}")
            made.ask("wait t 30000")
            made.ask("free a")


def test_many_buffers_of_all_sizes_come_and_go_and_nothing_is_left(t):
    with gpu.world() as agent:
        made = gpu.guest(agent)
        for round_number in range(6):
            sizes = [4096, 65536, MIB, 3 * MIB, 2 * MIB, 17 * MIB, 8, 12345 * 8]
            for number, size in enumerate(sizes):
                made.ask(f"buffer b{number} {size} device")
                made.ask(f"random b{number} {size} {round_number * 100 + number}")
            for number, size in enumerate(sizes):
                t.equal(made.ask(f"same b{number} {size} {round_number * 100 + number}").split()[0], "0",
                        f"wrong words of {size} bytes")
                made.ask(f"free b{number}")
        harness.wait_until(lambda: tenant(agent)["virtual_used"] == 0, "nothing stays allocated", 20)
        t.equal(tenant(agent)["mem_used"], 0, "bytes in use")


# --- outlives -----------------------------------------------------------------------------------------

def filled(agent, name="red"):
    made = gpu.guest(agent, name)
    for number in range(4):
        made.ask(f"buffer b{number} {gpu.BIG // 4} device")
        made.ask(f"random b{number} {gpu.BIG // 4} {number}", timeout=90)
    made.sums = [made.ask(f"expect {gpu.BIG // 4} {number}", timeout=60) for number in range(4)]
    return made


def still_filled(t, made, what):
    for number in range(4):
        t.equal(made.ask(f"sum q b{number} {gpu.BIG // 4}", timeout=60), made.sums[number],
                f"{what}: contents of buffer {number}")


def places(made):
    """The device addresses of its buffers, as a kernel sees them."""
    found = []
    for number in range(4):
        made.ask(f"launch q t where 1 1 1 0 w:b{number}:0:16")
        made.ask("wait t 30000")
        found.append(made.ask(f"word b{number} 0"))
        made.ask(f"random b{number} {gpu.BIG // 4} {number}", timeout=90)
    return found


def killed_and_whole(t, mode):
    with gpu.world(mode=mode) as agent:
        made = filled(agent)
        for round_number in range(3):
            worker = gpu.worker_of(agent, made)
            agent.kill_worker(worker)
            another_worker(agent, made, worker)
            still_filled(t, made, f"kill {round_number + 1}")
        made.ask("free b0")
        made.ask(f"buffer b0 {gpu.BIG // 4} device")
        made.ask(f"random b0 {gpu.BIG // 4} 0", timeout=90)
        still_filled(t, made, "after another buffer")


@gpu.each_mode(globals())
def test_memory_outlives_a_killed_worker(t, mode):
    killed_and_whole(t, mode)


@gpu.each_mode(globals(), "isolated", "packed")
def test_buffers_keep_their_device_addresses(t, mode):
    gpu.needs_images()
    with gpu.world(mode=mode) as agent:
        made = gpu.load(filled(agent))
        made.ask("kernel where probe where w:u64*")
        before = places(made)
        t.equal(len(set(before)), 4, "four buffers, four addresses")
        worker = gpu.worker_of(agent, made)
        agent.kill_worker(worker)
        another_worker(agent, made, worker)
        t.equal(places(made), before, "addresses after the worker was killed")
        still_filled(t, made, "after all")


def test_memory_outlives_the_agent_and_then_a_worker(t):
    with gpu.world() as agent:
        made = filled(agent)
        old = agent.agent_pid()
        agent.kill_agent()
        another_agent(agent, old)
        still_filled(t, made, "after the agent was killed")
        made.ask(f"buffer more {8 * MIB} device")
        made.ask(f"random more {8 * MIB} 99")
        worker = gpu.worker_of(agent, made)
        agent.kill_worker(worker)
        another_worker(agent, made, worker)
        still_filled(t, made, "after agent and worker were killed")
        t.equal(made.ask(f"same more {8 * MIB} 99").split()[0], "0", "wrong words in what was made in between")


def test_memory_outlives_agent_and_worker_killed_together(t):
    with gpu.world() as agent:
        made = filled(agent)
        old, worker = agent.agent_pid(), gpu.worker_of(agent, made)
        agent.kill_agent()
        agent.kill_worker(worker)
        another_agent(agent, old)
        another_worker(agent, made, worker)
        still_filled(t, made, "after both were killed")


def test_sessions_that_come_and_go_leak_nothing(t):
    with gpu.world(tenants={"red": {}, "blue": {}}) as agent:
        stays = filled(agent, "blue")

        def visit(kill):
            made = gpu.guest(agent)
            made.ask(f"buffer b {8 * MIB} device")
            made.ask(f"random b {8 * MIB} 3")
            if kill:
                made.kill()
            else:
                made.ask("close")
            harness.wait_until(lambda: len(agent.sessions()) == 1, "the session is gone", 20)
        visit(False)
        with gpu.Leaks(t, agent):
            for number in range(8):
                visit(number % 2)
        still_filled(t, stays, "of who stayed")


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

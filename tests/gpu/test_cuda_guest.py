#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of CUDA in a guest that has our libcuda and libcudart, and nothing of NVIDIA's."""
import json
import os
import subprocess
import tempfile

import gpu
import harness
import test_two as two_gpus

PARTS = {
    "driver": ["devices", "contexts", "modules", "memory", "planes", "planes of arrays", "launches", "streams",
               "many streams", "attributes of streams", "entry points", "use after the end"],
    "devices": ["more streams than queues", "another device behind them"],
    "edges": ["nothing in many rows", "functions of the program that call back", "after the context",
              "streams with work are destroyed", "runs ahead", "events recorded twice", "groups", "pools", "limits", "attached memory",
              "wide parameters", "not there"],
    "link": ["linked", "what does not link"],
    "graphs": ["captured and launched", "forks and joins", "what a capture refuses", "built and changed",
               "objects live as long as graphs", "a thousand nodes", "attributes of nodes",
               "a graph as text"],
    "conditions": ["while", "if and else", "switch", "captured", "wrong nodes", "wrong uses", "bodies that are captured into",
                   "nested deeply", "many", "context ends", "what cannot be inside", "taken out again", "not changed", "too large", "exhausted", "at once",
                   "without its module"],
    "hostile": ["unknown modules", "wrong handles", "sizes that overflow", "pointers outside any allocation",
                "host pointers where device is meant", "callbacks that call back", "after the context", "after all of it"],
    "conditions of the runtime": ["conditions built", "conditions captured"],
    "hostile to the runtime": ["devices that are none", "functions and symbols that are none", "handles that are none", "sizes that overflow",
                               "pointers of nobody and of the host", "callbacks that call back", "after the reset"],
    "graph memory": ["one after the other", "side by side", "memory shared by graphs", "freed elsewhere", "freed by the next launch",
                     "captured", "misused", "moved into another", "small ones", "exhausted", "waited for"],
    "memops": ["announced", "written", "waited for here", "waited for there", "by another thread",
               "more than there is room for", "graphs are put whole", "graphs among many",
               "graphs with copies of the program's memory", "batches", "nodes of graphs", "misused"],
    "batches": ["bytes in one call", "bytes misused", "boxes in one call", "said of managed memory"],
    "tensors": ["tiles", "many", "columns of images", "misused", "clusters"],
    "ipc": {"made", "refused", "misused", "opened", "seen by both", "closed", "freed", "given back", "events made",
            "events recorded often", "events one after the other", "events opened"},
    "vmm": ["announced", "reserved", "grown", "granted", "not compressed", "moved", "misused", "exhausted"],
    "runtime": ["device", "launch", "structures", "planes", "streams"],
    "more": ["captured", "built", "allocated by graphs", "asked", "launched with attributes", "boxes", "the driver", "copies of variables", "places", "many in one call", "devices chosen"],
    "memory": ["registered pages", "registered as it lies", "registered wrongly", "registered and forked", "registered and unmapped"],
    "far": ["announced", "refused", "copied", "copied in rows", "registered", "timed", "called back", "captured"],
    "managed": ["one address", "to and fro", "tables", "pointers", "functions of the program", "copies", "graphs", "attached"],
    "textures": ["planes", "spaces and layers", "linear memory", "surfaces", "levels", "between arrays", "captured",
                 "wrong arrays", "many arrays"],
    "textures on a GPU": ["filtered", "levels between"],
    "runtime on a GPU": ["variables", "shared memory", "managed memory", "fault"],
}


def library_folder():
    if gpu.BACKEND == "cpu":
        raise harness.Skip("CUDA wants devices of CUDA")
    found = harness.find_in_build("libcudart.so.13", os.path.exists)
    if not found:
        raise harness.Skip("the build has no libcudart for guests: it had no headers of CUDA 13")
    return os.path.dirname(found)


def run(agent, name, *args):
    """The program in a guest: (exit status, its lines)."""
    env = {"LD_LIBRARY_PATH": library_folder()}
    guest = agent.guest("red", [harness.program(name), *args], env=env)
    code = guest.wait(gpu.LIMIT_S)
    return code, guest.output().split("\n")


def passed(t, code, lines, parts):
    t.equal([line for line in lines if line.startswith(("ok ", "FAILED"))], [f"ok {part}" for part in parts], "parts")
    t.equal(code, 0, "exit status")


def run_far(agent, name, *args):
    """As run(), behind the stream: no memory is shared."""
    guest = agent.guest("red", [harness.program(name), *args],
                        env={"LD_LIBRARY_PATH": library_folder(), "GANTRY_DOOR": "stream:" + agent.vsock})
    code = guest.wait(gpu.LIMIT_S)
    return code, guest.output().split("\n")


def image(fake="cuda-fake-kernels.cubin", real="cuda-kernels.fatbin"):
    name = real if gpu.REAL else fake
    path = harness.find_in_build(name, os.path.exists)
    if not path:
        raise harness.Skip(f"the build has no {name}")
    return path


def conditions():
    return image("cuda-fake-conditions.cubin", "cuda-conditions.fatbin")


def test_driver_api_from_initialisation_to_use_after_the_end(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-driver-basics", image()), PARTS["driver"])


def test_driver_api_misused(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-driver-edges", image()), PARTS["edges"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_bad_input_gets_the_code_that_cuda_documents(t, mode):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world(mode=mode) as agent:
        passed(t, *run(agent, "cuda-driver-hostile", image(), os.path.join(folder, "image")), PARTS["hostile"])
        harness.wait_until(lambda: used(agent) == (0, 0), "nothing of it is left", gpu.LIMIT_S)
        t.equal("worker-died" in agent.log(), False, agent.log())


def test_bad_input_of_the_runtime_gets_the_code_that_cuda_documents(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-runtime-hostile" if gpu.REAL else "cuda-runtime-hostile-fake"), PARTS["hostile to the runtime"])
        harness.wait_until(lambda: used(agent) == (0, 0), "nothing of it is left", gpu.LIMIT_S)


EXITS = {"returns": 7, "_exits": 7, "aborts": -6, "calls at its exit": 7, "captures": 7,
         "exits from a function of its own": 7, "exits while others wait": 7}


@gpu.each_mode(globals(), "isolated", "pooled")
def test_program_may_end_in_the_middle_of_work(t, mode):
    folder = library_folder()
    with gpu.world({"red": {}, "blue": {}}, mode=mode) as agent:
        for how, wanted in EXITS.items():
            code, lines = run(agent, "cuda-driver-hostile", image(), "exit", how)
            t.equal((code, lines), (wanted, [""]), f"a program that {how}")
            harness.wait_until(lambda: used(agent) == (0, 0) and not agent.sessions(), "nothing of it is left", gpu.LIMIT_S)
        # One whose main thread has ended, while another waits for what never comes.
        left = agent.guest("red", [harness.program("cuda-driver-hostile"), image(), "exit", "is left waiting"],
                           env={"LD_LIBRARY_PATH": folder})
        harness.wait_until(lambda: used(agent) != (0, 0), "it works", gpu.LIMIT_S)
        left.kill()
        harness.wait_until(lambda: used(agent) == (0, 0) and not agent.sessions(), "nothing of it is left", gpu.LIMIT_S)
        t.equal("worker-died" in agent.log(), False, agent.log())
        # The next is as good as any.
        passed(t, *run(agent, "cuda-driver-graphs", image()), PARTS["graphs"])


def test_what_a_program_wants_and_there_is_not_is_told_on_the_host(t):
    folder = library_folder()
    with tempfile.TemporaryDirectory() as folder_of_its_own, gpu.world() as agent:
        fifo = os.path.join(folder_of_its_own, "until")
        os.mkfifo(fifo)
        guest = agent.guest("red", [harness.program("cuda-driver-edges"), image(), fifo], env={"LD_LIBRARY_PATH": folder})
        # Both ends, so that it does not wait for the program; closed, it lets it go.
        held = os.open(fifo, os.O_RDWR)
        try:
            harness.wait_until(lambda: agent.sessions(), "the session", timeout=gpu.LIMIT_S)
            session = str(gpu.session_of(agent, guest)["session_id"])

            def missing():
                shown = json.loads(agent.ctl("--json", "session", "show", "--unsupported", session).out)["unsupported"]
                return {line["name"]: line["calls"] for line in shown}

            harness.wait_until(lambda: missing().get("cuDeviceGetLuid") == 4, "the fourth call", timeout=gpu.LIMIT_S)
            t.contains(agent.ctl("session", "show", "--unsupported", session).out, "cuLaunchKernelEx with events")
            t.contains(agent.log(), "call-missing")
            t.contains(agent.ctl("stats", "--prometheus").out, 'gantry_tenant_calls_missing_total{tenant="red"} 5')
        finally:
            os.close(held)
        t.equal(guest.wait(gpu.LIMIT_S), 0, guest.output())


def used(agent, name="red"):
    row = agent.ctl_json("tenant", "show", name)["tenant"]
    return row["mem_used"], row["virtual_used"]


@gpu.each_mode(globals(), "isolated", "pooled")
def test_memory_is_mapped_where_the_program_reserved_addresses(t, mode):
    library_folder()
    with gpu.world(mode=mode) as agent:
        passed(t, *run(agent, "cuda-driver-vmm", image()), PARTS["vmm"])
        harness.wait_until(lambda: used(agent) == (0, 0), "nothing of it is left", gpu.LIMIT_S)


@gpu.each_mode(globals(), "isolated", "pooled")
def test_addresses_are_good_after_a_worker_dies(t, mode):
    worker_dies(t, mode, "cuda-driver-addresses", ["addresses"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_mapped_memory_is_where_it_was_after_a_worker_dies(t, mode):
    worker_dies(t, mode, "cuda-driver-vmm", ["announced", "outlived"])


def worker_dies(t, mode, program, parts):
    folder = library_folder()
    with tempfile.TemporaryDirectory() as folder_of_its_own, gpu.world({"red": {}, "blue": {}}, mode=mode) as agent:
        fifo = os.path.join(folder_of_its_own, "until")
        os.mkfifo(fifo)
        # Of two in one worker, only one has the addresses that a lonely one would get.
        guests = [agent.guest(name, [harness.program(program), image(), fifo], env={"LD_LIBRARY_PATH": folder})
                  for name in ("red", "blue")]
        held = os.open(fifo, os.O_RDWR)
        try:
            for guest in guests:
                guest.read_until("waiting", timeout=gpu.LIMIT_S)
            for pid in {row["worker_pid"] for row in agent.sessions()}:
                agent.kill_worker(pid)
            harness.wait_until(lambda: agent.log().count("session-recovered") == 2, "both sessions", timeout=gpu.LIMIT_S)
        finally:
            os.close(held)
        for guest in guests:
            passed(t, guest.wait(gpu.LIMIT_S), guest.output().split("\n"), parts)


def test_behind_a_stream_pinned_memory_is_what_copies_go_through(t):
    library_folder()
    with gpu.far_world() as agent:
        passed(t, *run_far(agent, "cuda-driver-far", image()), PARTS["far"])
        harness.wait_until(lambda: not agent.sessions(), "the session ends", gpu.LIMIT_S)
        t.equal(used(agent), (0, 0), "nothing of it is left")


def test_driver_api_behind_a_stream(t):
    library_folder()
    with gpu.far_world() as agent:
        passed(t, *run_far(agent, "cuda-driver-basics", image()), PARTS["driver"])


def test_mapped_addresses_behind_a_stream(t):
    library_folder()
    with gpu.far_world() as agent:
        passed(t, *run_far(agent, "cuda-driver-vmm", image()), PARTS["vmm"])


def test_graphs_behind_a_stream(t):
    library_folder()
    with gpu.far_world() as agent:
        passed(t, *run_far(agent, "cuda-driver-graphs", image()), PARTS["graphs"])


def test_arrays_textures_and_surfaces_behind_a_stream(t):
    library_folder()
    parts = PARTS["textures"] + (PARTS["textures on a GPU"] if gpu.REAL else [])
    with gpu.far_world() as agent:
        passed(t, *run_far(agent, "cuda-runtime-textures" if gpu.REAL else "cuda-runtime-textures-fake"), parts)


def test_what_frameworks_want_of_the_runtime_behind_a_stream(t):
    library_folder()
    with gpu.far_world() as agent:
        passed(t, *run_far(agent, "cuda-runtime-more" if gpu.REAL else "cuda-runtime-more-fake"), PARTS["more"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_memory_is_shared_by_processes_of_a_tenant(t, mode):
    library_folder()
    with gpu.world(mode=mode) as agent:
        code, lines = run(agent, "cuda-driver-ipc", image())
        t.equal({line for line in lines if line.startswith(("ok ", "FAILED"))}, {f"ok {part}" for part in PARTS["ipc"]}, "parts")
        t.equal(code, 0, "exit status")
        harness.wait_until(lambda: used(agent) == (0, 0), "nothing of it is left", gpu.LIMIT_S)


class Sharing:
    """One process that has made memory, and what others do with its handle."""

    def __init__(self, agent, folder, what="make"):
        self.agent, self.file = agent, os.path.join(folder, "handle")
        self.maker = self.start(what)
        self.maker.read_until("made", timeout=gpu.LIMIT_S)

    def start(self, what, tenant="red"):
        return self.agent.guest(tenant, [harness.program("cuda-driver-ipc"), image(), what, self.file],
                                env={"LD_LIBRARY_PATH": library_folder()})

    def opened(self, what="open"):
        guest = self.start(what)
        guest.read_until("opened", timeout=gpu.LIMIT_S)
        return guest


def let_go(t, guest, part):
    guest.process.stdin.close()
    t.equal(guest.wait(gpu.LIMIT_S), 0, guest.output())
    t.contains(guest.output(), f"ok {part}")


def test_handle_of_memory_opens_nothing_for_another_tenant(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world({"red": {}, "blue": {}}) as agent:
        sharing = Sharing(agent, folder)
        stranger = sharing.start("none", "blue")
        t.equal(stranger.wait(gpu.LIMIT_S), 0, stranger.output())
        friend = sharing.opened()
        let_go(t, friend, "outlived")
        let_go(t, sharing.maker, "made")
        # Nor for anybody, once its maker is gone.
        late = sharing.start("none")
        t.equal(late.wait(gpu.LIMIT_S), 0, late.output())


def test_memory_outlives_its_maker_while_another_has_it(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world({"red": {}, "blue": {}}) as agent:
        sharing = Sharing(agent, folder)
        users = [sharing.opened(), sharing.opened()]
        sharing.maker.process.kill()
        harness.wait_until(lambda: len(agent.sessions()) == 2, "the maker's session is over", timeout=gpu.LIMIT_S)
        # Whoever comes next gets other memory, and clean.
        other = agent.guest("blue", [harness.program("cuda-driver-basics"), image()], env={"LD_LIBRARY_PATH": library_folder()})
        passed(t, other.wait(gpu.LIMIT_S), other.output().split("\n"), PARTS["driver"])
        for user in users:
            let_go(t, user, "outlived")
            t.equal(agent.log().count("session-condemned"), 0, agent.log())


def test_event_of_a_process_that_has_ended_is_not_waited_for(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world() as agent:
        sharing = Sharing(agent, folder, "promise")
        waits = sharing.opened("await")
        sharing.maker.process.kill()
        let_go(t, waits, "given up")


def test_memory_that_makers_leave_to_others_counts_for_their_tenant(t):
    library_folder()
    # 16 MiB each, of 64 and what slabs may be beyond that.
    with tempfile.TemporaryDirectory() as folder, gpu.world({"red": {"mem": "64M"}}) as agent:
        users = []
        for _ in range(12):
            try:
                sharing = Sharing(agent, folder)
            except harness.Failure:
                break
            users.append(sharing.opened())
            sharing.maker.process.kill()
            harness.wait_until(lambda: len(agent.sessions()) == len(users), "the maker's session is over", timeout=gpu.LIMIT_S)
        t.equal(4 <= len(users) < 8, True, f"{len(users)} of 16 MiB each")
        t.contains(agent.log(), "allowed")
        for user in users:
            let_go(t, user, "outlived")
        harness.wait_until(lambda: not agent.sessions(), "all are gone", timeout=gpu.LIMIT_S)
        let_go(t, Sharing(agent, folder).maker, "made")


def test_memory_of_another_process_is_good_after_its_makers_worker_has_died(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world() as agent:
        sharing = Sharing(agent, folder)
        user = sharing.opened()
        maker = gpu.session_of(agent, sharing.maker)
        agent.kill_worker(maker["worker_pid"])
        harness.wait_until(lambda: agent.log().count("session-recovered") == 1, "the maker's session", timeout=gpu.LIMIT_S)
        let_go(t, user, "outlived")
        let_go(t, sharing.maker, "made")


def test_memory_of_another_process_is_lost_with_ones_own_worker_and_opened_again(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world() as agent:
        sharing = Sharing(agent, folder)
        user = sharing.opened("lose")
        agent.kill_worker(gpu.session_of(agent, user)["worker_pid"])
        harness.wait_until(lambda: agent.log().count("session-recovered") == 1, "the session of who opened it", timeout=gpu.LIMIT_S)
        let_go(t, user, "opened again")
        let_go(t, sharing.maker, "made")


def test_memory_that_is_opened_too_late_is_not_opened_at_all(t):
    library_folder()
    points = two_gpus.failpoints()
    with tempfile.TemporaryDirectory() as folder, points, gpu.world(env=points.env) as agent:
        sharing = Sharing(agent, folder)
        points.arm("worker.borrow", points.STALL)
        late = sharing.start("late")
        late.read_until("refused", timeout=gpu.LIMIT_S)
        points.clear()
        # Another may open it.
        let_go(t, sharing.opened(), "outlived")
        let_go(t, sharing.maker, "made")
        harness.wait_until(lambda: two_gpus.slabs_on(agent, "gpu0") < 16 << 20, "who was refused has nothing of it", gpu.LIMIT_S)
        let_go(t, late, "too late")


def test_memory_that_was_shared_is_not_the_next_tenants_after_the_agent_has_died(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world({"red": {}, "blue": {}}) as agent:
        sharing = Sharing(agent, folder)
        user = sharing.opened()
        agent.kill_agent()
        harness.wait_until(lambda: "agent-restarted" in agent.log(), "the next agent", timeout=gpu.LIMIT_S)
        # It knows which of the maker's slabs others have: they are not cleared under them.
        sharing.maker.process.kill()
        harness.wait_until(lambda: len(agent.sessions()) == 1, "the maker's session is over", timeout=gpu.LIMIT_S)
        other = agent.guest("blue", [harness.program("cuda-driver-basics"), image()], env={"LD_LIBRARY_PATH": library_folder()})
        passed(t, other.wait(gpu.LIMIT_S), other.output().split("\n"), PARTS["driver"])
        let_go(t, user, "outlived")


def test_graphs_captured_and_built(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-driver-graphs", image()), PARTS["graphs"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_graphs_with_conditions(t, mode):
    library_folder()
    with gpu.world(mode=mode) as agent:
        passed(t, *run(agent, "cuda-driver-conditions", conditions()), PARTS["conditions"])
        harness.wait_until(lambda: used(agent) == (0, 0), "nothing of it is left", gpu.LIMIT_S)


def test_graphs_with_conditions_of_the_runtime(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-runtime-conditions" if gpu.REAL else "cuda-runtime-conditions-fake"), PARTS["conditions of the runtime"])


def test_graph_whose_condition_holds_for_ever_ends_at_the_deadline(t):
    folder = library_folder()
    with gpu.world({"red": {"deadline": "1s"}, "blue": {}}) as agent:
        guest = agent.guest("red", [harness.program("cuda-driver-conditions"), conditions(), "endless"],
                            env={"LD_LIBRARY_PATH": folder})
        guest.read_until("launched", timeout=gpu.LIMIT_S)
        other = agent.guest("blue", [harness.program("cuda-driver-conditions"), conditions()], env={"LD_LIBRARY_PATH": folder})
        t.equal(guest.wait(gpu.LIMIT_S), 0, guest.output())
        launched, end = guest.output().split("\n")
        passed(t, other.wait(gpu.LIMIT_S), other.output().split("\n"), PARTS["conditions"])
        # NVIDIA's driver may fail such a graph before, natively too, where another process has graphs with conditions beside it.
        if gpu.REAL and end == "ended with CUDA_ERROR_LAUNCH_FAILED":
            t.contains(agent.log(), "device-fault tenant=red")
        else:
            t.equal((launched, end), ("launched", "ended with CUDA_ERROR_LAUNCH_TIMEOUT"), "lines")
            t.contains(agent.log(), "deadline")


def test_condition_set_by_a_number_that_is_none_is_the_programs_own_fault(t):
    folder = library_folder()
    if gpu.REAL:
        raise harness.Skip("what a GPU does with such a number is not documented")
    with gpu.world({"red": {}, "blue": {}}) as agent:
        code, lines = run(agent, "cuda-driver-conditions", conditions(), "strays")
        t.equal((code, lines), (0, ["ended with CUDA_ERROR_ILLEGAL_ADDRESS"]), "how it ended")
        other = agent.guest("blue", [harness.program("cuda-driver-conditions"), conditions()], env={"LD_LIBRARY_PATH": folder})
        passed(t, other.wait(gpu.LIMIT_S), other.output().split("\n"), PARTS["conditions"])


def test_guest_killed_while_its_condition_holds(t):
    folder = library_folder()
    with gpu.world() as agent:
        guest = agent.guest("red", [harness.program("cuda-driver-conditions"), conditions(), "endless"],
                            env={"LD_LIBRARY_PATH": folder})
        guest.read_until("launched", timeout=gpu.LIMIT_S)
        guest.kill()
        harness.wait_until(lambda: used(agent) == (0, 0), "nothing of it is left", gpu.LIMIT_S)
        passed(t, *run(agent, "cuda-driver-conditions", conditions()), PARTS["conditions"])


def test_graphs_with_conditions_are_lost_with_their_worker(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder_of_its_own, gpu.world() as agent:
        fifo = os.path.join(folder_of_its_own, "until")
        os.mkfifo(fifo)
        guest = agent.guest("red", [harness.program("cuda-driver-conditions"), conditions(), "lost", fifo],
                            env={"LD_LIBRARY_PATH": library_folder()})
        held = os.open(fifo, os.O_RDWR)
        try:
            guest.read_until("waiting", timeout=gpu.LIMIT_S)
            agent.kill_worker(agent.sessions()[0]["worker_pid"])
            harness.wait_until(lambda: "session-recovered" in agent.log(), "the session", timeout=gpu.LIMIT_S)
        finally:
            os.close(held)
        t.equal(guest.wait(gpu.LIMIT_S), 0, guest.output())
        t.equal(guest.output().split("\n"), ["waiting", "ended with CUDA_ERROR_NOT_FOUND", "sum 5"], "lines")


@gpu.each_mode(globals(), "isolated", "pooled")
def test_graphs_that_allocate_and_free(t, mode):
    library_folder()
    with gpu.world(mode=mode) as agent:
        passed(t, *run(agent, "cuda-driver-graph-memory", image()), PARTS["graph memory"])
        harness.wait_until(lambda: used(agent) == (0, 0), "nothing of it is left", gpu.LIMIT_S)


def test_copies_in_batches_and_advice_on_managed_memory(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-driver-batches"), PARTS["batches"])


def test_device_gets_a_context_when_another_has_used_the_queues(t):
    library_folder()
    with gpu.world(count=2) as agent:
        passed(t, *run(agent, "cuda-driver-devices"), PARTS["devices"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_descriptors_of_tensors_and_clusters(t, mode):
    library_folder()
    with gpu.world(mode=mode) as agent:
        passed(t, *run(agent, "cuda-driver-tensors", image()), PARTS["tensors"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_words_that_streams_write_and_wait_for(t, mode):
    library_folder()
    with gpu.world(mode=mode) as agent:
        passed(t, *run(agent, "cuda-driver-memops", image()), PARTS["memops"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_endless_wait_for_a_word_is_nobody_elses(t, mode):
    folder = library_folder()
    with gpu.world({"red": {}, "blue": {}}, mode=mode) as agent:
        waiting = agent.guest("blue", [harness.program("cuda-driver-memops"), image(), "endless"],
                              env={"LD_LIBRARY_PATH": folder})
        waiting.read_until("ok endless", timeout=gpu.LIMIT_S)
        passed(t, *run(agent, "cuda-driver-memops", image()), PARTS["memops"])
        waiting.kill()
        harness.wait_until(lambda: used(agent, "blue") == (0, 0), "nothing of it is left", gpu.LIMIT_S)
        # The worker is as it was.
        passed(t, *run(agent, "cuda-driver-memops", image()), PARTS["memops"])


def test_kernel_that_strays_beside_variables_is_told_as_such(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-driver-fault", image()), ["fault"])
        t.equal("cannot be" in agent.log() or "outside the slab" in agent.log(), False, agent.log())


# The one that says of itself that its kernels print.
SPEAKING = "cuda-fake-kernels.fatbin"


def kernel_lines(*numbers):
    return [f"kernel line {n}" for n in numbers]


def test_what_kernels_print_comes_among_what_the_program_prints(t):
    library_folder()
    with gpu.world() as agent:
        code, lines = run(agent, "cuda-driver-output", image(SPEAKING), "order")
        t.equal(lines, ["program 1", *kernel_lines(1, 2), "program 2", *kernel_lines(3), "program 3", *kernel_lines(4),
                             "program 4", *kernel_lines(5), "program 5", *kernel_lines(6), "function 1", "program 6", "ok order"],
                "lines")
        t.equal(code, 0, "exit status")


def test_what_kernels_print_behind_a_stream(t):
    library_folder()
    with gpu.far_world() as agent:
        code, lines = run_far(agent, "cuda-driver-output", image(SPEAKING), "order")
        t.equal(lines, ["program 1", *kernel_lines(1, 2), "program 2", *kernel_lines(3), "program 3", *kernel_lines(4),
                             "program 4", *kernel_lines(5), "program 5", *kernel_lines(6), "function 1", "program 6", "ok order"],
                "lines")
        t.equal(code, 0, "exit status")
        code, lines = run_far(agent, "cuda-driver-output", image(SPEAKING), "much")
        t.equal(lines == [*kernel_lines(*range(10000)), "ok much"], True, f"{len(lines)} lines, {lines[:2]}")
        t.equal(code, 0, "exit status")
        code, lines = run_far(agent, "cuda-driver-output", image(SPEAKING), "assert")
        t.equal([line for line in lines if "Assertion" not in line], ["kernel line 1", "program 1", "ok assert"], "lines")
        t.equal(code, 0, "exit status")


def test_what_many_kernels_print_comes_whole(t):
    library_folder()
    with gpu.world() as agent:
        code, lines = run(agent, "cuda-driver-output", image(SPEAKING), "much")
        t.equal(lines == [*kernel_lines(*range(10000)), "ok much"], True, f"{len(lines)} lines, {lines[:2]}")
        t.equal(code, 0, "exit status")


def test_the_limit_of_what_kernels_print_is_the_drivers(t):
    library_folder()
    with gpu.world() as agent:
        code, lines = run(agent, "cuda-driver-output", image(SPEAKING), "limit")
        t.equal(lines[-2:], ["kernel line 99999", "ok limit"], "the newest")
        t.equal(1000 < len(lines) < 90000, True, f"{len(lines)} lines")
        t.equal(code, 0, "exit status")


def test_what_kernels_print_in_a_worker_of_several_sessions_is_dropped_and_told(t):
    library_folder()
    with gpu.world(mode="pooled") as agent:
        code, lines = run(agent, "cuda-driver-output", image(SPEAKING), "nobody")
        t.equal(lines, ["program 1", "ok nobody"], "lines")
        t.equal(code, 0, "exit status")
        t.contains(agent.log(), "what kernels print is dropped")
        t.equal("kernel line" in agent.log(), False, "nothing of it is in the log")


def test_kernels_print_also_after_their_worker_has_died(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder_of_its_own, gpu.world() as agent:
        fifo = os.path.join(folder_of_its_own, "until")
        os.mkfifo(fifo)
        guest = agent.guest("red", [harness.program("cuda-driver-output"), image(SPEAKING), "twice", fifo],
                            env={"LD_LIBRARY_PATH": library_folder()})
        held = os.open(fifo, os.O_RDWR)
        try:
            guest.read_until("waiting", timeout=gpu.LIMIT_S)
            agent.kill_worker(agent.sessions()[0]["worker_pid"])
            harness.wait_until(lambda: "session-recovered" in agent.log(), "the session", timeout=gpu.LIMIT_S)
        finally:
            os.close(held)
        t.equal(guest.wait(gpu.LIMIT_S), 0, guest.output())
        t.equal(guest.output().split("\n"), ["kernel line 1", "waiting", "kernel line 2", "ok twice"], "lines")


def test_failed_assertion_is_told_as_such_and_says_where(t):
    library_folder()
    with gpu.world() as agent:
        code, lines = run(agent, "cuda-driver-output", image(SPEAKING), "assert")
        t.equal([line for line in lines if "Assertion" not in line], ["kernel line 1", "program 1", "ok assert"], "lines")
        t.equal(len([line for line in lines if "Assertion" in line]), 1, "assertions")
        t.equal("Assertion" in agent.log(), False, "nothing of it is in the log")
        t.equal(code, 0, "exit status")


def test_failed_assertion_in_a_worker_of_several_sessions_is_the_logs(t):
    library_folder()
    with gpu.world(mode="pooled") as agent:
        code, lines = run(agent, "cuda-driver-output", image(SPEAKING), "assert-nobody")
        t.equal(lines, ["program 1", "ok assert-nobody"], "lines")
        t.equal(code, 0, "exit status")
        harness.wait_until(lambda: "Assertion" in agent.log(), "the log has it", gpu.LIMIT_S)
        line = [line for line in agent.log().split("\n") if "Assertion" in line][0]
        t.contains(line, "standard error: ")


# Of the second the first has what it calls; the fake driver's name an object each, and one a symbol of the other's.
PTX = {
    "a": """.visible .func (.param .b32 r) answer()
{
    .reg .b32 %r1;
    mov.b32 %r1, 42;
    st.param.b32 [r], %r1;
    ret;
}
""",
    "b": """.extern .func (.param .b32 r) answer();
.visible .entry linked(.param .u64 out)
{
    .reg .b32 %r1;
    .reg .u64 %rd<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    {
        .param .b32 r;
        call (r), answer, ();
        ld.param.b32 %r1, [r];
    }
    st.global.u32 [%rd2], %r1;
    ret;
}
""",
}
FAKE_PTX = {"a": ("tests/fakecuda/fakecuda-kernels.so", ""),
            "b": ("tests/cuda-programs/cuda-fake-kernels.so", "// NEEDS fakecuda_step\n")}


def write_ptx(folder, name):
    path = os.path.join(folder, f"{name}.ptx")
    with open(path, "w", encoding="ascii") as out:
        out.write(".version 7.0\n.target sm_80\n.address_size 64\n" if gpu.REAL else ".version 7.0\n")
        if gpu.REAL:
            out.write(PTX[name])
        else:
            so, needs = FAKE_PTX[name]
            out.write(f"// FAKECUDA so={harness.find_in_build(os.path.basename(so), os.path.exists)} arch=sm_90\n{needs}")
    return path


def test_images_linked_on_the_spot(t):
    library_folder()
    with tempfile.TemporaryDirectory() as folder, gpu.world() as agent:
        also = [] if gpu.REAL else ["step"]
        passed(t, *run(agent, "cuda-driver-link", write_ptx(folder, "a"), write_ptx(folder, "b"), *also), PARTS["link"])


def test_program_of_nvcc_with_the_shared_runtime(t):
    library_folder()
    name = "cuda-runtime-basics" if gpu.REAL else "cuda-runtime-basics-fake"
    parts = PARTS["runtime"] + (PARTS["runtime on a GPU"] if gpu.REAL else [])
    with gpu.world() as agent:
        passed(t, *run(agent, name), parts)


def test_what_frameworks_want_of_the_runtime(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-runtime-more" if gpu.REAL else "cuda-runtime-more-fake"), PARTS["more"])


def test_memory_of_the_program_that_it_registers(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-runtime-memory" if gpu.REAL else "cuda-runtime-memory-fake"), PARTS["memory"])


@gpu.each_mode(globals(), "isolated", "pooled")
def test_managed_variables_are_the_programs_and_the_kernels(t, mode):
    library_folder()
    with gpu.world(mode=mode) as agent:
        passed(t, *run(agent, "cuda-runtime-managed" if gpu.REAL else "cuda-runtime-managed-fake"), PARTS["managed"])


def test_managed_variables_stay_on_their_device(t):
    library_folder()
    with gpu.world(count=2) as agent:
        passed(t, *run(agent, "cuda-runtime-managed" if gpu.REAL else "cuda-runtime-managed-fake", "two"), ["two devices"])


def test_managed_variables_by_the_driver_api(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-driver-managed", image(real="cuda-managed.fatbin")), ["looked up", "unloaded"])


def test_managed_variable_where_the_program_has_other_memory_is_refused(t):
    library_folder()
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-driver-managed", image(real="cuda-managed.fatbin"), "taken"), ["taken"])


def test_managed_variables_are_not_forged_after_their_worker_has_died(t):
    folder = library_folder()
    with tempfile.TemporaryDirectory() as folder_of_its_own, gpu.world() as agent:
        fifo = os.path.join(folder_of_its_own, "until")
        os.mkfifo(fifo)
        guest = agent.guest("red", [harness.program("cuda-driver-managed"), image(real="cuda-managed.fatbin"), fifo],
                            env={"LD_LIBRARY_PATH": folder})
        held = os.open(fifo, os.O_RDWR)
        try:
            guest.read_until("waiting", timeout=gpu.LIMIT_S)
            agent.kill_worker(agent.sessions()[0]["worker_pid"])
            harness.wait_until(lambda: "session-recovered" in agent.log(), "the session", timeout=gpu.LIMIT_S)
        finally:
            os.close(held)
        passed(t, guest.wait(gpu.LIMIT_S), guest.output().split("\n"), ["lost"])


def test_arrays_textures_and_surfaces(t):
    library_folder()
    parts = PARTS["textures"] + (PARTS["textures on a GPU"] if gpu.REAL else [])
    with gpu.world() as agent:
        passed(t, *run(agent, "cuda-runtime-textures" if gpu.REAL else "cuda-runtime-textures-fake"), parts)


def test_gantryctl_run_brings_the_libraries(t):
    library_folder()
    name = "cuda-runtime-basics" if gpu.REAL else "cuda-runtime-basics-fake"
    with gpu.world() as agent:
        if "libcuda" not in agent.ctl("run", "red", "--", "sh", "-c", "ls $LD_LIBRARY_PATH").out:
            raise harness.Skip("the libraries are not where gantryctl looks: this is a bundle")
        done = agent.ctl("run", "red", "--", harness.program(name), timeout=gpu.LIMIT_S)
        passed(t, done.code, done.out.split("\n"), PARTS["runtime"] + (PARTS["runtime on a GPU"] if gpu.REAL else []))
        # What the caller has is behind ours.
        shown = harness.run([harness.program("gantryctl"), "--socket", agent.admin, "run", "red", "--",
                             "sh", "-c", "echo $LD_LIBRARY_PATH"], env=dict(agent.env, LD_LIBRARY_PATH="/else/where")).out
        t.equal(shown.strip().endswith("/cuda:/else/where"), True, shown)


def test_without_a_door_there_is_no_device(t):
    folder = library_folder()
    name = "cuda-runtime-basics" if gpu.REAL else "cuda-runtime-basics-fake"
    done = subprocess.run([harness.program(name)], env={"LD_LIBRARY_PATH": folder, "GANTRY_DOOR": "unix:/nonexistent"},
                          capture_output=True, text=True, timeout=60, check=False)
    t.equal(done.returncode, 1, "exit status")
    t.equal("cudaErrorNoDevice" in done.stdout, True, done.stdout)


def test_libraries_need_nothing_of_nvidia(t):
    folder = library_folder()
    for name, needs in (("libcuda.so.1", set()), ("libcudart.so.13", {"libcuda.so.1"})):
        listed = subprocess.run(["readelf", "-d", os.path.join(folder, name)], capture_output=True, text=True, check=False)
        if listed.returncode != 0:
            raise harness.Skip("there is no readelf")
        needed = {line.split("[")[1].split("]")[0] for line in listed.stdout.split("\n") if "(NEEDED)" in line}
        t.equal({n for n in needed if not n.startswith(("libc.", "libpthread", "ld-linux", "libdl"))}, needs, name)


def test_the_driver_with_its_thread_is_not_unloaded(t):
    listed = subprocess.run(["readelf", "-d", os.path.join(library_folder(), "libcuda.so.1")], capture_output=True, text=True,
                            check=False)
    if listed.returncode != 0:
        raise harness.Skip("there is no readelf")
    t.equal("NODELETE" in listed.stdout, True, listed.stdout)


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)

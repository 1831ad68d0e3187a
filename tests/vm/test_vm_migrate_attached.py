# SPDX-License-Identifier: Apache-2.0
"""gantryctl vm migrate with the device in the machine: its programs do nothing of their own, and notice a pause."""
import harness
import shared
import two_hosts
from two_hosts import end_pipeline, wait_for_work


class World(two_hosts.World):
    attached = True

    def restore(self):
        for host in (self.north, self.south):
            host.tunnel.hold.clear()
            harness.wait_until(lambda h=host: not h.agent.sessions(), f"no sessions are left at {host.name}")


WORLD = shared.Shared(World)


@two_hosts.emulated
def test_pipeline_at_the_shared_memory_door_goes_there_and_back_and_knows_of_nothing(t):
    with WORLD() as world:
        here, there = world.host(), world.other()
        guest = world.pipeline(door="ivshmem:")
        wait_for_work(here)
        for source, target in ((here, there), (there, here)):
            done = world.go("--attached")
            t.note(str(done))
            wait_for_work(target)
        said = end_pipeline(t, guest)
        t.note(str(said))


harness.main(globals(), limit_s=400)

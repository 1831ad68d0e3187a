# SPDX-License-Identifier: Apache-2.0
"""Sessions that go from host to host while their guests work."""
import harness
import puppet
from hosts import run_chain, two


def test_session_goes_to_another_host_and_its_guest_follows(t):
    with two() as hosts:
        guest = hosts.guest()
        t.equal(run_chain(guest), puppet.chain_value(40))
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session)
        t.equal(done.code, 0, str(done))
        t.contains(done.out, "has moved to 127.0.0.1")
        t.equal(hosts.north.sessions(), [])
        t.equal(run_chain(guest), 2 * puppet.chain_value(40))
        arrived = hosts.south.sessions()
        t.equal(len(arrived), 1)
        t.equal(arrived[0]["state"], "attached")
        guest.do("close")
        harness.wait_until(lambda: not hosts.south.sessions(), "the session's end")


harness.main(globals())

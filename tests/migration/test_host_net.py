# SPDX-License-Identifier: Apache-2.0
"""Two agents in network namespaces of their own, joined by one link: as two hosts are. Needs root."""
import harness
import hosts as world
import puppet

NORTH, SOUTH = world.APART.values()


def two():
    return world.two(apart=True)


def test_session_goes_over_a_network_and_back(t):
    with two() as hosts:
        guest = hosts.guest()
        t.equal(world.run_chain(guest), puppet.chain_value(40))
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session, to=SOUTH)
        t.equal(done.code, 0, str(done))
        t.equal(world.run_chain(guest), 2 * puppet.chain_value(40))
        hosts.follow(hosts.north)
        done = hosts.migrate(hosts.south.sessions()[0]["session_id"], source=hosts.south, to=NORTH)
        t.equal(done.code, 0, str(done))
        t.equal(world.run_chain(guest), 3 * puppet.chain_value(40))


def test_address_that_the_certificate_is_not_for_is_refused(t):
    with two() as hosts:
        hosts.link.nets["south"].address(hosts.link.ends["south"], "10.213.7.3")
        hosts.south.sections["agent"]["migration_listen"] = f"0.0.0.0:{world.PORT}"
        hosts.south.write_config()
        t.equal(hosts.south.reload().code, 0)
        guest = hosts.guest()
        world.run_chain(guest)
        ended = hosts.migrate(guest.session, to="10.213.7.3")
        t.equal(ended.code, 4, str(ended))
        t.contains(ended.err, "another host's")
        t.equal(world.run_chain(guest), 2 * puppet.chain_value(40))


def test_link_that_goes_down_leaves_the_session_where_it_was(t):
    with two() as hosts:
        guest = hosts.guest()
        guest.do("alloc 1 33554432")
        guest.do("fill 0 1 33554432 7")
        world.run_chain(guest)
        begun = hosts.migrate(guest.session, "--bandwidth", "2M", "--no-wait", to=SOUTH)
        t.equal(begun.code, 0, str(begun))
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["page_bytes"] > 0, "the first pages")
        hosts.link.nets["north"].set_up(hosts.link.ends["north"], False)
        t.equal(world.run_chain(guest), 2 * puppet.chain_value(40))
        t.equal(hosts.north.ctl("migration", "cancel", begun.out.strip()).code, 0)
        t.equal(world.run_chain(guest), 3 * puppet.chain_value(40))
        hosts.link.nets["north"].set_up(hosts.link.ends["north"])


harness.main(globals())

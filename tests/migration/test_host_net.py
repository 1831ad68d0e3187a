# SPDX-License-Identifier: Apache-2.0
"""Two agents in network namespaces of their own, joined by one link: as two hosts are. Needs root."""
import contextlib
import os
import shutil
import subprocess
import tempfile

import harness
import hosts as world
import puppet

PORT = 16601


class Far(harness.Agent):
    """An agent whose processes are in network namespace @net."""

    def __init__(self, net, **options):
        self.net = net
        super().__init__(**options)

    def argv(self):
        return ["ip", "netns", "exec", self.net] + super().argv()


def ip(*words):
    ended = subprocess.run(["ip", *words], capture_output=True, text=True)
    if ended.returncode:
        raise harness.Skip(f"no network namespaces here: ip {' '.join(words)}: {ended.stderr.strip()}")


@contextlib.contextmanager
def link():
    """Two namespaces and a link between them: north is 10.213.7.1, south 10.213.7.2."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise harness.Skip("network namespaces need root and iproute2")
    names = [f"gantry-{os.getpid()}-{side}" for side in ("north", "south")]
    with contextlib.ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
        ends = [f"gh{os.getpid() % 100000}{side}" for side in "ns"]
        ip("link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for number, (name, end) in enumerate(zip(names, ends), 1):
            ip("-n", name, "addr", "add", f"10.213.7.{number}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names, ends


@contextlib.contextmanager
def two():
    folder = tempfile.mkdtemp(prefix="gn-")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        names, ends = stack.enter_context(link())
        made = subprocess.run([str(world.MAKE_CERTIFICATES), os.path.join(folder, "pki"), "north=10.213.7.1",
                               "south=10.213.7.2"], capture_output=True, text=True)
        if made.returncode:
            raise harness.Skip(f"make-certificates: {made.stderr.strip()}")
        agents = []
        for number, (name, net) in enumerate(zip(("north", "south"), names), 1):
            stream = os.path.join(folder, name)
            agent = stack.enter_context(Far(net, tenants={"red": {"vsock_path": stream}}, agent={
                "migration_listen": f"10.213.7.{number}:{PORT}", "migration_name": name, "vsock_grace": "60s",
                "migration_certificates": os.path.join(folder, "pki", name)}))
            agent.vsock, agent.port = stream, PORT
            harness.wait_until(lambda: os.path.exists(stream), "the stream socket")
            agents.append(agent)
        hosts = world.Hosts(*agents, folder)
        hosts.names, hosts.ends = names, ends
        stack.callback(hosts.close)
        yield hosts


def test_session_goes_over_a_network_and_back(t):
    with two() as hosts:
        guest = hosts.guest()
        t.equal(world.run_chain(guest), puppet.chain_value(40))
        hosts.follow(hosts.south)
        done = hosts.migrate(guest.session, to="10.213.7.2")
        t.equal(done.code, 0, str(done))
        t.equal(world.run_chain(guest), 2 * puppet.chain_value(40))
        hosts.follow(hosts.north)
        done = hosts.migrate(hosts.south.sessions()[0]["session_id"], source=hosts.south, to="10.213.7.1")
        t.equal(done.code, 0, str(done))
        t.equal(world.run_chain(guest), 3 * puppet.chain_value(40))


def test_address_that_the_certificate_is_not_for_is_refused(t):
    with two() as hosts:
        ip("-n", hosts.names[1], "addr", "add", "10.213.7.3/24", "dev", hosts.ends[1])
        hosts.south.sections["agent"]["migration_listen"] = f"0.0.0.0:{PORT}"
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
        begun = hosts.migrate(guest.session, "--bandwidth", "2M", "--no-wait", to="10.213.7.2")
        t.equal(begun.code, 0, str(begun))
        harness.wait_until(lambda: hosts.migrations(hosts.north)[0]["page_bytes"] > 0, "the first pages")
        ip("-n", hosts.names[0], "link", "set", hosts.ends[0], "down")
        t.equal(world.run_chain(guest), 2 * puppet.chain_value(40))
        t.equal(hosts.north.ctl("migration", "cancel", begun.out.strip()).code, 0)
        t.equal(world.run_chain(guest), 3 * puppet.chain_value(40))
        ip("-n", hosts.names[0], "link", "set", hosts.ends[0], "up")


harness.main(globals())

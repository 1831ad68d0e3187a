# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: an agent each, with certificates for each other, and a guest behind a stream that follows. Both are
at the machine's own address, or, as root, each in a network namespace of its own, with one link between them."""
import contextlib
import functools
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import harness
import nets
import puppet
from streamproxy import Proxy

MAKE_CERTIFICATES = harness.SOURCE / "deploy" / "make-certificates"
HERE = "127.0.0.1"
APART = {"north": "10.213.7.1", "south": "10.213.7.2"}  # in namespaces of their own
PORT = 16601  # the agent's, unless told otherwise


@functools.lru_cache(maxsize=None)
def certificates():
    """A folder with those of north, south, and, of another authority, stranger/north. Made once for a test file."""
    if not shutil.which("openssl"):
        raise harness.Skip("openssl is missing: it makes the certificates")
    folder = tempfile.mkdtemp(prefix="gantry-certs-")
    import atexit
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    known = [f"{name}={HERE},{address}" for name, address in APART.items()]
    for path, hosts in ((folder, [*known, "elsewhere"]), (os.path.join(folder, "strangers"), known)):
        made = subprocess.run([str(MAKE_CERTIFICATES), path, *hosts], capture_output=True, text=True)
        if made.returncode:
            raise harness.Failure(f"make-certificates: {made.stderr}")
    return folder


class Link:
    """Two namespaces, .nets by host, and a link between them, whose .ends have the addresses APART."""

    def __init__(self, stack):
        if os.geteuid() != 0:
            raise harness.Skip("network namespaces need root")
        if not shutil.which("nsenter"):
            raise harness.Skip("nsenter (util-linux) is missing: it runs programs in network namespaces")
        self.ends = {name: f"gantry-{name}" for name in APART}
        try:
            self.nets = {name: stack.enter_context(contextlib.closing(nets.Net())) for name in APART}
            self.nets["north"].join(self.ends["north"], self.nets["south"], self.ends["south"])
            for name, net in self.nets.items():
                net.address(self.ends[name], APART[name])
                net.set_up(self.ends[name])
                net.set_up("lo")
        except OSError as why:
            raise harness.Skip(f"no network namespaces here: {why}") from why


class Far(harness.Agent):
    """An agent whose processes are in network namespace @net; None: in ours."""

    def __init__(self, net, **options):
        self.net = net
        super().__init__(**options)

    def argv(self):
        return (self.net.argv() if self.net else []) + super().argv()


class Hosts:
    """north and south; .front is a socket that leads a guest to where its session is."""

    def __init__(self, north, south, folder):
        self.north, self.south = north, south
        self.front = os.path.join(folder, "front")
        self.proxy = Proxy(self.front, north.vsock)

    def follow(self, agent):
        """From now on new connections go there."""
        self.proxy.target = agent.vsock

    def guest(self, agent=None, **options):
        agent = agent or self.north
        made = agent.guest("red", [harness.program("puppet-guest")], env={"GANTRY_DOOR": "stream:" + self.front})
        return puppet.Puppet(agent, "red", guest=made, **options)

    def migrate(self, session, *args, source=None, to=None, timeout=120):
        """gantryctl session migrate, to its end."""
        source = source or self.north
        target = self.south if source is self.north else self.north
        return source.ctl("session", "migrate", str(session), "--to", to or f"{target.address}:{target.port}", *args,
                          timeout=timeout)

    def migrations(self, agent):
        return agent.ctl_json("migration", "list")["migrations"]

    def close(self):
        self.proxy.close()


def agent_of(name, folder, keys, tenant, devices=None, env=None, others=(), link=None):
    address, port = (APART[name], PORT) if link else (HERE, harness.free_port())
    stream = os.path.join(folder, name)
    made = {"migration_listen": f"{address}:{port}", "migration_name": name,
            "migration_certificates": os.path.join(certificates(), name), "vsock_grace": "60s", **keys}
    tenants = {"red": {"vsock_path": stream, **tenant}, **{other: {} for other in others}}
    agent = Far(link and link.nets[name], devices=devices, tenants=tenants,
                agent={key: value for key, value in made.items() if value is not None}, env=env)
    agent.vsock, agent.address, agent.port = stream, address, port
    harness.wait_until(lambda: os.path.exists(stream), "the stream socket")
    return agent


@contextlib.contextmanager
def two(north=None, south=None, north_tenant=None, south_tenant=None, devices=None, north_env=None, south_env=None,
        others=(), apart=False):
    """north, south: keys of [agent] that differ; *_tenant: of tenant red; devices: of both; *_env: of its processes; others: tenants;
    apart: in namespaces (.link)."""
    folder = tempfile.mkdtemp(prefix="gh-")
    try:
        with contextlib.ExitStack() as stack:
            link = Link(stack) if apart else None
            first = stack.enter_context(agent_of("north", folder, north or {}, north_tenant or {}, devices, north_env, others,
                                                 link))
            second = stack.enter_context(agent_of("south", folder, south or {}, south_tenant or {}, devices, south_env, others,
                                                  link))
            hosts = Hosts(first, second, folder)
            hosts.link = link
            stack.callback(hosts.close)
            yield hosts
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_chain(guest, steps=40):
    guest.do(f"chain 0 {steps} 0")
    return float(guest.do("value 0", 60)[0])


class Wire:
    """Between the two movers: passes bytes on, and alters, cuts or holds when told."""

    def __init__(self, port, alter_at=None, cut_at=None):
        self.trickles = False  # from when this is set on, a byte at a time, and seldom
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(8)
        self.port = self.listener.getsockname()[1]
        self.target, self.alter_at, self.cut_at = port, alter_at, cut_at
        self.went = 0  # bytes of the one that connected, on this connection
        self.end = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.end:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with near, contextlib.suppress(OSError):  # either end may go at any time
                with socket.create_connection(("127.0.0.1", self.target)) as far:
                    self.carry(near, far)

    def carry(self, near, far):
        self.went = 0
        while not self.end:
            for source in select.select([near, far], [], [], 0.05)[0]:
                if self.trickles:
                    time.sleep(0.02)  # that is how slow it is
                try:
                    data = bytearray(source.recv(1 if self.trickles else 65536))
                except OSError:
                    return
                if not data:
                    return
                if source is near:
                    if self.alter_at is not None and self.went <= self.alter_at < self.went + len(data):
                        data[self.alter_at - self.went] ^= 1
                    if self.cut_at is not None and self.went + len(data) > self.cut_at:
                        return
                    self.went += len(data)
                (far if source is near else near).sendall(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end = True
        self.listener.close()

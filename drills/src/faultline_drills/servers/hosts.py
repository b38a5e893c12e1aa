"""Simulated hosts: network namespaces that can be partitioned and healed.

The namespaces have no names, so the kernel removes each one, with its interfaces and rules, when its
last thread or process ends: a crash leaves nothing behind. The addresses are reserved for documentation,
no host has a route out, and the machine's own network is not changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TypeVar

from faultline.errors import FaultlineError

T = TypeVar("T")

PREFIX = "192.0.2"
_INTERFACE = "net0"
_CLONE_NEWNET = 0x40000000
_FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_COMMAND_SECONDS = 30
_MOST_HOSTS = 250


class HostPartition(Enum):
    """How packets are lost, as iptables rules of the host that is cut off."""

    BOTH_WAYS = (("INPUT", "-j", "DROP"), ("OUTPUT", "-j", "DROP"))
    # What the host sends arrives; it receives nothing, not even an ACK.
    REPLIES_LOST = (("INPUT", "-j", "DROP"),)
    # A firewall resets the host's outgoing connections and refuses new ones.
    REFUSED = (("OUTPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"),)
    # A firewall on the host resets incoming connections.
    REFUSING = (("INPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"),)


class HostFailed(FaultlineError):
    """A host could not be created or partitioned."""

    code = "host_failed"


def missing_requirement() -> str | None:
    """What this machine lacks for it; None if nothing."""
    if not sys.platform.startswith("linux"):
        return "needs Linux, for network namespaces"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    for program, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(program, path=_FOLDERS) is None:
            return f"needs {program}: apt-get install {package}"
    try:
        with host_network() as tried:  # a container may forbid it even to root
            tried.host("tried").cut_off(HostPartition.BOTH_WAYS)
    except HostFailed as problem:
        return f"needs permission to create network namespaces and iptables rules: {problem}"
    return None


class Host:
    """A thread in a network namespace, with the processes that it starts."""

    def __init__(self, name: str, address: str = "") -> None:
        self.name = name
        self.address = address
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"host {name}")
        try:
            self.number = self.run(_unshare_network)
            self.command("ip", "link", "set", "lo", "up")
        except BaseException:
            self.end()
            raise

    def run(self, act: Callable[[], T]) -> T:
        """Call `act` in the host's thread: its sockets and processes belong to this host."""
        return self._thread.submit(act).result()

    def command(self, program: str, *arguments: str) -> None:
        found = shutil.which(program, path=_FOLDERS) or program
        done = self.run(
            lambda: subprocess.run(
                [found, *arguments],
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        )
        if done.returncode != 0:
            output = " ".join((done.stderr or done.stdout).split())
            raise HostFailed(f"{program} {' '.join(arguments)}: {output}")

    def cut_off(self, how: HostPartition, *, peer: Host | None = None) -> None:
        """Cut it off from one host, or from all; open connections are not closed."""
        for chain, *rule in how.value:
            side = "-s" if chain == "INPUT" else "-d"
            whom = f"{PREFIX}.0/24" if peer is None else peer.address
            self.command("iptables", "-A", chain, side, whom, *rule)

    def heal(self) -> None:
        self.command("iptables", "-F")

    def unplug(self) -> None:
        """Take the interface down: to the other hosts, this one has lost its power."""
        self.command("ip", "link", "set", _INTERFACE, "down")

    def plug_in(self) -> None:
        self.command("ip", "link", "set", _INTERFACE, "up")

    def end(self) -> None:
        self._thread.shutdown()


class HostNetwork:
    """Hosts on one switch."""

    def __init__(self) -> None:
        self._ports = itertools.count(1)
        self._switch = Host("switch")
        self._hosts = [self._switch]
        try:
            self._switch.command("ip", "link", "add", "switch", "type", "bridge")
            self._switch.command("ip", "link", "set", "switch", "up")
        except BaseException:
            self.end()
            raise

    def host(self, name: str) -> Host:
        port = next(self._ports)
        if port > _MOST_HOSTS:
            raise HostFailed("the network has no address left")
        host = Host(name, f"{PREFIX}.{port}")
        self._hosts.append(host)
        cable = ("type", "veth", "peer", "name", _INTERFACE, "netns", str(host.number))
        self._switch.command("ip", "link", "add", f"port{port}", *cable)
        self._switch.command("ip", "link", "set", f"port{port}", "master", "switch", "up")
        host.command("ip", "address", "add", f"{host.address}/24", "dev", _INTERFACE)
        host.command("ip", "link", "set", _INTERFACE, "up")
        return host

    def end(self) -> None:
        for host in reversed(self._hosts):
            host.end()


@contextlib.contextmanager
def host_network() -> Iterator[HostNetwork]:
    made = HostNetwork()
    try:
        yield made
    finally:
        made.end()


def _unshare_network() -> int:
    """Move this thread into a new network namespace; the thread's id in the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise HostFailed(f"unshare: {os.strerror(ctypes.get_errno())}")
    return threading.get_native_id()

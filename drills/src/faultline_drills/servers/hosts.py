"""Several hosts on one machine: network namespaces with addresses of their own, cut off and healed.

A namespace belongs to the threads and processes that are in it, and is never given a name: when the last
of them has ended, whatever ended it, the kernel takes it away with its interfaces and its rules. There is
nothing that a crash could leave behind. The addresses are of a range kept for documentation, no host has
a way out, and nothing is changed in the network that the machine itself uses.
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


class Cut(Enum):
    """How the packets between two hosts are lost, as rules of the one that is cut off."""

    BOTH_WAYS = (("INPUT", "-j", "DROP"), ("OUTPUT", "-j", "DROP"))
    # What it sends arrives; no answer, not even an ACK, comes back.
    REPLIES_LOST = (("INPUT", "-j", "DROP"),)
    # By a firewall that says so: its connections are reset, and no new one is let through.
    REFUSED = (("OUTPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"),)
    # By one of its own, which says so to whoever comes.
    TURNING_AWAY = (("INPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"),)


class HostFailed(FaultlineError):
    """A host could not be made, or not be cut off."""

    code = "host_failed"


def lacking() -> str | None:
    """What this machine would have to have."""
    if not sys.platform.startswith("linux"):
        return "needs Linux, for network namespaces"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    for program, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(program, path=_FOLDERS) is None:
            return f"needs {program}: apt-get install {package}"
    try:
        with host_network() as tried:  # in a container even root may not
            tried.host("tried").cut_off(Cut.BOTH_WAYS)
    except HostFailed as problem:
        return f"needs the right to make network namespaces and rules in them: {problem}"
    return None


class Host:
    """A thread in a network namespace; what it starts is in there too."""

    def __init__(self, name: str, address: str = "") -> None:
        self.name = name
        self.address = address
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"host {name}")
        try:
            self.number = self.run(_leave_the_network)
            self.command("ip", "link", "set", "lo", "up")
        except BaseException:
            self.end()
            raise

    def run(self, act: Callable[[], T]) -> T:
        """What `act` connects to, listens on or starts, it does from this host."""
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
            said = " ".join((done.stderr or done.stdout).split())
            raise HostFailed(f"{program} {' '.join(arguments)}: {said}")

    def cut_off(self, how: Cut, *, peer: Host | None = None) -> None:
        """From one other host, or from all of them; connections that there are are not told."""
        for chain, *rule in how.value:
            side = "-s" if chain == "INPUT" else "-d"
            whom = f"{PREFIX}.0/24" if peer is None else peer.address
            self.command("iptables", "-A", chain, side, whom, *rule)

    def heal(self) -> None:
        self.command("iptables", "-F")

    def unplug(self) -> None:
        """As a host that loses its power does to everybody else: nothing of it is heard again."""
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
            raise HostFailed("the switch has no port left")
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


def _leave_the_network() -> int:
    """Put this thread into a namespace of its own; the number by which the kernel knows the thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise HostFailed(f"unshare: {os.strerror(ctypes.get_errno())}")
    return threading.get_native_id()

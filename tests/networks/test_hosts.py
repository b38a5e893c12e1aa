"""The drills' simulated hosts: isolated, partitioned, healed, removed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from faultline.errors import DatabaseUnavailable
from faultline.postgres.sessions import connect
from faultline_drills.servers.hosted_server import HostedServer
from faultline_drills.servers.hosts import Host, HostPartition, host_network
from tests.waiting import wait_until

from .conftest import require_hosts

IN_A_PROCESS = """
import os, threading
from faultline_drills.servers.hosts import host_network
with host_network() as made:
    host = made.host("doomed")
    print(host.run(lambda: os.stat("/proc/thread-self/ns/net").st_ino), flush=True)
    threading.Event().wait()
"""


def namespaces() -> dict[int, Path]:
    """The network namespaces in use, by inode, with a path that opens each."""
    found = {}
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*/ns/net"):
        try:
            found[task.stat().st_ino] = task
        except OSError:
            continue
    return found


def keep_number(own: int, stack: ExitStack) -> None:
    """Hold the namespace open, so that its inode is not reused by a concurrent test."""
    stack.enter_context(namespaces()[own].open("rb"))


def interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def test_a_host_reaches_the_database_by_its_address_and_nothing_else(
    hosted: HostedServer, server_url: str
) -> None:
    host = hosted.network.host("worker")
    url = hosted.url_from_hosts(hosted.url)
    with host.run(lambda: connect(url)) as conn:
        assert conn.execute("SELECT host(inet_client_addr())").fetchone() == (host.address,)
    parts = urlsplit(server_url)
    outside = (str(parts.hostname), int(parts.port or 5432))
    with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
        host.run(lambda: socket.create_connection(outside, timeout=1))


def test_a_partitioned_host_cannot_reach_the_database_until_it_is_healed(
    hosted: HostedServer,
) -> None:
    url = hosted.url_from_hosts(hosted.url, connect_timeout="30")
    impatient = hosted.url_from_hosts(hosted.url, connect_timeout="2")
    hosts = {how: hosted.network.host(how.name.lower()) for how in HostPartition}

    def reaches(host: Host) -> None:
        host.run(lambda: connect(url)).close()

    def reaches_nothing(host: Host) -> None:
        with pytest.raises(DatabaseUnavailable):
            host.run(lambda: connect(impatient))

    with ThreadPoolExecutor() as threads:

        def all_of_them(check: Callable[[Host], None]) -> None:
            for each in [threads.submit(check, host) for host in hosts.values()]:
                each.result()

        all_of_them(reaches)
        for how, host in hosts.items():
            host.cut_off(how, peer=hosted.host)
        all_of_them(reaches_nothing)
        for host in hosts.values():
            host.heal()
        all_of_them(reaches)


def test_a_rejecting_firewall_resets_open_connections(hosted: HostedServer) -> None:
    host = hosted.network.host("refused")
    url = hosted.url_from_hosts(hosted.url)
    conn = host.run(lambda: connect(url))
    host.cut_off(HostPartition.REFUSED, peer=hosted.host)
    with pytest.raises(psycopg.OperationalError, match=r"reset|closed the connection"):
        conn.execute("SELECT 1")


def test_hosts_leave_nothing_behind() -> None:
    require_hosts()
    before = interfaces()
    with ExitStack() as stack:
        with host_network() as made:
            host = made.host("short-lived")
            own = host.run(lambda: Path("/proc/thread-self/ns/net").stat().st_ino)
            keep_number(own, stack)
            assert interfaces() == before
        wait_until(lambda: own not in namespaces(), "the end of the namespace")
    assert interfaces() == before


def test_hosts_of_a_killed_drill_leave_nothing_behind() -> None:
    require_hosts()
    command = [sys.executable, "-c", IN_A_PROCESS]
    with ExitStack() as stack:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            own = int(process.stdout.readline())
            keep_number(own, stack)
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: own not in namespaces(), "the end of the namespace")

"""A connection into a black hole is noticed, by the kernel, within what its URL says."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from faultline.errors import DatabaseUnavailable
from faultline.postgres.reconnecting import ReconnectingSession, is_transient
from faultline.postgres.sessions import NETWORK_DEFAULTS, Connection, connect
from faultline.statements.statement import Statement
from faultline_drills.servers.hosted_server import HostedServer
from faultline_drills.servers.hosts import Cut, Host
from tests.running import Background, wait_until

# Far below the defaults, which a test has no time for, and would only show that 15 is 15.
IMPATIENT = {
    "tcp_user_timeout": "1000",
    "keepalives_idle": "1",
    "keepalives_interval": "1",
    "keepalives_count": "1",
    "connect_timeout": "2",
}
DEFAULT_SECONDS = int(NETWORK_DEFAULTS["tcp_user_timeout"]) / 1000
PING: Statement[int] = Statement("SELECT 1", (), lambda rows: int(rows[0][0]))


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def test_what_hangs_in_a_black_hole_ends_within_the_limits_of_its_url(hosted: HostedServer) -> None:
    host = hosted.network.host("black-hole")
    url = hosted.url_from_hosts(hosted.url, **IMPATIENT)
    asking, idle = host.run(lambda: connect(url)), host.run(lambda: connect(url))
    host.cut_off(Cut.BOTH_WAYS, peer=hosted.host)
    with ThreadPoolExecutor() as threads:
        query = threads.submit(timed, lambda: fails(asking))
        silence = threads.submit(timed, lambda: hears_the_end(idle))
        opening = threads.submit(timed, lambda: cannot_open(host, url))
    for what in (query, silence, opening):
        assert what.result() < DEFAULT_SECONDS
    idle.close()


def fails(conn: Connection) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        conn.execute("SELECT 1")
    assert is_transient(caught.value)
    assert conn.closed


def hears_the_end(conn: Connection) -> None:
    """Of a connection on which nothing is going on: only keepalives can tell."""
    looker = select.poll()
    looker.register(conn.fileno(), select.POLLIN)
    assert looker.poll(DEFAULT_SECONDS * 2 * 1000)


def cannot_open(host: Host, url: str) -> None:
    with pytest.raises(DatabaseUnavailable):
        host.run(lambda: connect(url))


def test_a_link_comes_back_when_the_hole_is_closed(hosted: HostedServer) -> None:
    host = hosted.network.host("link")
    url = hosted.url_from_hosts(hosted.url, **IMPATIENT)
    told: list[str] = []

    async def talk() -> None:
        link = ReconnectingSession(url, purpose="test")
        try:
            while True:
                try:
                    answer: int = await link.run(PING)
                    told.append(str(answer))
                except (psycopg.Error, DatabaseUnavailable) as error:
                    told.append(type(error).__name__)
                await asyncio.sleep(0.02)
        finally:
            await link.close()

    talking = Background(talk)
    host.run(talking.start)  # its thread is on the host, as whoever started it
    try:
        wait_until(lambda: told[-1:] == ["1"], "an answer")
        host.cut_off(Cut.REPLIES_LOST, peer=hosted.host)
        wait_until(lambda: told[-1:] not in ([], ["1"]), "an error")
        host.heal()
        wait_until(lambda: told[-1:] == ["1"], "an answer again")
    finally:
        talking.cancel()
        talking.join()


def test_the_server_forgets_a_host_that_has_vanished(hosted: HostedServer) -> None:
    """Not after the two hours that a kernel waits by itself: its sessions hold locks and connections. Each
    session has our own limits; here shorter ones, for the sake of time."""
    host = hosted.network.host("vanished")
    url = hosted.url_from_hosts(hosted.url)
    ours = [name for name in NETWORK_DEFAULTS if name != "connect_timeout"]
    theirs = [name if name == "tcp_user_timeout" else f"tcp_{name}" for name in ours]
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE client_addr = %s::inet"
    with closing(host.run(lambda: connect(url))) as conn, connect(hosted.url) as admin:
        shown = [conn.execute(f"SHOW {name}").fetchone() for name in theirs]
        assert shown == [(NETWORK_DEFAULTS[name],) for name in ours]
        for our, name in zip(ours, theirs, strict=True):
            conn.execute(f"SET {name} = {IMPATIENT[our]}")
        assert admin.execute(sessions, [host.address]).fetchone() == (1,)
        host.unplug()
        wait_until(lambda: admin.execute(sessions, [host.address]).fetchone() == (0,), "its end")

"""The kernel notices a blackholed connection within the limits of its URL."""

from __future__ import annotations

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
from faultline_drills.servers.hosts import Host, HostPartition
from tests.running import Background
from tests.waiting import idle, wait_until

# Far below the defaults, to save time.
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


def test_a_query_an_idle_session_and_a_connect_end_within_the_limits_of_the_url(
    hosted: HostedServer,
) -> None:
    host = hosted.network.host("black-hole")
    url = hosted.url_from_hosts(hosted.url, **IMPATIENT)
    asking, idle = host.run(lambda: connect(url)), host.run(lambda: connect(url))
    host.cut_off(HostPartition.BOTH_WAYS, peer=hosted.host)
    with ThreadPoolExecutor() as threads:
        query = threads.submit(timed, lambda: fails(asking))
        silence = threads.submit(timed, lambda: notices_the_end(idle))
        opening = threads.submit(timed, lambda: cannot_open(host, url))
    for what in (query, silence, opening):
        assert what.result() < DEFAULT_SECONDS
    idle.close()


def fails(conn: Connection) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        conn.execute("SELECT 1")
    assert is_transient(caught.value)
    assert conn.closed


def notices_the_end(conn: Connection) -> None:
    """Wait for the end of an idle connection, which only keepalives notice."""
    looker = select.poll()
    looker.register(conn.fileno(), select.POLLIN)
    assert looker.poll(DEFAULT_SECONDS * 2 * 1000)


def cannot_open(host: Host, url: str) -> None:
    with pytest.raises(DatabaseUnavailable):
        host.run(lambda: connect(url))


def test_a_reconnecting_session_recovers_when_the_network_is_healed(hosted: HostedServer) -> None:
    host = hosted.network.host("link")
    url = hosted.url_from_hosts(hosted.url, **IMPATIENT)
    results: list[str] = []

    async def talk() -> None:
        link = ReconnectingSession(url, purpose="test")
        try:
            while True:
                try:
                    answer: int = await link.run(PING)
                    results.append(str(answer))
                except (psycopg.Error, DatabaseUnavailable) as error:
                    results.append(type(error).__name__)
                await idle(0.02)
        finally:
            await link.close()

    talking = Background(talk)
    host.run(talking.start)  # so that its thread is on the host
    try:
        wait_until(lambda: results[-1:] == ["1"], "an answer")
        host.cut_off(HostPartition.REPLIES_LOST, peer=hosted.host)
        wait_until(lambda: results[-1:] not in ([], ["1"]), "an error")
        host.heal()
        wait_until(lambda: results[-1:] == ["1"], "an answer again")
    finally:
        talking.cancel()
        talking.join()


def test_the_server_ends_the_sessions_of_a_vanished_host(hosted: HostedServer) -> None:
    """Each session sets its own limits; the kernel's default is two hours."""
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

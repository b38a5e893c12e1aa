"""A ReconnectingSession reconnects with backoff and reports each outage once."""

from __future__ import annotations

import asyncio
import gc
import warnings

import psycopg
import pytest

from faultline import DatabaseUnavailable, InvalidInput, StaleLease
from faultline.postgres.reconnecting import Backoff, ReconnectingSession, is_transient
from faultline.postgres.sessions import AsyncConnection
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from tests.running import Connection, EventTap, value
from tests.waiting import LIMIT_SECONDS, idle

PID: Statement[int] = Statement("SELECT pg_backend_pid()", (), lambda rows: int(rows[0][0]))
BROKEN: Statement[int] = Statement("SELECT 1 / 0", (), lambda rows: int(rows[0][0]))
NOWHERE = "postgresql://absent@127.0.0.1:1/nothing?connect_timeout=1"


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (DatabaseUnavailable("away"), True),
        (psycopg.OperationalError("gone"), True),
        (psycopg.InterfaceError("closed"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.TooManyConnections(), True),
        (psycopg.errors.ReadOnlySqlTransaction(), True),
        (psycopg.errors.DivisionByZero(), False),
        (psycopg.errors.UndefinedTable(), False),
        (StaleLease("token_mismatch"), False),
        (InvalidInput("no"), False),
        (ValueError("no"), False),
    ],
)
def test_only_an_unreachable_server_is_worth_a_retry(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


def test_pauses_grow_to_the_longest_and_start_over_after_a_success() -> None:
    backoff = Backoff(shortest=0.1, longest=2.0)
    pauses = [backoff.next_pause() for _ in range(50)]
    assert 0.1 <= pauses[0] <= 0.2
    assert all(1.0 <= pause <= 2.0 for pause in pauses[10:])
    assert len(set(pauses)) > 40  # a crowd spreads out
    backoff.reset()
    assert backoff.next_pause() <= 0.2


def test_a_reconnecting_session_opens_one_session_at_its_first_use(
    database_url: str, conn: Connection
) -> None:
    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="test")
        first, second = await asyncio.gather(link.run(PID), link.run(PID))
        assert first == second
        named = "SELECT application_name FROM pg_stat_activity WHERE pid = %s"
        assert value(conn, named, first) == "faultline test"
        await link.close()

    asyncio.run(main())


def test_a_killed_session_raises_once_and_is_then_replaced(
    database_url: str, conn: Connection
) -> None:
    async def main() -> None:
        seen: list[Session] = []

        async def prepare(conn: AsyncConnection, session: Session) -> None:
            seen.append(session)

        link = ReconnectingSession(database_url, purpose="test", on_connect=prepare)
        first = await link.run(PID)
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [first])
        with pytest.raises(psycopg.OperationalError):
            await link.run(PID)
        assert await link.run(PID) != first
        assert [session.is_pooled for session in seen] == [False, False]
        await link.close()

    asyncio.run(main())


def test_an_error_of_a_statement_keeps_the_session(database_url: str) -> None:
    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="test")
        first = await link.run(PID)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await link.run(BROKEN)
        assert await link.run(PID) == first
        await link.close()

    asyncio.run(main())


def test_an_outage_and_its_end_are_each_reported_once(database_url: str, events: EventTap) -> None:
    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="test")
        for _ in range(3):
            await link.pause(psycopg.OperationalError("server\n closed the  connection"))
        await link.run(PID)
        await link.run(PID)
        await link.close()

    asyncio.run(main())
    logged = events.all()
    assert [line["event"] for line in logged] == ["database_unavailable", "database_back"]
    assert logged[0]["purpose"] == logged[1]["purpose"] == "test"
    assert logged[0]["error"] == "server closed the connection"


def test_an_unreachable_server_raises_an_error_of_faultline() -> None:
    async def main() -> None:
        with pytest.raises(DatabaseUnavailable, match="cannot connect to PostgreSQL at"):
            await ReconnectingSession(NOWHERE, purpose="test").run(PID)

    asyncio.run(main())


def test_a_pause_ends_when_the_worker_is_told_to_stop(database_url: str) -> None:
    async def main() -> None:
        link, stop = ReconnectingSession(database_url, purpose="test"), asyncio.Event()
        stop.set()
        async with asyncio.timeout(LIMIT_SECONDS):
            for _ in range(1000):  # minutes, if any of them were waited for
                await link.pause(psycopg.OperationalError("away"), stop=stop)

    asyncio.run(main())


@pytest.mark.parametrize("failure", [ValueError("no"), asyncio.CancelledError()])
def test_a_session_that_cannot_be_prepared_is_closed(
    database_url: str, failure: BaseException
) -> None:
    opened: list[AsyncConnection] = []

    async def prepare(conn: AsyncConnection, session: Session) -> None:
        opened.append(conn)
        raise failure

    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="test", on_connect=prepare)
        with pytest.raises(type(failure)):
            await link.run(PID)
        assert opened[0].closed

    asyncio.run(main())


def test_a_session_whose_opening_is_cancelled_is_closed(database_url: str) -> None:
    """At whatever step: a session that is left open would never be closed."""

    async def cancelled_after(steps: int) -> bool:
        link = ReconnectingSession(database_url, purpose="test")
        opening = asyncio.create_task(link.connection())
        for _ in range(steps):
            await idle(0.0005)
        finished = opening.done()
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await link.close()
        return finished

    async def main() -> None:
        steps = 0
        while not await cancelled_after(steps):
            steps += 1

    gc.collect()  # what others left behind is not ours
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    left_open = [str(warning.message) for warning in caught if "still open" in str(warning.message)]
    assert left_open == []

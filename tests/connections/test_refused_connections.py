"""A server that accepts connections but refuses calls is not reported as back."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from faultline.errors import ServerChanged
from faultline.events import Event
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.statements.statement import Statement
from tests.running import Connection, EventTap

ANSWER: Statement[int] = Statement("SELECT 42", (), lambda rows: int(rows[0][0]))
TRIES = 3


def refusing(sqlstate: str) -> Statement[None]:
    body = f"BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '{sqlstate}'; END"
    return Statement(f"DO $${body}$$", (), lambda rows: None)


def event_names(events: EventTap) -> list[str]:
    both = (Event.DATABASE_UNAVAILABLE, Event.DATABASE_BACK)
    return [line["event"] for line in events.all() if line["event"] in both]


@pytest.mark.parametrize("sqlstate", ["25006", "53300", "FL008"])
def test_a_new_connection_that_refuses_calls_is_not_reported_as_back(
    database_url: str, events: EventTap, sqlstate: str
) -> None:
    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="test")
        for _ in range(TRIES):
            with pytest.raises((psycopg.Error, ServerChanged)) as refused:
                await link.run(refusing(sqlstate))
            await link.pause(refused.value)
            await link.connection()
        assert event_names(events) == ["database_unavailable"]
        await link.run(ANSWER)
        await link.run(ANSWER)
        await link.close()

    asyncio.run(main())
    assert event_names(events) == ["database_unavailable", "database_back"]


def test_a_session_that_was_cut_is_back_with_a_new_connection(
    database_url: str, conn: Connection, events: EventTap
) -> None:
    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="test")
        pid = (await link.connection()).info.backend_pid
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        with pytest.raises(psycopg.OperationalError) as cut:
            await link.run(ANSWER)
        await link.pause(cut.value)
        assert event_names(events) == ["database_unavailable"]
        await link.connection()
        assert event_names(events) == ["database_unavailable", "database_back"]
        await link.close()

    asyncio.run(main())


@pytest.mark.parametrize("calls", [0, 1])
def test_a_refusal_right_after_an_outage_that_the_session_ended_is_logged(
    database_url: str, conn: Connection, events: EventTap, calls: int
) -> None:
    async def main() -> None:
        link = ReconnectingSession(database_url, purpose="test")
        pid = (await link.connection()).info.backend_pid
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        with pytest.raises(psycopg.OperationalError) as cut:
            await link.run(ANSWER)
        await link.pause(cut.value)
        await link.connection()
        for _ in range(calls):
            await link.run(ANSWER)
        with pytest.raises(ServerChanged) as refused:
            await link.run(refusing("FL008"))
        await link.pause(refused.value)
        await link.close()

    asyncio.run(main())
    assert event_names(events) == ["database_unavailable", "database_back", "database_unavailable"]

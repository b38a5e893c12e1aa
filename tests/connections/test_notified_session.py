"""One session runs statements and receives notifications between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from faultline.postgres.notified_session import NotifiedSession
from faultline.postgres.sessions import AsyncConnection
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from tests.waiting import LIMIT_SECONDS

PID: Statement[int] = Statement("SELECT pg_backend_pid()", (), lambda rows: int(rows[0][0]))
TELL_ITSELF: Statement[Any] = Statement("SELECT pg_notify('news', 'mine')", (), list)


class Ears:
    """What a session has told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.losses = 0
        self._changed = asyncio.Event()

    def hear(self, channel: str, payload: str) -> None:
        self.heard.append((channel, payload))
        self._changed.set()

    def lose(self) -> None:
        self.losses += 1
        self._changed.set()

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def listening(url: str, ears: Ears) -> Any:
    async def listen(conn: AsyncConnection, _: Session) -> None:
        await conn.execute("LISTEN news")

    session = NotifiedSession(
        url, purpose="test", on_connect=listen, on_notify=ears.hear, on_lost=ears.lose
    )
    try:
        yield session
    finally:
        await session.close()


def test_an_idle_session_hears_what_another_one_sends(
    database_url: str, conn: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        ears = Ears()
        async with listening(database_url, ears) as session:
            await session.run(PID)
            for payload in ("first", "second"):
                await asyncio.to_thread(conn.execute, f"NOTIFY news, '{payload}'")
                await ears.wait_until(lambda payload=payload: ("news", payload) in ears.heard)  # type: ignore[misc]
            await session.run(PID)
            await asyncio.to_thread(conn.execute, "NOTIFY news, 'third'")
            await ears.wait_until(lambda: ears.heard[-1] == ("news", "third"))
        assert [payload for _, payload in ears.heard] == ["first", "second", "third"]

    asyncio.run(main())


def test_a_notification_that_comes_with_an_answer_is_heard(database_url: str) -> None:
    async def main() -> None:
        ears = Ears()
        async with listening(database_url, ears) as session:
            for number in range(1, 50):
                await asyncio.gather(session.run(TELL_ITSELF), session.run(PID))
                await ears.wait_until(lambda number=number: len(ears.heard) == number)  # type: ignore[misc]

    asyncio.run(main())


def test_the_end_of_an_idle_session_is_noticed_and_the_next_statement_listens_again(
    database_url: str, conn: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        ears = Ears()
        async with listening(database_url, ears) as session:
            lost = await session.run(PID)
            await asyncio.to_thread(conn.execute, "SELECT pg_terminate_backend(%s)", [lost])
            await ears.wait_until(lambda: ears.losses == 1)
            assert await session.run(PID) != lost
            await asyncio.to_thread(conn.execute, "NOTIFY news, 'again'")
            await ears.wait_until(lambda: ears.heard == [("news", "again")])
        assert ears.losses == 1

    asyncio.run(main())

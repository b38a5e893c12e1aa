"""One poller for all streams: the database load does not depend on their number."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import psycopg
import pytest

from faultline.inspector import broadcast as module
from faultline.inspector import stream
from faultline.inspector.broadcast import Broadcast, StreamListener, TooManyListeners
from faultline.inspector.overview import Snapshots
from faultline.inspector.reader import Reader
from faultline.inspector.stream import EventStream
from tests.inspector import stories
from tests.protocol import steps
from tests.waiting import idle, wait_until_async

Connection = psycopg.Connection[Any]
BOUND_SECONDS = 30.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "COST_SHARE", 0)  # on a busy machine a look is dear
    monkeypatch.setattr("faultline.inspector.overview.FRESH_SECONDS", 0.0)


def play(url: str, scene: Callable[[Broadcast], Awaitable[None]], *, places: int = 100) -> None:
    async def run() -> None:
        async with on_air(url, places) as broadcast:
            await asyncio.wait_for(scene(broadcast), BOUND_SECONDS)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def on_air(url: str, places: int) -> AsyncIterator[Broadcast]:
    reader = Reader(url)
    broadcast = Broadcast(Snapshots(reader), max_listeners=places)
    try:
        yield broadcast
    finally:
        await broadcast.close()
        await reader.close()


async def next_event(listener: StreamListener, name: str) -> Any:
    """The data of the next event of this name."""
    while (sent := await listener.next()) is not None:
        fields = dict(line.split(b": ", 1) for line in sent.strip().split(b"\n"))
        if fields[b"event"] == name.encode():
            return orjson.loads(fields[b"data"])
    raise AssertionError(f"the end came before a {name}")


def test_fifty_listeners_get_the_same_events_from_one_poller(
    database_url: str, conn: Connection
) -> None:
    async def scene(broadcast: Broadcast) -> None:
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(broadcast.listening()) for _ in range(50)]
            overviews = [await next_event(listener, "overview") for listener in crowd]
            assert all(each == overviews[0] for each in overviews)
            assert broadcast.readings <= 2  # the first, and perhaps one while they were read

    play(database_url, scene)


def test_the_poller_stops_without_listeners(database_url: str) -> None:
    async def scene(broadcast: Broadcast) -> None:
        with broadcast.listening() as listener:
            await next_event(listener, "overview")
        await wait_until_async(lambda: not broadcast.is_polling)
        looks = broadcast.readings
        await idle(0.1)  # several pauses of the poller
        assert broadcast.readings == looks
        with broadcast.listening() as listener:
            await next_event(listener, "overview")

    play(database_url, scene)


def test_a_later_listener_gets_the_overview_at_once(database_url: str) -> None:
    async def scene(broadcast: Broadcast) -> None:
        with broadcast.listening() as first:
            await next_event(first, "overview")
            with broadcast.listening() as second:
                assert second.waiting == 1

    play(database_url, scene)


def facts(overview: Any) -> Any:
    """Without what differs from look to look by itself."""
    rate = overview["throughput"]["succeeded_per_second"]
    own = {"now", "database", "throughput"}
    return {"rate": rate, **{name: fact for name, fact in overview.items() if name not in own}}


def test_an_unchanged_overview_is_repeated_after_a_while(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def quiet(broadcast: Broadcast) -> None:
        with broadcast.listening() as listener:
            last_facts = facts(await next_event(listener, "overview"))
            looks = broadcast.readings
            await wait_until_async(lambda: broadcast.readings >= looks + 10)
            # The rate is known from the second reading on: that is a change. On a busy machine a reading may
            # be late, and the database reported as away and back: then everything is sent again.
            while listener.waiting:
                event = await listener.next()
                if event is None or b"event: overview" not in event:
                    last_facts = None
                    continue
                again = facts(orjson.loads(event.strip().split(b"data: ", 1)[1]))
                assert again != last_facts
                last_facts = again

    async def reminded(broadcast: Broadcast) -> None:
        with broadcast.listening() as listener:
            for _ in range(5):
                await next_event(listener, "overview")

    monkeypatch.setattr(module, "REPEAT_SECONDS", 600)
    play(database_url, quiet)
    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.05)
    play(database_url, reminded)


def test_a_rejection_with_a_lower_id_that_appears_later_is_sent(
    database_url: str, conn: Connection
) -> None:
    late = psycopg.connect(database_url)  # its transaction stays open

    async def scene(broadcast: Broadcast) -> None:
        with broadcast.listening() as listener:
            await next_event(listener, "overview")
            slow = stories.takeover(conn)
            record = "SELECT faultline.record_rejection(%s, 1, 'slow', 'token_mismatch')"
            late.execute(record, [slow.job_id])
            fast = stories.run_takeover(conn)
            assert (await next_event(listener, "rejection"))["job_id"] == str(fast.job_id)
            late.commit()
            assert (await next_event(listener, "rejection"))["job_id"] == str(slow.job_id)

    with late:
        play(database_url, scene)


def test_only_a_listener_that_is_too_slow_is_dropped(
    database_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.0)
    monkeypatch.setattr(module, "WAITING_EVENTS", 5)

    async def scene(broadcast: Broadcast) -> None:
        with broadcast.listening() as slow, broadcast.listening() as quick:
            while not slow.is_dropped:
                await next_event(quick, "overview")
            assert await slow.next() is None
            await next_event(quick, "overview")

    play(database_url, scene)


def test_a_client_that_takes_nothing_is_given_up_and_its_place_is_free(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SEND_SECONDS", 0.05)

    async def never(*message: Any) -> Any:
        await asyncio.Event().wait()

    async def scene(broadcast: Broadcast) -> None:
        scope = {"type": "http", "method": "GET", "path": "/api/stream"}
        await EventStream(broadcast, "127.0.0.1")(scope, never, takes_the_head_only)
        with broadcast.listening() as listener:
            await next_event(listener, "overview")

    async def takes_the_head_only(message: Any) -> None:
        if message["type"] == "http.response.body":
            await never()

    play(database_url, scene, places=1)


def test_a_closed_stream_frees_its_place(
    database_url: str,
) -> None:
    async def scene(broadcast: Broadcast) -> None:
        with broadcast.listening(), pytest.raises(TooManyListeners), broadcast.listening():
            pass
        with broadcast.listening() as listener:
            await next_event(listener, "overview")

    play(database_url, scene, places=1)


def test_an_enqueued_job_changes_the_overview(database_url: str, conn: Connection) -> None:
    async def scene(broadcast: Broadcast) -> None:
        with broadcast.listening() as listener:
            await next_event(listener, "overview")
            steps.enqueue(conn)
            while (await next_event(listener, "overview"))["totals"]["due"] != 1:
                pass

    play(database_url, scene)

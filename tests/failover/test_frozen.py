"""Clients leave a frozen server, which never replies, for another host.

The proxy simulates the frozen server: its kernel acknowledges what clients send.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from psycopg import conninfo

from faultline import DatabaseUnavailable, Faultline, InvalidInput, Job
from faultline.errors import FaultlineError
from faultline.postgres.answer_limit import AnswerLimit, ReplyTimeout, was_unanswered
from faultline.postgres.notified_session import NotifiedSession
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import IN_RECOVERY, AsyncConnection, make_pool, open_session, run
from faultline.statements.protocol import claim
from faultline.statements.session_settings import Session
from faultline.statements.statement import Statement
from faultline.steady import steady_now
from faultline.task import Task
from faultline.workers.leases import Lease
from faultline_drills.cluster import multi_host_url
from faultline_drills.proxy import Proxy, proxy_to
from tests.children import jobs
from tests.protocol.steps import enqueue
from tests.running import Connection, EventTap, background, value, working
from tests.waiting import wait_until, yield_to_loop
from tests.workers.test_charged_attempts import END_ONE, IS_SLEEPING

ANSWER: Statement[int] = Statement("SELECT 42", (), lambda rows: int(rows[0][0]))
SHORT_SECONDS = 0.3
RELEASE_WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND wait_event_type = 'Lock' AND query ~ 'faultline.release_after_outage'"
)


@pytest.fixture
def freezing(database_url: str) -> Iterator[Proxy]:
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture
def both(freezing: Proxy, database_url: str) -> str:
    """A URL with the host that will freeze, and another host of the same database."""
    return conninfo.make_conninfo(multi_host_url([freezing.url, database_url]), connect_timeout=2)


def test_a_session_without_a_reply_is_closed_and_its_outcome_is_unknown(freezing: Proxy) -> None:
    conn, _ = open_session(freezing.url, application_name="test", answer_seconds=SHORT_SECONDS)
    freezing.blackhole()
    with pytest.raises(ReplyTimeout):
        conn.execute("SELECT 1")
    assert conn.closed


def test_a_reconnecting_session_leaves_a_frozen_server_for_another_host(
    freezing: Proxy, both: str
) -> None:
    async def main() -> None:
        link = ReconnectingSession(both, purpose="test", answer_seconds=SHORT_SECONDS)
        assert (await link.connection()).info.port == freezing_port(freezing)
        freezing.blackhole()
        with pytest.raises(ReplyTimeout):
            await link.run(ANSWER)
        assert await link.run(ANSWER) == 42
        assert (await link.connection()).info.port != freezing_port(freezing)
        await link.close()

    asyncio.run(main())


def test_the_host_reached_during_an_outage_of_the_first_is_tried_first_afterwards(
    freezing: Proxy, both: str
) -> None:
    def port() -> int:
        conn, _ = open_session(both, application_name="test", needs_primary=True)
        with conn:
            return conn.info.port

    assert port() == freezing_port(freezing)
    freezing.refuse_connections()
    other = port()
    assert other != freezing_port(freezing)
    freezing.clear_faults()
    assert port() == other
    pool = make_pool(both, max_size=1, application_name="test")
    with pool:
        conn = pool.getconn()
        assert conn.info.port == other
        pool.putconn(conn)


def freezing_port(proxy: Proxy) -> int:
    return int(conninfo.conninfo_to_dict(proxy.url)["port"] or 0)


def test_the_reply_timeout_grows_without_replies_and_is_reset_by_one() -> None:
    limit = AnswerLimit(100.0)
    limit.note(psycopg.OperationalError("something else"))
    assert limit.seconds == 100.0
    limits = []
    for _ in range(3):
        limit.note(ReplyTimeout("no answer"))
        limits.append(limit.seconds)
    assert limits == [200.0, 300.0, 300.0]
    limit.reset()
    assert limit.seconds == 100.0


def producing(url: str, seconds: float = 1.0) -> Faultline:
    app = Faultline(url, enqueue_timeout_seconds=seconds)

    @app.task(name="frozen.pay")
    def pay(job: Job, number: int) -> None:
        """Never run here."""

    return app


def test_an_enqueue_on_a_frozen_server_ends_and_the_next_one_finds_another_host(
    freezing: Proxy, both: str, conn: Connection
) -> None:
    app = producing(both)
    pay = app.find_task("frozen.pay")
    pay.enqueue(number=1)
    freezing.blackhole()
    with pytest.raises(DatabaseUnavailable, match="may have been done") as late:
        pay.options(idempotency_key="two").enqueue(number=2)
    assert was_unanswered(late.value)
    app.producer.timeout_seconds = 30.0  # the rest does not test the timeout
    job_id = pay.options(idempotency_key="two").enqueue(number=2).job_id
    assert stored(conn, job_id) == 2
    app.close()


def test_an_async_enqueue_on_a_frozen_server_ends_too(
    freezing: Proxy, both: str, conn: Connection
) -> None:
    async def main() -> UUID:
        app = producing(both)
        pay = app.find_task("frozen.pay")
        await asyncio.gather(*(pay.enqueue_async(number=1) for _ in range(3)))  # several sessions
        freezing.blackhole()
        with pytest.raises(DatabaseUnavailable, match="may have been done"):
            await pay.options(idempotency_key="two").enqueue_async(number=2)
        app.producer.timeout_seconds = 30.0
        job_id = (await pay.options(idempotency_key="two").enqueue_async(number=2)).job_id
        await app.aclose()
        return job_id

    assert stored(conn, asyncio.run(main())) == 2


def stored(conn: Connection, job_id: UUID) -> int:
    number: int = value(
        conn, "SELECT (payload->>'number')::int FROM faultline.jobs WHERE id = %s", job_id
    )
    return number


@pytest.mark.parametrize("seconds", [0.0, -1.0, 301.0, float("nan")])
def test_an_invalid_enqueue_timeout_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="enqueue_timeout_seconds"):
        Faultline(enqueue_timeout_seconds=seconds)


def test_one_reconnected_session_ends_the_outage_for_all_and_wakes_the_others(
    database_url: str, events: EventTap
) -> None:
    async def main() -> None:
        first, second = (
            ReconnectingSession(database_url, purpose=name) for name in ("first", "second")
        )
        error = psycopg.OperationalError("away")
        for _ in range(2):
            await first.pause(error)
        second._backoff._shortest = second._backoff._longest = 3600.0  # it would wait for an hour
        waiting = asyncio.create_task(second.pause(error))
        await yield_to_loop()
        await first.run(ANSWER)
        await waiting
        await second.run(ANSWER)
        await first.close()
        await second.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    logged = [(line["event"], line["purpose"]) for line in events.all()]
    assert logged == [("database_unavailable", "first"), ("database_back", "first")]
    assert events.of("database_back")[0]["away_seconds"] > 0


def test_a_session_that_was_idle_in_an_outage_does_not_log_another_one(
    database_url: str, conn: Connection, events: EventTap
) -> None:
    async def main() -> None:
        idle, busy = (ReconnectingSession(database_url, purpose=name) for name in ("idle", "busy"))
        pid = (await idle.connection()).info.backend_pid
        await busy.pause(psycopg.OperationalError("away"))
        await busy.run(ANSWER)
        conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        with pytest.raises(psycopg.OperationalError) as late:
            await idle.run(ANSWER)
        await idle.pause(late.value)
        await idle.run(ANSWER)
        assert len(events.all()) == 2
        # The session was opened since, so this is another outage.
        await idle.pause(psycopg.OperationalError("away again"))
        await idle.run(ANSWER)
        await idle.close()
        await busy.close()

    asyncio.run(main())
    assert [line["purpose"] for line in events.all()] == ["busy", "busy", "idle", "idle"]


def test_a_rollback_on_a_frozen_server_is_abandoned_and_the_handlers_error_raised(
    freezing: Proxy, database_url: str, conn: Connection
) -> None:
    enqueue(conn)
    (claimed,) = run(conn, claim("me", ["default"], batch_size=1, lease_seconds=4.0))
    lease = Lease(claimed, sent_at=steady_now(), lease_seconds=4.0)
    with make_pool(freezing.url, max_size=1, application_name="test") as pool:
        job = Job(claimed, lease, lambda: pool, None)

        def fail() -> None:
            with job.transaction():
                freezing.blackhole()
                raise ValueError("of its own")

        with pytest.raises(ValueError, match="of its own"):
            fail()
        freezing.clear_faults()


@pytest.mark.parametrize(
    "task",
    [jobs.sleep_in_a_thread, pytest.param(jobs.sleep_in_a_statement, marks=pytest.mark.slow)],
)
def test_a_handlers_statement_ends_when_its_worker_has_left_the_frozen_server(
    freezing: Proxy,
    both: str,
    conn: Connection,
    monkeypatch: pytest.MonkeyPatch,
    task: Task[..., None],
) -> None:
    """In a thread, and in a child process."""
    monkeypatch.setenv("DATABASE_URL", both)
    job_id = task.enqueue().job_id
    with working(jobs.app, answer_seconds=2.0, lease_seconds=300):
        wait_until(lambda: value(conn, IS_SLEEPING) == 1, "the statement")
        freezing.blackhole()
        # The sleeping backend still locks the job here; after a real failover it would not.
        wait_until(lambda: value(conn, RELEASE_WAITS) == 1, "the end of the attempt")
        conn.execute(END_ONE)
        wait_until(lambda: stored_state(conn, job_id) == ("succeeded", 1), "the second attempt")
    freezing.clear_faults()
    jobs.app.close()


def stored_state(conn: Connection, job_id: UUID) -> tuple[str, int]:
    row = conn.execute("SELECT state, attempts FROM faultline.jobs WHERE id = %s", [job_id])
    state, attempts = row.fetchone() or ("", 0)
    return state, attempts


def test_a_session_leaves_a_frozen_server_and_gets_notifications_again(
    freezing: Proxy, both: str, conn: Connection
) -> None:
    """A frozen server sends no notifications; the next statement finds that out."""
    heard = threading.Event()

    async def listen(link: AsyncConnection, _: Session) -> None:
        await link.execute("LISTEN news")

    async def poll() -> None:
        session = NotifiedSession(
            both,
            purpose="worker",
            answer_seconds=2.0,
            on_connect=listen,
            on_notify=lambda *_: heard.set(),
            on_lost=lambda: None,
        )
        try:
            while True:
                try:
                    await session.run(IN_RECOVERY)
                    await asyncio.sleep(0.1)
                except (FaultlineError, psycopg.Error) as error:
                    await session.pause(error)
        finally:
            await session.close()

    def is_heard() -> bool:
        conn.execute("NOTIFY news")
        return heard.wait(0.1)

    with background(poll):
        wait_until(is_heard, "a notification")
        heard.clear()
        freezing.blackhole()
        wait_until(is_heard, "a notification by way of the other host")
    freezing.clear_faults()

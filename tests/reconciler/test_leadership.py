"""A follower acts as leader while the leader is silent and keeps its session.

The tests make the effects of a clock that was set back: a leader without a limit to its silence, and a
lease that outlasts its own length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest

from faultline.config import LEADER_HEARTBEAT_SECONDS, LEADER_SILENCE_SECONDS
from faultline.errors import DatabaseUnavailable
from faultline.postgres.migrate import MIGRATION_LOCK, migrate
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import run
from faultline.reconciler import Reconciler
from faultline.reconciler import leadership as election
from faultline.statements import leadership, workers
from faultline.statements.leadership import LeaderSighting
from faultline.statements.workers import LOCK_CLASS
from tests.running import Connection, EventTap, background, value
from tests.security.accounts import account
from tests.waiting import wait_until

ACTING_LEADERS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    f" AND classid = {LOCK_CLASS} AND objid::int8 = {2**32 + leadership.ACTING_LEADER_KEY}"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


# ── what can be seen of a leader ─────────────────────────────────────────────────────────────────


def lead(conn: Connection, *, beats: int = 1) -> None:
    """Lead on this session, without a server timeout that would end its silence."""
    leads, _ = run(conn, leadership.try_to_lead(silence_limit="0"))
    assert leads
    for number in range(1, beats + 1):
        run(conn, leadership.beat(number, after=number - 1))


def seen(conn: Connection) -> LeaderSighting | None:
    return run(conn, leadership.leader_sighting())


def test_without_a_leader_none_is_reported(
    conn: Connection, connect: Callable[[], Connection]
) -> None:
    bystander = connect()
    run(bystander, workers.hold_worker_lock(1))
    assert run(bystander, leadership.try_to_act_as_leader(silence_limit="0"))
    assert seen(conn) is None


def test_every_beat_is_visible_and_leaves_one_lock(
    conn: Connection, connect: Callable[[], Connection]
) -> None:
    leader = connect()
    lead(leader, beats=0)
    assert seen(conn) == (leader.info.backend_pid, None, False, False)
    heartbeat_keys = []
    for number in range(1, 4):
        run(leader, leadership.beat(number, after=number - 1))
        sighting = seen(conn)
        assert sighting is not None
        heartbeat_keys.append(sighting.heartbeat_key)
    assert None not in heartbeat_keys
    assert len(set(heartbeat_keys)) == 3
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s"
    assert value(conn, held, leader.info.backend_pid) == 2  # the lead, and the last beat


def test_a_leader_inside_a_transaction_counts_as_at_work(
    conn: Connection, connect: Callable[[], Connection]
) -> None:
    leader = connect()
    lead(leader)
    with leader.transaction():
        leader.execute("SELECT 1")
        busy = seen(conn)
    idle = seen(conn)
    assert busy is not None
    assert busy.is_at_work
    assert idle == busy._replace(is_at_work=False)


# ── reconcilers ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "ACTING_LEADER_AFTER_SECONDS", 0.5)
    monkeypatch.setattr(election, "_WATCH_SECONDS", 0.1)


def lingering_job(conn: Connection) -> UUID:
    """A job of a dead worker whose lease lasts another hour by the database's clock."""
    job_id: UUID = value(conn, "SELECT job_id FROM faultline.enqueue('t')")
    conn.execute("SELECT faultline.claim('gone', '{default}', 1, '1 hour')")
    conn.execute("UPDATE faultline.jobs SET lease_seconds = 0.1 WHERE id = %s", [job_id])
    return job_id


def state(conn: Connection, job_id: UUID) -> str:
    return str(value(conn, "SELECT state FROM faultline.jobs WHERE id = %s", job_id))


@pytest.mark.usefixtures("impatient")
def test_while_the_leader_is_silent_one_follower_acts_as_leader(
    conn: Connection, connect: Callable[[], Connection], database_url: str, events: EventTap
) -> None:
    lead(connect())
    job_id = lingering_job(conn)
    with background(Reconciler(database_url).run), background(Reconciler(database_url).run):
        wait_until(lambda: state(conn, job_id) == "queued", "the end of the lease")
        [requeued] = wait_until(
            lambda: events.of("lease_reaped"), "the event, which follows the act"
        )
    assert requeued["job_id"] == str(job_id)
    assert {event["is_acting_leader"] for event in events.of("reconciler_leading")} == {True}
    assert len(events.of("degraded")) == len(events.of("reconciler_leading"))


@pytest.mark.usefixtures("impatient")
def test_a_follower_needs_no_right_to_the_leaders_session(
    conn: Connection, connect: Callable[[], Connection], database_url: str, events: EventTap
) -> None:
    """A superuser leads: other accounts can neither inspect nor end its session."""
    migrate(database_url, roles=True)
    lead(connect())
    job_id = lingering_job(conn)
    with (
        account(database_url, "faultline_worker") as url,
        background(Reconciler(url).run),
    ):
        wait_until(lambda: state(conn, job_id) == "queued", "the end of the lease")
    assert {event["is_acting_leader"] for event in events.of("reconciler_leading")} == {True}


@pytest.mark.usefixtures("impatient")
def test_a_follower_stops_acting_when_the_leader_is_back_and_leads_when_it_ends(
    conn: Connection, connect: Callable[[], Connection], database_url: str, events: EventTap
) -> None:
    leader = connect()
    lead(leader)
    with background(Reconciler(database_url).run):
        wait_until(lambda: value(conn, ACTING_LEADERS) == 1, "an acting leader")
        run(leader, leadership.beat(2, after=1))
        wait_until(lambda: value(conn, ACTING_LEADERS) == 0, "its stepping back")
        leader.close()
        wait_until(lambda: not events.of("reconciler_leading")[-1]["is_acting_leader"], "a leader")
        assert value(conn, ACTING_LEADERS) == 0
    assert events.of("database_unavailable") == []


@pytest.mark.usefixtures("impatient")
def test_an_acting_leader_becomes_the_leader_when_the_silent_one_ends(
    conn: Connection, connect: Callable[[], Connection], database_url: str, events: EventTap
) -> None:
    leader = connect()
    lead(leader)
    with background(Reconciler(database_url).run):
        wait_until(lambda: value(conn, ACTING_LEADERS) == 1, "an acting leader")
        leader.close()
        wait_until(
            lambda: (
                [event["is_acting_leader"] for event in events.of("reconciler_leading")][-1:]
                == [False]
            ),
            "a leader",
        )
        assert value(conn, ACTING_LEADERS) == 0


def test_a_leader_with_long_intervals_keeps_its_heartbeat_and_session(
    conn: Connection, database_url: str, events: EventTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expensive checks run at intervals longer than the server's idle timeout."""
    looks = []

    async def look(self: Reconciler) -> float:
        looks.append(1)
        return 3600

    monkeypatch.setattr(Reconciler, "_look", look)
    beats = 2 * int(LEADER_SILENCE_SECONDS / LEADER_HEARTBEAT_SECONDS)
    enough = 2**32 + leadership.ACTING_LEADER_KEY - beats
    with background(Reconciler(database_url).run):
        first = wait_until(lambda: seen(conn), "a leader")
        last = wait_until(
            lambda: (
                (now := seen(conn)) and now.heartbeat_key and now.heartbeat_key <= enough and now
            ),
            "its heartbeat",
        )
    assert last.pid == first.pid
    assert len(looks) == 1
    assert events.of("database_unavailable") == []


# ── strangers ────────────────────────────────────────────────────────────────────────────────────


def test_another_session_that_holds_every_advisory_lock_does_not_stop_reconciliation(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    conn.execute("SELECT faultline.enqueue('t')")
    conn.execute("SELECT faultline.claim('gone')")
    conn.execute("UPDATE faultline.jobs SET lease_expires_at = clock_timestamp()")
    every = "SELECT pg_advisory_lock(%s, key) FROM generate_series(-300, 300) AS key"
    with account(database_url) as url, psycopg.connect(url, autocommit=True) as stranger:
        stranger.execute(every, [LOCK_CLASS])
        with background(Reconciler(database_url).run):
            wait_until(lambda: value(conn, "SELECT state = 'queued' FROM faultline.jobs"))
            [event] = events.of("degraded")
            assert "no rights on the schema" in event["reason"]
            stranger.close()
            wait_until(
                lambda: [
                    line for line in events.of("reconciler_leading") if not line["is_acting_leader"]
                ]
            )


def test_a_leaders_heartbeat_skips_locks_that_another_session_holds(
    conn: Connection, database_url: str
) -> None:
    """Otherwise a busy leader would look silent, and followers would act as leaders."""

    async def heartbeat_keys() -> set[int]:
        link = ReconnectingSession(database_url, purpose="reconciler")
        found: set[int] = set()
        try:
            leader = election.Leadership(link)
            assert (await leader.take())[0]
            for _ in range(20):  # a jump may land on another lock of the stranger's
                leader._due_at = 0.0
                assert await leader.keep()
                if (sighting := seen(conn)) and sighting.heartbeat_key is not None:
                    found.add(sighting.heartbeat_key)
            return found
        finally:
            await link.close()

    next_beats = "SELECT pg_advisory_lock(%s, key) FROM generate_series(-300, -2) AS key"
    with account(database_url) as url, psycopg.connect(url, autocommit=True) as stranger:
        stranger.execute(next_beats, [LOCK_CLASS])
        assert len(asyncio.run(heartbeat_keys())) >= 2


def test_a_migration_names_the_session_that_holds_its_lock(
    conn: Connection, database_url: str
) -> None:
    with account(database_url) as url, psycopg.connect(url, autocommit=True) as stranger:
        pid = stranger.info.backend_pid
        stranger.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        with pytest.raises(DatabaseUnavailable, match="the session of t_account") as refusal:
            migrate(database_url, lock_timeout_seconds=0.1)
    assert f"pg_terminate_backend({pid})" in (refusal.value.hint or "")

"""Recovery: expired leases, dead workers, and which of many reconcilers acts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from faultline.config import RECONNECT_SECONDS
from faultline.reconciler import Reconciler
from faultline.reconciler.liveness import DeadWorkers, LeaseObserver
from faultline.statements import workers
from faultline.statements.workers import LeaseSighting, Survey
from tests.running import Connection, EventTap, background, expire, value
from tests.waiting import wait_until

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'faultline reconciler'"
    " AND datname = current_database()"
)
LEADER = (
    "SELECT l.pid FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)"
    f" WHERE l.locktype = 'advisory' AND l.classid = {workers.LOCK_CLASS} AND l.objid = 0"
    " AND l.granted AND a.datname = current_database()"
)


def sighting(lease: UUID, *, seconds: float = 10, moved: int = 0) -> LeaseSighting:
    return LeaseSighting(lease, NOW + timedelta(seconds=moved), seconds)


# ── leases that stand still ──────────────────────────────────────────────────────────────────────


def test_a_lease_that_has_not_moved_for_longer_than_it_lasts_is_over() -> None:
    observer, lease = LeaseObserver(), uuid4()
    assert observer.lapsed([sighting(lease)], 100) == []
    assert observer.lapsed([sighting(lease)], 110) == []
    assert observer.lapsed([sighting(lease)], 111) == []  # a second of grace
    assert observer.lapsed([sighting(lease)], 111.1) == [lease]


def test_a_lease_that_is_renewed_is_never_over() -> None:
    observer, lease = LeaseObserver(), uuid4()
    for moment in range(0, 200, 5):
        assert observer.lapsed([sighting(lease, moved=moment)], moment) == []


def test_a_lease_that_moves_backwards_has_moved() -> None:
    """The observer recovers such leases after the database's clock was set back."""
    observer, lease = LeaseObserver(), uuid4()
    assert observer.lapsed([sighting(lease, moved=3600)], 0) == []
    assert observer.lapsed([sighting(lease, moved=0)], 11.5) == []
    assert observer.lapsed([sighting(lease, moved=0)], 22) == []
    assert observer.lapsed([sighting(lease, moved=0)], 23) == [lease]


def test_a_lease_that_was_missing_from_a_check_is_timed_from_the_start() -> None:
    observer, lease = LeaseObserver(), uuid4()
    observer.lapsed([sighting(lease)], 0)
    observer.lapsed([], 5)
    assert observer.lapsed([sighting(lease)], 20) == []


def test_each_lease_is_judged_by_its_own_length() -> None:
    observer, short, long = LeaseObserver(), uuid4(), uuid4()
    both = [sighting(short, seconds=1), sighting(long, seconds=100)]
    observer.lapsed(both, 0)
    assert observer.lapsed(both, 50) == [short]


# ── workers that are gone ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("registered", "vanished", "is_mass"),
    [(1, 1, False), (2, 2, False), (3, 3, True), (10, 5, False), (10, 6, True), (5, 3, True)],
)
def test_workers_that_vanish_are_spared_only_if_the_reconcilers_session_was_lost_as_well(
    registered: int, vanished: int, is_mass: bool
) -> None:
    names = [f"worker {number}" for number in range(vanished)]
    survey = Survey(registered, names, None)
    judge = DeadWorkers()
    assert judge.dead_workers(survey) == names
    assert judge.dead_workers(survey, seconds_since_own_loss=1) == ([] if is_mass else names)
    assert judge.spared == (set(names) if is_mass else set())
    assert judge.dead_workers(survey, seconds_since_own_loss=RECONNECT_SECONDS + 0.1) == names
    assert not judge.spared


def test_workers_that_vanished_together_are_spared_until_seen_again() -> None:
    judge = DeadWorkers()

    def dead(registered: int, vanished: list[str]) -> list[str]:
        survey = Survey(registered, vanished, None)
        return judge.dead_workers(survey, seconds_since_own_loss=1)

    assert dead(4, ["a", "b", "c"]) == []
    assert dead(4, ["b", "c"]) == []  # a is alive, or was reconciled
    assert dead(4, ["b", "d"]) == ["d"]
    assert dead(4, ["c"]) == ["c"]  # it had been back meanwhile


# ── a reconciler at work ─────────────────────────────────────────────────────────────────────────


def claimed(conn: Connection, *, worker: str = "gone", max_attempts: int = 5) -> UUID:
    call = "SELECT job_id FROM faultline.enqueue('t', max_attempts => %s)"
    job_id: UUID = value(conn, call, max_attempts)
    conn.execute("SELECT faultline.claim(%s, '{default}', 1, '1 hour')", [worker])
    return job_id


def state(conn: Connection, job_id: UUID) -> str:
    return str(value(conn, "SELECT state FROM faultline.jobs WHERE id = %s", job_id))


def test_an_expired_lease_is_reconciled_without_any_worker(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    job_id = claimed(conn)
    with background(Reconciler(database_url).run):
        wait_until(lambda: events.of("reconciler_leading"))
        assert state(conn, job_id) == "running"
        expire(conn, job_id)
        wait_until(lambda: state(conn, job_id) == "queued")
        [event] = wait_until(lambda: events.of("lease_reaped"))
    assert event["job_id"] == str(job_id)
    assert (event["token"], event["lost_worker"], event["cause"]) == (1, "gone", "expired")


def test_the_job_of_a_dead_worker_is_reconciled_before_its_lease_ends(
    conn: Connection, connect: Callable[[], Connection], database_url: str, events: EventTap
) -> None:
    mortal = connect()
    register = "SELECT faultline.register_worker('mortal', 'host', 1, '{default}', true)"
    mortal.execute(register)
    job_id = claimed(conn, worker="mortal")
    with background(Reconciler(database_url).run):
        wait_until(lambda: events.of("reconciler_leading"))
        assert state(conn, job_id) == "running"
        mortal.close()
        wait_until(lambda: state(conn, job_id) == "queued")
        [event] = wait_until(lambda: events.of("lease_reaped"))
        assert event["cause"] == "worker_lost"
        assert [line["worker"] for line in events.of("worker_lost")] == ["mortal"]
        lost = "SELECT lost_at IS NOT NULL FROM faultline.workers"
        wait_until(lambda: value(conn, lost), "its burial")


def test_a_job_that_kills_its_workers_is_declared_poison(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    job_id = claimed(conn, max_attempts=1)
    expire(conn, job_id)
    with background(Reconciler(database_url).run):
        [event] = wait_until(lambda: events.of("job_dead"))
    assert (event["job_id"], event["reason"]) == (str(job_id), "poison")
    row = conn.execute("SELECT state, failed_reason FROM faultline.jobs").fetchone()
    assert row == ("failed", "poison")


def test_of_two_reconcilers_one_leads_and_the_other_takes_over(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    with background(Reconciler(database_url).run), background(Reconciler(database_url).run):
        first = wait_until(lambda: conn.execute(LEADER).fetchall())
        wait_until(lambda: len(conn.execute(SESSIONS).fetchall()) == 2)
        assert conn.execute(LEADER).fetchall() == first
        conn.execute("SELECT pg_terminate_backend(%s)", first[0])
        wait_until(lambda: conn.execute(LEADER).fetchall() not in ([], first))
        job_id = claimed(conn)
        expire(conn, job_id)
        wait_until(lambda: state(conn, job_id) == "queued")
        # Logged after the job was reconciled and PostgreSQL has answered.
        wait_until(lambda: events.of("lease_reaped"))
    assert len(events.of("lease_reaped")) == 1


def test_a_reconciler_that_waits_among_many_workers_keeps_its_session(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    """A follower among many polls seldom; PostgreSQL must not end its idle session."""
    with psycopg.connect(database_url) as leader:
        leader.execute("SELECT pg_advisory_lock(%s, 0)", [workers.LOCK_CLASS])
        conn.execute(
            "INSERT INTO faultline.workers (id, host, pid, queues, holds_locks)"
            " SELECT 'w' || n, 'host', n, '{default}', false FROM generate_series(1, 300) AS n"
        )
        asked = (
            "SELECT pid, query_start FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'faultline reconciler' AND query ~ 'pg_try_advisory_lock'"
        )
        with background(Reconciler(database_url).run):
            first = wait_until(lambda: conn.execute(asked).fetchall())
            again = wait_until(
                lambda: [row for row in conn.execute(asked).fetchall() if row not in first],
                "its second question",
            )
        assert again[0][0] == first[0][0], "the server ended its session while it waited"
    assert events.of("database_unavailable") == []

"""One job for each planned time, however often fire_schedule is called."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline.statements import invariants
from tests.protocol.steps import refused

from .steps import Connection, add, field, fire, jobs, make_due, one, set_schedule

MINUTE = timedelta(minutes=1)
Connect = Callable[[], Connection]


@pytest.fixture(autouse=True)
def _invariants_hold(conn: Connection) -> object:
    yield
    for invariant in invariants.INVARIANTS:
        assert run(conn, invariants.check(invariant)) == [], invariant.name


def test_firing_enqueues_the_job_and_advances_the_schedule_at_once(conn: Connection) -> None:
    add(conn, task="shop.report", payload={"days": 1}, queue="mail", priority=2, max_attempts=3)
    planned = make_due(conn)

    answer = fire(conn, planned)

    assert answer is not None
    assert answer.times == [planned]
    [job] = conn.execute(
        "SELECT id, task, payload, queue, priority, max_attempts, idempotency_key, scheduled_for, next_run_at"
        " FROM faultline.jobs"
    ).fetchall()
    key = f"schedule:report:{planned:%Y-%m-%dT%H:%M:%S.%f}Z"
    settings = (answer.job_ids[0], "shop.report", {"days": 1}, "mail", 2, 3, key)
    assert job == (*settings, planned, planned)
    assert field(conn, "next_fire_at") == planned + MINUTE
    assert field(conn, "last_planned_at") == planned
    assert field(conn, "last_job_id") == answer.job_ids[0]


def test_the_same_firing_again_does_nothing(conn: Connection) -> None:
    add(conn)
    planned = make_due(conn)
    fire(conn, planned)
    assert fire(conn, planned) is None
    assert len(jobs(conn)) == 1


def test_eight_schedulers_at_once_make_one_job_for_each_time(
    conn: Connection, connect: Connect
) -> None:
    add(conn)
    first = make_due(conn, minutes_ago=9)
    sessions = [connect() for _ in range(8)]
    times = [first + number * MINUTE for number in range(10)]
    barrier = Barrier(8)

    def fire_all(session: Connection) -> int:
        barrier.wait()
        return sum(fire(session, at) is not None for at in times for _ in range(3))

    with ThreadPoolExecutor(8) as threads:
        fired = sum(threads.map(fire_all, sessions))

    # A scheduler that finds the row locked goes on; the last of the times may be left for later.
    assert [scheduled_for for _, scheduled_for in jobs(conn)] == times[:fired]
    assert fired >= 1


def test_a_scheduler_does_not_wait_for_another_that_fires(
    conn: Connection, connect: Connect
) -> None:
    add(conn)
    planned = make_due(conn)
    other = connect()
    other.autocommit = False
    assert fire(other, planned) is not None

    conn.execute("SET lock_timeout = '1ms'")
    assert fire(conn, planned) is None
    other.rollback()
    assert fire(conn, planned) is not None
    assert len(jobs(conn)) == 1


def test_a_scheduler_that_dies_before_its_commit_leaves_nothing(
    conn: Connection, connect: Connect
) -> None:
    add(conn)
    planned = make_due(conn)
    mortal = connect()
    mortal.autocommit = False
    fire(mortal, planned)
    mortal.close()
    assert jobs(conn) == []
    assert field(conn, "next_fire_at") == planned


@pytest.mark.parametrize(
    "change",
    [
        "SELECT faultline.pause_schedule('report')",
        'SELECT faultline.add_schedule(\'{"name": "report", "task": "u", "every_seconds": 60}\', true)',
    ],
)
def test_a_schedule_that_changed_since_it_was_read_does_not_fire(
    conn: Connection, change: str
) -> None:
    add(conn)
    planned = make_due(conn)
    conn.execute(change.encode())
    assert fire(conn, planned) is None
    assert jobs(conn) == []


def test_a_time_that_is_not_due_by_the_databases_clock_does_not_fire(conn: Connection) -> None:
    add(conn)
    soon = datetime.now(UTC) + timedelta(hours=1)
    conn.execute("UPDATE faultline.schedules SET next_fire_at = %s", [soon])
    assert fire(conn, soon) is None
    assert jobs(conn) == []


def test_a_time_that_fired_does_not_fire_again_after_the_clock_was_set_back(
    conn: Connection,
) -> None:
    add(conn)
    planned = make_due(conn, minutes_ago=2)
    fire(conn, planned)
    set_schedule(conn, "report", f"next_fire_at = '{planned.isoformat()}'")

    answer = fire(conn, planned, [planned, planned + MINUTE])

    assert answer is not None
    assert answer.times == [planned + MINUTE]
    assert [scheduled_for for _, scheduled_for in jobs(conn)] == [planned, planned + MINUTE]


def test_a_time_that_fired_does_not_fire_again_after_its_job_was_deleted(conn: Connection) -> None:
    add(conn)
    planned = make_due(conn)
    answer = fire(conn, planned)
    assert answer is not None
    conn.execute("SELECT faultline.delete(%s)", answer.job_ids)
    set_schedule(conn, "report", f"next_fire_at = '{planned.isoformat()}'")

    again = fire(conn, planned)

    assert again is not None
    assert again.times == []
    assert jobs(conn) == []


def test_a_schedule_that_was_removed_and_added_again_does_not_fire_a_time_twice(
    conn: Connection,
) -> None:
    add(conn)
    planned = make_due(conn)
    fire(conn, planned)
    conn.execute("SELECT faultline.remove_schedule('report')")
    add(conn)
    make_due(conn)
    set_schedule(conn, "report", f"next_fire_at = '{planned.isoformat()}'")
    answer = fire(conn, planned)
    assert answer is not None
    assert answer.times == []
    assert len(jobs(conn)) == 1


def test_skipped_times_are_one_row_with_their_number(conn: Connection) -> None:
    add(conn)
    first = make_due(conn, minutes_ago=5)
    fire(conn, first, [first + 5 * MINUTE], skipped=5, newest_skipped=first + 4 * MINUTE)
    assert conn.execute(
        "SELECT planned_at, outcome, skipped FROM faultline.schedule_firings ORDER BY planned_at"
    ).fetchall() == [(first + 4 * MINUTE, "skipped", 5), (first + 5 * MINUTE, "fired", 0)]


def test_the_jitter_is_the_same_for_every_scheduler_and_differs_between_times(
    conn: Connection,
) -> None:
    add(conn, jitter_seconds=30)
    first = make_due(conn, minutes_ago=9)
    times = [first + number * MINUTE for number in range(10)]

    def delays() -> list[float]:
        found = conn.execute(
            "SELECT extract(epoch FROM next_run_at - scheduled_for)::float8 FROM faultline.jobs"
            " ORDER BY scheduled_for"
        ).fetchall()
        return [delay for (delay,) in found]

    with conn.transaction(force_rollback=True):
        fire(conn, first, times)
        once = delays()
    fire(conn, first, times)
    assert delays() == once
    assert all(0 <= delay < 30 for delay in once)
    assert len(set(once)) == 10


def test_a_job_of_a_late_firing_expires_counted_from_the_firing(conn: Connection) -> None:
    add(conn, expires_in_seconds=30)
    planned = make_due(conn, minutes_ago=60)
    fire(conn, planned)
    assert one(
        conn,
        "SELECT expires_at - clock_timestamp() BETWEEN interval '1 second' AND interval '30 seconds'"
        " FROM faultline.jobs",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"planned": [datetime(2001, 1, 1, tzinfo=UTC)]},  # before next_fire_at
        {"following": datetime(2001, 1, 1, tzinfo=UTC)},
        {"skipped": 3},
        {"planned": []},
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(
    conn: Connection, wrong: dict[str, object]
) -> None:
    add(conn)
    planned = make_due(conn)
    with refused("FL005"):
        fire(conn, planned, **wrong)  # type: ignore[arg-type]
    assert jobs(conn) == []


def test_firings_are_never_changed(conn: Connection) -> None:
    add(conn)
    fire(conn, make_due(conn))
    for statement in (
        "UPDATE faultline.schedule_firings SET outcome = 'manual'",
        "DELETE FROM faultline.schedule_firings",
        "TRUNCATE faultline.schedule_firings",
    ):
        with refused("FL002"):
            conn.execute(statement.encode())


def test_a_claim_returns_the_planned_time(conn: Connection) -> None:
    add(conn)
    planned = make_due(conn)
    fire(conn, planned)
    conn.execute("SELECT faultline.enqueue('other', queue => 'other')")
    claimed = conn.execute(
        "SELECT scheduled_for FROM faultline.claim('w', '{default,other}', 10) ORDER BY queue"
    ).fetchall()
    assert claimed == [(planned,), (None,)]
    assert (
        conn.execute("SELECT scheduled_for FROM faultline.leases_of('w') ORDER BY queue").fetchall()
        == claimed
    )


def test_an_interval_out_of_range_is_refused(conn: Connection) -> None:
    for fields in (
        {"every_seconds": 0},
        {"cron": "0 6 * * *", "every_seconds": 60},
        {"jitter_seconds": -1},
        {"missed": "never"},
        {"missed_limit": 1001},
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            add(conn, **fields)
    with refused("FL005"):
        add(conn, crom="0 6 * * *", every_seconds=60)


def test_the_last_planned_time_never_goes_back_and_outlives_a_removal(conn: Connection) -> None:
    """As after a clock set back; `verify` compares it with the newest firing."""
    add(conn)
    newest = make_due(conn)
    fire(conn, newest)
    earlier = make_due(conn, minutes_ago=5)
    fire(conn, earlier)
    assert field(conn, "last_planned_at") == newest
    conn.execute("SELECT faultline.remove_schedule('report')")
    add(conn)
    assert field(conn, "last_planned_at") == newest


def test_a_next_time_within_the_interval_cannot_be_moved(conn: Connection) -> None:
    add(conn)
    soon = datetime.now(UTC) + timedelta(seconds=30)
    conn.execute("UPDATE faultline.schedules SET next_fire_at = %s", [soon])
    plan = "SELECT faultline.plan_schedule('report', 1, %s, clock_timestamp())"
    assert one(conn, plan, soon) is False
    assert field(conn, "next_fire_at") == soon

"""The leader's scheduler: what it fires, plans, re-anchors and reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from faultline.planned_times import Timing
from faultline.reconciler import Reconciler
from faultline.reconciler.scheduler import Scheduler, decide
from faultline.statements.firing import DueSchedule
from tests.running import EventTap, background
from tests.waiting import wait_until

from .steps import Connection, add, field, jobs, make_due, one, set_schedule

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 7, 1, 12, 0, 30, tzinfo=UTC)


def look(database_url: str) -> None:
    """One look of a scheduler of its own."""

    async def once() -> None:
        scheduler = Scheduler(database_url)
        try:
            await scheduler.look()
        finally:
            await scheduler._session.close()

    asyncio.run(once())


# ── the policy for missed firings ────────────────────────────────────────────────────────────────


def missed(policy: str, since: timedelta, **options: object) -> DueSchedule:
    timing = Timing(cron="* * * * *") if options.pop("cron", False) else Timing(every_seconds=60)
    first = NOW.replace(second=0) - since
    return DueSchedule("s", 1, timing, policy, 10, first - MINUTE, first)


@pytest.mark.parametrize("cron", [True, False])
def test_after_a_year_of_downtime_each_policy_fires_a_bounded_number(cron: bool) -> None:
    newest = NOW.replace(second=0)
    year = timedelta(days=365)

    once = decide(missed("once", year, cron=cron), NOW)
    assert (once.planned, once.newest_skipped) == ([newest], newest - MINUTE)

    every = decide(missed("all", year, cron=cron), NOW)
    assert every.planned == [newest - number * MINUTE for number in reversed(range(10))]
    assert every.newest_skipped == newest - 10 * MINUTE

    for decision in (once, every):
        assert decision.skipped >= 1000
        assert decision.next_fire_at == newest + MINUTE


def test_skip_fires_a_time_that_is_at_most_a_minute_late_and_no_older_one() -> None:
    on_time = decide(missed("skip", 5 * MINUTE), NOW)
    assert (on_time.planned, on_time.skipped) == ([NOW.replace(second=0)], 5)

    late = DueSchedule(
        "s",
        1,
        Timing("0 6 * * *"),
        "skip",
        10,
        NOW - timedelta(days=3),
        NOW.replace(hour=6, second=0) - timedelta(days=2),
    )
    decision = decide(late, NOW)
    assert (decision.planned, decision.skipped) == ([], 3)
    assert decision.newest_skipped == NOW.replace(hour=6, second=0)


def test_a_stored_time_that_is_none_of_the_computed_ones_fires() -> None:
    """The rules of the time zone may have changed since it was stored."""
    stored = NOW - timedelta(seconds=7)
    schedule = DueSchedule("s", 1, Timing("0 6 * * *"), "once", 10, NOW - MINUTE, stored)
    assert decide(schedule, NOW).planned == [stored]


# ── against the database ─────────────────────────────────────────────────────────────────────────


def test_the_leading_reconciler_fires_a_due_schedule_and_says_so(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    add(conn)
    add(conn, "daily", cron="0 6 * * *", time_zone="Europe/Berlin")
    planned = make_due(conn)
    with background(Reconciler(database_url).run):
        [event] = wait_until(lambda: events.of("schedule_fired"))
        wait_until(lambda: field(conn, "next_fire_at", "daily"))
    assert (event["schedule"], event["planned_at"]) == ("report", planned.isoformat())
    assert [scheduled_for for _, scheduled_for in jobs(conn)] == [planned]
    assert field(conn, "next_fire_at") > planned


def test_a_schedule_fires_without_waiting_for_a_tick(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    add(conn, every_seconds=1)
    with background(Reconciler(database_url).run):
        wait_until(lambda: len(jobs(conn)) >= 3)
    times = [scheduled_for for _, scheduled_for in jobs(conn)]
    assert len(set(times)) == len(times)
    assert all(time.microsecond == 0 for time in times)


def test_a_new_schedule_is_planned_from_when_it_was_added(
    conn: Connection, database_url: str
) -> None:
    add(conn, cron="30 2 * * *", time_zone="Europe/Berlin")
    set_schedule(conn, "report", "decided_until = '2026-10-24 12:00+00'")
    look(database_url)
    assert field(conn, "next_fire_at") == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert jobs(conn) == []


def test_an_outage_fires_once_and_records_what_it_skipped(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    add(conn)
    first = make_due(conn, minutes_ago=60)
    look(database_url)
    outcomes = conn.execute(
        "SELECT outcome, skipped FROM faultline.schedule_firings ORDER BY planned_at"
    ).fetchall()
    newest = field(conn, "last_planned_at")
    assert outcomes == [("skipped", (newest - first) // MINUTE), ("fired", 0)]
    [event] = events.of("schedule_skipped")
    assert event["times"] == (newest - first) // MINUTE


@pytest.mark.parametrize(
    "wrong",
    [
        "cron = 'x', every_seconds = NULL",
        "time_zone = 'Mars/Phobos', cron = '0 6 * * *', every_seconds = NULL",
    ],
)
def test_a_wrong_row_is_reported_and_does_not_stop_the_others(
    conn: Connection, database_url: str, events: EventTap, wrong: str
) -> None:
    add(conn, "a")
    set_schedule(conn, "a", wrong)
    add(conn, "b")
    make_due(conn, "b")

    look(database_url)
    look(database_url)

    assert len(jobs(conn)) == 1
    assert field(conn, "last_error", "a")
    [event] = events.of("schedule_failed")
    assert event["schedule"] == "a"


def test_a_corrected_row_fires_again(conn: Connection, database_url: str) -> None:
    add(conn, cron="bad")
    look(database_url)
    assert "bad" in field(conn, "last_error")
    add(conn, cron="0 6 * * *")
    look(database_url)
    assert field(conn, "last_error") is None
    assert field(conn, "next_fire_at") is not None


def test_an_interval_counts_from_now_when_the_clock_was_set_back(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    add(conn)
    fired = make_due(conn)
    look(database_url)
    # As if that had been tomorrow, and the clock were set back by a day.
    set_schedule(conn, "report", "next_fire_at = next_fire_at + interval '1 day'")
    look(database_url)

    [event] = events.of("schedule_reanchored")
    assert event["schedule"] == "report"
    assert one(
        conn,
        "SELECT next_fire_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '61 seconds'"
        " FROM faultline.schedules",
    )
    assert field(conn, "reanchored_at") is not None
    set_schedule(conn, "report", "next_fire_at = next_fire_at - interval '1 minute'")
    look(database_url)
    times = [scheduled_for for _, scheduled_for in jobs(conn)]
    assert len(times) == 2
    assert fired in times


def test_a_cron_schedule_waits_when_the_clock_was_set_back(
    conn: Connection, database_url: str
) -> None:
    add(conn, cron="* * * * *")
    make_due(conn)
    look(database_url)
    set_schedule(conn, "report", "next_fire_at = next_fire_at + interval '1 day'")
    before = field(conn, "next_fire_at")
    look(database_url)
    assert field(conn, "next_fire_at") == before
    assert len(jobs(conn)) == 1


def test_a_paused_schedule_does_not_fire_and_none_of_the_times_meanwhile(
    conn: Connection, database_url: str
) -> None:
    add(conn)
    make_due(conn)
    assert one(conn, "SELECT faultline.pause_schedule('report', 'stock-taking')")
    look(database_url)
    assert jobs(conn) == []
    assert one(conn, "SELECT faultline.resume_schedule('report')")
    look(database_url)
    assert jobs(conn) == []
    assert one(conn, "SELECT next_fire_at > clock_timestamp() FROM faultline.schedules")


def test_a_schedule_that_no_worker_declares_is_reported_once(
    conn: Connection, database_url: str, events: EventTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the first look: a deployment may be between stop and start."""
    monkeypatch.setattr("faultline.reconciler.scheduler.UNDECLARED_SECONDS", -1.0)
    add(conn)
    set_schedule(conn, "report", "declared_by = 'code'")
    reported: list[int] = []

    async def look_often() -> None:
        scheduler = Scheduler(database_url)
        for _ in range(4):
            await scheduler.look()
            reported.append(len(events.of("schedule_undeclared")))
        await scheduler._session.close()

    asyncio.run(look_often())
    assert reported == [0, 1, 1, 1]


def test_eight_schedulers_fire_each_time_once(
    conn: Connection, database_url: str, connect: Callable[[], Connection]
) -> None:
    """Leadership saves work; it is not what keeps a time from firing twice."""
    for number in range(5):
        add(conn, f"s{number}", missed="all")
        make_due(conn, f"s{number}", minutes_ago=3)

    async def all_at_once() -> None:
        schedulers = [Scheduler(database_url) for _ in range(8)]
        try:
            for _ in range(3):
                await asyncio.gather(*(scheduler.look() for scheduler in schedulers))
        finally:
            for scheduler in schedulers:
                await scheduler._session.close()

    asyncio.run(all_at_once())
    fired = conn.execute(
        "SELECT split_part(idempotency_key, ':', 2), count(*), count(DISTINCT scheduled_for)"
        " FROM faultline.jobs GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert [name for name, _, _ in fired] == ["s0", "s1", "s2", "s3", "s4"]
    assert all(number == distinct >= 4 for _, number, distinct in fired)

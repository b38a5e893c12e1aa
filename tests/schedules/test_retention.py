"""Old firings are purged, except those that still say something."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from faultline.config import Retention
from faultline.postgres.sessions import run
from faultline.statements.retention import Sweep, purge_firings

from .steps import Connection, add, fire, make_due, one

MINUTE = timedelta(minutes=1)


def age(conn: Connection, planned_at: datetime, *, name: str = "report") -> None:
    """Let a firing be 31 days old, and its job purged."""
    conn.execute("ALTER TABLE faultline.schedule_firings DISABLE TRIGGER guard_update")
    conn.execute(
        "UPDATE faultline.schedule_firings SET fired_at = fired_at - interval '31 days'"
        " WHERE schedule = %s AND planned_at = %s",
        [name, planned_at],
    )
    conn.execute("ALTER TABLE faultline.schedule_firings ENABLE TRIGGER guard_update")


def fired(conn: Connection, count: int) -> list[datetime]:
    """Fire so many times; the jobs are purged."""
    first = make_due(conn, minutes_ago=count - 1)
    times = [first + number * MINUTE for number in range(count)]
    fire(conn, first, times)
    conn.execute("DELETE FROM faultline.jobs")
    return times


def purge(conn: Connection, batch_size: int = 500) -> int:
    removed, after = 0, None
    while True:
        statement = purge_firings(Retention(), batch_size=batch_size, after=after)
        page = run(conn, statement)
        removed, after = removed + page.firings, page.last_id
        if after is None:
            return removed
        assert isinstance(after, str)


def left(conn: Connection) -> list[datetime]:
    found = conn.execute("SELECT planned_at FROM faultline.schedule_firings ORDER BY 1").fetchall()
    return [planned_at for (planned_at,) in found]


@pytest.mark.parametrize("batch_size", [1, 500])
def test_old_firings_are_purged_and_the_newest_of_a_schedule_stays(
    conn: Connection, batch_size: int
) -> None:
    add(conn)
    times = fired(conn, 4)
    for time in times:
        age(conn, time)
    assert purge(conn, batch_size) == 3
    assert left(conn) == times[-1:]


def test_recent_firings_and_those_whose_job_exists_stay(conn: Connection) -> None:
    add(conn)
    first = make_due(conn, minutes_ago=3)
    times = [first + number * MINUTE for number in range(4)]
    fire(conn, first, times)
    conn.execute("DELETE FROM faultline.jobs WHERE scheduled_for <> %s", [times[0]])
    for time in times[:2]:
        age(conn, time)
    assert purge(conn) == 1
    assert left(conn) == [times[0], *times[2:]]


def test_nothing_is_kept_of_a_schedule_that_was_removed(conn: Connection) -> None:
    add(conn)
    for time in fired(conn, 2):
        age(conn, time)
    conn.execute("SELECT faultline.remove_schedule('report')")
    assert purge(conn) == 2


def test_manual_runs_are_purged_too(conn: Connection) -> None:
    add(conn)
    for _ in range(3):
        conn.execute("SELECT faultline.run_schedule('report')")
    conn.execute("DELETE FROM faultline.jobs")
    for time in left(conn):
        age(conn, time)
    assert purge(conn) == 2


def test_a_sweep_purges_firings_as_long_as_failed_jobs_are_kept(conn: Connection) -> None:
    add(conn)
    for time in fired(conn, 3):
        age(conn, time)
    sweep = Sweep(Retention(), is_automatic=True)
    while (statement := sweep.next_statement) is not None:
        sweep.add(run(conn, statement))
    assert sweep.purged.firings == 2
    assert one(conn, "SELECT count(*) FROM faultline.audit_log WHERE action = 'purge'") == 0

    keeping = Sweep(Retention(succeeded_days=0, failed_days=0, ledger_days=0, audit_days=0))
    while (statement := keeping.next_statement) is not None:
        assert "purge_firings" not in statement.sql
        keeping.add(run(conn, statement))

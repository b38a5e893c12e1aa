"""The leading reconciler purges by retention; a failed purge never stops recovery."""

from __future__ import annotations

import pytest

from faultline.config import Retention
from faultline.errors import InvalidSettings
from faultline.reconciler import Reconciler
from tests.protocol.ageing import failed, succeeded
from tests.running import Connection, EventTap, background, count, expire, value
from tests.waiting import wait_until

SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'faultline retention'"
    " AND datname = current_database()"
)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultline.reconciler.retention.FIRST_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("faultline.reconciler.retention.SWEEP_SECONDS", 0.01)


def test_by_default_the_leader_removes_what_is_old(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    for _ in range(3):
        succeeded(conn, "100 days")
    failed(conn, "31 days")
    kept = failed(conn, "29 days")
    with background(Reconciler(database_url).run):
        wait_until(lambda: count(conn, "faultline.ledger") == 0)
        wait_until(lambda: events.of("purged"))
    assert conn.execute("SELECT id FROM faultline.jobs").fetchall() == [(kept,)]
    logged = events.of("purged")
    assert sum(line["succeeded"] for line in logged) == 3
    assert sum(line["failed"] for line in logged) == 1
    assert sum(line["ledger_entries"] for line in logged) == 3


def test_more_than_a_batch_is_removed_in_one_sweep(
    conn: Connection, database_url: str, events: EventTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.statements.retention.BATCH_SIZE", 2)
    monkeypatch.setattr("faultline.reconciler.retention.SWEEP_SECONDS", 3600)
    for _ in range(7):
        failed(conn, "31 days")
    with background(Reconciler(database_url).run):
        [purged] = wait_until(lambda: events.of("purged"))
    assert purged["failed"] == 7


def test_the_leaders_own_retention_settings_apply(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    succeeded(conn, "400 days")
    failed(conn, "3 days")
    retention = Retention(succeeded_days=0, failed_days=2, ledger_days=0)
    with background(Reconciler(database_url, retention).run):
        wait_until(lambda: events.of("purged"))
    assert value(conn, "SELECT state FROM faultline.jobs") == "succeeded"
    assert count(conn, "faultline.ledger") == 1


def test_a_failed_purge_is_reported_and_recovery_continues(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    conn.execute(
        "ALTER FUNCTION faultline.purge_jobs(interval, interval, uuid, integer, boolean)"
        " RENAME TO mislaid"
    )
    conn.execute("SELECT faultline.enqueue('t')")
    with background(Reconciler(database_url).run):
        logged = wait_until(lambda: events.of("degraded"))
        assert "retention" in logged[0]["reason"]
        job_id = value(conn, "SELECT job_id FROM faultline.claim('gone', lease => '1 hour')")
        expire(conn, job_id)
        wait_until(lambda: events.of("lease_reaped"))


def test_the_purger_holds_no_session_between_sweeps(
    conn: Connection, database_url: str, events: EventTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.reconciler.retention.SWEEP_SECONDS", 3600)
    failed(conn, "31 days")
    with background(Reconciler(database_url).run):
        wait_until(lambda: events.of("purged"))
        wait_until(lambda: value(conn, SESSIONS) == 0)


@pytest.mark.parametrize("days", [-1, 0.01, 40_000, float("nan")])
def test_a_retention_time_out_of_bounds_is_refused(days: float) -> None:
    with pytest.raises(InvalidSettings, match="failed_days"):
        Retention(failed_days=days)

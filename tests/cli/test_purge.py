"""`faultline purge` removes records whose retention has passed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.protocol.ageing import failed, succeeded
from tests.waiting import wait_until

from .conftest import Connection, Faultline, invoke


def test_records_whose_retention_has_passed_are_removed(
    faultline: Faultline, conn: Connection
) -> None:
    succeeded(conn, "8 days")
    failed(conn, "31 days")
    failed(conn, "29 days")
    counts = (
        "1 succeeded job, 1 failed job, 0 entries of the ledger, 0 entries of the audit log"
        ", 0 unique keys and 0 firings\n"
    )
    assert faultline("purge", "--dry-run").out == f"would remove {counts}"
    assert faultline("purge").out == f"removed {counts}"
    assert faultline("purge", "--json").json == {
        "dry_run": False,
        "succeeded": 0,
        "failed": 0,
        "ledger": 0,
        "audit": 0,
        "unique_keys": 0,
        "firings": 0,
    }
    assert faultline("verify").code == 0


def test_more_than_one_batch_is_removed_in_one_call(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.statements.retention.BATCH_SIZE", 2)
    for _ in range(5):
        succeeded(conn, "100 days")
    found = faultline("purge", "--json").json
    assert (found["succeeded"], found["ledger"]) == (5, 5)
    assert conn.execute("SELECT count(*) FROM faultline.jobs").fetchall() == [(0,)]


def test_retention_is_set_by_options_and_by_variables(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded(conn, "3 days")
    assert faultline("purge", "--json").json["succeeded"] == 0
    monkeypatch.setenv("FAULTLINE_KEEP_SUCCEEDED_DAYS", "2")
    counted = faultline("purge", "--dry-run", "--keep-succeeded-days", "0", "--json").json
    assert counted["succeeded"] == 0  # 0: for ever
    assert faultline("purge", "--json").json["succeeded"] == 1


def test_a_retention_that_is_too_short_is_refused(faultline: Faultline) -> None:
    refusal = faultline("purge", "--keep-ledger-days", "0.01").refused("invalid_settings")
    assert "ledger_days is 0.01" in str(refusal)


def test_a_read_only_account_cannot_purge(conn: Connection, database_url: str) -> None:
    invoke(database_url, "migrate", "--roles")
    url = f"{database_url}?options=-c%20role%3Dfaultline_{{}}"
    assert invoke(url.format("operator"), "purge").code == 0
    refusal = invoke(url.format("inspector"), "purge").refused("database_refused")
    assert "faultline_operator" in str(refusal.hint)


def test_a_reconciler_purges_by_the_options_of_its_command(
    faultline: Faultline,
    conn: Connection,
    connect: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("faultline.reconciler.retention.FIRST_SWEEP_SECONDS", 0.01)
    failed(conn, "3 days")
    observer, has_ended = connect(), threading.Event()

    def is_gone() -> bool:
        return observer.execute("SELECT count(*) FROM faultline.jobs").fetchone() == (0,)

    def end_it_when_the_job_is_gone() -> bool:
        try:
            wait_until(lambda: has_ended.is_set() or is_gone(), "the purge of the job")
            return is_gone()
        finally:
            if not has_ended.is_set():  # else the signal would be for the tests
                os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as threads:
        gone = threads.submit(end_it_when_the_job_is_gone)
        try:
            done = faultline("reconciler", "--keep-failed-days", "2")
        finally:
            has_ended.set()
    assert gone.result()
    assert done.code == 0


def test_a_worker_has_the_same_retention_options() -> None:
    help_text = invoke(None, "worker", "--help").out
    for name in ("succeeded", "failed", "ledger"):
        assert f"--keep-{name}-days" in help_text

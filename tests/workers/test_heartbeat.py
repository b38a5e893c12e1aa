"""A worker's heartbeat keeps to the clock that leases run out by."""

from __future__ import annotations

import pytest

from faultline.config import WorkerSettings
from faultline.steady import steady_now
from faultline.workers.heartbeat import Heartbeat
from faultline.workers.leases import HeldLeases
from tests.running import Connection, value
from tests.waiting import LIMIT_SECONDS, wait_until


def test_after_a_suspension_the_heartbeat_does_not_wait_again(
    database_url: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a suspension the leases' clock runs on; the clock of waits stands still."""
    suspended_seconds = 0.0
    monkeypatch.setattr(
        "faultline.workers.heartbeat.steady_now", lambda: steady_now() + suspended_seconds
    )
    register = "SELECT faultline.register_worker('me', 'host', 1, '{default}', false)"
    lock_key = value(conn, register)
    settings = WorkerSettings(worker_id="me", lease_seconds=3600)
    heartbeat = Heartbeat(database_url, settings, HeldLeases())
    heartbeat.start(lock_key=lock_key)
    try:
        due_at = wait_until(lambda: heartbeat.due_at, "the first beat")
        first = heartbeat.answered_at
        suspended_seconds = 7200.0
        wait_until(lambda: heartbeat.answered_at != first, "the beat that is overdue")
        again = wait_until(lambda: heartbeat.due_at, "its end")
        assert again > due_at + suspended_seconds - settings.lease_seconds
    finally:
        assert heartbeat.stop(LIMIT_SECONDS)

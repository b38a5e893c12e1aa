"""The overview's problems: unserved queues, old due jobs, failures, lost workers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
from starlette.testclient import TestClient

from faultline.inspector.attention import grouped
from faultline.statements.statistics import FailedJob
from tests.inspector import stories
from tests.protocol import steps

Connection = psycopg.Connection[Any]


def attention(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/overview").raise_for_status().json()["attention"]
    return found


def fail(conn: Connection, task: str, error: str, queue: str = "default") -> str:
    job_id, _ = steps.enqueue(conn, task, queue=queue)
    [lease] = steps.claim_batch(conn, queues=[queue])
    conn.execute(
        "SELECT faultline.fail(%s, %s, %s, %s, '0', 'rejected')", [*lease, error]
    ).fetchall()
    return str(job_id)


def test_an_idle_database_needs_no_attention(client: TestClient) -> None:
    assert attention(client) == {
        "unserved_queues": [],
        "oldest_due": [],
        "failures": [],
        "failures_seconds": 86400.0,
        "failures_total": 0,
        "failures_is_exact": True,
        "lost_workers": [],
        "schedules": [],
    }


def test_a_queue_with_due_jobs_and_no_live_worker_is_named(
    client: TestClient, conn: Connection
) -> None:
    stories.register(conn, "alive", "served")
    for queue in ("served", "biling", "paused", "biling"):
        job_id, _ = steps.enqueue(conn, queue=queue)
        steps.make_due(conn, job_id, "11 minutes" if queue == "biling" else "1 minute")
    conn.execute("SELECT faultline.pause_queue('paused')")

    found = attention(client)

    [unserved] = found["unserved_queues"]
    assert (unserved["queue"], unserved["due"], unserved["due_is_exact"]) == ("biling", 2, True)
    assert unserved["oldest_due_seconds"] >= 660
    oldest = [(each["queue"], each["paused"]) for each in found["oldest_due"]]
    assert oldest[0] == ("biling", False)
    assert sorted(oldest[1:]) == [("paused", True), ("served", False)]


def test_failures_are_grouped_by_task_and_error_and_cancelled_jobs_are_none(
    client: TestClient, conn: Connection
) -> None:
    fail(conn, "charge", "ConnectionError: to 10.0.0.1")
    fail(conn, "mail", "ValueError: no address\n\nTraceback …", queue="mail")
    newest = fail(conn, "charge", "ConnectionError: to 10.0.0.2", queue="mail")
    cancelled, _ = steps.enqueue(conn)
    steps.cancel(conn, cancelled)

    found = attention(client)

    first, second = found["failures"]
    assert (first["task"], first["error"], first["count"]) == ("charge", "ConnectionError", 2)
    assert first["newest_job_id"] == newest
    assert first["newest_error"] == "ConnectionError: to 10.0.0.2"
    assert first["queues"] == ["mail", "default"]
    assert (second["task"], second["error"], second["count"]) == ("mail", "ValueError", 1)
    assert second["newest_error"] == "ValueError: no address"
    assert found["failures_total"] == 3


def test_a_lost_worker_is_named(client: TestClient, conn: Connection) -> None:
    stories.register(conn, "gone", "mail", holds_locks=False)
    conn.execute("UPDATE faultline.workers SET lost_at = clock_timestamp()")

    [lost] = attention(client)["lost_workers"]

    assert (lost["id"], lost["status"], lost["queues"]) == ("gone", "lost", ["mail"])


def test_an_error_without_a_name_is_grouped_by_the_reason() -> None:
    def failure(error: str | None, reason: str) -> FailedJob:
        return FailedJob("t", "q", reason, error, datetime.now(UTC), uuid4())

    errors = [
        failure(None, "poison"),
        failure("ValueError: before the crash", "poison"),
        failure("no space left on device", "rejected"),
        failure("psycopg.errors.UniqueViolation: x", "attempts_spent"),
    ]

    counts = {group["error"]: group["count"] for group in grouped(errors)}
    assert counts == {"poison": 2, "rejected": 1, "psycopg.errors.UniqueViolation": 1}

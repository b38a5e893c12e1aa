"""A job's story, made from what the protocol leaves behind."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from starlette.testclient import TestClient

from tests.inspector import stories
from tests.protocol import steps

Connection = psycopg.Connection[Any]


def timeline_of(client: TestClient, job_id: UUID) -> dict[str, Any]:
    story: dict[str, Any] = client.get(f"/api/jobs/{job_id}/timeline").raise_for_status().json()
    assert story["job_id"] == str(job_id)
    assert [event["at"] for event in story["events"]] == sorted(
        event["at"] for event in story["events"]
    )
    return story


def kinds(story: dict[str, Any]) -> list[str]:
    return [event["kind"] for event in story["events"]]


def outcomes(story: dict[str, Any]) -> list[tuple[int, int, str]]:
    return [(each["attempt"], each["token"], each["outcome"]) for each in story["attempts"]]


def test_a_takeover_and_the_refused_commit_are_in_order(
    client: TestClient, conn: Connection
) -> None:
    job_id = stories.run_takeover(conn).job_id

    story = timeline_of(client, job_id)

    assert story["state"] == "succeeded"
    assert outcomes(story) == [(1, 1, "expired"), (2, 2, "succeeded")]
    assert [each["worker"] for each in story["attempts"]] == ["first", "second"]
    assert kinds(story) == [
        *("enqueued", "claimed", "expired", "taken_over", "committed", "refused")
    ]
    [refusal] = story["rejections"]
    assert (refusal["stale_token"], refusal["current_token"]) == (1, 2)
    assert (refusal["worker"], refusal["reason"]) == ("first", "token_mismatch")
    assert refusal["overlap_seconds"] > 0
    ledger = story["ledger"]
    assert (ledger["token"], ledger["worker"]) == (2, "second")
    first, second = story["attempts"]
    assert first["claimed_at"] < first["ended_at"] <= second["claimed_at"]
    assert second["ended_at"] == ledger["committed_at"]
    assert story["events"][-1]["worker"] == "first"
    assert story["is_complete"] is True


def test_a_running_attempt_has_no_end_yet(client: TestClient, conn: Connection) -> None:
    lease = steps.claim_new(conn)

    story = timeline_of(client, lease.job_id)

    [attempt] = story["attempts"]
    assert (attempt["outcome"], attempt["ended_at"], attempt["worker"]) == (
        "running",
        None,
        "first",
    )
    assert story["ledger"] is None
    assert datetime.fromisoformat(story["now"]) >= datetime.fromisoformat(attempt["claimed_at"])


def test_a_job_that_was_never_claimed_was_enqueued_and_that_is_all(
    client: TestClient, conn: Connection
) -> None:
    job_id, _ = steps.enqueue(conn)

    story = timeline_of(client, job_id)

    assert (story["state"], story["attempts"], kinds(story)) == ("queued", [], ["enqueued"])


def test_a_failure_has_its_error_and_the_next_claim_is_no_takeover(
    client: TestClient, conn: Connection
) -> None:
    lease = steps.claim_new(conn)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'boom', '0')", lease)
    steps.claim(conn)

    story = timeline_of(client, lease.job_id)

    assert outcomes(story) == [(1, 1, "failed"), (2, 2, "running")]
    assert story["attempts"][0]["error"] == "boom"
    assert kinds(story) == ["enqueued", "claimed", "failed", "claimed"]
    assert "boom" in story["events"][2]["text"]


def test_a_job_handed_back_keeps_its_attempts_and_its_tokens_tell_them_apart(
    client: TestClient, conn: Connection
) -> None:
    lease = steps.claim_new(conn)
    conn.execute("SELECT faultline.release(%s, %s, %s)", lease)
    steps.commit(conn, steps.claim(conn))

    story = timeline_of(client, lease.job_id)

    assert outcomes(story) == [(1, 1, "released"), (1, 2, "succeeded")]


def test_a_job_cancelled_before_it_was_claimed_has_no_attempt(
    client: TestClient, conn: Connection
) -> None:
    job_id, _ = steps.enqueue(conn)
    steps.cancel(conn, job_id)

    story = timeline_of(client, job_id)

    assert (story["state"], story["attempts"]) == ("failed", [])
    assert kinds(story) == ["enqueued", "cancelled"]


def test_a_retried_job_continues_with_the_next_token(client: TestClient, conn: Connection) -> None:
    lease = steps.claim_new(conn)
    steps.cancel(conn, lease.job_id)
    conn.execute("SELECT faultline.retry(%s)", [lease.job_id])
    steps.commit(conn, steps.claim(conn))

    story = timeline_of(client, lease.job_id)

    assert outcomes(story) == [(1, 1, "cancelled"), (1, 2, "succeeded")]
    assert kinds(story) == [
        *("enqueued", "claimed", "cancelled", "retried", "claimed", "committed")
    ]


def test_the_attempt_of_a_dead_worker_ends_as_worker_lost(
    client: TestClient, conn: Connection
) -> None:
    lease = steps.claim_new(conn)
    steps.reconcile(conn, dead_workers=["first"])
    steps.claim(conn, worker="second")

    story = timeline_of(client, lease.job_id)

    assert outcomes(story) == [(1, 1, "worker_lost"), (2, 2, "running")]
    assert kinds(story)[-1] == "taken_over"
    assert "first" in story["events"][-1]["text"]


def test_a_long_timeline_has_its_beginning_and_is_marked_incomplete(
    client: TestClient, conn: Connection
) -> None:
    lease = steps.claim_new(conn)
    conn.execute(
        "INSERT INTO faultline.rejections (job_id, worker, stale_token, reason, overlap)"
        " SELECT %s, 'late', 1, 'token_mismatch', '0' FROM generate_series(1, 1200)",
        [lease.job_id],
    )

    story = timeline_of(client, lease.job_id)

    assert len(story["rejections"]) == 1000
    assert story["is_complete"] is False

"""faultline.edit_payload changes jobs that do not run, and logs the old payload."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from .steps import (
    Connect,
    Connection,
    cancel,
    claim,
    claim_new,
    commit,
    committed,
    enqueue,
    job,
    refused,
    rows,
    start_and_wait_until_blocked,
    value,
)


def edit(conn: Connection, job_id: UUID, payload: Any) -> str:
    return str(value(conn, "SELECT faultline.edit_payload(%s, %s)", job_id, Jsonb(payload)))


def former(conn: Connection, job_id: UUID) -> list[Any]:
    query = (
        "SELECT outcome, former_payload FROM faultline.attempts_log WHERE job_id = %s ORDER BY id"
    )
    return rows(conn, query, job_id)


def test_the_new_payload_is_claimed_and_the_former_one_is_kept(conn: Connection) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1})
    assert edit(conn, job_id, {"n": 2}) == "queued"
    assert edit(conn, job_id, {"n": 3}) == "queued"
    claimed = value(conn, "SELECT payload FROM faultline.claim('w', '{default}', 1, '1 minute')")
    assert claimed == {"n": 3}
    assert former(conn, job_id) == [("edited", {"n": 1}), ("edited", {"n": 2})]


def test_a_failed_job_is_edited_and_stays_failed(conn: Connection) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1})
    cancel(conn, job_id)
    assert edit(conn, job_id, {"n": 2}) == "failed"
    assert job(conn, job_id)["payload"] == {"n": 2}


def test_an_equal_payload_changes_nothing(conn: Connection) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1})
    assert edit(conn, job_id, {"n": 1}) == "queued"
    assert former(conn, job_id) == []
    assert edit(conn, job_id, {"n": 1.0}) == "queued"
    assert former(conn, job_id) == [("edited", {"n": 1})]


def test_running_and_succeeded_jobs_are_refused(conn: Connection) -> None:
    running = claim_new(conn)
    with refused("FL002"):
        edit(conn, running.job_id, {"n": 2})
    commit(conn, running)
    with refused("FL002"):
        edit(conn, committed(conn).job_id, {"n": 2})


@pytest.mark.parametrize("payload", [[], "text", 7, None])
def test_a_payload_that_is_not_an_object_is_refused(conn: Connection, payload: Any) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1})
    with refused("23514"):
        edit(conn, job_id, payload)
    assert job(conn, job_id)["payload"] == {"n": 1}


def test_an_unknown_job_cannot_be_edited(conn: Connection) -> None:
    with refused("FL006"):
        edit(conn, uuid4(), {})


def test_an_edit_waits_for_a_claim_and_is_refused_if_the_job_runs(
    conn: Connection, connect: Connect
) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1})
    worker = connect()
    worker.execute("BEGIN")
    claim(worker)
    late = start_and_wait_until_blocked(conn, connect(), lambda c: edit(c, job_id, {"n": 2}))
    worker.execute("COMMIT")
    with refused("FL002"):
        late.result()
    assert job(conn, job_id)["payload"] == {"n": 1}


def test_a_repeated_enqueue_still_finds_a_job_that_was_edited(conn: Connection) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1}, idempotency_key="k")
    edit(conn, job_id, {"n": 2})
    assert enqueue(conn, payload={"n": 1}, idempotency_key="k") == (job_id, True)
    assert enqueue(conn, payload={"n": 2}, idempotency_key="k") == (job_id, True)
    with refused("FL004"):
        enqueue(conn, payload={"n": 3}, idempotency_key="k")


def test_an_edit_is_written_to_the_audit_log_without_the_payload(conn: Connection) -> None:
    job_id, _ = enqueue(conn, payload={"card": 4242})
    edit(conn, job_id, {"card": 5555})
    query = "SELECT action, object, result, code, detail FROM faultline.audit_log"
    assert rows(conn, query) == [("edit", f"job {job_id}", "done", "queued", None)]

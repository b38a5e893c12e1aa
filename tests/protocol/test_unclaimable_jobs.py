"""Jobs that no claim can take fail alone; claims limit the size of payloads."""

from __future__ import annotations

from typing import Any

import pytest

from .steps import Connection, claim_batch, enqueue, enqueue_many, job, logged, one, rows

HUGE = '{"a": [' + ",".join(["1e131000"] * 9000) + "]}"  # 34 kB, and 1.2 GB as text
CLAIM = "SELECT job_id, payload::text FROM faultline.claim('w', '{default}', %s, '1 hour', max_bytes => %s)"


def put(conn: Connection, job_id: Any, column: str, value: Any) -> None:
    """Change the row as only the owner can, without guards and limits."""
    conn.execute("SET session_replication_role = replica")
    conn.execute("ALTER DOMAIN faultline.payload DROP CONSTRAINT payload_is_at_most_8_mib")
    conn.execute(f"UPDATE faultline.jobs SET {column} = %s WHERE id = %s", [value, job_id])
    conn.execute("SET session_replication_role = origin")


@pytest.mark.parametrize("token", [2**63 - 1, 2**22 - 1])
def test_a_job_at_the_end_of_its_tokens_fails_alone(conn: Connection, token: int) -> None:
    spent, fine = (enqueue(conn)[0] for _ in range(2))
    put(conn, spent, "fencing_token", token)
    assert [lease.job_id for lease in claim_batch(conn, 1)] == [fine]
    stored = job(conn, spent)
    assert (stored["state"], stored["failed_reason"]) == ("failed", "token_spent")
    assert "end of its range" in stored["last_error"]
    assert [entry[3] for entry in logged(conn, spent)] == ["failed"]


def test_a_token_of_an_earlier_epoch_is_never_at_the_end_of_its_range(conn: Connection) -> None:
    job_id, _ = enqueue(conn)
    put(conn, job_id, "fencing_token", 2**22 - 1)
    conn.execute("SELECT faultline.bump_epoch()")
    (lease,) = claim_batch(conn)
    assert (lease.job_id, lease.token & (2**22 - 1)) == (job_id, 1)


def test_a_payload_that_cannot_be_sent_fails_alone(conn: Connection) -> None:
    huge, fine, other = (enqueue(conn)[0] for _ in range(3))
    put(conn, huge, "payload", HUGE)
    claimed = rows(conn, CLAIM, 10, 2**24)
    assert [row[0] for row in claimed] == [fine, other]
    stored = one(
        conn, "SELECT state, failed_reason, attempts FROM faultline.jobs WHERE id = %s", huge
    )
    assert stored == ("failed", "unreadable", 0)


def test_a_claim_takes_as_many_jobs_as_its_bytes_allow_and_one_at_least(conn: Connection) -> None:
    ids = [row[0] for row in enqueue_many(conn, [{"text": "x" * 1000}] * 10)]
    assert [row[0] for row in rows(conn, CLAIM, 10, 6000)] == ids[:3]
    assert [row[0] for row in rows(conn, CLAIM, 10, 1)] == ids[3:4]
    assert [row[0] for row in rows(conn, CLAIM, 10, 2**24)] == ids[4:]


def test_numbers_count_by_their_text_and_not_by_what_they_take_to_store(conn: Connection) -> None:
    enqueue_many(conn, [{"a": [1e308] * 30}] * 10)
    taken = rows(conn, CLAIM, 10, 40_000)
    assert len(taken) == 3
    assert all(len(text) > 9_000 for _, text in taken)

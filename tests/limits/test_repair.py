"""The repair of lines: stale and lost rows, and more keys than one call reads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tests.protocol import steps
from tests.protocol.steps import Connection, columns, rows, value

from .steps import (
    assert_consistent,
    claim_all,
    due,
    enqueue,
    limit_customers,
    parked,
    repair,
    set_limit,
    waiting,
)


def enqueue_unique(conn: Connection, on_conflict: str, **options: Any) -> UUID:
    unique = {"by": ["customer"], "on_conflict": on_conflict}
    job = {"task": "charge", "payload": {"customer": 1}, "unique": unique, **options}
    [(job_id,)] = rows(conn, "SELECT job_id FROM faultline.enqueue_jobs(%s)", Jsonb([job]))
    assert isinstance(job_id, UUID)
    return job_id


def repair_page(conn: Connection, max_rows: int, after: Any) -> Any:
    return value(conn, "SELECT next FROM faultline.repair_limits(%s, %s)", max_rows, Jsonb(after))


def test_a_job_that_waits_in_no_line_is_due_again_after_a_repair(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    enqueue(conn, [{}] * 3)
    assert claim_all(conn) == []
    conn.execute("DELETE FROM faultline.waiting_jobs")
    assert (parked(conn), due(conn)) == (3, 0)
    assert repair(conn) == (0, 3, 0)
    assert (parked(conn), due(conn)) == (0, 3)
    assert claim_all(conn) == []
    assert_consistent(conn)


def test_the_repair_finds_lost_jobs_beyond_its_page(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    for queue in ("one", "two"):
        enqueue(conn, [{}] * 12, queue=queue)
        assert claim_all(conn, queues=[queue]) == []
    conn.execute("DELETE FROM faultline.waiting_jobs WHERE queue = 'two'")
    after: Any = {}
    for _ in range(3):
        after = repair_page(conn, 1, after)
    assert due(conn) == 12


def test_a_job_that_is_planned_for_another_millennium_is_not_taken_for_a_lost_one(
    conn: Connection,
) -> None:
    enqueue(conn, [{}], run_at="3500-01-01")
    assert repair(conn) == (0, 0, 0)
    assert due(conn) == 0


def test_a_waiting_job_that_is_rescheduled_leaves_its_line(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    job_id = enqueue_unique(conn, "reschedule")
    assert claim_all(conn) == []
    assert waiting(conn) == {"task:charge": 1}
    assert enqueue_unique(conn, "reschedule", run_at="3500-01-01T00:00:00Z") == job_id
    assert waiting(conn) == {}
    assert repair(conn) == (0, 0, 0)
    assert steps.job(conn, job_id)["next_run_at"].year == 3500


def test_a_deferred_job_that_waits_meanwhile_keeps_its_line(conn: Connection) -> None:
    enqueue(conn, [{}])
    [lease] = claim_all(conn)
    conn.execute("SELECT faultline.defer_many(%s, %s, %s, '0')", columns([lease]))
    set_limit(conn, "task:charge", 0)
    assert claim_all(conn) == []
    assert waiting(conn) == {"task:charge": 1}
    version = "SELECT xmin::text FROM faultline.jobs"
    before = value(conn, version)
    assert rows(conn, "SELECT * FROM faultline.claim('w', tasks => '{charge}')") == []
    assert value(conn, version) == before
    assert_consistent(conn)


def test_a_lost_job_that_was_due_for_centuries_is_found_too(conn: Connection) -> None:
    set_limit(conn, "task:charge", 0)
    enqueue(conn, [{}], run_at="1500-01-01")
    assert claim_all(conn) == []
    conn.execute("DELETE FROM faultline.waiting_jobs")
    assert repair(conn) == (0, 1, 0)
    assert due(conn) == 1


def test_every_line_is_repaired_however_many_there_are(conn: Connection) -> None:
    """A handler that commits above READ COMMITTED leaves its line to the repair."""
    customers = [f"{number:02}" for number in range(25)]
    limit_customers(conn, 1)
    enqueue(conn, [{"customer": customer} for customer in customers] * 2)
    leases = claim_all(conn)
    assert len(leases) == 25
    assert claim_all(conn) == []
    last = "SELECT job_id FROM faultline.places WHERE limit_key = 'key:customer=24'"
    [lease] = [lease for lease in leases if lease.job_id == value(conn, last)]
    steps.begin_fenced(conn, lease, "REPEATABLE READ")
    steps.commit(conn, lease)
    conn.execute("COMMIT")
    after: Any = {}
    for _ in range(3):
        assert due(conn) == 0
        after = repair_page(conn, 1, after)  # ten keys
    assert due(conn) == 1
    assert len(claim_all(conn)) == 1


def test_all_idle_keys_are_forgotten(conn: Connection) -> None:
    conn.execute(
        "INSERT INTO faultline.limit_states (limit_key)"
        " SELECT 'key:customer=' || n FROM generate_series(1, 1500) AS n"
    )
    repair(conn)
    assert value(conn, "SELECT count(*) FROM faultline.limit_states") == 0

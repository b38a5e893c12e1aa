"""The four roles: each can do its own work through the protocol, and nobody can go round it.

Roles belong to the whole server, which other tests use at the same time: they are made where they
are missing and never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg.errors import DuplicateObject, InsufficientPrivilege, UniqueViolation

from faultline import protocol, queue_inspection, upkeep
from faultline.config import Retention
from faultline.database import run
from faultline.errors import StaleLease
from faultline.migrate import migrate
from faultline.model import Claim, CommitOutcome, Renewal
from faultline.protocol import Statement

Conn = psycopg.Connection[Any]
Connect = Callable[[], Conn]

ROLES = ["faultline_producer", "faultline_worker", "faultline_inspector", "faultline_operator"]
APPLICATION = "faultline_test_application"

ENQUEUE = protocol.enqueue("task", {}, queue="default", priority=5, max_attempts=5)
CLAIM = protocol.claim("w", ["default"], batch_size=10, lease_seconds=600)
RECONCILE = protocol.reconcile(max_jobs=10, dead_workers=["w"])


@pytest.fixture(autouse=True)
def _roles(database_url: str) -> None:
    migrate(database_url, roles=True)


@contextmanager
def acting_as(conn: Conn, role: str) -> Iterator[Conn]:
    conn.execute(f"SET ROLE {role}".encode())
    yield conn
    conn.execute("RESET ROLE")


def refused(conn: Conn, role: str, work: str | Statement[Any]) -> bool:
    """Whether the role is not allowed to; nothing that was allowed is kept."""
    if isinstance(work, str):
        work = Statement(work, (), list)
    with conn.transaction(force_rollback=True):
        conn.execute(f"SET LOCAL ROLE {role}".encode())
        try:
            run(conn, work)
        except InsufficientPrivilege:
            return True
        return False


@pytest.fixture
def claim(conn: Conn) -> Claim:
    run(conn, ENQUEUE)
    [claim] = run(conn, CLAIM)
    return claim


def test_a_worker_takes_a_job_from_start_to_end(conn: Conn) -> None:
    with acting_as(conn, "faultline_worker"):
        run(conn, ENQUEUE)
        run(
            conn,
            protocol.register_worker("w", host="h", pid=1, queues=["default"], holds_locks=True),
        )
        [claim] = run(conn, CLAIM)
        assert run(conn, protocol.heartbeat("w", [claim], lease_seconds=600)) == {
            claim.id: Renewal.RENEWED
        }
        with conn.transaction():
            run(conn, protocol.assert_fence(claim, idle_seconds=60))
            run(conn, protocol.commit(claim))
        assert run(conn, protocol.in_ledger(claim))
        run(conn, protocol.drain_worker("w"))
        run(conn, protocol.deregister_worker("w"))


def test_a_worker_commits_a_batch(conn: Conn, claim: Claim) -> None:
    with acting_as(conn, "faultline_worker"):
        [verdict] = run(conn, protocol.commit_many([claim], ["1"]))

    assert verdict.outcome is CommitOutcome.COMMITTED


def test_a_worker_fails_releases_and_claims_again(conn: Conn, claim: Claim) -> None:
    with acting_as(conn, "faultline_worker"):
        run(conn, protocol.release(claim))
        [again] = run(conn, CLAIM)
        run(conn, protocol.fail(again, error="boom"))
        [last] = run(conn, CLAIM)

    assert (last.fencing_token, last.attempt) == (3, 2)


def test_a_worker_takes_back_the_jobs_of_the_dead(conn: Conn, claim: Claim) -> None:
    with acting_as(conn, "faultline_worker"):
        assert run(conn, protocol.survey()).vanished == []
        assert [reaped.job_id for reaped in run(conn, RECONCILE)] == [claim.job_id]
        run(conn, protocol.bury_workers(["w"]))


def test_a_worker_is_fenced_and_can_record_it(conn: Conn, claim: Claim) -> None:
    run(conn, RECONCILE)

    with acting_as(conn, "faultline_worker"):
        with pytest.raises(StaleLease):
            run(conn, protocol.commit(claim))
        run(
            conn,
            protocol.record_rejection(
                claim.job_id, stale_token=claim.fencing_token, worker="w", reason="not_running"
            ),
        )


@pytest.mark.parametrize("role", ROLES)
def test_no_role_writes_to_a_table_by_hand(conn: Conn, role: str) -> None:
    tables = conn.execute(
        "SELECT attrelid::regclass::text, max(attname) FROM pg_attribute JOIN pg_class AS c"
        " ON c.oid = attrelid WHERE relkind = 'r' AND relnamespace = 'faultline'::regnamespace"
        " AND attnum > 0 AND attidentity = '' GROUP BY 1"
    ).fetchall()
    writes = [
        write
        for table, column in tables
        for write in (
            f"INSERT INTO {table} DEFAULT VALUES",
            f"UPDATE {table} SET {column} = {column} RETURNING 1",
            f"DELETE FROM {table} RETURNING 1",
            f"TRUNCATE {table} CASCADE",
        )
    ]

    assert len(writes) >= 24
    assert [write for write in writes if not refused(conn, role, write)] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads(conn: Conn, claim: Claim, role: str) -> None:
    with acting_as(conn, role):
        job = run(conn, protocol.get_job(claim.job_id))

    assert job is not None
    assert job.state == "running"


def verbs(claim: Claim) -> dict[str, Statement[Any]]:
    return {
        "enqueue": ENQUEUE,
        "claim": CLAIM,
        "heartbeat": protocol.heartbeat("w", [claim], lease_seconds=600),
        "assert_fence": protocol.assert_fence(claim),
        "commit": protocol.commit(claim),
        "commit_many": protocol.commit_many([claim], [None]),
        "fail": protocol.fail(claim, error="boom"),
        "release": protocol.release(claim),
        "reconcile": RECONCILE,
        "cancel": protocol.cancel(claim.job_id),
        "retry": protocol.retry(claim.job_id),
        "purge_jobs": upkeep.purge_jobs(Retention(), batch_size=1),
        "purge_ledger": upkeep.purge_ledger(Retention(), batch_size=1),
        "queues": queue_inspection.queues(),
    }


@pytest.mark.parametrize(
    ("role", "own"),
    [
        ("faultline_producer", {"enqueue", "queues"}),
        ("faultline_inspector", {"queues"}),
        (
            "faultline_operator",
            {"enqueue", "reconcile", "cancel", "retry", "purge_jobs", "purge_ledger", "queues"},
        ),
        ("faultline_worker", None),
    ],
)
def test_a_role_has_its_own_verbs_and_no_others(
    conn: Conn, claim: Claim, role: str, own: set[str] | None
) -> None:
    every = verbs(claim)
    expected = set(every) - {"cancel", "retry"} if own is None else own

    allowed = {name for name, verb in every.items() if not refused(conn, role, verb)}

    assert allowed == expected


def test_an_account_without_a_role_can_do_nothing(conn: Conn, claim: Claim) -> None:
    make_application_role(conn)

    assert [
        name for name, verb in verbs(claim).items() if not refused(conn, APPLICATION, verb)
    ] == []


def test_an_application_with_insert_on_the_ledger_commits_by_plain_insert(
    conn: Conn, claim: Claim
) -> None:
    make_application_role(conn)
    conn.execute(f"GRANT USAGE ON SCHEMA faultline TO {APPLICATION}".encode())
    conn.execute(f"GRANT INSERT ON faultline.ledger TO {APPLICATION}".encode())
    entry = (claim.job_id, claim.fencing_token, claim.lease_id)

    with acting_as(conn, APPLICATION):
        conn.execute(
            "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)",
            entry,
        )

    assert run(conn, protocol.in_ledger(claim))


def make_application_role(conn: Conn) -> None:
    with suppress(DuplicateObject, UniqueViolation):
        conn.execute(f"CREATE ROLE {APPLICATION} NOLOGIN".encode())


def test_granting_the_roles_again_changes_nothing(conn: Conn, database_url: str) -> None:
    acl = "SELECT nspacl::text FROM pg_namespace WHERE nspname = 'faultline'"
    before = conn.execute(acl).fetchone()

    migrate(database_url, roles=True)

    assert conn.execute(acl).fetchone() == before

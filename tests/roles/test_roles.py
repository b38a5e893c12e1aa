"""Each role can do its work; what it cannot do is in test_roles_matrix.

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

from faultline.config import Retention
from faultline.errors import StaleLease
from faultline.model import Claim, CommitOutcome, Renewal
from faultline.postgres.errors import explain_error
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from faultline.statements import jobs, keys, protocol, queues, retention, workers
from faultline.statements.survey import survey

Conn = psycopg.Connection[Any]
Connect = Callable[[], Conn]

APPLICATION = "faultline_test_application"
RIGHTS = """
    SELECT nspname, nspowner::regrole::text, nspacl::text FROM pg_namespace WHERE nspname = 'faultline'
    UNION ALL SELECT relname, relowner::regrole::text, relacl::text FROM pg_class
    WHERE relnamespace = 'faultline'::regnamespace
    UNION ALL SELECT oid::regprocedure::text, proowner::regrole::text, proacl::text FROM pg_proc
    WHERE pronamespace = 'faultline'::regnamespace
    UNION ALL SELECT attrelid::regclass::text || attname, NULL, attacl::text FROM pg_attribute
    WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'faultline'::regnamespace)
    ORDER BY 1, 3
"""

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


@pytest.fixture
def claim(conn: Conn) -> Claim:
    run(conn, ENQUEUE)
    [claim] = run(conn, CLAIM)
    return claim


def test_a_worker_runs_a_job_from_claim_to_commit(conn: Conn) -> None:
    with acting_as(conn, "faultline_worker"):
        run(conn, ENQUEUE)
        run(
            conn,
            workers.register_worker("w", host="h", pid=1, queues=["default"], holds_locks=True),
        )
        [claim] = run(conn, CLAIM)
        beat = run(conn, protocol.heartbeat("w", [claim], lease_seconds=600))
        assert beat.renewals == {claim.id: Renewal.RENEWED}
        assert run(conn, protocol.leases_of("w")) == [claim]
        with conn.transaction():
            run(conn, protocol.assert_fence(claim, idle_seconds=60))
            run(conn, protocol.commit(claim))
        assert run(conn, protocol.in_ledger(claim))
        run(conn, workers.drain_worker("w"))
        run(conn, workers.deregister_worker("w"))


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


def test_a_worker_reconciles_the_jobs_of_dead_workers(conn: Conn, claim: Claim) -> None:
    with acting_as(conn, "faultline_worker"):
        assert run(conn, survey()).vanished == []
        assert [requeued.job_id for requeued in run(conn, RECONCILE)] == [claim.job_id]
        run(conn, workers.remove_dead_workers(["w"]))


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


def test_an_operator_cancels_retries_pauses_and_drains(conn: Conn, claim: Claim) -> None:
    with acting_as(conn, "faultline_operator"):
        assert run(conn, protocol.cancel(claim.job_id)) == "failed"
        assert run(conn, protocol.retry(claim.job_id)) == "queued"
        assert run(conn, queues.pause("default", None))
        assert run(conn, workers.request_drain(None)) == []
        assert run(conn, retention.purge_jobs(Retention(), batch_size=1)).last_id is None
        assert run(conn, keys.listed()) == []


def test_an_operator_and_an_inspector_read_jobs(conn: Conn, claim: Claim) -> None:
    for role in ("faultline_operator", "faultline_inspector"):
        with acting_as(conn, role):
            job = run(conn, jobs.get_job(claim.job_id))
            assert {seen.queue for seen in run(conn, queues.queues())} == {"default"}
        assert job is not None
        assert job.state == "running"


def test_an_account_without_the_right_to_read_payloads_is_told_which_role_has_it(
    conn: Conn, claim: Claim
) -> None:
    with acting_as(conn, "faultline_worker"), pytest.raises(InsufficientPrivilege) as refused:
        run(conn, jobs.get_job(claim.job_id))

    assert "faultline_inspector" in (explain_error(refused.value).hint or "")


def test_granting_the_roles_again_changes_nothing(conn: Conn, database_url: str) -> None:
    before = conn.execute(RIGHTS).fetchall()

    migrate(database_url, roles=True)

    assert conn.execute(RIGHTS).fetchall() == before

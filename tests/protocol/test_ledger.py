"""A stale worker cannot insert into the ledger, whatever SQL it sends.

Each stale form runs in a transaction that wrote another row first and ends with COMMIT in any case: if
the refusal did not abort the transaction, that row would stay.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pytest

from .ledger_forms import (
    ALWAYS_A_ROW,
    EVERY_FORM,
    FORGED,
    UNLESS_ENTERED,
    forged_batch,
    merge,
    plain,
)
from .steps import (
    Connection,
    Lease,
    cancel,
    claim_new,
    commit,
    committed,
    entries,
    expire,
    reconcile,
    refused,
    rows,
    set_job,
    state,
    take_over,
)

Form = Callable[[Connection, Lease], None]

pytestmark = pytest.mark.usefixtures("effects")


class Staleness(NamedTuple):
    """How a lease became stale, and what the refusal says about it."""

    arrange: Callable[[Connection], Lease]
    reason: str
    current_token: int | None


def superseded(conn: Connection) -> Lease:
    lease = claim_new(conn)
    take_over(conn, lease)
    return lease


def superseded_and_committed(conn: Connection) -> Lease:
    lease = claim_new(conn)
    commit(conn, take_over(conn, lease))
    return lease


def ran_out(conn: Connection) -> Lease:
    lease = claim_new(conn)
    expire(conn, lease)
    return lease


def unknown(conn: Connection) -> Lease:
    return Lease(uuid4(), 1, uuid4())


def taken_back(conn: Connection) -> Lease:
    lease = ran_out(conn)
    reconcile(conn)
    return lease


def cancelled(conn: Connection) -> Lease:
    lease = claim_new(conn)
    cancel(conn, lease.job_id)
    return lease


def put_back_by_hand(conn: Connection) -> Lease:
    lease = claim_new(conn)
    set_job(conn, lease.job_id, "state = 'queued'")
    return lease


def guessed_lease(conn: Connection) -> Lease:
    return claim_new(conn)._replace(lease_id=uuid4())


def guessed_token(conn: Connection) -> Lease:
    return claim_new(conn)._replace(token=2)


SUPERSEDED = Staleness(superseded, "token_mismatch", 2)
SUPERSEDED_AND_COMMITTED = Staleness(superseded_and_committed, "token_mismatch", 2)
FINISHED = Staleness(committed, "already_committed", 1)
OTHERWISE_STALE = [
    Staleness(ran_out, "lease_expired", 1),
    Staleness(unknown, "unknown_job", None),
    Staleness(taken_back, "not_running", 1),
    Staleness(cancelled, "not_running", 1),
    Staleness(put_back_by_hand, "not_running", 1),
    Staleness(guessed_lease, "token_mismatch", 1),
    Staleness(guessed_token, "token_mismatch", 1),
]


def name(part: Form | Staleness) -> str:
    return part.arrange.__name__ if isinstance(part, Staleness) else part.__name__


def run_transaction(conn: Connection, lease: Lease, form: Form) -> None:
    """Write a row, insert into the ledger, and send COMMIT even if that was refused."""
    if form is merge and conn.info.server_version < 150000:
        pytest.skip("MERGE came with PostgreSQL 15")
    conn.execute("BEGIN")
    conn.execute("INSERT INTO effects VALUES (%s, 'stale')", [lease.job_id])
    try:
        form(conn, lease)
    finally:
        conn.execute("COMMIT")


def changes_nothing(
    conn: Connection, staleness: Staleness, form: Form, refusal: AbstractContextManager[object]
) -> None:
    """Beside what is in the ledger already."""
    lease = staleness.arrange(conn)
    before = entries(conn)
    with refusal:
        run_transaction(conn, lease, form)
    assert (entries(conn), effects_of(conn, lease)) == (before, [])


def effects_of(conn: Connection, lease: Lease) -> list[tuple[str]]:
    return rows(conn, "SELECT writer FROM effects WHERE job_id = %s", lease.job_id)


@pytest.mark.parametrize("form", EVERY_FORM, ids=name)
def test_the_holder_of_a_lease_commits_its_job_and_its_writes(conn: Connection, form: Form) -> None:
    lease = claim_new(conn)
    run_transaction(conn, lease, form)
    assert (state(conn, lease.job_id), entries(conn)) == ("succeeded", [lease])
    assert len(effects_of(conn, lease)) == 1


# Every form is checked by enter_ledger or by seal_ledger; both give every reason.
@pytest.mark.parametrize(
    ("form", "staleness"),
    [(form, SUPERSEDED) for form in EVERY_FORM]
    + [(form, staleness) for form in (plain, forged_batch) for staleness in OTHERWISE_STALE],
    ids=name,
)
def test_a_stale_worker_is_refused_with_the_reason_and_its_writes_are_undone(
    conn: Connection, form: Form, staleness: Staleness
) -> None:
    lease = staleness.arrange(conn)
    with refused(
        "FL001",
        reason=staleness.reason,
        job_id=str(lease.job_id),
        stale_token=lease.token,
        current_token=staleness.current_token,
    ):
        run_transaction(conn, lease, form)
    assert (entries(conn), effects_of(conn, lease)) == ([], [])


@pytest.mark.parametrize(
    ("form", "staleness"),
    [(form, SUPERSEDED_AND_COMMITTED) for form in ALWAYS_A_ROW] + [(plain, FINISHED)],
    ids=name,
)
def test_a_second_entry_for_a_job_is_refused_with_the_reason_and_its_writes_are_undone(
    conn: Connection, form: Form, staleness: Staleness
) -> None:
    refusal = refused("FL001", reason=staleness.reason, current_token=staleness.current_token)
    changes_nothing(conn, staleness, form, refusal)


@pytest.mark.parametrize("staleness", [SUPERSEDED_AND_COMMITTED, FINISHED], ids=name)
@pytest.mark.parametrize("form", UNLESS_ENTERED, ids=name)
def test_a_statement_that_finds_the_entry_and_enters_nothing_is_refused(
    conn: Connection, form: Form, staleness: Staleness
) -> None:
    changes_nothing(conn, staleness, form, refused("FL001", reason="nothing_entered"))


@pytest.mark.parametrize("staleness", [SUPERSEDED_AND_COMMITTED, FINISHED], ids=name)
@pytest.mark.parametrize("form", FORGED, ids=name)
def test_a_forged_batch_cannot_enter_a_job_twice(
    conn: Connection, form: Form, staleness: Staleness
) -> None:
    changes_nothing(conn, staleness, form, pytest.raises(psycopg.errors.UniqueViolation))


def test_a_refused_worker_does_not_affect_the_worker_that_took_over(conn: Connection) -> None:
    lease = claim_new(conn)
    successor = take_over(conn, lease)
    with refused("FL001"):
        run_transaction(conn, lease, plain)
    commit(conn, successor)
    assert entries(conn) == [successor]


@pytest.mark.parametrize("raise_by", [0, 1, -1])
def test_the_ledgers_key_implies_that_a_pair_of_job_and_token_is_unique(
    conn: Connection, raise_by: int
) -> None:
    lease = claim_new(conn)
    commit(conn, lease)
    conn.execute("ALTER TABLE faultline.ledger DISABLE TRIGGER USER")
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute(
            "INSERT INTO faultline.ledger (job_id, fencing_token, lease_id) VALUES (%s, %s, %s)",
            [lease.job_id, lease.token + raise_by, uuid4()],
        )

"""A claim reconciles expired jobs, but none with a commit in flight."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline.errors import StaleLease
from faultline.model import CommitOutcome
from faultline.statements import protocol

from .stepper import (
    Actor,
    Connect,
    assert_settled,
    beat_as,
    claim_as,
    claimed,
    expire,
    state_of,
)

Conn = psycopg.Connection[Any]


def test_a_claim_passes_a_commit_in_flight_although_it_sees_an_expired_lease(
    conn: Conn, connect: Connect
) -> None:
    """The worker renews and commits in one transaction; other sessions see it expired."""
    [claim] = claimed(conn)
    expire(conn, claim)
    worker, other = Actor(connect), Actor(connect)
    worker.begin()
    worker.run(beat_as("first", claim))
    worker.run(protocol.commit(claim))

    assert other.run(claim_as("second")) == []

    worker.commit()
    assert other.run(claim_as("second")) == []
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


def test_a_commit_waits_for_a_reconciling_claim_in_flight_and_is_refused(
    conn: Conn, connect: Connect
) -> None:
    [stale] = claimed(conn)
    expire(conn, stale)
    worker, other = Actor(connect), Actor(connect)
    other.begin()
    [claim] = other.run(claim_as("second"))

    worker.start(protocol.commit(stale))
    assert worker.is_blocked()
    other.commit()

    with pytest.raises(StaleLease, match="token_mismatch") as refusal:
        worker.result()
    assert (refusal.value.stale_token, refusal.value.current_token) == (1, 2)
    other.run(protocol.commit(claim))
    assert_settled(conn)


def test_a_batch_passes_a_reconciling_claim_in_flight_and_commits_nothing(
    conn: Conn, connect: Connect
) -> None:
    [stale] = claimed(conn)
    expire(conn, stale)
    worker, other = Actor(connect), Actor(connect)
    other.begin()
    [claim] = other.run(claim_as("second"))

    [before] = worker.run(protocol.commit_many([stale], [None]))
    other.commit()
    [after] = worker.run(protocol.commit_many([stale], [None]))

    assert CommitOutcome.COMMITTED not in (before.outcome, after.outcome)
    assert (after.outcome, after.reason) == (CommitOutcome.STALE, "token_mismatch")
    other.run(protocol.commit(claim))
    assert_settled(conn)


def test_an_expired_lease_does_not_commit_even_if_no_worker_claims_the_job(
    conn: Conn, connect: Connect
) -> None:
    [claim] = claimed(conn)
    expire(conn, claim)
    worker = Actor(connect)

    with pytest.raises(StaleLease, match="lease_expired"):
        worker.run(protocol.commit(claim))

    assert worker.run(beat_as("first", claim)) == {claim.id: "renewed"}
    worker.run(protocol.commit(claim))
    assert_settled(conn)


def test_the_users_writes_are_rolled_back_with_the_refused_commit(
    conn: Conn, connect: Connect
) -> None:
    conn.execute("CREATE TABLE effects (worker text)")
    [stale] = claimed(conn)
    expire(conn, stale)
    worker, other = Actor(connect), Actor(connect)
    worker.begin()
    worker.run("INSERT INTO effects VALUES ('first') RETURNING worker")
    other.begin()
    [claim] = other.run(claim_as("second"))
    other.run("INSERT INTO effects VALUES ('second') RETURNING worker")
    other.run(protocol.commit(claim))
    worker.start(protocol.commit(stale))
    assert worker.is_blocked()

    other.commit()

    with pytest.raises(StaleLease):
        worker.result()
    worker.commit()  # as a caller that ignores the error does
    assert conn.execute("SELECT worker FROM effects").fetchall() == [("second",)]
    assert_settled(conn)

"""A renewal in flight keeps the job; a late renewal reports it as lost."""

from __future__ import annotations

from typing import Any

import psycopg

from faultline.model import Renewal
from faultline.statements import protocol

from .stepper import (
    Actor,
    Connect,
    assert_settled,
    beat_as,
    claimed,
    expire,
    state_of,
)

Conn = psycopg.Connection[Any]
RECONCILE = protocol.reconcile(max_jobs=10)


def test_a_renewal_in_flight_keeps_an_expired_job(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    expire(conn, claim)
    heart, reconciler = Actor(connect), Actor(connect)
    heart.begin()
    assert heart.run(beat_as("first", claim)) == {claim.id: Renewal.RENEWED}

    assert reconciler.run(RECONCILE) == []

    heart.commit()
    assert reconciler.run(RECONCILE) == []
    heart.run(protocol.commit(claim))
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


def test_a_renewal_that_rolls_back_leaves_the_job_expired(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    expire(conn, claim)
    heart, reconciler = Actor(connect), Actor(connect)
    heart.begin()
    heart.run(beat_as("first", claim))
    assert reconciler.run(RECONCILE) == []

    heart.rollback()

    assert [requeued.job_id for requeued in reconciler.run(RECONCILE)] == [claim.job_id]
    assert_settled(conn)


def test_a_heartbeat_calls_a_job_locked_until_the_reconciler_has_decided(
    conn: Conn, connect: Connect
) -> None:
    [claim] = claimed(conn)
    expire(conn, claim)
    heart, reconciler = Actor(connect), Actor(connect)
    reconciler.begin()
    reconciler.run(RECONCILE)

    assert heart.run(beat_as("first", claim)) == {claim.id: Renewal.LOCKED}

    reconciler.commit()
    assert heart.run(beat_as("first", claim)) == {claim.id: Renewal.LOST}
    assert_settled(conn)


def test_a_reconciled_job_does_not_prevent_the_renewal_of_other_leases(
    conn: Conn, connect: Connect
) -> None:
    taken, kept = claimed(conn, 2)
    expire(conn, taken)
    heart, reconciler = Actor(connect), Actor(connect)
    reconciler.begin()
    reconciler.run(RECONCILE)

    assert heart.run(beat_as("first", taken, kept)) == {
        taken.id: Renewal.LOCKED,
        kept.id: Renewal.RENEWED,
    }

    reconciler.commit()
    heart.run(protocol.commit(kept))
    assert_settled(conn)

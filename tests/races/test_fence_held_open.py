"""No worker takes over a fenced job until the transaction ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from faultline.errors import StaleLease
from faultline.model import Claim, Renewal
from faultline.statements import protocol
from faultline.statements.statement import Statement

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

TAKERS: list[Any] = [
    pytest.param(lambda: protocol.reconcile(max_jobs=10), id="reconcile"),
    pytest.param(lambda: claim_as("second"), id="take-back"),
]


def fenced(connect: Connect, claim: Claim) -> Actor:
    worker = Actor(connect)
    worker.begin()
    worker.run(protocol.assert_fence(claim))
    return worker


@pytest.mark.parametrize("taker", TAKERS)
def test_an_expired_job_is_not_taken_over_while_it_is_fenced(
    conn: Conn, connect: Connect, taker: Callable[[], Statement[Any]]
) -> None:
    [claim] = claimed(conn)
    worker, other = fenced(connect, claim), Actor(connect)
    expire(conn, claim)

    assert other.run(taker()) == []

    with pytest.raises(StaleLease, match="lease_expired"):
        worker.run(protocol.commit(claim))
    worker.rollback()
    assert len(other.run(taker())) == 1
    assert_settled(conn)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_fence_holds_through_the_heartbeats_that_pass_it(
    conn: Conn, connect: Connect, taker: Callable[[], Statement[Any]]
) -> None:
    """A renewal writes a new version of the row, which must be locked too."""
    [claim] = claimed(conn)
    worker, heart, other = fenced(connect, claim), Actor(connect), Actor(connect)
    heart.run(beat_as("first", claim))
    expire(conn, claim)

    assert other.run(taker()) == []

    heart.run(beat_as("first", claim))
    worker.run(protocol.commit(claim))
    worker.commit()
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_fence_waits_for_a_takeover_in_flight_and_is_refused(
    conn: Conn, connect: Connect, taker: Callable[[], Statement[Any]]
) -> None:
    [claim] = claimed(conn)
    expire(conn, claim)
    worker, other = Actor(connect), Actor(connect)
    other.begin()
    assert len(other.run(taker())) == 1
    worker.begin()

    worker.start(protocol.assert_fence(claim))
    assert worker.is_blocked()
    other.commit()

    with pytest.raises(StaleLease, match=r"not_running|token_mismatch"):
        worker.result()
    assert_settled(conn)


def test_a_heartbeat_passes_a_fence_and_renews(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, heart = fenced(connect, claim), Actor(connect)

    assert heart.run(beat_as("first", claim)) == {claim.id: Renewal.RENEWED}

    worker.run(protocol.commit(claim))
    worker.commit()
    assert_settled(conn)


def test_a_fence_passes_a_heartbeat_in_flight(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, heart = Actor(connect), Actor(connect)
    heart.begin()
    heart.run(beat_as("first", claim))
    worker.begin()

    worker.run(protocol.assert_fence(claim))

    heart.commit()
    worker.run(protocol.commit(claim))
    worker.commit()
    assert_settled(conn)


def test_a_cancel_waits_for_a_fence_and_its_commit(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, operator = fenced(connect, claim), Actor(connect)
    operator.start(protocol.cancel(claim.job_id))
    assert operator.is_blocked()

    worker.run(protocol.commit(claim))
    assert operator.is_blocked()
    worker.commit()

    assert operator.result() == "succeeded"
    assert_settled(conn)


def test_a_cancel_takes_the_job_when_the_fenced_transaction_rolls_back(
    conn: Conn, connect: Connect
) -> None:
    [claim] = claimed(conn)
    worker, operator = fenced(connect, claim), Actor(connect)
    operator.start(protocol.cancel(claim.job_id))
    assert operator.is_blocked()

    worker.rollback()

    assert operator.result() == "failed"
    assert_settled(conn)


def test_a_fence_waits_for_a_cancel_in_flight_and_is_refused(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, operator = Actor(connect), Actor(connect)
    operator.begin()
    operator.run(protocol.cancel(claim.job_id))
    worker.begin()
    worker.start(protocol.assert_fence(claim))
    assert worker.is_blocked()

    operator.commit()

    with pytest.raises(StaleLease, match="not_running"):
        worker.result()
    assert_settled(conn)


def test_a_waiting_cancel_does_not_stop_the_heartbeats(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, operator, heart = fenced(connect, claim), Actor(connect), Actor(connect)
    operator.start(protocol.cancel(claim.job_id))
    assert operator.is_blocked()

    assert heart.run(beat_as("first", claim)) == {claim.id: Renewal.RENEWED}

    worker.run(protocol.commit(claim))
    worker.commit()
    assert operator.result() == "succeeded"
    assert_settled(conn)

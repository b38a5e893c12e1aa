"""An operator's cancel and a worker's commit: the first to lock the row decides."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline.errors import StaleLease
from faultline.model import CommitOutcome
from faultline.statements import protocol

from .stepper import Actor, Connect, assert_settled, claimed, state_of

Conn = psycopg.Connection[Any]


def test_a_cancel_waits_for_a_commit_in_flight_and_accepts_it(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, operator = Actor(connect), Actor(connect)
    worker.begin()
    worker.run(protocol.commit(claim))

    operator.start(protocol.cancel(claim.job_id))
    assert operator.is_blocked()
    worker.commit()

    assert operator.result() == "succeeded"
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


def test_a_cancel_takes_the_job_when_the_commit_rolls_back(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, operator = Actor(connect), Actor(connect)
    worker.begin()
    worker.run(protocol.commit(claim))
    operator.start(protocol.cancel(claim.job_id))
    assert operator.is_blocked()

    worker.rollback()

    assert operator.result() == "failed"
    with pytest.raises(StaleLease, match="not_running"):
        worker.run(protocol.commit(claim))
    assert_settled(conn)


def test_a_commit_waits_for_a_cancel_in_flight_and_is_refused(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, operator = Actor(connect), Actor(connect)
    operator.begin()
    assert operator.run(protocol.cancel(claim.job_id)) == "failed"

    worker.start(protocol.commit(claim))
    assert worker.is_blocked()
    operator.commit()

    with pytest.raises(StaleLease, match="not_running"):
        worker.result()
    assert state_of(conn, claim) == "failed"
    assert_settled(conn)


def test_a_batch_passes_a_cancel_in_flight_and_is_refused_afterwards(
    conn: Conn, connect: Connect
) -> None:
    [claim] = claimed(conn)
    worker, operator = Actor(connect), Actor(connect)
    operator.begin()
    operator.run(protocol.cancel(claim.job_id))
    [verdict] = worker.run(protocol.commit_many([claim], [None]))
    assert verdict.outcome is CommitOutcome.LOCKED

    operator.commit()

    [verdict] = worker.run(protocol.commit_many([claim], [None]))
    assert (verdict.outcome, verdict.reason) == (CommitOutcome.STALE, "not_running")
    assert_settled(conn)

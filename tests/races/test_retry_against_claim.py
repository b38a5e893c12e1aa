"""An operator's retry and a worker's claim of the same job."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol

from .stepper import Actor, Connect, assert_settled, claim_as, claimed, state_of

Conn = psycopg.Connection[Any]


def failed(conn: Conn) -> Claim:
    [claim] = claimed(conn)
    run(conn, protocol.fail(claim, error="boom", reason="rejected"))
    return claim


def test_a_claim_passes_a_retry_in_flight_and_finds_the_job_after_it(
    conn: Conn, connect: Connect
) -> None:
    before = failed(conn)
    operator, worker = Actor(connect), Actor(connect)
    operator.begin()
    assert operator.run(protocol.retry(before.job_id)) == "queued"

    assert worker.run(claim_as("second")) == []

    operator.commit()
    [claim] = worker.run(claim_as("second"))
    assert (claim.fencing_token, claim.attempt) == (before.fencing_token + 1, 1)
    worker.run(protocol.commit(claim))
    assert_settled(conn)


def test_a_second_retry_waits_for_the_claim_that_followed_the_first(
    conn: Conn, connect: Connect
) -> None:
    before = failed(conn)
    run(conn, protocol.retry(before.job_id))
    operator, worker = Actor(connect), Actor(connect)
    worker.begin()
    [claim] = worker.run(claim_as("second"))

    operator.start(protocol.retry(before.job_id))
    assert operator.is_blocked()
    worker.commit()

    assert operator.result() == "running"
    worker.run(protocol.commit(claim))
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


def test_of_two_retries_one_queues_the_job(conn: Conn, connect: Connect) -> None:
    before = failed(conn)
    first, second = Actor(connect), Actor(connect)
    first.begin()
    first.run(protocol.retry(before.job_id))
    second.start(protocol.retry(before.job_id))
    assert second.is_blocked()

    first.commit()

    assert second.result() == "queued"
    logged = conn.execute("SELECT count(*) FROM faultline.attempts_log WHERE outcome = 'retried'")
    assert logged.fetchone() == (1,)
    assert_settled(conn)


def test_a_holder_from_before_a_retry_stays_stale(conn: Conn, connect: Connect) -> None:
    before = failed(conn)
    operator, stale = Actor(connect), Actor(connect)
    operator.begin()
    operator.run(protocol.retry(before.job_id))
    stale.start(protocol.commit(before))
    assert stale.is_blocked()

    operator.commit()

    with pytest.raises(StaleLease, match="not_running"):
        stale.result()
    assert_settled(conn)

"""No two claims take one job, and no claim waits for another."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol

from .stepper import (
    BOUND_SECONDS,
    Actor,
    Connect,
    assert_settled,
    claim_as,
    claimed,
    enqueued,
    expire,
)

Conn = psycopg.Connection[Any]


def test_a_second_claim_skips_what_the_first_is_taking(conn: Conn, connect: Connect) -> None:
    enqueued(conn, 5)
    first, second = Actor(connect), Actor(connect)
    first.begin()
    taken = first.run(claim_as("first", 3))

    rest = second.run(claim_as("second", 5))

    assert (len(taken), len(rest)) == (3, 2)
    assert not {claim.job_id for claim in taken} & {claim.job_id for claim in rest}
    first.commit()
    for claim in taken + rest:
        run(conn, protocol.commit(claim))
    assert_settled(conn)


def test_a_claim_that_rolls_back_issues_no_token(conn: Conn, connect: Connect) -> None:
    enqueued(conn)
    first, second = Actor(connect), Actor(connect)
    first.begin()
    [abandoned] = first.run(claim_as("first"))
    assert second.run(claim_as("second")) == []

    first.rollback()

    [claim] = second.run(claim_as("second"))
    assert claim.lease_id != abandoned.lease_id
    assert (claim.fencing_token, claim.attempt) == (1, 1)
    second.run(protocol.commit(claim))
    assert_settled(conn)


def test_only_one_of_two_claims_reconciles_an_expired_job(conn: Conn, connect: Connect) -> None:
    [stale] = claimed(conn)
    expire(conn, stale)
    second, third = Actor(connect), Actor(connect)
    second.begin()
    [claim] = second.run(claim_as("second"))

    assert third.run(claim_as("third")) == []

    second.commit()
    assert third.run(claim_as("third")) == []
    assert claim.fencing_token == stale.fencing_token + 1
    second.run(protocol.commit(claim))
    assert_settled(conn)


def test_claimers_at_full_speed_share_the_jobs_without_overlap(
    conn: Conn, connect: Connect
) -> None:
    jobs = 600
    enqueued(conn, jobs)

    def drain(worker: str) -> list[Claim]:
        session, mine = connect(), []
        while batch := run(session, claim_as(worker, 7)):
            mine += batch
        return mine

    with ThreadPoolExecutor(4) as threads:
        shares = list(threads.map(drain, ["a", "b", "c", "d"], timeout=BOUND_SECONDS))

    times_given = Counter(claim.job_id for share in shares for claim in share)
    assert (len(times_given), set(times_given.values())) == (jobs, {1})
    assert {claim.fencing_token for share in shares for claim in share} == {1}

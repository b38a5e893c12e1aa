"""A batch commit and a heartbeat lock many rows of one worker without deadlock."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from faultline.model import Claim, CommitOutcome, Renewal
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement

from .stepper import BOUND_SECONDS, Actor, Connect, assert_settled, beat_as, claimed, state_of

Conn = psycopg.Connection[Any]
ROUNDS = 300


def commit_all(claims: list[Claim]) -> Statement[list[protocol.CommitVerdict]]:
    return protocol.commit_many(claims, [None] * len(claims))


def outcomes(verdicts: list[protocol.CommitVerdict]) -> list[CommitOutcome]:
    return [verdict.outcome for verdict in verdicts]


def test_a_heartbeat_passes_a_batch_in_flight(conn: Conn, connect: Connect) -> None:
    claims = claimed(conn, 3)
    committer, heart = Actor(connect), Actor(connect)
    committer.begin()
    assert outcomes(committer.run(commit_all(claims))) == [CommitOutcome.COMMITTED] * 3

    renewals = heart.run(beat_as("first", *reversed(claims)))

    assert set(renewals.values()) == {Renewal.LOCKED}
    committer.commit()
    assert set(heart.run(beat_as("first", *claims)).values()) == {Renewal.LOST}
    assert_settled(conn)


def test_a_batch_passes_a_heartbeat_in_flight(conn: Conn, connect: Connect) -> None:
    claims = claimed(conn, 3)
    committer, heart = Actor(connect), Actor(connect)
    heart.begin()
    assert set(heart.run(beat_as("first", *reversed(claims))).values()) == {Renewal.RENEWED}

    assert outcomes(committer.run(commit_all(claims))) == [CommitOutcome.LOCKED] * 3

    heart.commit()
    assert outcomes(committer.run(commit_all(claims))) == [CommitOutcome.COMMITTED] * 3
    assert_settled(conn)


def test_one_locked_job_does_not_hold_up_its_batch(conn: Conn, connect: Connect) -> None:
    claims = claimed(conn, 3)
    committer, heart = Actor(connect), Actor(connect)
    heart.begin()
    heart.run(beat_as("first", claims[1]))

    verdicts = committer.run(commit_all(claims))

    assert [verdict.outcome for verdict in verdicts] == [
        CommitOutcome.COMMITTED,
        CommitOutcome.LOCKED,
        CommitOutcome.COMMITTED,
    ]
    heart.commit()
    assert state_of(conn, claims[1]) == "running"
    assert outcomes(committer.run(commit_all(claims))) == [
        CommitOutcome.ALREADY_YOURS,
        CommitOutcome.COMMITTED,
        CommitOutcome.ALREADY_YOURS,
    ]
    assert_settled(conn)


def test_a_batch_and_heartbeats_at_full_speed_lose_nothing(conn: Conn, connect: Connect) -> None:
    """Both run until the batch is in: any error, a deadlock too, fails the round."""
    committer, heart = connect(), connect()

    def commit(claims: list[Claim]) -> None:
        random.shuffle(claims)
        while CommitOutcome.LOCKED in (seen := outcomes(run(committer, commit_all(claims)))):
            pass
        assert CommitOutcome.STALE not in seen

    def beat(claims: list[Claim]) -> None:
        while Renewal.LOST not in run(heart, beat_as("first", *claims)).values():
            pass

    with ThreadPoolExecutor(2) as threads:
        for _ in range(ROUNDS):
            claims = claimed(conn, 6)
            both = [threads.submit(commit, claims[:]), threads.submit(beat, claims[::-1])]
            for one in both:
                one.result(timeout=BOUND_SECONDS)
    count = conn.execute("SELECT count(*) FROM faultline.ledger").fetchone()
    assert count == (6 * ROUNDS,)
    assert_settled(conn)

"""A failure and a commit of one attempt: only the first counts."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.statements import protocol
from faultline.statements.statement import Statement

from .stepper import Actor, Connect, assert_settled, claimed, state_of

Conn = psycopg.Connection[Any]
GIVE_UPS = ["fail", "release"]


def give_up(claim: Claim, how: str) -> Statement[Any]:
    return protocol.release(claim) if how == "release" else protocol.fail(claim, error="boom")


@pytest.mark.parametrize("how", GIVE_UPS)
def test_a_failure_waits_for_a_commit_in_flight_and_is_refused(
    conn: Conn, connect: Connect, how: str
) -> None:
    [claim] = claimed(conn)
    committer, other = Actor(connect), Actor(connect)
    committer.begin()
    committer.run(protocol.commit(claim))

    other.start(give_up(claim, how))
    assert other.is_blocked()
    committer.commit()

    with pytest.raises(StaleLease, match="already_committed"):
        other.result()
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


@pytest.mark.parametrize("how", GIVE_UPS)
def test_a_commit_waits_for_a_failure_in_flight_and_is_refused(
    conn: Conn, connect: Connect, how: str
) -> None:
    [claim] = claimed(conn)
    committer, other = Actor(connect), Actor(connect)
    other.begin()
    other.run(give_up(claim, how))

    committer.start(protocol.commit(claim))
    assert committer.is_blocked()
    other.commit()

    with pytest.raises(StaleLease, match="not_running"):
        committer.result()
    assert state_of(conn, claim) == "queued"
    assert_settled(conn)


def test_a_last_attempt_that_failed_stays_failed(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn, max_attempts=1)
    committer, other = Actor(connect), Actor(connect)
    other.begin()
    assert other.run(protocol.fail(claim, error="boom")).state == "failed"
    committer.start(protocol.commit(claim))
    assert committer.is_blocked()

    other.commit()

    with pytest.raises(StaleLease, match="not_running"):
        committer.result()
    assert state_of(conn, claim) == "failed"
    assert_settled(conn)


def test_a_failure_that_rolls_back_lets_the_commit_through(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    committer, other = Actor(connect), Actor(connect)
    other.begin()
    other.run(protocol.fail(claim, error="boom"))
    committer.start(protocol.commit(claim))
    assert committer.is_blocked()

    other.rollback()

    committer.result()
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


def test_two_commits_of_one_claim_make_one_ledger_entry(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    first, second = Actor(connect), Actor(connect)
    first.begin()
    first.run(protocol.commit(claim))
    second.start(protocol.commit(claim))
    assert second.is_blocked()

    first.commit()

    with pytest.raises(StaleLease, match="already_committed"):
        second.result()
    assert_settled(conn)

"""A commit in flight wins; a commit after the job was reconciled is refused."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline.errors import StaleLease
from faultline.statements import protocol
from faultline.statements.statement import Statement

from .stepper import Actor, Connect, assert_settled, beat_as, claimed, expire, state_of

Conn = psycopg.Connection[Any]

PRESUME_DEAD = protocol.reconcile(max_jobs=10, dead_workers=["first"])
TAKE_EXPIRED = protocol.reconcile(max_jobs=10)


def test_a_commit_in_flight_wins_over_the_reconciler(conn: Conn, connect: Connect) -> None:
    [claim] = claimed(conn)
    worker, reconciler = Actor(connect), Actor(connect)
    worker.begin()
    worker.run(protocol.commit(claim))

    assert reconciler.run(PRESUME_DEAD) == []

    worker.commit()
    assert reconciler.run(PRESUME_DEAD) == []
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


def test_a_commit_in_flight_wins_although_others_see_its_lease_expired(
    conn: Conn, connect: Connect
) -> None:
    [claim] = claimed(conn)
    expire(conn, claim)
    worker, reconciler = Actor(connect), Actor(connect)
    worker.begin()
    worker.run(beat_as("first", claim))
    worker.run(protocol.commit(claim))

    assert reconciler.run(TAKE_EXPIRED) == []

    worker.commit()
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


@pytest.mark.parametrize("reconcile", [PRESUME_DEAD, TAKE_EXPIRED], ids=["dead", "expired"])
def test_a_commit_waits_for_the_reconciler_and_is_refused(
    conn: Conn, connect: Connect, reconcile: Statement[Any]
) -> None:
    [claim] = claimed(conn)
    expire(conn, claim)
    worker, reconciler = Actor(connect), Actor(connect)
    reconciler.begin()
    assert [requeued.job_id for requeued in reconciler.run(reconcile)] == [claim.job_id]

    worker.start(protocol.commit(claim))
    assert worker.is_blocked()
    reconciler.commit()

    with pytest.raises(StaleLease, match="not_running"):
        worker.result()
    assert_settled(conn)


def test_a_reconciler_that_rolls_back_leaves_a_live_commit_alone(
    conn: Conn, connect: Connect
) -> None:
    [claim] = claimed(conn)
    worker, reconciler = Actor(connect), Actor(connect)
    reconciler.begin()
    reconciler.run(PRESUME_DEAD)
    worker.start(protocol.commit(claim))
    assert worker.is_blocked()

    reconciler.rollback()

    worker.result()
    assert state_of(conn, claim) == "succeeded"
    assert_settled(conn)


def test_a_commit_that_rolls_back_leaves_the_job_to_the_reconciler(
    conn: Conn, connect: Connect
) -> None:
    [claim] = claimed(conn)
    worker, reconciler = Actor(connect), Actor(connect)
    worker.begin()
    worker.run(protocol.commit(claim))
    assert reconciler.run(PRESUME_DEAD) == []

    worker.rollback()

    assert len(reconciler.run(PRESUME_DEAD)) == 1
    with pytest.raises(StaleLease, match="not_running"):
        worker.run(protocol.commit(claim))
    assert_settled(conn)


def test_two_reconcilers_reconcile_a_job_once(conn: Conn, connect: Connect) -> None:
    expire(conn, *claimed(conn, 2))
    first, second = Actor(connect), Actor(connect)
    first.begin()
    assert len(first.run(TAKE_EXPIRED)) == 2

    assert second.run(TAKE_EXPIRED) == []

    first.commit()
    logged = conn.execute("SELECT count(*) FROM faultline.attempts_log").fetchone()
    assert logged == (2,)
    assert_settled(conn)

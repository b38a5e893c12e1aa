"""Sessions, claims and leases after the promotion of a standby, on real servers."""

from __future__ import annotations

import psycopg

from faultline.statements.epochs import COUNTER_BITS
from faultline_drills.cluster import Cluster, ClusterMember
from tests.protocol.steps import (
    all_at_once,
    claim,
    commit,
    enqueue,
    heartbeat,
    refused,
    rows,
    state,
)

from .conftest import Open

SECONDS = "SELECT floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))"


def epochs(conn: psycopg.Connection[object]) -> list[int]:
    return [epoch for (epoch,) in rows(conn, "SELECT epoch FROM faultline.epochs ORDER BY epoch")]


def test_a_session_open_during_a_promotion_claims_in_the_new_epoch_at_once(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember, open_session: Open
) -> None:
    enqueue(open_session(primary))
    cluster.wait_until_shipped(standby)
    session = open_session(standby)
    with refused("25006"):
        claim(session)
    standby.promote()
    token = claim(session).token
    first, second = epochs(session)
    assert (first, token) == (0, (second << COUNTER_BITS) + 1)


def test_a_replicated_lease_is_valid_on_the_promoted_standby(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember, open_session: Open
) -> None:
    old = open_session(primary)
    enqueue(old)
    lease = claim(old)
    cluster.wait_until_shipped(standby)
    standby.promote()
    new = open_session(standby)
    assert heartbeat(new, lease) == ["renewed"]
    commit(new, lease)
    assert state(new, lease.job_id) == "succeeded"


def test_a_claim_that_was_not_replicated_cannot_commit_on_the_new_primary(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember, open_session: Open
) -> None:
    old = open_session(primary)
    enqueue(old)
    cluster.wait_until_shipped(standby)
    standby.follow(None)
    zombie = claim(old)
    standby.promote()
    new = open_session(standby)
    with refused("FL001", reason="token_mismatch"):
        commit(new, zombie)
    holder = claim(new)
    assert (holder.job_id, zombie.token) == (zombie.job_id, 1)
    assert holder.token > zombie.token
    assert heartbeat(new, zombie) == ["lost"]
    with refused("FL001", reason="token_mismatch"):
        commit(new, zombie)
    commit(new, holder)


def test_of_many_sessions_after_a_promotion_one_starts_the_epoch(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember, open_session: Open
) -> None:
    old = open_session(primary)
    for _ in range(6):
        enqueue(old)
    cluster.wait_until_shipped(standby)
    sessions = [open_session(standby) for _ in range(6)]
    standby.promote()
    tokens = all_at_once(sessions, lambda session: claim(session).token)
    _, epoch = epochs(sessions[0])
    assert {token >> COUNTER_BITS for token in tokens} == {epoch}


def test_two_standbys_promoted_beside_each_other_share_a_timeline_but_no_token(
    cluster: Cluster,
    primary: ClusterMember,
    standby: ClusterMember,
    other_standby: ClusterMember,
    open_session: Open,
) -> None:
    """An operator's mistake; an external store can still tell their tokens apart."""
    other = other_standby
    enqueue(open_session(primary))
    for each in (standby, other):
        cluster.wait_until_shipped(each)
    standby.promote()
    one = claim(open_session(standby))
    standby.wait_until(
        lambda: int(other.ask(SECONDS)) > one.token >> COUNTER_BITS, "the next second"
    )
    other.promote()
    two = claim(open_session(other))
    assert (one.job_id, standby.timeline) == (two.job_id, other.timeline)
    assert one.token >> COUNTER_BITS < two.token >> COUNTER_BITS


def test_a_restart_of_a_promoted_standby_starts_no_epoch(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember, open_session: Open
) -> None:
    """Its files came from a base backup, which its promotion has already recorded."""
    old = open_session(primary)
    for _ in range(2):
        enqueue(old)
    cluster.wait_until_shipped(standby)
    standby.promote()
    first = claim(open_session(standby))
    standby.server.shut_down()
    standby.server.start()
    again = open_session(standby)
    assert claim(again).token == first.token
    assert len(epochs(again)) == 2

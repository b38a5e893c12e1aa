"""One reconciler leads; if it stops or dies, another one takes its place."""

from __future__ import annotations

import signal

import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline.statements import leadership
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")


@pytest.mark.slow
def test_a_stopped_leader_is_replaced_and_a_killed_worker_is_noticed(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    leader = fleet.started(*LONG_LEASE, "--queues", "elsewhere", name="leader")
    leader.wait_for_event("reconciler_leading")
    job_id = database.enqueue(apps.pay, gate="never")
    killed = fleet.started(*LONG_LEASE, "--no-reconciler", name="killed")
    database.wait_for_mark(job_id)
    successor = fleet.started(*LONG_LEASE, name="successor")

    leader.send(signal.SIGSTOP)
    successor.wait_for_event("reconciler_leading")
    killed.kill()

    requeued = successor.wait_for_event("lease_reaped", job_id=job_id, token=1)
    assert requeued["cause"] == "worker_lost"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1

    # the old leader resumes as a follower, and leads again after the new leader died
    leader.send(signal.SIGCONT)
    successor.kill()
    leader.wait_for_event("reconciler_leading", times=2)
    successors_name = successor.wait_for_event("worker_started")["worker"]
    leader.wait_for_event("worker_lost", worker=successors_name)


def test_a_killed_leader_is_replaced_and_its_own_job_is_recovered(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="never")
    leader = fleet.started(*LONG_LEASE, name="leader")
    leader.wait_for_event("reconciler_leading")
    database.wait_for_mark(job_id)
    successor = fleet.started(*LONG_LEASE, name="successor")
    assert not successor.events_named("reconciler_leading")

    leader.kill()

    successor.wait_for_event("reconciler_leading")
    assert successor.wait_for_event("lease_reaped", job_id=job_id)["cause"] == "worker_lost"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1


@pytest.mark.slow
def test_followers_in_a_large_fleet_keep_their_sessions(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    """Followers ask less often in a large fleet.

    They must still ask before PostgreSQL ends their idle session.
    """
    database.conn.execute(
        "INSERT INTO faultline.workers (id, host, pid, queues, holds_locks)"
        " SELECT 'w' || n, 'host', n, '{}', false FROM generate_series(1, 220) AS n"
    )
    session = (
        "SELECT pid, query_start FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'faultline reconciler' AND query LIKE '%%pg_try_advisory_lock%%'"
    )
    # This test leads, in a transaction, so it counts as active and no follower acts in its place. The
    # reconciler below is the only follower.
    with psycopg.connect(fleet.url) as leader:
        leads, _ = run(leader, leadership.try_to_lead(silence_limit="0"))
        assert leads
        waiting = fleet.reconciler("waiting")
        pid, first = database.wait_for_row(session, [], "no follower asks")

        later = f"{session} AND query_start > %s"
        same, _ = database.wait_for_row(later, [first], "the follower asked only once")

    assert same == pid
    assert not waiting.events_named("database_unavailable")

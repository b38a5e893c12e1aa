"""One reconciler leads. When it stands still another one leads, and the dead are still noticed."""

from __future__ import annotations

import signal

import psycopg

from faultline.postgres.sessions import run
from faultline.statements import leadership
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")


def test_a_leader_that_stands_still_is_replaced_and_a_killed_worker_is_still_missed(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    leader = fleet.started(*LONG_LEASE, "--queues", "elsewhere", name="leader")
    leader.wait_for_event("reconciler_leading")
    job_id = database.enqueue(apps.pay, gate="never")
    killed = fleet.started(*LONG_LEASE, "--no-reconciler", name="killed")
    database.wait_for_mark(job_id)
    heir = fleet.started(*LONG_LEASE, name="heir")

    leader.send(signal.SIGSTOP)
    heir.wait_for_event("reconciler_leading")
    killed.kill()

    reaped = heir.wait_for_event("lease_reaped", job_id=job_id, token=1)
    assert reaped["cause"] == "worker_lost"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1

    # the old leader comes back as one of many, and leads again when its turn comes
    leader.send(signal.SIGCONT)
    heir.kill()
    leader.wait_for_event("reconciler_leading", times=2)
    heirs_name = heir.wait_for_event("worker_started")["worker"]
    leader.wait_for_event("worker_lost", worker=heirs_name)


def test_a_leader_that_is_killed_is_replaced_and_its_own_job_is_recovered(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    job_id = database.enqueue(apps.pay, gate="never")
    leader = fleet.started(*LONG_LEASE, name="leader")
    leader.wait_for_event("reconciler_leading")
    database.wait_for_mark(job_id)
    heir = fleet.started(*LONG_LEASE, name="heir")
    assert not heir.events_named("reconciler_leading")

    leader.kill()

    heir.wait_for_event("reconciler_leading")
    assert heir.wait_for_event("lease_reaped", job_id=job_id)["cause"] == "worker_lost"
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1


def test_those_who_wait_to_lead_a_large_fleet_keep_their_sessions(
    fleet: Fleet, database: ObservedDatabase
) -> None:
    """The more workers there are, the less often each asks; but not so seldom that the server takes
    the silence for death."""
    database.conn.execute(
        "INSERT INTO faultline.workers (id, host, pid, queues, holds_locks)"
        " SELECT 'w' || n, 'host', n, '{}', false FROM generate_series(1, 220) AS n"
    )
    session = (
        "SELECT pid, query_start FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'faultline reconciler' AND query LIKE '%%pg_try_advisory_lock%%'"
    )
    # We lead ourselves, in a transaction: so we are at work, and nobody stands in for us. The one who
    # waits is the only one who asks.
    with psycopg.connect(fleet.url) as leader:
        leads, _ = run(leader, leadership.try_to_lead(silence_limit="0"))
        assert leads
        waiting = fleet.reconciler("waiting")
        pid, first = database.wait_for_row(session, [], "nobody waits to lead")

        later = f"{session} AND query_start > %s"
        same, _ = database.wait_for_row(later, [first], "it asked once only")

    assert same == pid
    assert not waiting.events_named("database_unavailable")

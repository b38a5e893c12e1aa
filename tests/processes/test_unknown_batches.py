"""After a batch's COMMIT whose reply is lost, each payment is made once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from faultline.task import Task
from faultline_drills.proxy import Proxy
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase
from tests.processes.test_unknown_outcome import COMMIT_OF_PAYMENT, LONG_LEASE

BOTH_HANDLERS = pytest.mark.parametrize(
    "task",
    [
        pytest.param(apps.pay_batch, id="async"),
        pytest.param(apps.pay_batch_plain, id="plain", marks=pytest.mark.slow),
    ],
)
IS_WAITED_FOR = "FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"


def enqueue(database: ObservedDatabase, task: Task[..., Any]) -> list[UUID]:
    with database.conn.transaction():
        return [database.enqueue(task) for _ in range(3)]


def attempts(database: ObservedDatabase, jobs: list[UUID]) -> list[int]:
    return [database.wait_for_state(job_id)[1] for job_id in jobs]


@BOTH_HANDLERS
def test_a_commit_that_the_server_aborts_is_rolled_back_and_the_next_attempts_pay(
    fleet: Fleet, database: ObservedDatabase, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE)
    with database.held_back(COMMIT_OF_PAYMENT):
        jobs = enqueue(database, task)
        database.conn.execute("SELECT pg_terminate_backend(%s)", [database.wait_until_held()])
        for job_id in jobs:
            worker.wait_for_event("job_retry_scheduled", job_id=job_id, token=1)
    assert attempts(database, jobs) == [2, 2, 2]
    assert [database.payments(job_id) for job_id in jobs] == [1, 1, 1]
    database.assert_in_order()


@BOTH_HANDLERS
def test_a_commit_whose_reply_is_lost_is_found_in_the_ledger_for_all_jobs(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with database.held_back(COMMIT_OF_PAYMENT):
        jobs = enqueue(database, task)
        connection = proxy.connection_of(
            port_at_server=database.port_of(database.wait_until_held())
        )
        connection.drop_replies()
    assert attempts(database, jobs) == [1, 1, 1]
    connection.close()
    for job_id in jobs:
        worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert [database.payments(job_id) for job_id in jobs] == [1, 1, 1]
    database.assert_in_order()


@BOTH_HANDLERS
def test_a_commit_that_arrives_after_its_connection_was_lost_is_not_repeated(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with database.held_back(COMMIT_OF_PAYMENT):
        jobs = enqueue(database, task)
        committing = database.wait_until_held()
        proxy.connection_of(port_at_server=database.port_of(committing)).cut_client()
        # The worker ends the lease of the first job, and waits for the commit that has locked its row.
        database.wait_until(
            lambda: database.count(IS_WAITED_FOR, [committing]) > 0, "the worker does not ask"
        )
    for job_id in jobs:
        worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert attempts(database, jobs) == [1, 1, 1]
    assert [database.payments(job_id) for job_id in jobs] == [1, 1, 1]
    assert not any(database.outcomes(job_id) for job_id in jobs)
    database.assert_in_order()

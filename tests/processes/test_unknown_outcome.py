"""After a COMMIT whose reply is lost, the payment is made exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from faultline.task import Task
from faultline_drills.proxy import Proxy
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.observed_database import ObservedDatabase

LONG_LEASE = ("--lease-seconds", "600")
AT_COMMIT = "CONSTRAINT TRIGGER held AFTER INSERT ON {} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
COMMIT_OF_PAYMENT = AT_COMMIT.format("app.payments")
BOTH_HANDLERS = pytest.mark.parametrize("task", [apps.pay, apps.pay_plain], ids=["async", "plain"])


@pytest.mark.parametrize(
    "task", [apps.pay, apps.pay_plain, apps.pay_own], ids=lambda task: task.handler.__name__
)
def test_a_commit_that_the_server_aborts_is_rolled_back_and_the_next_attempt_pays(
    fleet: Fleet, database: ObservedDatabase, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE)
    with database.held_back(COMMIT_OF_PAYMENT):
        job_id = database.enqueue(task)
        database.conn.execute("SELECT pg_terminate_backend(%s)", [database.wait_until_held()])
        worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
        worker.wait_for_event("job_retry_scheduled", job_id=job_id, token=1)
    assert database.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert database.payments(job_id) == 1
    database.assert_in_order()


@BOTH_HANDLERS
def test_a_commit_whose_reply_is_lost_is_found_in_the_ledger(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with database.held_back(COMMIT_OF_PAYMENT):
        job_id = database.enqueue(task)
        connection = proxy.connection_of(
            port_at_server=database.port_of(database.wait_until_held())
        )
        connection.drop_replies()
    database.wait_for_state(job_id)
    connection.close()

    worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1
    database.assert_in_order()


@BOTH_HANDLERS
def test_a_commit_that_arrives_after_its_connection_was_lost_is_not_repeated(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with database.held_back(COMMIT_OF_PAYMENT):
        job_id = database.enqueue(task)
        committing = database.wait_until_held()
        proxy.connection_of(port_at_server=database.port_of(committing)).cut_client()
        worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
        # The worker releases the job, and waits for the commit that has locked the row.
        blocked = "FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        database.wait_until(
            lambda: database.count(blocked, [committing]) > 0, "the worker does not ask"
        )

    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.payments(job_id) == 1
    assert not database.outcomes(job_id)
    database.assert_in_order()


def test_a_batch_whose_reply_is_lost_is_sent_again_and_counts_once(
    fleet: Fleet, database: ObservedDatabase, proxy: Proxy
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with database.held_back(AT_COMMIT.format("faultline.ledger")):
        job_id = database.enqueue(apps.answer)
        connection = proxy.connection_of(
            port_at_server=database.port_of(database.wait_until_held())
        )
        connection.drop_replies()
    database.wait_for_state(job_id)
    connection.close()

    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert database.job(job_id)[:2] == ("succeeded", 1)
    assert database.count("FROM faultline.rejections") == 0
    database.assert_in_order()

"""A COMMIT whose answer is lost: whatever became of it, the payment is made once in the end."""

from __future__ import annotations

from typing import Any

import pytest

from faultline.task import Task
from faultline_drills.proxy import Proxy
from tests.processes import apps
from tests.processes.fleet import Fleet
from tests.processes.stage import Stage

LONG_LEASE = ("--lease-seconds", "600")
AT_COMMIT = "CONSTRAINT TRIGGER held AFTER INSERT ON {} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
COMMIT_OF_PAYMENT = AT_COMMIT.format("stage.payments")
BOTH_HANDLERS = pytest.mark.parametrize("task", [apps.pay, apps.pay_plain], ids=["async", "plain"])


@pytest.mark.parametrize(
    "task", [apps.pay, apps.pay_plain, apps.pay_own], ids=lambda task: task.handler.__name__
)
def test_a_commit_that_the_server_breaks_off_is_undone_and_the_next_attempt_pays(
    fleet: Fleet, stage: Stage, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE)
    with stage.held_back(COMMIT_OF_PAYMENT):
        job_id = stage.enqueue(task)
        stage.conn.execute("SELECT pg_terminate_backend(%s)", [stage.wait_until_held()])
        worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
        worker.wait_for_event("job_retry_scheduled", job_id=job_id, token=1)
    assert stage.wait_for_state(job_id)[:2] == ("succeeded", 2)
    assert stage.payments(job_id) == 1
    stage.assert_in_order()


@BOTH_HANDLERS
def test_a_commit_whose_answer_is_lost_on_the_way_is_found_in_the_ledger(
    fleet: Fleet, stage: Stage, proxy: Proxy, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with stage.held_back(COMMIT_OF_PAYMENT):
        job_id = stage.enqueue(task)
        connection = proxy.connection_of(port_at_server=stage.port_of(stage.wait_until_held()))
        connection.drop_replies()
    stage.wait_for_state(job_id)
    connection.close()

    worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert stage.job(job_id)[:2] == ("succeeded", 1)
    assert stage.payments(job_id) == 1
    stage.assert_in_order()


@BOTH_HANDLERS
def test_a_commit_that_arrives_after_its_connection_was_lost_decides_and_is_not_repeated(
    fleet: Fleet, stage: Stage, proxy: Proxy, task: Task[..., Any]
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with stage.held_back(COMMIT_OF_PAYMENT):
        job_id = stage.enqueue(task)
        committing = stage.wait_until_held()
        proxy.connection_of(port_at_server=stage.port_of(committing)).cut_client()
        worker.wait_for_event("commit_unknown", job_id=job_id, token=1)
        # The worker ends its own lease, and has to wait for the commit that holds the row.
        blocked = "FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        stage.wait_until(lambda: stage.count(blocked, [committing]) > 0, "the worker does not ask")

    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert stage.job(job_id)[:2] == ("succeeded", 1)
    assert stage.payments(job_id) == 1
    assert not stage.outcomes(job_id)
    stage.assert_in_order()


def test_a_batch_of_commits_whose_answer_is_lost_is_sent_again_and_counts_once(
    fleet: Fleet, stage: Stage, proxy: Proxy
) -> None:
    worker = fleet.started(*LONG_LEASE, url=proxy.url)
    with stage.held_back(AT_COMMIT.format("faultline.ledger")):
        job_id = stage.enqueue(apps.answer)
        connection = proxy.connection_of(port_at_server=stage.port_of(stage.wait_until_held()))
        connection.drop_replies()
    stage.wait_for_state(job_id)
    connection.close()

    worker.wait_for_event("commit_ok", job_id=job_id, token=1)
    assert stage.job(job_id)[:2] == ("succeeded", 1)
    assert stage.count("FROM faultline.rejections") == 0
    stage.assert_in_order()

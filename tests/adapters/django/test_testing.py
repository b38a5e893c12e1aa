"""`faultline.adapters.django.testing`, in both kinds of Django's test cases."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import faultline
from faultline import InvalidInput, JobState, NotCommitted
from faultline.testing import NotIdle, Outcome, ZombieEffect
from tests.adapters.django.conftest import Shop
from tests.waiting import wait_until

Body = Callable[[Any], object]


def in_case(body: Body, *, transactions: bool = False) -> None:
    """Run the body as the only test of a TestCase or a TransactionTestCase."""
    from django.test import TestCase, TransactionTestCase

    base: Any = TransactionTestCase if transactions else TestCase

    class Case(base):  # type: ignore[misc]
        def test(self) -> None:
            body(self)

    result = unittest.TestResult()
    unittest.TestSuite([Case("test")]).run(result)
    for _, trace in [*result.errors, *result.failures]:
        raise AssertionError(trace)
    assert result.testsRun == 1


@pytest.fixture
def task(shop: Shop) -> Any:
    """Defines a task of the test's own."""
    names: list[str] = []

    def define(handler: Any, **options: Any) -> Any:
        options.setdefault("name", f"shop.{handler.__name__}")
        names.append(options["name"])
        return shop.app.task(**options)(handler)

    yield define
    for name in names:
        del shop.app._tasks[name]


@pytest.fixture
def outside(shop: Shop) -> Callable[[], int]:
    """Counts the jobs that other connections see."""

    def count() -> int:
        with psycopg.connect(shop.url) as conn:
            [(jobs,)] = conn.execute("SELECT count(*) FROM faultline.jobs").fetchall()
        return int(jobs)

    return count


# ── TestCase ─────────────────────────────────────────────────────────────────────────────────────


def test_a_test_case_sees_what_it_has_enqueued(shop: Shop, outside: Callable[[], int]) -> None:
    from faultline.adapters.django.testing import enqueued_jobs

    def body(case: Any) -> None:
        shop.tasks.pay.enqueue(invoice=1)
        shop.tasks.pay.options(queue="mail").enqueue(invoice=2)
        shop.tasks.count_payments.enqueue()
        payloads = [job.payload for job in enqueued_jobs(shop.tasks.pay)]
        assert payloads == [{"invoice": 1}, {"invoice": 2}]
        assert [job.task for job in enqueued_jobs(queue="mail")] == ["shop.pay"]
        assert len(enqueued_jobs()) == 3
        assert outside() == 0

    in_case(body)
    assert outside() == 0


@pytest.mark.parametrize("name", ["pay", "pay_with_receipt", "pay_in_own_block", "pay_on_a_loop"])
def test_a_test_case_runs_its_jobs_in_its_own_transaction(
    shop: Shop, outside: Callable[[], int], name: str
) -> None:
    from faultline.adapters.django.testing import run_jobs

    def body(case: Any) -> None:
        enqueued = getattr(shop.tasks, name).enqueue(invoice=42)
        [attempted] = run_jobs()
        assert attempted.outcome is Outcome.SUCCEEDED
        assert (attempted.attempt, attempted.token) == (1, 1)
        assert shop.models.Payment.objects.get().invoice == 42
        assert shop.app.get(enqueued.job_id).state is JobState.SUCCEEDED
        assert run_jobs() == []

    in_case(body)
    assert shop.pays()
    assert outside() == 0


def test_a_result_and_a_returned_value_are_stored(shop: Shop) -> None:
    from faultline.adapters.django.testing import run_jobs

    def body(case: Any) -> None:
        shop.tasks.pay_with_receipt.enqueue(invoice=42)
        counted = shop.tasks.count_payments.enqueue()
        assert [attempted.result for attempted in run_jobs()] == ["paid 42", 1]
        assert shop.app.get(counted.job_id).result == 1

    in_case(body)


def test_a_handler_that_fails_is_retried_and_leaves_no_broken_transaction(
    shop: Shop, task: Any
) -> None:
    from django.db import connection

    from faultline.adapters.django.testing import run_jobs

    def fails(job: faultline.Job) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    failing = task(fails)

    def body(case: Any) -> None:
        enqueued = failing.enqueue()
        with pytest.raises(Exception, match="division by zero"):
            run_jobs()
        record = shop.app.get(enqueued.job_id)
        assert (record.state, record.attempts) == (JobState.QUEUED, 1)
        assert "division by zero" in str(record.last_error)
        assert shop.models.Payment.objects.count() == 0

    in_case(body)


def test_what_a_handler_asks_for_happens(shop: Shop, task: Any) -> None:
    from faultline.adapters.django.testing import run_jobs

    def ends(job: faultline.Job, how: str) -> None:
        match how:
            case "snooze":
                raise faultline.Snooze(60)
            case "reject":
                raise faultline.Reject("no")
            case "rolled back":
                from django.db import transaction

                with transaction.atomic():
                    job.commit(transaction.get_connection())
                    transaction.set_rollback(True)
            case "savepoint":
                from django.db import transaction

                with transaction.atomic(), transaction.atomic():
                    job.commit(transaction.get_connection())
            case "worker's connection":
                with job.transaction():
                    pass

    ending = task(ends, max_attempts=1)

    def body(case: Any) -> None:
        hows = ["snooze", "reject", "rolled back", "savepoint", "worker's connection"]
        for how in hows:
            ending.enqueue(how=how)
        ended = run_jobs(raise_errors=False)
        assert [each.outcome for each in ended] == [Outcome.SNOOZED, *[Outcome.FAILED] * 4]
        errors = [type(each.exception) for each in ended[1:]]
        assert errors == [faultline.Reject, NotCommitted, NotCommitted, InvalidInput]
        assert shop.app.get(ended[1].job_id).failed_reason == "rejected"

    in_case(body)


def test_a_cancelled_job_does_not_commit(shop: Shop, task: Any) -> None:
    """The fence is checked in a TestCase too."""
    from faultline.adapters.django.testing import run_jobs

    def cancelled(job: faultline.Job) -> None:
        shop.app.cancel(job.id)
        with job.atomic():
            shop.models.Payment.objects.create(invoice=1)

    handler = task(cancelled)

    def body(case: Any) -> None:
        handler.enqueue()
        [attempted] = run_jobs(raise_errors=False)
        assert attempted.outcome is Outcome.STALE
        assert shop.models.Payment.objects.count() == 0

    in_case(body)


def test_jobs_that_enqueue_themselves_reach_the_limit(shop: Shop, task: Any) -> None:
    from faultline.adapters.django.testing import run_jobs

    def again(job: faultline.Job) -> None:
        looping.enqueue()

    looping = task(again)

    def body(case: Any) -> None:
        looping.enqueue()
        with pytest.raises(NotIdle, match="after 5 attempts"):
            run_jobs(limit=5)

    in_case(body)


# ── TransactionTestCase ──────────────────────────────────────────────────────────────────────────


def test_a_transaction_test_case_runs_a_real_worker_and_forgets_its_jobs(
    shop: Shop, outside: Callable[[], int]
) -> None:
    from django.test.utils import setup_test_environment, teardown_test_environment

    from faultline.adapters.django.testing import enqueued_jobs, run_jobs

    def body(case: Any) -> None:
        shop.tasks.pay.enqueue(invoice=42)
        shop.tasks.pay_on_a_loop.enqueue(invoice=43)
        assert outside() == 2
        assert {each.outcome for each in run_jobs()} == {Outcome.SUCCEEDED}
        assert shop.pays(42, 43)
        assert [job.state for job in enqueued_jobs()] == [JobState.SUCCEEDED] * 2

    setup_test_environment()
    try:
        in_case(body, transactions=True)
    finally:
        teardown_test_environment()
    assert outside() == 0
    assert shop.pays()


def test_no_session_is_left_that_would_keep_the_database_from_being_dropped(shop: Shop) -> None:
    from django.db import connections

    from faultline.adapters.django.testing import run_jobs

    connections.settings["default"]["CONN_MAX_AGE"] = None
    shop.tasks.pay.enqueue(invoice=42)
    shop.tasks.pay_on_a_loop.enqueue(invoice=43)
    try:
        run_jobs()
    finally:
        connections.settings["default"]["CONN_MAX_AGE"] = 0
    connections.close_all()
    with psycopg.connect(shop.url, autocommit=True) as conn:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        # A server process ends a moment after its client has closed the connection.
        wait_until(lambda: conn.execute(query).fetchone() == (1,), "the end of all other sessions")


def test_zombies_work_on_a_copy_of_the_database(shop: Shop) -> None:
    from faultline.adapters.django.testing import zombies

    shop.models.Payment.objects.create(invoice=1)

    def paid_once() -> bool:
        assert shop.models.Payment.objects.filter(invoice=1).exists()
        return bool(shop.models.Payment.objects.filter(invoice=42).count() == 1)

    report = zombies(shop.tasks.pay, {"invoice": 42}, invariant=paid_once, faults=["supersede"])
    assert report.refusals > 0
    with pytest.raises(ZombieEffect):
        zombies(shop.tasks.pay_naively, {"invoice": 42}, invariant=paid_once, faults=["supersede"])
    assert shop.pays(1)


def test_zombies_need_a_committed_database(shop: Shop) -> None:
    from faultline.adapters.django.testing import zombies

    def body(case: Any) -> None:
        with pytest.raises(InvalidInput, match="workers do not see"):
            zombies(shop.tasks.pay, {"invoice": 42}, invariant=lambda: True)

    in_case(body)


def test_an_async_test_runs_async_handlers(shop: Shop) -> None:
    """The thread in which Django runs the ORM for the test waits for the worker."""
    from asgiref.sync import async_to_sync, sync_to_async

    from faultline.adapters.django.testing import enqueued_jobs, run_jobs

    async def test() -> None:
        await shop.tasks.pay_on_a_loop.enqueue_async(invoice=42)
        assert len(enqueued_jobs()) == 1
        await sync_to_async(run_jobs)()

    async_to_sync(test)()
    assert shop.pays(42)


def test_jobs_are_not_run_inside_of_a_block_of_the_test(shop: Shop) -> None:
    from django.db import transaction

    from faultline.adapters.django.testing import run_jobs

    def body(case: Any) -> None:
        with transaction.atomic(), pytest.raises(InvalidInput, match="call it after the block"):
            run_jobs()

    in_case(body)
    in_case(body, transactions=True)

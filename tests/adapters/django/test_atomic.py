"""`job.atomic()`: the ORM's writes commit with the job, or not at all."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import faultline
from faultline import InvalidInput, JobState, StaleLease
from faultline.testing import Outcome, run_until_idle
from tests.adapters.django.conftest import Shop
from tests.running import rejections, take_over, wait_for_the_first_heartbeat

Task = Any


@pytest.fixture
def conn(shop: Shop) -> Any:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    "name",
    ["pay", "pay_with_receipt", "pay_in_own_block", "pay_on_given_connection", "pay_on_a_loop"],
)
def test_the_payment_and_the_job_commit_together(shop: Shop, name: str) -> None:
    enqueued = getattr(shop.tasks, name).enqueue(invoice=42)
    [attempted] = run_until_idle(shop.app)
    assert attempted.outcome is Outcome.SUCCEEDED
    assert shop.app.get(enqueued.job_id).state is JobState.SUCCEEDED
    assert shop.pays(42)


def test_the_result_that_the_block_sets_is_stored(shop: Shop) -> None:
    enqueued = shop.tasks.pay_with_receipt.enqueue(invoice=42)
    run_until_idle(shop.app)
    assert shop.app.get(enqueued.job_id).result == "paid 42"


def stale(shop: Shop, conn: Any, body: Any) -> tuple[Any, list[BaseException]]:
    """Run a handler whose job is taken over when it calls `superseded`."""
    caught: list[BaseException] = []

    @shop.app.task(name="shop.stale")
    def handler(job: faultline.Job) -> None:
        try:
            wait_for_the_first_heartbeat(conn)  # the next one would notice the loss
            body(job, lambda: take_over(conn, job.id))
        except BaseException as error:
            caught.append(error)
            raise

    try:
        job_id = handler.enqueue().job_id
        [attempted] = run_until_idle(shop.app, raise_errors=False)
    finally:
        del shop.app._tasks["shop.stale"]
    assert len(rejections(conn, job_id)) == 1
    return attempted, caught


def test_a_worker_that_was_superseded_before_its_block_gets_stale_lease(
    shop: Shop, conn: Any
) -> None:
    def body(job: faultline.Job, superseded: Any) -> None:
        superseded()
        with job.atomic():
            shop.models.Payment.objects.create(invoice=1)

    attempted, [error] = stale(shop, conn, body)
    assert attempted.outcome is Outcome.STALE
    assert isinstance(error, StaleLease)
    assert shop.pays()


def test_a_handler_that_swallows_the_refusal_commits_nothing(shop: Shop, conn: Any) -> None:
    from django.db import connection, transaction

    def body(job: faultline.Job, superseded: Any) -> None:
        superseded()
        with transaction.atomic():
            shop.models.Payment.objects.create(invoice=1)
            try:
                with transaction.atomic():  # a savepoint, which it could roll back to
                    job.assert_fence(connection)
            except StaleLease:
                pass
            shop.models.Payment.objects.create(invoice=2)

    attempted, _ = stale(shop, conn, body)
    assert attempted.outcome is Outcome.STALE
    assert shop.pays()


def test_after_a_refusal_the_thread_gets_a_new_connection(shop: Shop, conn: Any) -> None:
    def body(job: faultline.Job, superseded: Any) -> None:
        superseded()
        try:
            job_atomic(job)
        except StaleLease:
            shop.models.Payment.objects.create(invoice=3)  # in a transaction of its own

    def job_atomic(job: faultline.Job) -> None:
        with job.atomic():
            shop.models.Payment.objects.create(invoice=1)

    _, caught = stale(shop, conn, body)
    assert caught == []
    assert shop.pays(3)


def test_a_job_that_fails_in_its_block_leaves_nothing(shop: Shop) -> None:
    @shop.app.task(name="shop.fails", max_attempts=1)
    def fails(job: faultline.Job) -> None:
        with job.atomic():
            shop.models.Payment.objects.create(invoice=1)
            raise ValueError("no")

    try:
        fails.enqueue()
        with pytest.raises(ValueError, match="no"):
            run_until_idle(shop.app)
    finally:
        del shop.app._tasks["shop.fails"]
    assert shop.pays()


def test_atomic_within_another_block_is_refused(shop: Shop) -> None:
    from django.db import transaction

    @shop.app.task(name="shop.nested", max_attempts=1)
    def nested(job: faultline.Job) -> None:
        with transaction.atomic(), job.atomic():
            pass

    try:
        nested.enqueue()
        with pytest.raises(InvalidInput, match="it would be a savepoint"):
            run_until_idle(shop.app)
    finally:
        del shop.app._tasks["shop.nested"]


def test_an_error_at_commit_fails_the_attempt_and_leaves_nothing(shop: Shop) -> None:
    """Django checks foreign keys at COMMIT: PostgreSQL refuses the whole transaction."""
    from django.db import IntegrityError

    @shop.app.task(name="shop.orphan", max_attempts=1)
    def orphan(job: faultline.Job) -> None:
        with job.atomic():
            shop.models.Payment.objects.create(invoice=1)
            shop.models.Receipt.objects.create(payment_id=999)

    try:
        job_id = orphan.enqueue().job_id
        with pytest.raises(IntegrityError):
            run_until_idle(shop.app)
    finally:
        del shop.app._tasks["shop.orphan"]
    assert shop.app.get(job_id).state is JobState.FAILED
    assert shop.pays()


def test_a_serialization_conflict_runs_the_handler_again_in_its_attempt(
    shop: Shop, conn: Any
) -> None:
    from django.db import connection

    tries: list[int] = []

    @shop.app.task(name="shop.conflict", max_attempts=1)
    def conflict(job: faultline.Job) -> None:
        tries.append(job.attempt)
        with job.atomic(), connection.cursor() as cursor:
            shop.models.Payment.objects.create(invoice=1)
            if len(tries) == 1:
                cursor.execute("DO $$BEGIN RAISE EXCEPTION 'so' USING ERRCODE = '40001'; END$$")

    try:
        conflict.enqueue()
        [attempted] = run_until_idle(shop.app)
    finally:
        del shop.app._tasks["shop.conflict"]
    assert tries == [1, 1]
    assert attempted.outcome is Outcome.SUCCEEDED
    assert shop.pays(1)


def test_the_block_is_on_the_database_of_the_jobs_application(shop: Shop, archive_url: str) -> None:
    from faultline.adapters.django import app_for

    archive = app_for("archive")
    shop.tasks.archive.enqueue(invoice=7)
    run_until_idle(archive)
    archive.close()
    with psycopg.connect(archive_url) as conn:
        assert conn.execute("SELECT invoice FROM shop_payment").fetchall() == [(7,)]
    assert shop.pays()


@pytest.mark.parametrize("stale", [False, True])
def test_the_payments_of_a_batch_commit_with_its_jobs(shop: Shop, conn: Any, stale: bool) -> None:
    from tests.adapters.django.shop.models import Payment

    runs: list[int] = []

    @shop.app.batch_task(name="shop.batch", max_size=3, max_wait=30)  # waits for all three
    def handler(batch: faultline.Batch[dict[str, Any]]) -> None:
        runs.append(len(batch))
        if stale and len(runs) == 1:
            wait_for_the_first_heartbeat(conn)
            take_over(conn, batch.jobs[0].id)
        with batch.atomic():
            for job in batch:
                Payment.objects.create(invoice=job.args["invoice"], token=job.token)

    try:
        handler.enqueue_many([{"invoice": number} for number in (40, 41, 42)])
        run_until_idle(shop.app, raise_errors=False)
    finally:
        del shop.app._tasks["shop.batch"]
    assert runs == ([3, 2] if stale else [3])
    assert shop.pays(41, 42) if stale else shop.pays(40, 41, 42)

"""Enqueueing: which calls make a job, when it exists, and what is refused first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from faultline import Faultline, IdempotencyConflict, InvalidInput, Job, JobState, PayloadTooLarge
from faultline.task import Task
from tests.running import Connection, count

JOBS = "faultline.jobs"


@pytest.fixture
def charge(app: Faultline) -> Task[..., Any]:
    @app.task(name="charge", queue="billing", priority=3, max_attempts=7)
    async def charge(job: Job, invoice: int, note: str = "") -> None: ...

    return charge


def in_async(app: Faultline, call: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        try:
            return await call()
        finally:
            await app.aclose()

    return asyncio.run(main())


def test_a_job_carries_its_tasks_options_and_its_arguments_by_name(
    app: Faultline, charge: Task[..., Any]
) -> None:
    record = app.get(charge.enqueue(7, note="hi").job_id)
    assert (record.task, record.queue, record.priority) == ("charge", "billing", 3)
    assert (record.max_attempts, record.state) == (7, JobState.QUEUED)
    assert record.payload == {"invoice": 7, "note": "hi"}


def test_options_given_with_a_job_win_over_its_tasks(
    app: Faultline, charge: Task[..., Any]
) -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    job = charge.enqueue(invoice=1, queue="red", priority=0, run_at=later, idempotency_key="k")
    record = app.get(job.job_id)
    assert (record.queue, record.priority, record.idempotency_key) == ("red", 0, "k")
    assert record.next_run_at == later


def test_enqueue_async_does_the_same(app: Faultline, charge: Task[..., Any]) -> None:
    async def call() -> tuple[Any, Any]:
        job = await charge.enqueue_async(7, note="hi", idempotency_key="k")
        return job, await app.get_async(job.job_id)

    job, record = in_async(app, call)
    assert job.existing is False
    assert record.payload == {"invoice": 7, "note": "hi"}


def test_many_coroutines_may_enqueue_at_once(
    app: Faultline, charge: Task[..., Any], conn: Connection
) -> None:
    in_async(app, lambda: asyncio.gather(*(charge.enqueue_async(invoice=n) for n in range(50))))
    assert count(conn, JOBS) == 50


def test_enqueue_many_keeps_the_order_and_knows_the_keys(
    app: Faultline, charge: Task[..., Any]
) -> None:
    first = charge.enqueue(invoice=2, idempotency_key="two")
    payloads = [{"invoice": 1}, {"invoice": 2}, {"invoice": 3}]
    jobs = charge.enqueue_many(payloads, idempotency_keys=[None, "two", "three"])
    assert [app.get(job.job_id).payload for job in jobs] == payloads
    assert [job.existing for job in jobs] == [False, True, False]
    assert jobs[1].job_id == first.job_id
    again = in_async(app, lambda: charge.enqueue_many_async(payloads[:1]))
    assert len(again) == 1
    assert charge.enqueue_many([]) == []


# ── in the caller's own transaction ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("commits", [True, False])
def test_a_job_exists_if_the_callers_transaction_commits(
    charge: Task[..., Any], conn: Connection, database_url: str, effects: str, commits: bool
) -> None:
    with psycopg.connect(database_url) as own:
        own.execute("INSERT INTO effects VALUES ('order')")
        charge.enqueue(invoice=1, conn=own)
        charge.enqueue_many([{"invoice": 2}], conn=own)
        assert count(conn, JOBS) == 0  # not before the commit
        own.commit() if commits else own.rollback()
    assert (count(conn, JOBS), count(conn, effects)) == ((2, 1) if commits else (0, 0))


@pytest.mark.parametrize("commits", [True, False])
def test_a_job_exists_if_the_callers_async_transaction_commits(
    app: Faultline, charge: Task[..., Any], conn: Connection, database_url: str, commits: bool
) -> None:
    async def call() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await charge.enqueue_async(invoice=1, conn=own)
            await charge.enqueue_many_async([{"invoice": 2}], conn=own)
            assert count(conn, JOBS) == 0
            await (own.commit() if commits else own.rollback())

    in_async(app, call)
    assert count(conn, JOBS) == (2 if commits else 0)


def test_the_callers_row_factory_makes_no_difference(
    charge: Task[..., Any], database_url: str
) -> None:
    with psycopg.connect(database_url, row_factory=psycopg.rows.dict_row) as own:
        assert isinstance(charge.enqueue(invoice=1, conn=own).job_id, UUID)


def test_a_sync_connection_in_async_code_and_vice_versa_is_a_clear_error(
    app: Faultline, charge: Task[..., Any], conn: Connection, database_url: str
) -> None:
    async def call() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            with pytest.raises(InvalidInput, match="AsyncConnection: use the _async method"):
                charge.enqueue(invoice=1, conn=own)
        with pytest.raises(InvalidInput, match="conn is a Connection: it must be async here"):
            await charge.enqueue_async(invoice=1, conn=conn)
        with pytest.raises(InvalidInput, match="conn is a str"):
            await charge.enqueue_async(invoice=1, conn="postgresql://")

    in_async(app, call)
    assert count(conn, JOBS) == 0


# ── idempotency ──────────────────────────────────────────────────────────────────────────────────


def test_the_same_key_for_the_same_work_is_the_same_job(charge: Task[..., Any]) -> None:
    first = charge.enqueue(invoice=1, idempotency_key="k")
    again = charge.enqueue(invoice=1, idempotency_key="k")
    assert (first.existing, again.existing) == (False, True)
    assert again.job_id == first.job_id


def test_the_same_key_for_other_work_is_a_conflict_that_names_the_job(
    app: Faultline, charge: Task[..., Any], conn: Connection
) -> None:
    first = charge.enqueue(invoice=1, idempotency_key="k")
    with pytest.raises(IdempotencyConflict) as caught:
        charge.enqueue(invoice=2, idempotency_key="k")
    assert caught.value.code == "idempotency_conflict"
    assert caught.value.job_id == str(first.job_id)
    with pytest.raises(IdempotencyConflict):
        charge.enqueue_many([{"invoice": 3}, {"invoice": 2}], idempotency_keys=[None, "k"])
    assert count(conn, JOBS) == 1


# ── refused before anything is written ───────────────────────────────────────────────────────────

WRONG: dict[str, dict[str, Any]] = {
    "missing": {},
    "unknown": {"invoice": 1, "amount": 2},
    "the_job": {"invoice": 1, "job": 2},
    "not_json": {"invoice": object()},
    "nan": {"invoice": float("nan")},
    "nul": {"invoice": 1, "note": "\x00"},
    "surrogate": {"invoice": 1, "note": "\udc80"},
    "naive_run_at": {"invoice": 1, "run_at": datetime(2030, 1, 1)},  # noqa: DTZ001
    "delay_for_run_at": {"invoice": 1, "run_at": timedelta(hours=1)},
    "empty_key": {"invoice": 1, "idempotency_key": ""},
    "long_key": {"invoice": 1, "idempotency_key": "k" * 256},
    "nul_key": {"invoice": 1, "idempotency_key": "k\x00"},
    "number_for_a_key": {"invoice": 1, "idempotency_key": 5},
    "priority_10": {"invoice": 1, "priority": 10},
    "priority_below_0": {"invoice": 1, "priority": -1},
    "half_a_priority": {"invoice": 1, "priority": 1.5},
    **{
        f"queue {name!r}": {"invoice": 1, "queue": name}
        for name in ["", "a b", "a\n", "-a", "x" * 64, "é", "a;DROP", "a\x00", "a'", "%s", "{a}"]
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_jobs_are_refused_at_once(
    app: Faultline, charge: Task[..., Any], conn: Connection, name: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        charge.enqueue(**WRONG[name])
    assert caught.value.code == "invalid_input"
    with pytest.raises(InvalidInput):
        in_async(app, lambda: charge.enqueue_async(**WRONG[name]))
    assert count(conn, JOBS) == 0


def test_a_payload_over_the_limit_is_refused(charge: Task[..., Any], conn: Connection) -> None:
    with pytest.raises(PayloadTooLarge, match="the limit is 1,048,576"):
        charge.enqueue(invoice=1, note="x" * 1_048_576)
    assert count(conn, JOBS) == 0


MANY: list[tuple[Any, dict[str, Any]]] = [
    ([{"invoice": 1}, {}], {}),
    ([{"invoice": 1}, {"invoice": 1, "amount": 2}], {}),
    ([{"invoice": 1}, 5], {}),
    ([{1: 2}], {}),
    ([{"invoice": 1}], {"idempotency_keys": ["a", "b"]}),
    ([{"invoice": 1}], {"idempotency_keys": [""]}),
    ([{"invoice": 1}], {"run_at": datetime(2030, 1, 1)}),  # noqa: DTZ001
    ([{"invoice": 1}] * 10_001, {}),
]


@pytest.mark.parametrize(("payloads", "options"), MANY)
def test_one_wrong_job_of_many_refuses_them_all(
    charge: Task[..., Any], conn: Connection, payloads: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        charge.enqueue_many(payloads, **options)
    assert count(conn, JOBS) == 0

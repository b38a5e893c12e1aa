"""Enqueueing: which calls make a job, when it exists, and what is refused first."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from faultline import (
    Faultline,
    IdempotencyConflict,
    InvalidInput,
    Job,
    JobSpec,
    JobState,
    PayloadTooLarge,
)
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
    job = charge.options(queue="red", priority=0, run_at=later, idempotency_key="k").enqueue(
        invoice=1
    )
    record = app.get(job.job_id)
    assert (record.queue, record.priority, record.idempotency_key) == ("red", 0, "k")
    assert record.next_run_at == later


def test_enqueue_async_does_the_same(app: Faultline, charge: Task[..., Any]) -> None:
    async def call() -> tuple[Any, Any]:
        job = await charge.options(idempotency_key="k").enqueue_async(7, note="hi")
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
    first = charge.options(idempotency_key="two").enqueue(invoice=2)
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
        charge.options(conn=own).enqueue(invoice=1)
        charge.options(conn=own).enqueue_many([{"invoice": 2}])
        assert count(conn, JOBS) == 0  # not before the commit
        own.commit() if commits else own.rollback()
    assert (count(conn, JOBS), count(conn, effects)) == ((2, 1) if commits else (0, 0))


@pytest.mark.parametrize("commits", [True, False])
def test_a_job_exists_if_the_callers_async_transaction_commits(
    app: Faultline, charge: Task[..., Any], conn: Connection, database_url: str, commits: bool
) -> None:
    async def call() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            await charge.options(conn=own).enqueue_async(invoice=1)
            await charge.options(conn=own).enqueue_many_async([{"invoice": 2}])
            assert count(conn, JOBS) == 0
            await (own.commit() if commits else own.rollback())

    in_async(app, call)
    assert count(conn, JOBS) == (2 if commits else 0)


def test_the_callers_row_factory_makes_no_difference(
    charge: Task[..., Any], database_url: str
) -> None:
    with psycopg.connect(database_url, row_factory=psycopg.rows.dict_row) as own:
        assert isinstance(charge.options(conn=own).enqueue(invoice=1).job_id, UUID)


def test_a_sync_connection_in_async_code_and_vice_versa_is_a_clear_error(
    app: Faultline, charge: Task[..., Any], conn: Connection, database_url: str
) -> None:
    async def call() -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as own:
            with pytest.raises(InvalidInput, match="an AsyncConnection: use the _async method"):
                charge.options(conn=own).enqueue(invoice=1)
        with pytest.raises(InvalidInput, match="conn is a Connection: it must be async here"):
            await charge.options(conn=conn).enqueue_async(invoice=1)
        with pytest.raises(InvalidInput, match=r"conn is a str, .*\(connect first: with psycopg"):
            await charge.options(conn="postgresql://").enqueue_async(invoice=1)
        with pytest.raises(InvalidInput, match=r"conn is an int, .*pass a connection of psycopg"):
            await charge.options(conn=1).enqueue_async(invoice=1)  # type: ignore[arg-type]
        cursor: Any = conn.cursor()
        with pytest.raises(InvalidInput, match=r"conn is a Cursor, .*conn=cursor\.connection"):
            charge.options(conn=cursor).enqueue(invoice=1)

    in_async(app, call)
    assert count(conn, JOBS) == 0


# ── idempotency ──────────────────────────────────────────────────────────────────────────────────


def test_the_same_key_for_the_same_work_is_the_same_job(charge: Task[..., Any]) -> None:
    first = charge.options(idempotency_key="k").enqueue(invoice=1)
    again = charge.options(idempotency_key="k").enqueue(invoice=1)
    assert (first.existing, again.existing) == (False, True)
    assert again.job_id == first.job_id


def test_the_same_key_for_other_work_is_a_conflict_that_names_the_job(
    app: Faultline, charge: Task[..., Any], conn: Connection
) -> None:
    first = charge.options(idempotency_key="k").enqueue(invoice=1)
    with pytest.raises(IdempotencyConflict) as caught:
        charge.options(idempotency_key="k").enqueue(invoice=2)
    assert caught.value.code == "idempotency_conflict"
    assert caught.value.job_id == str(first.job_id)
    with pytest.raises(IdempotencyConflict):
        charge.enqueue_many([{"invoice": 3}, {"invoice": 2}], idempotency_keys=[None, "k"])
    assert count(conn, JOBS) == 1


# ── options ──────────────────────────────────────────────────────────────────────────────────────


def test_options_are_stored_with_the_job(charge: Task[..., Any], conn: Connection) -> None:
    configured = charge.options(
        queue="red", priority=1, max_attempts=3, timeout=timedelta(minutes=2)
    )
    job = configured.options(priority=0, lease=90, delay=60, expires_in=timedelta(hours=1))
    job_id = job.enqueue(invoice=1).job_id
    row = conn.execute(
        """
        SELECT queue, priority, max_attempts, overrides,
               extract(epoch FROM next_run_at - created_at)::integer,
               extract(epoch FROM expires_at - created_at)::integer
        FROM faultline.jobs WHERE id = %s
        """,
        [job_id],
    ).fetchone()
    assert row == ("red", 0, 3, {"timeout": 120, "lease": 90}, 60, 3600)


def test_jobs_of_several_tasks_are_enqueued_together(app: Faultline, conn: Connection) -> None:
    @app.task(name="one", queue="red")
    def one(job: Job, n: int) -> None: ...

    @app.task(name="two", priority=2)
    def two(job: Job, text: str) -> None: ...

    def specs() -> list[JobSpec]:
        return [
            one.job(1),
            two.options(idempotency_key="k", expires_in=60).job(text="a"),
            one.options(priority=0, delay=10).job(n=2),
        ]

    answers = app.enqueue_many(specs())
    again = in_async(app, lambda: app.enqueue_many_async(specs()))
    assert [answer.existing for answer in again] == [False, True, False]
    assert again[1].job_id == answers[1].job_id
    found = conn.execute(
        "SELECT task, queue, priority, payload FROM faultline.jobs WHERE id = ANY (%s)"
        " ORDER BY array_position(%s, id)",
        [[answer.job_id for answer in answers]] * 2,
    ).fetchall()
    assert found == [
        ("one", "red", 5, {"n": 1}),
        ("two", "default", 2, {"text": "a"}),
        ("one", "red", 0, {"n": 2}),
    ]


def test_many_jobs_exist_only_if_the_transaction_commits(
    app: Faultline, charge: Task[..., Any], conn: Connection, database_url: str
) -> None:
    with psycopg.connect(database_url) as own:
        app.enqueue_many([charge.job(1), charge.options(delay=5).job(invoice=2)], conn=own)
        assert count(conn, JOBS) == 0
        own.commit()
    assert count(conn, JOBS) == 2


def test_a_job_for_later_cannot_carry_a_connection(
    app: Faultline, charge: Task[..., Any], conn: Connection
) -> None:
    with pytest.raises(InvalidInput, match="conn belongs to the enqueue") as caught:
        app.enqueue_many([charge.options(conn=conn).job(invoice=1)])
    assert caught.value.hint == "app.enqueue_many([…], conn=conn)"
    assert count(conn, JOBS) == 0


def test_one_key_that_is_taken_refuses_all_jobs(
    app: Faultline, charge: Task[..., Any], conn: Connection
) -> None:
    charge.options(idempotency_key="k").enqueue(invoice=1)
    taken = charge.options(idempotency_key="k", delay=5).job(invoice=2)
    with pytest.raises(IdempotencyConflict):
        app.enqueue_many([charge.options(delay=5).job(invoice=3), taken])
    assert count(conn, JOBS) == 1


@pytest.mark.parametrize("wrong", ["charge", {"invoice": 1}, None])
def test_only_specs_can_be_enqueued_together(app: Faultline, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"what task\.job\(…\) returns"):
        app.enqueue_many([wrong])


def test_no_jobs_are_no_round_of_work(app: Faultline, conn: Connection) -> None:
    assert app.enqueue_many([]) == []


# ── refused before anything is written ───────────────────────────────────────────────────────────

OPTIONS = frozenset(inspect.signature(Task.options).parameters)
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
    "delay_as_text": {"invoice": 1, "delay": "60"},
    "delay_below_0": {"invoice": 1, "delay": -1},
    "delay_beside_run_at": {"invoice": 1, "delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
    "expires_before_it_is_due": {"invoice": 1, "delay": 60, "expires_in": 60},
    "expires_at_once": {"invoice": 1, "expires_in": 0},
    "no_attempts": {"invoice": 1, "max_attempts": 0},
    "timeout_of_0": {"invoice": 1, "timeout": timedelta(0)},
    "timeout_nan": {"invoice": 1, "timeout": float("nan")},
    "lease_of_8_days": {"invoice": 1, "lease": timedelta(days=8)},
    **{
        f"queue {name!r}": {"invoice": 1, "queue": name}
        for name in ["", "a b", "a\n", "-a", "x" * 64, "é", "a;DROP", "a\x00", "a'", "%s", "{a}"]
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_jobs_are_refused_at_once(
    app: Faultline, charge: Task[..., Any], conn: Connection, name: str
) -> None:
    options = {key: value for key, value in WRONG[name].items() if key in OPTIONS}
    arguments = {key: value for key, value in WRONG[name].items() if key not in OPTIONS}
    with pytest.raises(InvalidInput) as caught:
        charge.options(**options).enqueue(**arguments)
    assert caught.value.code == "invalid_input"
    with pytest.raises(InvalidInput):
        in_async(app, lambda: charge.options(**options).enqueue_async(**arguments))
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
    ([{"invoice": 1}] * 10_001, {}),
]


@pytest.mark.parametrize(("payloads", "options"), MANY)
def test_one_wrong_job_of_many_refuses_them_all(
    charge: Task[..., Any], conn: Connection, payloads: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        charge.enqueue_many(payloads, **options)
    assert count(conn, JOBS) == 0

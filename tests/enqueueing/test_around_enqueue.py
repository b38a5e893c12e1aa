"""around_enqueue: which enqueues a hook surrounds, and what its errors do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from faultline import Enqueued, Faultline, InvalidInput, Job, JobSpec
from tests.running import Connection

Seen = list[tuple[Any, ...]]


@pytest.fixture
def seen(app: Faultline) -> Seen:
    seen: Seen = []

    @app.around_enqueue
    def outer(spec: JobSpec) -> Iterator[None]:
        seen.append(("outer", spec.task, spec.queue, dict(spec.payload)))
        enqueued = yield
        seen.append(("outer", enqueued))

    @app.around_enqueue
    async def awaited(spec: JobSpec) -> AsyncIterator[None]:
        seen.append(("async", spec.task, spec.queue, dict(spec.payload)))
        enqueued = yield
        seen.append(("async", enqueued))

    return seen


@pytest.fixture
def pay(app: Faultline) -> Any:
    @app.task(name="pay")
    def pay(job: Job, amount: int) -> None: ...

    return pay


def test_a_hook_gets_the_job_and_then_what_was_enqueued(
    app: Faultline, seen: Seen, pay: Any
) -> None:
    enqueued = pay.options(queue="billing").enqueue(amount=7)
    assert seen == [("outer", "pay", "billing", {"amount": 7}), ("outer", enqueued)]
    assert isinstance(enqueued, Enqueued)


def test_async_hooks_surround_async_enqueues(app: Faultline, seen: Seen, pay: Any) -> None:
    async def enqueue() -> Enqueued:
        try:
            found: Enqueued = await pay.enqueue_async(amount=7)
            return found
        finally:
            await app.aclose()

    enqueued = asyncio.run(enqueue())
    began = ("pay", "default", {"amount": 7})
    assert seen == [
        ("outer", *began),
        ("async", *began),
        ("async", enqueued),
        ("outer", enqueued),
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_each_job_of_many_is_surrounded(
    app: Faultline, seen: Seen, pay: Any, is_async: bool
) -> None:
    async def enqueue(specs: list[JobSpec]) -> list[Enqueued]:
        try:
            return await app.enqueue_many_async(specs)
        finally:
            await app.aclose()

    specs = [pay.job(amount=amount) for amount in range(3)]
    jobs = asyncio.run(enqueue(specs)) if is_async else app.enqueue_many(iter(specs))
    assert len(jobs) == 3
    outer = [each for each in seen if each[0] == "outer"]
    assert [each[3]["amount"] for each in outer[:3]] == [0, 1, 2]
    assert [each[1] for each in outer[3:]] == jobs[::-1]
    assert len(seen) == (12 if is_async else 6)
    assert len(pay.enqueue_many([{"amount": 3}, {"amount": 4}])) == 2


def test_an_error_before_the_yield_prevents_the_enqueue(
    app: Faultline, conn: Connection, pay: Any
) -> None:
    ended: list[str] = []

    @app.around_enqueue
    def outer(spec: JobSpec) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            ended.append("outer")

    @app.around_enqueue
    def refuse(spec: JobSpec) -> Iterator[None]:
        raise PermissionError("not yours")
        yield

    with pytest.raises(PermissionError, match="not yours"):
        pay.enqueue(amount=7)
    with pytest.raises(PermissionError, match="not yours"):
        app.enqueue_many([pay.job(amount=1), pay.job(amount=2)])
    assert ended == ["outer", "outer"]
    assert conn.execute("SELECT count(*) FROM faultline.jobs").fetchone() == (0,)


def test_a_hook_sees_the_error_of_the_enqueue_and_cannot_hide_it(app: Faultline, pay: Any) -> None:
    caught: list[BaseException] = []

    @app.around_enqueue
    def catch(spec: JobSpec) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            caught.append(error)

    with psycopg.connect(app.database_url) as broken:
        broken.close()
        with pytest.raises(psycopg.Error) as raised:
            pay.options(conn=broken).enqueue(amount=7)
    assert caught == [raised.value]


def test_a_hook_runs_in_the_callers_transaction(app: Faultline, seen: Seen, pay: Any) -> None:
    with psycopg.connect(app.database_url) as conn:
        enqueued = pay.options(conn=conn).enqueue(amount=7)
        conn.rollback()
    assert seen[-1] == ("outer", enqueued)


def test_what_is_not_a_job_is_refused_before_any_hook(app: Faultline, seen: Seen) -> None:
    with pytest.raises(InvalidInput, match=r"task\.job"):
        app.enqueue_many([{"amount": 7}])  # type: ignore[list-item]
    assert seen == []

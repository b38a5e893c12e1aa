"""Unique jobs in the inline worker, in async code and in metrics."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from faultline import Enqueued, EnqueueOutcome, Faultline, Job, Unique
from faultline.metrics import meter
from faultline.testing import run_until_idle

KEPT, QUEUED = EnqueueOutcome.KEPT, EnqueueOutcome.QUEUED


def test_the_inline_worker_sees_what_a_worker_sees(app: Faultline) -> None:
    ran: list[str] = []

    @app.task(name="sync", unique=Unique(by=("customer",), while_="queued", on_conflict="replace"))
    def sync(job: Job, customer: int, note: str) -> None:
        ran.append(note)
        if note == "b":  # it was claimed: a change during the run makes another job
            assert sync.enqueue(customer=customer, note="c").outcome is QUEUED

    for note in "ab":
        sync.enqueue(customer=7, note=note)
    run_until_idle(app)
    assert ran == ["b", "c"]


def test_the_async_methods_take_unique_too(app: Faultline) -> None:
    @app.task(name="sync", unique=Unique(by=("customer",)))
    async def sync(job: Job, customer: int) -> None: ...

    async def main() -> list[EnqueueOutcome]:
        one = await sync.enqueue_async(customer=7)
        many = await sync.enqueue_many_async([{"customer": 7}, {"customer": 8}])
        mixed = await app.enqueue_many_async([sync.job(customer=8), sync.job(customer=9)])
        await app.aclose()
        return [each.outcome for each in (one, *many, *mixed)]

    assert asyncio.run(main()) == [QUEUED, KEPT, QUEUED, KEPT, QUEUED]


def test_an_answer_can_be_pickled_with_its_outcome(app: Faultline) -> None:
    @app.task(name="sync", unique=Unique())
    def sync(job: Job) -> None: ...

    sync.enqueue()
    kept: Enqueued = pickle.loads(pickle.dumps(sync.enqueue()))  # noqa: S301 - our own
    assert kept.outcome is KEPT


def test_enqueues_are_counted_by_outcome(app: Faultline, monkeypatch: Any) -> None:
    counted: list[Any] = []

    class Recorder(meter.Meter):
        is_on = True

        def enqueued(self, queue: str, outcomes: Any) -> None:
            counted.append((queue, dict(outcomes)))

    monkeypatch.setattr(meter, "current", Recorder())

    @app.task(name="sync", unique=Unique(by=("customer",), on_conflict="replace"))
    def sync(job: Job, customer: int) -> None: ...

    sync.enqueue_many([{"customer": 7}] * 3)
    assert counted == [("default", {"queued": 1, "replaced": 2})]

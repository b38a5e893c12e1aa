"""What `@app.batch_task` refuses, and how its tasks are enqueued and called."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from faultline import Batch, BatchTask, Faultline, InvalidInput
from faultline.batch_settings import BatchSettings
from faultline.model import Claim
from faultline.testing import run_until_idle
from faultline.workers.claiming import whole_batches


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_size": 0}, "max_size must be 1 to 1,000"),
        ({"max_size": 1_001}, "max_size must be 1 to 1,000"),
        ({"max_size": 2.5}, "max_size must be a whole number"),
        ({"max_wait": -1}, "max_wait must be 0 to 60"),
        ({"max_wait": timedelta(minutes=2)}, "max_wait must be 0 to 60"),
        ({"max_wait": "soon"}, "max_wait must be seconds"),
        ({"arguments": 5}, "arguments must be a class"),
        ({"process": True}, "batch_task has no option 'process'"),
        ({"max_sise": 5}, "max_size"),
    ],
    ids=str,
)
def test_options_that_cannot_be_used_are_refused(
    app: Faultline, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        app.batch_task(**options)


def test_a_handler_takes_the_batch_alone(app: Faultline) -> None:
    def with_more(batch: Batch[dict[str, Any]], invoice: int) -> None: ...

    with pytest.raises(InvalidInput, match="must take the batch as its only argument"):
        app.batch_task()(with_more)  # type: ignore[arg-type]


def test_arguments_that_cannot_be_named_are_refused(app: Faultline) -> None:
    def by_position(number: int, /) -> int:
        return number

    with pytest.raises(InvalidInput, match="cannot be called with arguments by name"):

        @app.batch_task(arguments=by_position)
        def store(batch: Batch[int]) -> None: ...


def test_calling_the_task_with_its_arguments_says_how_to_enqueue(app: Faultline) -> None:
    @app.batch_task(arguments=Payment)
    def pay(batch: Batch[Payment]) -> None: ...

    assert isinstance(pay, BatchTask)
    with pytest.raises(TypeError, match=r"pay\.enqueue\(amount=…\)"):
        pay(amount=1)  # type: ignore[call-arg]


@dataclass
class Payment:
    amount: Decimal


def test_arguments_of_rich_types_arrive_as_they_were(app: Faultline) -> None:
    seen: list[Payment] = []

    @app.batch_task(arguments=Payment)
    def pay(batch: Batch[Payment]) -> None:
        seen.extend(job.args for job in batch)

    pay.enqueue(amount=Decimal("0.10"))
    app.enqueue_many([pay.job(Decimal("0.20")), pay.options(priority=9).job(Decimal("0.30"))])
    run_until_idle(app)
    assert seen == [Payment(Decimal(text)) for text in ("0.10", "0.20", "0.30")]


@pytest.mark.parametrize(
    ("attempt", "crashes", "size"),
    [(1, 0, 100), (2, 0, 10), (3, 0, 1), (1, 1, 1), (2, 1, 1)],
)
def test_retries_run_in_smaller_batches(attempt: int, crashes: int, size: int) -> None:
    settings = BatchSettings(max_size=100, max_wait_seconds=0)
    claim = Claim("id", 1, "lease", "task", "queue", "{}", attempt, 10, crashes, 5, "now")
    assert settings.size_for(claim) == size


@pytest.mark.parametrize(
    ("ahead", "size", "claimed"),
    [(0, 100, 0), (9, 100, 0), (10, 100, 100), (99, 100, 100), (100, 100, 100), (399, 100, 300)],
)
def test_jobs_are_claimed_ahead_in_whole_batches(ahead: int, size: int, claimed: int) -> None:
    assert whole_batches(ahead, size) == claimed

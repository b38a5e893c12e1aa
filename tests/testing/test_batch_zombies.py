"""`zombies` with batch handlers: every fault at every point of a batch."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline import Batch, Faultline, InvalidInput, RetryPolicy
from faultline.testing import ZombieEffect, zombies

JOBS = [{"number": number} for number in range(3)]
SOON = RetryPolicy(base_seconds=0.01, cap_seconds=0.01)
WRITE = "INSERT INTO payments VALUES (%s)"


def once_each(conn: Any) -> None:
    counted = "SELECT invoice, count(*) FROM payments GROUP BY 1 ORDER BY 1"
    found = conn.execute(counted).fetchall()
    assert found == [(0, 1), (1, 1), (2, 1)], found


@pytest.mark.slow
@pytest.mark.parametrize("colour", ["async", "plain"])
def test_a_batch_takes_effect_once_whatever_happens(
    app: Faultline, payments: str, colour: str
) -> None:
    async def on_loop(batch: Batch[dict[str, Any]]) -> None:
        async with batch.transaction() as tx:
            for job in batch:
                await tx.execute(WRITE, [job.args["number"]])

    def in_thread(batch: Batch[dict[str, Any]]) -> None:
        with batch.transaction() as tx:
            for job in batch:
                tx.execute(WRITE, [job.args["number"]])

    handler = on_loop if colour == "async" else in_thread
    task = app.batch_task(name="store", max_size=3, retry=SOON)(handler)
    report = zombies(app, task, JOBS, invariant=once_each)
    assert {"faultline.open_batch()", WRITE, "COMMIT"} <= {point.what for point in report.points}
    assert report.takeovers


@pytest.mark.slow
def test_a_batch_that_writes_outside_of_its_transaction_is_found(
    app: Faultline, payments: str
) -> None:
    @app.batch_task(name="store", max_size=3, retry=SOON)
    def store(batch: Batch[dict[str, Any]]) -> None:
        with psycopg.connect(app.database_url, autocommit=True) as own:
            for job in batch:
                own.execute(WRITE, [job.args["number"]])

    with pytest.raises(ZombieEffect):
        zombies(app, store, JOBS, invariant=once_each)


def test_a_list_of_jobs_is_for_one_batch(app: Faultline) -> None:
    @app.batch_task(name="store", max_size=2)
    def store(batch: Batch[dict[str, Any]]) -> None: ...

    with pytest.raises(InvalidInput, match="at most max_size"):
        zombies(app, store, JOBS, invariant=once_each)

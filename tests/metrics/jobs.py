"""The application of these tests: handlers that end in different ways."""

from __future__ import annotations

import os
import sys
from typing import Any

from faultline import Batch, Job, Reject, Snooze
from faultline.metrics import meter
from tests.processes.apps import SOON, answer, app, leave_a_child, pay, wait_at_async

__all__ = ["answer", "app", "leave_a_child", "pay"]


@app.task(retry=SOON)
async def succeed_at_last(job: Job, failures: int) -> None:
    if job.attempt <= failures:
        raise ValueError(f"attempt {job.attempt} fails")


@app.task(max_attempts=1)
async def give_up(job: Job) -> None:
    raise ValueError("for good")


@app.task()
async def report_and_snooze(job: Job) -> None:
    job.progress(0.5, "half")
    raise Snooze(seconds=3600)


@app.batch_task(max_size=5)
async def store(batch: Batch[dict[str, Any]]) -> None:
    async with batch.transaction():
        pass


@app.task()
async def refuse(job: Job) -> None:
    raise Reject("not for me")


@app.task()
async def enqueue_twice(job: Job, into: str) -> None:
    """The second time the key has been used."""
    for _ in range(2):
        await answer.options(idempotency_key=f"again-{job.id}", queue=into).enqueue_async()


@app.task()
async def hold(job: Job, gate: str) -> None:
    await wait_at_async(gate)


@app.task()
async def what_is_imported(job: Job) -> list[str]:
    return sorted(name for name in sys.modules if name.partition(".")[0] == "prometheus_client")


@app.task()
def counts_in_a_forked_child(job: Job) -> bool:
    """Whether a process that this one forks would count as well."""
    pid = os.fork()
    if pid == 0:
        os._exit(1 if meter.current.is_on else 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


@app.task()
async def own_metrics(job: Job) -> list[object]:
    """What an application finds when it uses prometheus_client for itself."""
    import prometheus_client
    from prometheus_client import values

    registry = prometheus_client.CollectorRegistry()
    counter = prometheus_client.Counter("shop_orders", "Orders.", registry=registry)
    counter.inc(3)
    return [
        registry.get_sample_value("shop_orders_total"),
        values.ValueClass.__name__,
        os.environ.get("PROMETHEUS_MULTIPROC_DIR"),
        "faultline" in prometheus_client.generate_latest().decode(),
    ]

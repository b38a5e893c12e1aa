"""Tasks for real workers: plain, in a child process, and with their own spans."""

from __future__ import annotations

from faultline import Faultline, Job

app = Faultline()


def span_inside(name: str) -> None:
    """As an application would: with whatever provider the process has."""
    from opentelemetry import trace

    with trace.get_tracer("shop").start_as_current_span(name):
        pass


@app.task(queue="shop")
async def greet(job: Job) -> None:
    span_inside("greeting")
    async with job.transaction():
        pass


@app.task(queue="shop", process=True)
def compute(job: Job) -> None:
    span_inside("computing")
    with job.transaction():
        pass


@app.task(queue="shop", process=True, max_attempts=1)
def compute_too_late(job: Job) -> None:
    with job.transaction() as tx:
        tx.execute(
            "UPDATE faultline.jobs SET lease_expires_at = clock_timestamp() WHERE id = %s", [job.id]
        )


@app.task(queue="shop")
def nothing(job: Job) -> None:
    return None

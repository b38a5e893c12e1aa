"""The tasks of drills: each writes its effect once, and causes the planned faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Any, LiteralString

import psycopg

from faultline import Batch, Faultline, Job
from faultline.retry_policy import RetryPolicy
from faultline_drills.workload.external_store import ADDRESS_VARIABLE, call_external_store
from faultline_drills.workload.plan import act, reach_point

APP = "faultline_drills.workload.tasks:app"
LONG_STATEMENT: LiteralString = "SELECT pg_sleep(600)"
SOON = RetryPolicy(base_seconds=0.05, cap_seconds=0.2)
_POLL_SECONDS, _OUTAGE_POLLS = 0.02, 3000

app = Faultline()


@app.task(name="drill.pay", max_attempts=20, retry=SOON)
async def pay(
    job: Job,
    number: int,
    parts: int = 1,
    work_seconds: float = 0.0,
    plan: dict[str, str] | None = None,
    outside: bool = False,
) -> None:
    """Write `parts` rows and succeed, in one `job.transaction()`."""
    await reach_point(plan, job.token, "start")
    if work_seconds:
        await asyncio.sleep(work_seconds)
    if outside:
        address = os.environ[ADDRESS_VARIABLE]
        key = job.effect_key
        await call_external_store(address, job=str(job.id), token=job.token, key=key)
    async with job.transaction() as conn:
        for part in range(1, parts + 1):
            await _write(conn, job, part)
            if part == 1:
                await reach_point(plan, job.token, "half")
        await reach_point(plan, job.token, "before_commit")
    await reach_point(plan, job.token, "after_commit")


@app.task(name="drill.pay_or_die", max_attempts=2, retry=SOON)
async def pay_or_die(job: Job, number: int, plan: dict[str, str] | None = None) -> None:
    """A payment with two attempts, for jobs that are to fail for good."""
    await pay.handler(job, number, plan=plan)


@app.task(name="drill.pay_account", max_attempts=20, retry=SOON)
async def pay_account(
    job: Job,
    number: int,
    account: int,
    work_seconds: float = 0.0,
    plan: dict[str, str] | None = None,
) -> None:
    """A payment of which a limit lets few run at once for each account."""
    await pay.handler(job, number, work_seconds=work_seconds, plan=plan)


@app.batch_task(name="drill.pay_in_batch", max_attempts=20, retry=SOON, max_wait=1.0)
async def pay_in_batch(batch: Batch[dict[str, Any]]) -> None:
    """One row for each job of a batch, in one transaction for all."""
    for job in batch:
        await reach_point(job.args.get("plan"), job.token, "start")
    async with batch.transaction() as conn:
        for job in batch:
            await _write(conn, job, 1)
            await reach_point(job.args.get("plan"), job.token, "half")
        for job in batch:
            await reach_point(job.args.get("plan"), job.token, "before_commit")


@app.task(name="drill.pay_by_hand", max_attempts=20, retry=SOON)
async def pay_by_hand(
    job: Job,
    number: int,
    parts: int = 1,
    work_seconds: float = 0.0,
    plan: dict[str, str] | None = None,
) -> None:
    """The same in the handler's own transaction, which ends with `job.commit`.

    Nothing locks the job before that, so another worker can take it over meanwhile.
    """
    async with await psycopg.AsyncConnection.connect(app.database_url, autocommit=True) as conn:
        await reach_point(plan, job.token, "start")
        if work_seconds:
            await asyncio.sleep(work_seconds)
        async with conn.transaction():
            for part in range(1, parts + 1):
                await _write(conn, job, part)
                if part == 1:
                    await reach_point(plan, job.token, "half")
            await reach_point(plan, job.token, "before_commit")
            await job.commit(conn)
        await reach_point(plan, job.token, "after_commit")


@app.task(name="drill.pay_by_copy", max_attempts=20, retry=SOON)
async def pay_by_copy(
    job: Job, number: int, parts: int = 1, plan: dict[str, str] | None = None
) -> None:
    """The same with one COPY; `half` is in the middle of it."""
    rows = "COPY drill.effects (job_id, token, part) FROM STDIN"
    async with job.transaction() as conn, conn.cursor().copy(rows) as copy:
        for part in range(1, parts + 1):
            await copy.write_row((job.id, job.token, part))
            if part == 1:
                await reach_point(plan, job.token, "half")


@app.task(name="drill.step_and_pay", max_attempts=20, retry=SOON)
async def step_and_pay(
    job: Job, number: int, parts: int = 1, plan: dict[str, str] | None = None
) -> None:
    """A fenced step that commits in the middle, then the payment."""
    async with job.fenced() as conn:
        await _write(conn, job, 0, is_step=True)
    await reach_point(plan, job.token, "half")
    async with job.transaction() as conn:
        for part in range(1, parts + 1):
            await _write(conn, job, part)


@app.task(name="drill.end_transaction", max_attempts=20, retry=SOON)
async def end_transaction(job: Job, number: int, statement: str, parts: int = 1) -> None:
    """In the first attempt, run `statement` in the transaction, and ignore errors."""
    if job.attempt == 1:
        with contextlib.suppress(Exception):
            async with job.transaction() as conn:
                await _write(conn, job, 1)
                by_hand = psycopg.AsyncClientCursor(conn)
                await by_hand.execute(statement.format(job=job.id, token=job.token).encode())
        return
    async with job.transaction() as conn:
        await _write(conn, job, 1)


@app.task(name="drill.note", max_attempts=20, retry=SOON)
async def note(job: Job, number: int, plan: dict[str, str] | None = None) -> None:
    """Write nothing; the worker commits the job in a batch with others."""
    await reach_point(plan, job.token, "start")


@app.task(name="drill.time_out", max_attempts=20, retry=SOON, timeout=0.5)
async def time_out(
    job: Job, number: int, parts: int = 1, plan: dict[str, str] | None = None
) -> None:
    """A payment with a timeout of half a second; a plan with `hang` exceeds it."""
    await reach_point(plan, job.token, "start")
    async with job.transaction() as conn:
        await _write(conn, job, 1)


@app.task(name="drill.poison", max_attempts=3, retry=SOON)
async def poison(job: Job, number: int, how: str, parts: int = 1) -> None:
    """Crash the worker at every attempt."""
    act({str(job.token): f"{how}@start"}, job.token, "start")
    async with job.transaction() as conn:
        await _write(conn, job, 1)


@app.task(name="drill.poison_in_child", max_attempts=2, retry=SOON, process=True, timeout=1.0)
def poison_in_child(job: Job, number: int, how: str, parts: int = 1) -> None:
    """Crash at every attempt in a child process, which the worker can kill."""
    act({str(job.token): f"{how}@start"}, job.token, "start")
    _pay_plainly(job)


@app.task(name="drill.pay_in_child", max_attempts=20, retry=SOON, process=True)
def pay_in_child(job: Job, number: int, parts: int = 1) -> None:
    """A payment in a child process, which is reused for the next one."""
    _pay_plainly(job)


@app.task(name="drill.pay_in_long_statement", max_attempts=20, retry=SOON)
async def pay_in_long_statement(job: Job, number: int) -> None:
    """In the first attempt, wait in a long statement until the server ends it."""
    async with job.transaction() as conn:
        await _write(conn, job, 1)
        if job.token == 1:
            await conn.execute(LONG_STATEMENT)


@app.task(name="drill.pay_in_long_statement_in_child", max_attempts=20, retry=SOON, process=True)
def pay_in_long_statement_in_child(job: Job, number: int) -> None:
    _pay_plainly(job, LONG_STATEMENT if job.token == 1 else "SELECT")


@app.task(name="drill.pay_in_outage", max_attempts=20, retry=SOON)
def pay_in_outage(job: Job, number: int, waits: bool = True) -> None:
    """In the first attempt, open the transaction after the worker lost the database."""
    for _ in range(_OUTAGE_POLLS if waits else 0):
        if _notices_outage(job):
            break
        time.sleep(_POLL_SECONDS)
    _pay_plainly(job)


@app.task(name="drill.pay_in_outage_async", max_attempts=20, retry=SOON)
async def pay_in_outage_async(job: Job, number: int, waits: bool = True) -> None:
    for _ in range(_OUTAGE_POLLS if waits else 0):
        if _notices_outage(job):
            break
        await asyncio.sleep(_POLL_SECONDS)
    async with job.transaction() as conn:
        await _write(conn, job, 1)


@app.task(name="drill.pay_in_outage_in_child", max_attempts=20, retry=SOON, process=True)
def pay_in_outage_in_child(job: Job, number: int, waits: bool = True) -> None:
    pay_in_outage.handler(job, number, waits)


def _notices_outage(job: Job) -> bool:
    """Whether heartbeats fail: else a lease is renewed long before half of it is over."""
    return job.token > 1 or job.lease_remaining < job._lease.lease_seconds / 2


@app.task(name="drill.count_connections")
def count_connections(job: Job, parts: int = 0) -> dict[str, int]:
    """The statistics of the pool that `def` handlers share."""
    return job._pool().get_stats()


@app.task(name="drill.count_connections_async")
async def count_connections_async(job: Job, parts: int = 0) -> dict[str, int]:
    return job._async_pool.get_stats() if job._async_pool is not None else {}


@app.task(name="drill.count_connections_in_child", process=True)
def count_connections_in_child(job: Job, parts: int = 0) -> dict[str, int]:
    return job._pool().get_stats()


def _pay_plainly(job: Job, first: LiteralString = "SELECT") -> None:
    with job.transaction() as conn:
        conn.execute(first)
        conn.execute(
            "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)", [job.id, job.token]
        )


async def _write(
    conn: psycopg.AsyncConnection[object], job: Job, part: int, *, is_step: bool = False
) -> None:
    await conn.execute(
        "INSERT INTO drill.effects (job_id, token, part, is_step) VALUES (%s, %s, %s, %s)",
        [job.id, job.token, part, is_step],
    )

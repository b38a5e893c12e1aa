"""The app of these tests: handlers that record progress and wait at barriers.

They write marks and wait at gates (barriers) in the database, so that a test can act between two steps
of a handler in another process without guessing how long a step takes.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from faultline import Batch, Faultline, Job, RetryPolicy
from tests.waiting import block_thread, idle, wait_until, wait_until_async

WAIT_SECONDS = 120.0
SOON = RetryPolicy(base_seconds=0.05, cap_seconds=0.2)

app = Faultline()

_PAY = "INSERT INTO app.payments (job_id, token) VALUES (%s, %s)"
_MARK = "INSERT INTO app.marks (job_id, token, pid, what) VALUES (%s, %s, %s, %s)"
_GATE = "SELECT FROM app.gates WHERE name = %s"


def mark(job: Job, what: str, pid: int | None = None) -> None:
    with psycopg.connect(app.database_url, autocommit=True) as conn:
        conn.execute(_MARK, [job.id, job.token, pid or os.getpid(), what])


async def mark_async(job: Job, what: str) -> None:
    async with await psycopg.AsyncConnection.connect(app.database_url, autocommit=True) as conn:
        await conn.execute(_MARK, [job.id, job.token, os.getpid(), what])


def wait_at(gate: str) -> None:
    with psycopg.connect(app.database_url, autocommit=True) as conn:
        wait_until(
            lambda: conn.execute(_GATE, [gate]).fetchone() is not None,
            gate,
            limit_seconds=WAIT_SECONDS,
        )


async def wait_at_async(gate: str) -> None:
    async with await psycopg.AsyncConnection.connect(app.database_url, autocommit=True) as conn:

        async def is_open() -> bool:
            return await (await conn.execute(_GATE, [gate])).fetchone() is not None

        await wait_until_async(is_open, gate, limit_seconds=WAIT_SECONDS)


async def pay_now(job: Job) -> None:
    async with job.transaction() as conn:
        await conn.execute(_PAY, [job.id, job.token])


# ── payments: the first attempt waits at a gate, if there is one, and later attempts do not ─────────


@app.task(retry=SOON)
async def pay(job: Job, gate: str | None = None) -> None:
    await mark_async(job, "started")
    if gate and job.attempt == 1:
        await wait_at_async(gate)
    await pay_now(job)


@app.task(retry=SOON)
def pay_plain(job: Job, gate: str | None = None) -> None:
    mark(job, "started")
    if gate and job.attempt == 1:
        wait_at(gate)
    with job.transaction() as conn:
        conn.execute(_PAY, [job.id, job.token])


@app.batch_task(retry=SOON, max_size=3, max_wait=30)
async def pay_batch(batch: Batch[dict[str, Any]]) -> None:
    async with batch.transaction() as conn:
        for job in batch:
            await conn.execute(_PAY, [job.id, job.token])


@app.batch_task(retry=SOON, max_size=3, max_wait=30)
def pay_batch_plain(batch: Batch[dict[str, Any]]) -> None:
    with batch.transaction() as conn:
        for job in batch:
            conn.execute(_PAY, [job.id, job.token])


@app.task(retry=SOON)
async def pay_slowly(job: Job, gate: str | None = None) -> None:
    """Wait inside the transaction, after the payment was written."""
    async with job.transaction() as conn:
        await conn.execute(_PAY, [job.id, job.token])
        await mark_async(job, "started")
        if gate and job.token == 1:
            await wait_at_async(gate)


@app.task(retry=SOON)
def pay_slowly_plain(job: Job, gate: str | None = None) -> None:
    with job.transaction() as conn:
        conn.execute(_PAY, [job.id, job.token])
        mark(job, "started")
        if gate and job.token == 1:
            wait_at(gate)


@app.task(retry=SOON, process=True)
def pay_in_a_child(job: Job, gate: str | None = None) -> None:
    """Like `pay_slowly_plain`, in a child process."""
    pay_slowly_plain(job, gate)


PAYING = (pay, pay_plain, pay_slowly, pay_slowly_plain, pay_in_a_child)


@app.task(retry=SOON, max_attempts=20)
async def pay_in_the_database(job: Job, seconds: float) -> None:
    """Keep the transaction open for a while, so that outages hit every phase."""
    async with job.transaction() as conn:
        await conn.execute(_PAY, [job.id, job.token])
        await conn.execute("SELECT pg_sleep(%s)", [seconds])


@app.task(retry=SOON, max_attempts=20)
async def pay_own(job: Job) -> None:
    """Pay in the handler's own transaction, on its own connection."""
    async with await psycopg.AsyncConnection.connect(app.database_url) as conn:
        await conn.execute(_PAY, [job.id, job.token])
        await job.commit(conn)


@app.task()
async def answer(job: Job) -> int:
    """Write nothing: the worker commits the job in a batch."""
    return 42


# ── handlers that misbehave ─────────────────────────────────────────────────────────────────────────


@app.task(retry=SOON)
async def block_the_loop(job: Job, fifo: str) -> None:
    """Block the event loop until the test opens the FIFO."""
    await mark_async(job, "started")
    if job.attempt == 1:
        Path(fifo).read_bytes()  # noqa: ASYNC240 - the point
    await pay_now(job)


@app.task(retry=SOON)
async def block_at_once(job: Job, fifo: str) -> None:
    """Like `block_the_loop`, but before the first await."""
    mark(job, "started")
    if job.attempt == 1:
        Path(fifo).read_bytes()  # noqa: ASYNC240 - the point
    await pay_now(job)


@app.task(retry=SOON, timeout=0.5)
async def block_past_the_timeout(job: Job, fifo: str) -> None:
    mark(job, "started")
    if job.attempt == 1:
        Path(fifo).read_bytes()  # noqa: ASYNC240 - the point
    await pay_now(job)


@app.task(retry=SOON)
async def leave_a_thread_behind(job: Job) -> None:
    """Ends on cancellation; the thread that it started does not."""
    mark(job, "started")
    await asyncio.to_thread(block_thread, WAIT_SECONDS)


@app.task(retry=SOON)
def hold_the_gil(job: Job, fifo: str) -> None:
    """Stop every thread of this process until the test opens the FIFO."""
    mark(job, "started")
    if job.attempt == 1:
        libc = ctypes.PyDLL(None)  # unlike CDLL it keeps the GIL during the call
        os.close(libc.open(fifo.encode(), os.O_RDONLY))
    with job.transaction() as conn:
        conn.execute(_PAY, [job.id, job.token])


@app.task(retry=SOON)
def cannot_be_interrupted(job: Job, *, in_transaction: bool) -> None:
    if job.attempt > 1 or job.token > 1:
        with job.transaction() as conn:
            conn.execute(_PAY, [job.id, job.token])
    elif in_transaction:
        with job.transaction() as conn:
            conn.execute(_PAY, [job.id, job.token])
            mark(job, "started")
            block_thread(WAIT_SECONDS)
    else:
        mark(job, "started")
        block_thread(WAIT_SECONDS)


@app.task(retry=SOON)
async def will_not_be_cancelled(job: Job) -> None:
    mark(job, "started")
    while True:
        try:
            await idle(WAIT_SECONDS)
        except asyncio.CancelledError:
            mark(job, "refused to be cancelled")


@app.task(max_attempts=3)
async def die(job: Job, how: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    await mark_async(job, "started")
    if how == "exit":
        os._exit(3)
    elif how == "segfault":
        ctypes.string_at(0)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(max_attempts=3)
async def pay_beside(job: Job, seconds: float) -> None:
    """Takes a while, and has as many attempts as the job that kills its worker."""
    await idle(seconds)
    await pay_now(job)


@app.task(retry=SOON)
async def leave_a_child(job: Job, kind: str, gate: str) -> None:
    """Start a process that outlives this one, then wait at the gate."""
    if job.attempt == 1:
        mark(job, "child", _CHILDREN[kind]())
        await mark_async(job, "started")
        await wait_at_async(gate)
    await pay_now(job)


@app.task(retry=SOON)
def leave_a_child_plain(job: Job, kind: str, gate: str) -> None:
    if job.attempt == 1:
        mark(job, "child", _CHILDREN[kind]())
        mark(job, "started")
        wait_at(gate)
    with job.transaction() as conn:
        conn.execute(_PAY, [job.id, job.token])


def _forked() -> int:
    pid = os.fork()
    if pid == 0:
        block_thread(WAIT_SECONDS)
        os._exit(0)
    return pid


def _forked_by_multiprocessing() -> int:
    context: Any = multiprocessing.get_context("fork")
    child = context.Process(target=block_thread, args=(WAIT_SECONDS,))
    child.start()
    return int(child.pid)


def _subprocess() -> int:
    program = f"import signal; signal.alarm({WAIT_SECONDS:.0f}); signal.pause()"
    return subprocess.Popen([sys.executable, "-c", program], close_fds=False).pid


_CHILDREN = {
    "fork": _forked,
    "multiprocessing": _forked_by_multiprocessing,
    "subprocess": _subprocess,
}

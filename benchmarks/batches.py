"""Measures batch handlers of several sizes, against a handler per job.

    python -m benchmarks.batches [--rounds 3] [--scale 1] [--markdown FILE]

One worker process drains jobs on an embedded PostgreSQL with its default settings. The sizes take turns in
every round, and the ratios are the medians of those within a round. A drain lasts from the first claim to the
last commit, by the database's clock.
"""

from __future__ import annotations

import argparse
import operator
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from rich.progress import track

from benchmarks.table_file import write_table
from faultline import Batch, Faultline, Job, embedded
from faultline.postgres.migrate import migrate

SIZES = (50, 100, 200)
_PER_JOB, _BATCHED = 4_000, 40_000  # a run takes a few seconds
_QUEUE = "bench"
_INSERT = "INSERT INTO effects VALUES (%s)"
_DRAINED = """
    SELECT count(*), extract(epoch FROM max(l.committed_at) - min(j.claimed_at))
    FROM faultline.ledger AS l JOIN faultline.jobs AS j ON j.id = l.job_id
"""
Rows = list[tuple[Any]]


async def note(job: Job, n: int) -> None: ...


async def write(job: Job, n: int) -> None:
    async with job.transaction() as tx:
        await tx.execute(_INSERT, [n])


async def note_batch(batch: Batch[dict[str, Any]]) -> None: ...


async def enter_batch(batch: Batch[dict[str, Any]]) -> None:
    async with batch.transaction():
        pass


async def write_batch(batch: Batch[dict[str, Any]]) -> None:
    rows: Rows = [(job.args["n"],) for job in batch]
    async with batch.transaction() as tx:
        await tx.cursor().executemany(_INSERT, rows)


async def write_at_once(batch: Batch[dict[str, Any]]) -> None:
    async with batch.transaction() as tx:
        numbers = [job.args["n"] for job in batch]
        await tx.execute("INSERT INTO effects SELECT unnest(%s::int[])", [numbers])


BATCHED: dict[str, Callable[[Batch[dict[str, Any]]], Any]] = {
    "no-op, without a transaction": note_batch,
    "no-op, in batch.transaction()": enter_batch,
    "one INSERT per job, by executemany": write_batch,
    "one INSERT for the batch": write_at_once,
}
NOTED, WRITTEN = "no-op, a handler per job", "one INSERT per job, job.transaction()"
PER_JOB: dict[str, Callable[..., Any]] = {NOTED: note, WRITTEN: write}


def drain(url: str, size: int, handler: Callable[..., Any], jobs: int, concurrency: int) -> float:
    """Jobs per second of one worker; the tables are empty before."""
    app = Faultline(url)
    if size == 1:
        task = app.task(name="bench", queue=_QUEUE)(handler)
    else:
        task = app.batch_task(name="bench", queue=_QUEUE, max_size=size)(handler)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")  # the ledger is never truncated
        conn.execute("TRUNCATE faultline.jobs, faultline.ledger, effects")
        for start in range(0, jobs, 10_000):
            numbers = range(start, min(jobs, start + 10_000))
            task.enqueue_many([{"n": n} for n in numbers])
        conn.execute("VACUUM ANALYZE")
        conn.execute("CHECKPOINT")
        app.run_worker([_QUEUE], concurrency=concurrency, max_jobs=jobs, reconciler=False)
        app.close()
        row = conn.execute(_DRAINED).fetchone()
    assert row is not None  # noqa: S101
    if row[0] != jobs:
        raise SystemExit(f"{row[0]} of {jobs} jobs were committed")
    return jobs / float(row[1])


def _compared_with(name: str) -> str:
    """The handler per job that does the same work."""
    return NOTED if name.startswith("no-op") else WRITTEN


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the jobs")
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    plan = [(name, 1, handler, _PER_JOB) for name, handler in PER_JOB.items()]
    plan += [(name, size, handler, _BATCHED) for name, handler in BATCHED.items() for size in SIZES]
    rates: dict[tuple[str, int], list[float]] = {(name, size): [] for name, size, _, _ in plan}
    with embedded.temporary_server() as server:
        migrate(server.url)
        with psycopg.connect(server.url) as conn:
            conn.execute("CREATE TABLE effects (n int)")
        turns = [turn for _ in range(options.rounds) for turn in plan]
        for name, size, handler, jobs in track(turns, description="draining"):
            count = max(size, round(jobs * options.scale))
            rates[name, size].append(drain(server.url, size, handler, count, options.concurrency))
    lines = [
        "| handler | jobs per batch | jobs/s, median | lowest – highest | of a handler per job |"
    ]
    for (name, size), values in rates.items():
        per_job = rates[_compared_with(name), 1]
        ratio = statistics.median(map(operator.truediv, values, per_job))
        lines.append(
            f"| {name} | {size} | {statistics.median(values):,.0f} |"
            f" {min(values):,.0f} – {max(values):,.0f} | {ratio:.1f}× |"
        )
    print("\n".join(lines))
    if options.markdown is not None:
        write_table(options.markdown, "Batches", lines)


if __name__ == "__main__":
    main()

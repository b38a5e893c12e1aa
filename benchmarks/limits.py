"""Measures limits: how fast a free place is filled, and what limits cost.

    python -m benchmarks.limits [--short] [--markdown FILE]

Each part runs on an embedded PostgreSQL of its own. Ratios compare measurements that were taken in turn, on
two databases of one server.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from rich.progress import track

from benchmarks.limit_lines import before_many
from benchmarks.servers import vacuum_and_checkpoint
from benchmarks.table_file import write_table
from faultline import Faultline, Job, Limit, embedded
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from faultline.statements import protocol

Connection = psycopg.Connection[Any]
_CLAIMS = 200
_LEASE_SECONDS = 3600.0
_FULL = "task:full"


@dataclass(frozen=True)
class Finding:
    what: str
    figure: str


# ── how fast a free place is filled ──────────────────────────────────────────────────────────────

_FILLED = """
    WITH ended AS (
        SELECT claimed_at, lag(finished_at) OVER (
            PARTITION BY payload ->> 'customer' ORDER BY claimed_at) AS free_at
        FROM faultline.jobs WHERE task = 'charge')
    SELECT count(*), percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (
        ORDER BY extract(epoch FROM claimed_at - free_at) * 1000)
    FROM ended WHERE free_at IS NOT NULL
"""


def place_filled(server: str, *, customers: int, jobs_each: int) -> Finding:
    """From the end of a customer's job to the start of its next one."""
    url = database(server, "filled")
    app = Faultline(url)

    @app.task(name="charge", concurrency=Limit(1, key="customer"))
    async def charge(job: Job, customer: int) -> None:
        await asyncio.sleep(0.02)

    charge.enqueue_many(
        [{"customer": n % customers} for n in range(customers * jobs_each)],
    )
    app.run_worker(concurrency=2 * customers, max_jobs=customers * jobs_each)
    app.close()
    with psycopg.connect(url) as conn:
        [(count, (p50, p95, p99))] = conn.execute(_FILLED).fetchall()
    return Finding(
        f"a free place is filled, {customers} keys with one place each ({count:,} times)",
        f"p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms",
    )


# ── claims of other jobs ─────────────────────────────────────────────────────────────────────────


def beside_waiting(server: str, waiting: int, *, rounds: int) -> Iterator[Finding]:
    """Claims of jobs without a limit, beside waiting jobs of one full key."""
    with claimed_in(server, "plain") as plain, claimed_in(server, "beside") as beside:
        beside.execute("SELECT faultline.set_limit(%s, 1)", [_FULL])
        insert(beside, "full", waiting)
        parking = time.perf_counter()
        while beside.execute(
            "SELECT EXISTS (SELECT FROM faultline.jobs WHERE task = 'full'"
            " AND next_run_at <= clock_timestamp() AND state = 'queued')"
        ).fetchone() == (True,):
            claim(beside, 30)
        seconds = time.perf_counter() - parking
        ratio, low, high, base = compared(plain, beside, rounds=rounds)
    yield Finding(
        f"a claim of another job beside {waiting:,} waiting jobs of one full key",
        f"{ratio:.2f}× ({low:.2f}–{high:.2f}) of {base:.2f} ms",
    )
    yield Finding(f"all claims until {waiting:,} due jobs of a full key wait", f"{seconds:.1f} s")


def beside_due(server: str, due: int, *, rounds: int) -> Finding:
    """Claims that meet a full key, in front of many due jobs."""
    with claimed_in(server, "due_plain") as plain, claimed_in(server, "due_full") as full:
        full.execute("SELECT faultline.set_limit(%s, 1)", [_FULL])
        for conn in (plain, full):
            insert(conn, "other", due)
        insert(full, "full", 1)
        claim(full, 1)
        ratio, low, high, base = compared(plain, full, rounds=rounds, in_front="full")
    return Finding(
        f"a claim that meets a job of a full key, in front of {due:,} due jobs",
        f"{ratio:.2f}× ({low:.2f}–{high:.2f}) of {base:.2f} ms",
    )


def compared(
    plain: Connection, other: Connection, *, rounds: int, in_front: str | None = None
) -> tuple[float, float, float, float]:
    """Claims in turn: the median ratio of the times, its spread, and the time without."""
    ratios, bases = [], []
    for _ in range(rounds):
        times: dict[Connection, float] = {}
        for conn in (plain, other):
            if in_front is None or conn is plain:
                insert(conn, "mail", _CLAIMS)
            spent = []
            for _ in range(_CLAIMS // 4):
                if in_front is not None and conn is other:
                    insert(conn, in_front, 1, priority=0)
                began = time.perf_counter()
                claim(conn, 1)
                spent.append(time.perf_counter() - began)
            times[conn] = statistics.median(spent)
        ratios.append(times[other] / times[plain])
        bases.append(times[plain] * 1000)
    return statistics.median(ratios), min(ratios), max(ratios), statistics.median(bases)


def flat(server: str, many: int, *, rounds: int) -> Iterator[Finding]:
    """Claims in front of a million jobs under limits."""
    for what, figures in before_many(
        lambda name: claimed_in(server, name), insert, many, rounds=rounds
    ):
        yield Finding(what, str(figures))


# ── a job with a limit ───────────────────────────────────────────────────────────────────────────


def limited_drain(server: str, count: int, *, rounds: int) -> Finding:
    """Drains jobs under a limit that is never reached, and jobs without one."""
    url = database(server, "drained")
    app = Faultline(url)

    @app.task(name="free")
    async def free(job: Job) -> None: ...

    @app.task(name="limited", concurrency=1_000_000)
    async def limited(job: Job) -> None: ...

    rates: dict[str, list[float]] = {"free": [], "limited": []}
    for _ in track(range(rounds), description="draining"):
        for task in (free, limited):
            task.enqueue_many([{}] * count)
            began = time.perf_counter()
            app.run_worker(concurrency=20, max_jobs=count, reconciler=False)
            rates[task.name].append(count / (time.perf_counter() - began))
    app.close()
    pairs = zip(rates["limited"], rates["free"], strict=True)
    ratios = sorted(mine / theirs for mine, theirs in pairs)
    return Finding(
        f"draining {count:,} no-op jobs under a limit that is never reached",
        f"{statistics.median(ratios):.2f}× ({ratios[0]:.2f}–{ratios[-1]:.2f}) of"
        f" {statistics.median(rates['free']):,.0f} jobs/s",
    )


# ── databases ────────────────────────────────────────────────────────────────────────────────────


def database(server: str, name: str) -> str:
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f"DROP DATABASE IF EXISTS {name}")
        conn.execute(f"CREATE DATABASE {name}")
    url = server.rpartition("/")[0] + f"/{name}"
    migrate(url)
    return url


@contextmanager
def claimed_in(server: str, name: str) -> Iterator[Connection]:
    with psycopg.connect(database(server, name), autocommit=True) as conn:
        conn.execute("SET synchronous_commit = off")
        for _ in range(12):  # PostgreSQL may keep a generic plan from the sixth use on
            insert(conn, "mail", 1)
            claim(conn, 1)
        yield conn


def insert(conn: Connection, task: str, count: int, *, priority: int = 2) -> None:
    """Insert due jobs; many of them with triggers disabled, which is faster."""
    if count > 1000:
        conn.execute("SET session_replication_role = replica")
    conn.execute(
        "INSERT INTO faultline.jobs (task, payload, priority)"
        " SELECT %s, '{}', %s FROM generate_series(1, %s)",
        [task, priority, count],
    )
    if count > 1000:
        conn.execute("RESET session_replication_role")
        vacuum_and_checkpoint(conn)


def claim(conn: Connection, size: int) -> Sequence[Any]:
    statement = protocol.claim("bench", ["default"], batch_size=size, lease_seconds=_LEASE_SECONDS)
    return run(conn, statement)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    many, rounds = (100_000, 3) if options.short else (1_000_000, 7)
    with embedded.temporary_server() as server:
        findings = [
            place_filled(server.url, customers=20, jobs_each=10 if options.short else 50),
            *beside_waiting(server.url, 10_000, rounds=rounds),
            beside_due(server.url, many, rounds=rounds),
            *flat(server.url, many, rounds=rounds),
            limited_drain(server.url, 3_000 if options.short else 10_000, rounds=rounds),
        ]
    lines = ["| what | measured |"]
    lines += [f"| {finding.what} | {finding.figure} |" for finding in findings]
    print("\n".join(lines))
    if options.markdown is not None:
        write_table(options.markdown, "Limits", lines)


if __name__ == "__main__":
    main()

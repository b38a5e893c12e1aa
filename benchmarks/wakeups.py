"""Measures what many producers, idle workers and queues cost, against the goals.

    python -m benchmarks.wakeups [--workers 1,20,100] [--clients 1,8,32] [--queues 500,5000] [--rounds 5]
        [--markdown FILE]

Producers: single enqueues per second by so many sessions at once, with notifications and with
`SET faultline.notify = 'off'`, in turn. Workers: so many idle workers, 200 jobs of which each is enqueued a
moment after the other; claims per job, as PostgreSQL counts calls of `faultline.claim`, the time from enqueue
to claim by the database's clock, and the transactions per second and the sessions of a worker that has had no
job yet. Queues: processor time of the server for claims of ten jobs over so many queues, of which one holds
jobs, against claims over that one queue, in turn. Up to twenty workers are processes; more of them run twenty
to a process, which makes no difference to the server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import conninfo, sql

from benchmarks.goal import Goal, GoalVerdict
from benchmarks.table_file import write_table
from benchmarks.transaction_cost import processor_microseconds
from faultline import embedded
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from faultline.statements import protocol

_JOBS = 200
_GAP_SECONDS = 0.02
_SETTLE_SECONDS = 15.0  # until starting workers have calmed down
_IDLE_SECONDS = 15.0
_START_SECONDS = 180.0
_PER_PROCESS = 20  # workers, if there are more than that
_CLAIMS, _CLAIMED = 20, 10  # claims per round, and jobs per claim

Connection = psycopg.Connection[Any]


def enqueues_per_second(url: str, clients: int, seconds: float, *, notify: bool) -> float:
    """Return how many single enqueues so many sessions commit per second."""
    ready, stop = threading.Barrier(clients + 1), threading.Event()
    counts = [0] * clients

    def produce(number: int) -> None:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(
                "SELECT set_config('faultline.notify', %s, false)", ["" if notify else "off"]
            )
            ready.wait()
            while not stop.is_set():
                conn.execute("SELECT faultline.enqueue('nothing', queue => 'bench')", prepare=True)
                counts[number] += 1

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.monotonic()
    time.sleep(seconds)
    stop.set()
    elapsed = time.monotonic() - began
    for thread in threads:
        thread.join()
    return sum(counts) / elapsed


def one_value(conn: Connection, query: str) -> Any:
    [(value,)] = conn.execute(query).fetchall()
    return value


def wait_for(conn: Connection, table: str, rows: int) -> None:
    """Wait until a table has so many rows."""
    give_up_at = time.monotonic() + _START_SECONDS
    query = sql.SQL("SELECT count(*) FROM faultline.{}").format(sql.Identifier(table))
    while conn.execute(query).fetchall()[0][0] < rows:
        if time.monotonic() > give_up_at:
            raise SystemExit(f"not within {_START_SECONDS:g} s: {rows} rows in {table}")
        time.sleep(0.05)


@contextlib.contextmanager
def idle_workers(url: str, count: int) -> Iterator[None]:
    """Run so many workers, until all of them wait for jobs."""
    per_process = _PER_PROCESS if count > _PER_PROCESS else 1
    command = [
        sys.executable,
        "-m",
        "benchmarks.scaling.many_workers",
        "--workers",
        str(per_process),
    ]
    with contextlib.ExitStack() as stack:
        for _ in range(count // per_process):
            process = subprocess.Popen(
                command,
                env={**os.environ, "DATABASE_URL": url},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        with psycopg.connect(url, autocommit=True) as conn:
            wait_for(conn, "workers", count)
        time.sleep(_SETTLE_SECONDS)
        yield


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Idle(NamedTuple):
    """What so many idle workers cost, and how they are woken."""

    workers: int
    claims_per_job: float
    median_ms: float
    p99_ms: float
    transactions: float  # per second and worker
    sessions: float  # per worker

    def __str__(self) -> str:
        return (
            f"{self.workers:4} workers: {self.claims_per_job:5.1f} claims per job; enqueue to claim "
            f"p50 {self.median_ms:.1f} ms, p99 {self.p99_ms:.1f} ms; idle {self.transactions:.2f} "
            f"transactions/s and {self.sessions:.1f} connections each"
        )


def measure_workers(url: str, workers: int) -> Idle:
    calls = "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'claim'"
    transactions = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'"
    own = conninfo.make_conninfo(url, dbname="template1")  # it counts no transactions here
    with (
        idle_workers(url, workers),
        psycopg.connect(url, autocommit=True) as conn,
        psycopg.connect(own, autocommit=True) as observer,
    ):
        sessions = one_value(
            observer,
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'faultline %'",
        )
        before, began = one_value(observer, transactions), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        idle = (one_value(observer, transactions) - before) / (time.monotonic() - began) / workers
        claims = one_value(conn, calls)
        for _ in range(_JOBS):
            conn.execute("SELECT faultline.enqueue('noop', '{\"n\": 1}')", prepare=True)
            time.sleep(_GAP_SECONDS)
        wait_for(conn, "ledger", _JOBS)
        time.sleep(2.0)  # statistics arrive late
        per_job = float(one_value(conn, calls) - claims) / _JOBS
        query = """
            SELECT extract(epoch FROM claimed_at - created_at)::float8 * 1000
            FROM faultline.jobs WHERE state = 'succeeded'"""
        waits = [float(row[0]) for row in conn.execute(query)]
    return Idle(
        workers,
        per_job,
        statistics.median(waits),
        percentile(waits, 0.99),
        idle,
        sessions / workers,
    )


def claim_over_queues(url: str, queues: Sequence[int], rounds: int) -> dict[int, float]:
    """Return the ratio to a claim over one queue, for each number of queues: medians."""
    costs: dict[int, list[float]] = {number: [] for number in (1, *queues)}
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "SELECT count(*) FROM faultline.enqueue_many('noop', array_fill('{}'::jsonb, ARRAY[%s]))",
            [_CLAIMED * (rounds + 1) * _CLAIMS * len(costs)],
        )
        conn.execute("VACUUM ANALYZE faultline.jobs")
        for number in range(rounds + 1):
            for count, samples in costs.items():
                names = ["default", *(f"queue{other:05}" for other in range(1, count))]
                statement = protocol.claim(
                    "bench", names, batch_size=_CLAIMED, lease_seconds=3600.0, resume_after=None
                )
                before = processor_microseconds(conn)
                for _ in range(_CLAIMS):
                    if len(run(conn, statement)) != _CLAIMED:
                        raise SystemExit("a claim found too few jobs")
                if number:  # the first round warms up
                    samples.append((processor_microseconds(conn) - before) / _CLAIMS)
    one, *_ = costs.values()
    for count, samples in costs.items():
        spread = f"{min(samples) / 1000:.2f}–{max(samples) / 1000:.2f}"
        print(
            f"{count:5} queues: {statistics.median(samples) / 1000:.2f} ms ({spread})", flush=True
        )
    return {
        count: statistics.median(a / b for a, b in zip(samples, one, strict=True))
        for count, samples in costs.items()
        if count > 1
    }


def producers(settings: dict[str, str], clients: int, seconds: float, rounds: int) -> GoalVerdict:
    """Return the ratio of enqueues with notifications to those without."""
    with embedded.temporary_server(settings=settings) as server:
        migrate(server.url)
        rates = [
            [
                enqueues_per_second(server.url, clients, seconds, notify=notify)
                for notify in (True, False)
            ]
            for _ in range(rounds)
        ]
    ratios = sorted(told / silent for told, silent in rates)
    told, silent = (statistics.median(column) for column in zip(*rates, strict=True))
    print(
        f"{clients:4} clients: {told:.0f} enqueues/s, without notifications {silent:.0f}",
        flush=True,
    )
    goal = Goal(f"single enqueue by {clients} clients, with wake-ups", "the same without", 0.85)
    return goal.judge(
        statistics.median(ratios),
        detail=f"{ratios[0]:.2f}–{ratios[-1]:.2f}; {told:.0f} and {silent:.0f} per second",
    )


def judge_idle(found: Sequence[Idle]) -> list[GoalVerdict]:
    """Judge each number of workers; the times refer to the first one."""
    verdicts: list[GoalVerdict] = []
    for each in found:
        name = f"{each.workers} idle worker{'s' if each.workers > 1 else ''}"
        goals = [
            (
                Goal(f"claims per job, {name}", "", 3.0, at_least=False, unit=""),
                each.claims_per_job,
            ),
            (
                Goal(f"transactions/s of each of {name}", "", 1.5, at_least=False, unit=""),
                each.transactions,
            ),
            (
                Goal(f"connections of each of {name}", "", 3.0, at_least=False, unit=""),
                each.sessions,
            ),
        ]
        verdicts += [goal.judge(value) for goal, value in goals]
        if each is not found[0]:
            against = f"with {found[0].workers}"
            for which, value, base in (
                ("p50", each.median_ms, found[0].median_ms),
                ("p99", each.p99_ms, found[0].p99_ms),
            ):
                goal = Goal(f"enqueue to claim, {which}, {name}", against, 1.2, at_least=False)
                verdicts.append(goal.judge(value / base, detail=f"{value:.1f} and {base:.1f} ms"))
    return verdicts


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=numbers, default="1,20,100")
    parser.add_argument("--clients", type=numbers, default="1,8,32")
    parser.add_argument("--queues", type=numbers, default="500,5000")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    settings = {"track_functions": "pl", "max_connections": "600"}
    verdicts: list[GoalVerdict] = []
    if options.queues:
        with embedded.temporary_server(settings=settings) as server:
            migrate(server.url)
            ratios = claim_over_queues(server.url, options.queues, options.rounds)
        for count, ratio in ratios.items():
            goal = Goal(
                f"claim over {count:,} queues, of which one holds jobs", "one queue", 1.5, False
            )
            verdicts.append(goal.judge(ratio))
    verdicts += [
        producers(settings, clients, options.seconds, options.rounds) for clients in options.clients
    ]
    found: list[Idle] = []
    for workers in options.workers:
        with embedded.temporary_server(settings=settings) as server:
            migrate(server.url)
            found.append(measure_workers(server.url, workers))
            print(found[-1], flush=True)
    verdicts += judge_idle(found)
    rows = ["| goal | against | wanted | measured | verdict |"]
    for each in verdicts:
        cells = (each.what, each.against, each.wanted, each.figure, each.outcome)
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1])
    if options.markdown is not None:
        origin = f"{os.cpu_count()} cores, which the workers, the producers and PostgreSQL share."
        write_table(options.markdown, "Many producers, idle workers and queues", rows, origin)


if __name__ == "__main__":
    main()

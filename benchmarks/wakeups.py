"""Measures what notifications cost producers, and how well they wake idle workers.

    python -m benchmarks.wakeups [--workers 1,20] [--clients 1,8,32] [--seconds 4] [--rounds 3]

Producers: single enqueues per second by so many sessions at once, with notifications and with
`SET faultline.notify = 'off'`, in turn. Workers: so many idle worker processes, 200 jobs of which each is
enqueued a moment after the other; claims per job, as PostgreSQL counts calls of `faultline.claim`, the time
from enqueue to claim by the database's clock, and the transactions per second of a worker without jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from faultline import embedded
from faultline.postgres.migrate import migrate

_APP = """
from faultline import Faultline, Job

app = Faultline()


@app.task(name="nothing")
async def nothing(job: Job) -> None:
    pass
"""
_JOBS = 200
_GAP_SECONDS = 0.02
_IDLE_SECONDS = 5.0
_START_SECONDS = 60.0

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
    """Run so many worker processes, until all of them wait for jobs."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        Path(folder, "wakeups_app.py").write_text(_APP)
        command = [sys.executable, "-m", "faultline", "--app", "wakeups_app:app", "worker"]
        environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": folder}
        for _ in range(count):
            process = subprocess.Popen(
                [*command, "--queues", "default"],
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        with psycopg.connect(url, autocommit=True) as conn:
            wait_for(conn, "workers", count)
        time.sleep(_IDLE_SECONDS)  # until starting workers have calmed down
        yield


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure_workers(url: str, workers: int) -> str:
    calls = "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'claim'"
    transactions = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    with idle_workers(url, workers), psycopg.connect(url, autocommit=True) as conn:
        before, began = one_value(conn, transactions), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        idle = (one_value(conn, transactions) - before) / (time.monotonic() - began) / workers
        claims = one_value(conn, calls)
        for _ in range(_JOBS):
            conn.execute("SELECT faultline.enqueue('nothing')", prepare=True)
            time.sleep(_GAP_SECONDS)
        wait_for(conn, "ledger", _JOBS)
        time.sleep(2.0)  # statistics arrive late
        per_job = float(one_value(conn, calls) - claims) / _JOBS
        query = """
            SELECT extract(epoch FROM claimed_at - created_at)::float8 * 1000
            FROM faultline.jobs WHERE state = 'succeeded'"""
        waits = [float(row[0]) for row in conn.execute(query)]
        connections = one_value(
            conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'faultline%'"
        )
    return (
        f"{workers:4} workers: {per_job:5.1f} claims per job; enqueue to claim "
        f"p50 {statistics.median(waits):.1f} ms, p99 {percentile(waits, 0.99):.1f} ms; "
        f"idle {idle:.1f} transactions/s and {connections / workers:.1f} connections each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", default="1,20")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    settings = {"track_functions": "pl", "max_connections": "600"}
    for clients in [int(text) for text in options.clients.split(",") if text]:
        with embedded.temporary_server(settings=settings) as server:
            migrate(server.url)
            rates: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(options.rounds):
                for notify, samples in rates.items():
                    samples.append(
                        enqueues_per_second(server.url, clients, options.seconds, notify=notify)
                    )
        told, silent = statistics.median(rates[True]), statistics.median(rates[False])
        print(
            f"{clients:4} clients: {told:6.0f} enqueues/s, without notifications {silent:6.0f}: "
            f"{told / silent:.2f}×",
            flush=True,
        )
    for workers in [int(text) for text in options.workers.split(",") if text]:
        with embedded.temporary_server(settings=settings) as server:
            migrate(server.url)
            print(measure_workers(server.url, workers), flush=True)


if __name__ == "__main__":
    main()

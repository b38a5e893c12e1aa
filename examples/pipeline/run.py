"""A fan-out meets a stalled and a killed worker: is every line counted once?

python run.py [--naive]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from faultline.testing import temporary_database

HERE = Path(__file__).parent
LIMIT_SECONDS = 90
LINES = [" ".join(["word"] * (number % 5 + 1)) for number in range(12)]
TABLES = """
    create table lines (document int, line int, text text);
    create table documents (id int primary key, lines_left int);
    create table counts (document int, line int, words int);
    create table totals (document int, words int);
"""
RUNNING = "select count(*) from faultline.jobs where task = 'pipeline.count' and state = 'running'"
IN_TRANSACTION = (
    "select count(*) from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid() and xact_start is not null"
)


class Database:
    def __init__(self, url: str) -> None:
        self._conn = psycopg.connect(url, autocommit=True)

    def one(self, query: str) -> Any:
        row = self._conn.execute(query).fetchone()
        return None if row is None else row[0]

    def fill(self) -> None:
        self._conn.execute(TABLES)
        rows = [(1, number, text) for number, text in enumerate(LINES)]
        with self._conn.cursor() as cursor:
            cursor.executemany("insert into lines values (%s, %s, %s)", rows)

    def close(self) -> None:
        self._conn.close()


def until(condition: Callable[[], object], what: str) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > give_up_at:
            raise SystemExit(f"not within {LIMIT_SECONDS} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker with one slot, and end it."""
    command = [
        "faultline",
        "worker",
        "--app",
        "jobs:app",
        "--lease-seconds",
        "2",
        "--concurrency",
        "1",
        *options,
    ]
    running = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=HERE, stderr=subprocess.DEVNULL
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGCONT)
            running.terminate()
        running.wait(LIMIT_SECONDS)


def stall(process: subprocess.Popen[bytes], database: Database) -> None:
    """Stop a worker that counts the words of a line and has no transaction open."""

    def stopped() -> bool:
        until(lambda: database.one(RUNNING), "a line that is counted")
        process.send_signal(signal.SIGSTOP)
        if database.one(RUNNING) and not database.one(IN_TRANSACTION):
            return True
        process.send_signal(signal.SIGCONT)
        return False

    until(stopped, "a worker that stalls in the middle of a line")


def run(database: Database) -> None:
    # A writes late although it could know better: so PostgreSQL alone decides.
    with worker("--no-self-fencing") as a:
        until(lambda: database.one("select count(*) from counts") >= 2, "two counted lines")
        stall(a, database)
        print("worker A  stalls in the middle of a line")
        with worker() as b:
            until(lambda: database.one("select count(*) from counts") >= 5, "five counted lines")
            until(lambda: database.one(RUNNING), "a line that is counted")
            b.kill()
            print("worker B  is killed in the middle of a line")
        with worker():
            until(lambda: database.one("select count(*) from totals"), "the total")
            print("worker C  takes over their lines, and adds the counts up")
            before = database.one("select count(*) from counts")
            a.send_signal(signal.SIGCONT)
            print("worker A  resumes, and wants to store its count …")
            late = "select count(*) from faultline.rejections"
            until(
                lambda: database.one(late) or database.one("select count(*) from counts") > before,
                "the end of A's attempt",
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--naive", action="store_true", help="store counts without the fence")
    naive = parser.parse_args().naive
    if naive:
        os.environ["NAIVE"] = "1"
    with temporary_database() as url:
        os.environ["DATABASE_URL"] = url
        from jobs import app, split

        database = Database(url)
        try:
            database.fill()
            split.enqueue(document=1)
            print(f"split     {len(LINES)} lines: a job each, and one that adds them up")
            run(database)
            found = (
                database.one("select count(*) from counts"),
                database.one("select sum(words) from totals"),
                database.one("select count(*) from totals"),
            )
            refused = database.one("select count(*) from faultline.rejections")
        finally:
            app.close()
            database.close()
    wanted = (len(LINES), sum(len(line.split()) for line in LINES), 1)
    counts, words, totals = found
    print(
        f"\n{counts} counts of {wanted[0]} lines, {totals} total of {words} words, {refused} refused"
    )
    if naive:
        print("This is the control: without the fence a line is counted twice.")
        return 0 if counts > wanted[0] else 1
    holds = found == wanted and refused >= 1
    print("Every line was counted once." if holds else f"WRONG: it should be {wanted}.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

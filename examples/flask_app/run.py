"""Two requests, of which one fails: does a job exist without its invoice?

python run.py
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg

from faultline.testing import temporary_database

HERE = Path(__file__).parent
LIMIT_SECONDS = 60


def until(condition: Callable[[], object], what: str) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > give_up_at:
            raise SystemExit(f"not within {LIMIT_SECONDS} s: {what}")
        time.sleep(0.1)


@contextlib.contextmanager
def process(*command: str) -> Iterator[None]:
    """Run a program of the example, and end it."""
    running = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        running.terminate()
        running.wait(LIMIT_SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def post(url: str) -> int:
    """The status of the answer; 0 if the server does not answer yet."""
    request = urllib.request.Request(url, method="POST")  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return 0


def main() -> int:
    address = f"http://127.0.0.1:{(port := free_port())}"
    with (
        temporary_database() as url,
        psycopg.connect(url, autocommit=True) as conn,
    ):
        os.environ["DATABASE_URL"] = url
        conn.execute("create table invoices (id int primary key, sent_at timestamptz)")
        flask = ("flask", "--app", "web:web", "run", "--port", str(port))
        worker = ("faultline", "worker", "--app", "jobs:app")
        with process(*flask), process(*worker):
            statuses: list[int] = []
            until(lambda: statuses.append(post(f"{address}/invoices/1")) or statuses[-1], "Flask")
            print("POST /invoices/1        the invoice and its job are stored in one transaction")
            statuses.append(post(f"{address}/invoices/2?fail=1"))
            print("POST /invoices/2?fail=1 both are rolled back")
            sent = "select count(*) from invoices where sent_at is not null"
            until(lambda: conn.execute(sent).fetchone() == (1,), "the end of the job")
            print("worker                  sends the invoice")
        found = conn.execute(
            "select (select count(*) from invoices), (select count(*) from faultline.jobs)"
        ).fetchone()
    print(f"\n{found} invoices and jobs")
    holds = statuses[-2:] == [201, 409] and found == (1, 1)
    print("No job without its invoice." if holds else f"WRONG: {statuses}.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

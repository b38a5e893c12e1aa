"""A worker stalls in the middle of a charge: how often is the customer charged?

python run.py [--naive]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
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
def process(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, and end it; its log is shown if something goes wrong."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the example
    running = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=HERE,
        env=os.environ | environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield running
    except SystemExit:
        log.seek(0)
        print(log.read().decode(), file=sys.stderr)
        raise
    finally:
        running.send_signal(signal.SIGCONT)
        running.terminate()
        running.wait(LIMIT_SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def request_payment(port: int) -> None:
    """POST a payment; the API may still be starting."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/payments?amount=42", method="POST")

    def sent() -> bool:
        try:
            return urllib.request.urlopen(request).status == 201  # noqa: S310 - our own API
        except urllib.error.URLError:
            return False

    until(sent, "the API's answer")


def race(conn: psycopg.Connection[tuple[object, ...]]) -> tuple[int, int]:
    """Returns the number of charges, and of refused commits."""

    def one(query: str) -> object:
        row = conn.execute(query).fetchone()
        return None if row is None else row[0]

    port = free_port()
    with process("uvicorn", "api:api", "--port", str(port)):
        request_payment(port)
    print("API       the payment and its job are stored in one transaction")
    worker = ("faultline", "worker", "--app", "jobs:app", "--lease-seconds", "4")
    # A worker that resumes usually notices by itself that it came too late. A does not, so that the database
    # alone must stop it.
    unaware = (*worker, "--no-self-fencing")
    with process(*unaware, WORKER="A") as a:
        until(
            lambda: one(
                "select exists (select from charges) or exists (select from pg_stat_activity"
                " where state = 'idle in transaction' and query ilike 'insert into charges%')"
            ),
            "a charge by A",
        )
        print("worker A  claims the job, token 1, charges and prints a receipt")
        a.send_signal(signal.SIGSTOP)
        print("worker A  stalls")
        with process(*worker, WORKER="B"):
            until(lambda: one("select true from charges where worker = 'B'"), "a charge by B")
            print("worker B  takes over, token 2, and charges")
            a.send_signal(signal.SIGCONT)
            print("worker A  resumes and goes on")
            until(
                lambda: one(
                    "select exists (select from charges where worker = 'A')"
                    " or exists (select from faultline.rejections)"
                ),
                "the end of A's attempt",
            )
    charges, refused = (
        one("select count(*) from charges"),
        one("select count(*) from faultline.rejections"),
    )
    return int(str(charges)), int(str(refused))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--naive", action="store_true", help="charge in a plain session")
    naive = parser.parse_args().naive
    if naive:
        os.environ["NAIVE"] = "1"
    with temporary_database() as url:
        os.environ["DATABASE_URL"] = url
        from models import Base, engine

        Base.metadata.create_all(engine)
        engine.dispose()
        with psycopg.connect(url, autocommit=True) as conn:
            charges, refused = race(conn)
    print(f"\ncharges of the payment: {charges}; late commits refused by PostgreSQL: {refused}")
    if naive:
        print("This is the control: the customer is charged twice." if charges == 2 else "WRONG")
        return 0 if charges == 2 else 1
    print("The customer is charged once." if (charges, refused) == (1, 1) else "WRONG")
    return 0 if (charges, refused) == (1, 1) else 1


if __name__ == "__main__":
    sys.exit(main())

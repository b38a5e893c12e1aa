"""A worker stalls after its webhook was received: is the effect there once?

python run.py [--naive]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from receiver import Receiver

from faultline.testing import temporary_database

HERE = Path(__file__).parent
LIMIT_SECONDS = 90


def until(condition: Callable[[], object], what: str) -> None:
    give_up_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > give_up_at:
            raise SystemExit(f"not within {LIMIT_SECONDS} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker, and end it."""
    command = ["faultline", "worker", "--app", "jobs:app", "--lease-seconds", "2", *options]
    running = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=HERE, stderr=subprocess.DEVNULL
    )
    try:
        yield running
    finally:
        running.send_signal(signal.SIGCONT)
        running.terminate()
        running.wait(LIMIT_SECONDS)


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """Run the receiver in a thread."""
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        yield receiver
        receiver.shutdown()


def race(deliver: Any, receiver: Receiver, one: Callable[[str], Any]) -> None:
    """A worker stalls while it waits for the receiver's answer; another takes over."""
    deliver.enqueue(url=receiver.url, event="slow")
    # A writes late although it could know better: so PostgreSQL alone decides.
    with worker("--no-self-fencing") as a:
        until(receiver.was_called.is_set, "a call by A")
        a.send_signal(signal.SIGSTOP)
        receiver.may_answer.set()
        print("worker A  sends the webhook, and stalls before it reads the answer")
        with worker():
            until(lambda: one("select count(*) from deliveries") == 1, "a delivery by B")
            print("worker B  takes over, sends it again, and commits")
            a.send_signal(signal.SIGCONT)
            print("worker A  resumes, reads its answer, and wants to commit …")
            until(lambda: one("select count(*) from faultline.rejections"), "the refusal of A")


def retries(deliver: Any, receiver: Receiver, one: Callable[[str], Any]) -> list[tuple[str, int]]:
    """State and calls of two events: of a busy receiver, and of one that is gone."""
    deliver.enqueue(url=receiver.url, event="busy")
    deliver.enqueue(url=receiver.url, event="gone")
    ended = "select count(*) from faultline.jobs where state in ('succeeded', 'failed')"
    with worker():
        until(lambda: one(ended) == 3, "the end of all jobs")
    seen = (
        "select state || coalesce(' ' || failed_reason, '') from faultline.jobs"
        " where payload->>'event' = '{}'"
    )
    print("busy      429 with Retry-After: the attempt after that succeeds")
    print("gone      410: the job gives up at once")
    return [(one(seen.format(event)), receiver.calls[event]) for event in ("busy", "gone")]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--naive", action="store_true", help="a new key for each attempt")
    naive = parser.parse_args().naive
    if naive:
        os.environ["NAIVE"] = "1"
    with temporary_database() as url, receiving() as receiver:
        os.environ["DATABASE_URL"] = url
        from jobs import app, deliver

        with psycopg.connect(url, autocommit=True) as conn:

            def one(query: str) -> Any:
                row = conn.execute(query).fetchone()
                return None if row is None else row[0]

            conn.execute("create table deliveries (event text)")
            race(deliver, receiver, one)
            others = retries(deliver, receiver, one)
            recorded = one("select count(*) from deliveries where event = 'slow'")
        app.close()
    calls, effects = receiver.calls["slow"], receiver.effects["slow"]
    print(f"\n{calls} calls, {effects} effects, {recorded} recorded delivery of one webhook")
    holds = recorded == 1 and calls == 2 and others == [("succeeded", 2), ("failed gave_up", 1)]
    if naive:
        print("This is the control: without the job's key the receiver acts twice.")
        return 0 if holds and effects == 2 else 1
    holds = holds and effects == 1
    print("The effect is there once." if holds else f"WRONG: see above, and {others}.")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

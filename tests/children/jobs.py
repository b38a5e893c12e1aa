"""Tasks that run in child processes, which import them by name."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from faultline import Faultline, Job, Reject, Retry, RetryPolicy, Snooze, StaleLease
from tests.waiting import block_thread, run_until_interrupted

app = Faultline()


@dataclass
class Order:
    price: Decimal
    due: date


SOON = RetryPolicy(base_seconds=0.01, cap_seconds=0.01)


@app.task(process=True)
def pid_of(job: Job) -> dict[str, Any]:
    return {"pid": os.getpid(), "token": job.token, "has_lease": job.lease_remaining > 0}


@app.task(process=True)
def pay_order(job: Job, order: Order) -> str:
    return f"{order.price * 2} until {order.due:%d.%m.}"


@app.task(process=True)
def pay(job: Job, amount: int) -> None:
    with job.transaction() as tx:
        tx.execute("INSERT INTO effects (job_id, amount) VALUES (%s, %s)", [job.id, amount])
        job.result = {"paid": amount}


@app.task(process=True)
def pay_and_return(job: Job, amount: int) -> Any:
    """Return a value after the commit, which is too late."""
    with job.transaction() as tx:
        tx.execute("INSERT INTO effects (job_id, amount) VALUES (%s, %s)", [job.id, amount])
    return {amount} if amount > 1 else [amount]


@app.task(process=True)
def set_result_only(job: Job) -> None:
    job.result = "set"


@app.task(process=True, max_attempts=2, retry=SOON)
def pay_and_die(job: Job) -> None:
    """Die right after the commit, before reporting it."""
    with job.transaction() as tx:
        tx.execute("INSERT INTO effects (job_id, amount) VALUES (%s, 1)", [job.id])
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(process=True, max_attempts=3, retry=SOON)
def die_before_committing(job: Job) -> None:
    with job.transaction() as tx:
        tx.execute("INSERT INTO effects (job_id, amount) VALUES (%s, 1)", [job.id])
        if job.attempt < 3:
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(process=True, max_attempts=2, retry=SOON)
def crash_in_native_code(job: Job) -> None:
    ctypes.string_at(0)


@app.task(process=True, max_attempts=1, timeout=1)
def loop_for_ever(job: Job) -> None:
    while True:
        pass


@app.task(process=True, max_attempts=1)
def exit_the_process(job: Job) -> None:
    sys.exit(3)


@app.task(process=True, max_attempts=1)
def raise_something(job: Job) -> None:
    raise KeyError("the key that was missing")


@app.task(process=True, max_attempts=5)
def reject(job: Job) -> None:
    raise Reject("of no use")


hooked: list[int] = []  # ids of the processes in which the hook ran, as far as this process knows


@app.around_attempt
def note_process(job: Job) -> Iterator[None]:
    hooked[:] = [os.getpid()]
    yield


@app.task(process=True)
def process_of_hook(job: Job) -> bool:
    return hooked == [os.getpid()]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")


@app.task(process=True, max_attempts=1)
def raise_hostile(job: Job, stale: bool) -> None:
    raise StaleLease("token_mismatch") if stale else Unspeakable()


@app.task(process=True, max_attempts=5)
def return_no_json(job: Job) -> object:
    return object()


@app.task(process=True, max_attempts=5)
def wait_for_the_end(job: Job) -> None:
    """Record that it has started, then run until it is killed."""
    with job.fenced() as conn:
        conn.execute("INSERT INTO effects (job_id, amount) VALUES (%s, %s)", [job.id, os.getpid()])
    run_until_interrupted()


@app.task(process=True, max_attempts=1, timeout=2.5)
def take_a_moment(job: Job) -> None:
    block_thread(0.2)


if multiprocessing.parent_process() is None:  # so that a child process does not find the task

    @app.task(process=True, max_attempts=1)
    def only_in_the_worker(job: Job) -> None: ...


@app.task(process=True, retry=SOON)
def sleep_in_a_statement(job: Job) -> None:
    """Sleep at the first claim only; later claims succeed."""
    with job.transaction() as tx:
        if job.token == 1:
            tx.execute("SELECT pg_sleep(600)")


@app.task(retry=SOON)
def sleep_in_a_thread(job: Job) -> None:
    with job.transaction() as tx:
        if job.token == 1:
            tx.execute("SELECT pg_sleep(600)")


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("cannot be pickled")
        self.lock = threading.Lock()


class GivesUp(Unpicklable):
    pass


RULES = RetryPolicy(on={Unpicklable: 777}, give_up_on=(GivesUp,))


@app.task(process=True, retry=RULES)
def asks(job: Job, request: str, number: float = 0.0) -> None:
    """Raise what the test names."""
    match request:
        case "snooze":
            raise Snooze(number, reason="from the child")
        case "until":
            raise Snooze(until=datetime.now(UTC) + timedelta(seconds=number))
        case "retry":
            raise Retry(number, reason="from the child")
        case "unpicklable":
            raise Unpicklable
        case "give_up":
            raise GivesUp
        case "group":
            raise ExceptionGroup("several", [ValueError(), GivesUp()])
        case "snooze_in_transaction":
            with job.transaction() as tx:
                tx.execute("INSERT INTO effects (job_id, amount) VALUES (%s, 1)", [job.id])
                raise Snooze(number)
        case "snooze_after_commit":
            with job.transaction() as tx:
                tx.execute("INSERT INTO effects (job_id, amount) VALUES (%s, 1)", [job.id])
            raise Snooze(number)


@app.task(process=True, max_attempts=1)
def reports(job: Job, ends: str) -> None:
    """Report many times, then wait for the lock of the test or fail."""
    for number in range(5_000):
        job.progress(number / 10_000, f"{number} of 10,000")
    job.progress(0.5, "half")
    if ends == "fails":
        raise ValueError("broken")
    with job.fenced() as tx:
        tx.execute("LOCK TABLE effects")


_second_runs, _has_reported = threading.Event(), threading.Event()


@app.task(process=True, max_attempts=1)
def reports_late(job: Job, first: bool) -> None:
    """Leave a thread behind that reports while the next job of this process runs."""
    if first:
        threading.Thread(target=_report_for_ever, args=(job,), daemon=True).start()
        return
    _second_runs.set()
    assert _has_reported.wait(60)
    raise ValueError("so that the last report is sent")


def _report_for_ever(job: Job) -> None:
    assert _second_runs.wait(60)
    while True:
        for _ in range(100):
            job.progress(0.9, "too late")
        _has_reported.set()


@app.task(process=True, retry=RetryPolicy(base_seconds=600, give_up_on=(Exception,)))
def dies(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

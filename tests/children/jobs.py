"""Tasks that run in child processes, which import them by name."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from typing import Any

from faultline import Faultline, Job, Reject, RetryPolicy, StaleLease
from tests.waiting import block_thread, run_until_interrupted

app = Faultline()
SOON = RetryPolicy(base_seconds=0.01, cap_seconds=0.01)


@app.task(process=True)
def pid_of(job: Job) -> dict[str, Any]:
    return {"pid": os.getpid(), "token": job.token, "has_lease": job.lease_remaining > 0}


@app.task(process=True)
def pay(job: Job, amount: int) -> None:
    with job.transaction() as tx:
        tx.execute("INSERT INTO effects (job_id, amount) VALUES (%s, %s)", [job.id, amount])
        job.result = {"paid": amount}


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


@app.task(process=True, max_attempts=1, timeout_seconds=1)
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


@app.before_attempt
def note_process(job: Job) -> None:
    hooked[:] = [os.getpid()]


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


@app.task(process=True, max_attempts=1, timeout_seconds=2.5)
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

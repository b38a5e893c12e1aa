"""Every worker is drained and replaced in turn, while jobs run.

A deploy is no failure. A worker that drains, after SIGTERM or `faultline drain`, claims nothing
more, finishes what it can within its time, and releases the rest without using an attempt. Until
its end it renews its leases and notices cancellations. One worker does not react and is killed at
last: only its job may cost an attempt.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from uuid import UUID

from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.clients.producer import Producer
from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload.plan import BLOCK_VARIABLE
from faultline_drills.workload.tasks import pay

SLOTS = 3
DRAIN_SECONDS = 0.8
# No lease may expire on a busy machine, since no attempt may be used; renewals must still be seen.
LEASE = ("--lease-seconds", "600", "--heartbeat-seconds", "0.25")
SHORT_DRAIN = ("--drain-seconds", str(DRAIN_SECONDS), "--concurrency", str(SLOTS), *LEASE)
LONG_DRAIN = ("--drain-seconds", "600", "--concurrency", str(SLOTS), *LEASE)
BLOCK_SECONDS = 600  # longer than all of the restarts
SHORT_SECONDS = 0.05
MOST_JOBS = 500  # however long the restarts take


@scenario(
    shows=(
        "restarts",
        "drains",
        "cancels",
        "kills",
        "released",
        "takeovers",
        "dead_jobs",
        "commits",
    )
)
def rolling_restart(drill: DrillContext) -> None:
    blocked_job = drill.submit(pay, number=0, plan={"1": "block@start"})
    environment = {BLOCK_VARIABLE: str(BLOCK_SECONDS)}
    blocked = drill.worker("--concurrency", "1", *LEASE, environment=environment, name="blocked")
    drill.wait_until(
        lambda: bool(blocked.events_named("execution_started")), "the block", by=blocked
    )

    workers = [
        drill.worker(*(SHORT_DRAIN if by_request else LONG_DRAIN))
        for by_request, _ in zip(cycle((False, True)), range(max(2, drill.settings.workers)))
    ]
    drill.wait_until(
        lambda: all(worker.events_named("worker_started") for worker in workers),
        "the start of the workers",
    )
    # Jobs that outlast any drain in their first attempt; so many that each worker holds one.
    endless = [
        drill.submit(pay, number=number, plan={"1": "hang@start"})
        for number in range(1, 2 + SLOTS * (len(workers) - 1))
    ]
    drill.wait_until(lambda: _held(drill, endless) == len(endless), "an endless job in each worker")
    replacements = [drill.worker(*SHORT_DRAIN)]
    with _producer(drill) as others:
        for number, worker in enumerate(workers):
            # As in a deploy: the new worker starts before the old one drains.
            drill.wait_until(
                lambda: bool(replacements[-1].events_named("worker_started")), "a new worker"
            )
            if len(replacements) < len(workers):
                replacements.append(drill.worker(*SHORT_DRAIN))
            (_drain if number % 2 else _restart)(drill, worker, endless)
    blocked.send(signal.SIGTERM)
    drill.inject("kill", blocked.name)
    blocked.kill()

    kept = [job for job in endless if drill.wait_for_state(job, "succeeded", "failed") != "failed"]
    for job in (blocked_job, *others):
        drill.wait_for_state(job, "succeeded")
    drill.expect(len(kept) == len(endless) - 1, "other jobs than the cancelled one failed")
    _expect_no_attempt_used(drill, [*kept, *others], released_jobs=kept)


@contextmanager
def _producer(drill: DrillContext) -> Iterator[list[UUID]]:
    """Enqueue short jobs during the block; their ids are complete after it."""
    jobs: list[UUID] = []
    stop = threading.Event()

    def produce() -> None:
        producer = Producer("shop", drill.url, drill.history)
        try:
            while len(jobs) < MOST_JOBS and not stop.wait(SHORT_SECONDS):
                key = f"order-{len(jobs)}"
                seconds = SHORT_SECONDS if len(jobs) % 4 else DRAIN_SECONDS / 2
                work = {"number": 1_000 + len(jobs), "work_seconds": seconds}
                if job := producer.submit(pay, key=key, stop=stop, **work):
                    jobs.append(job)
        finally:
            producer.close()

    thread = threading.Thread(target=produce, name="producer")
    thread.start()
    try:
        yield jobs
    finally:
        stop.set()
        thread.join(drill.settings.timeout_seconds)


def _restart(drill: DrillContext, worker: ObservedProcess, endless: list[UUID]) -> None:
    """Drain by SIGTERM, cancel one of its jobs meanwhile, and send SIGTERM again."""
    ours = _held_by(drill, worker, endless)
    drill.expect(len(ours) > 0, f"{worker.name} holds no job that outlasts its drain")
    drill.inject("restart", worker.name)
    worker.send(signal.SIGTERM)
    drill.wait_until(lambda: bool(worker.events_named("worker_draining")), "the drain", by=worker)
    draining = worker.events.index(worker.events_named("worker_draining")[0])
    try:
        drill.wait_until(
            lambda: any(each["event"] == "lease_renewed" for each in worker.events[draining:]),
            "a renewal",
        )
    except DrillNotRun:
        drill.expect(False, "no lease was renewed during a drain")
    if ours and not drill.injected["cancel"]:
        _cancel(drill, worker, ours[0])
    worker.send(signal.SIGTERM)
    _expect_clean_exit(drill, worker)


def _drain(drill: DrillContext, worker: ObservedProcess, endless: list[UUID]) -> None:
    """Drain by `faultline drain --wait`, which returns when the worker has ended."""
    drill.expect(bool(_held_by(drill, worker, endless)), f"{worker.name} holds no job to release")
    drill.inject("drain", worker.name)
    command = [sys.executable, "-m", "faultline", "drain", _id_of(worker), "--wait"]
    done = subprocess.run(
        [*command, "--timeout", str(drill.settings.timeout_seconds)],
        env={**os.environ, "DATABASE_URL": drill.url},
        capture_output=True,
        text=True,
        timeout=2 * drill.settings.timeout_seconds,
    )
    output = f"{done.stdout}{done.stderr}".strip()
    drill.expect(done.returncode == 0, f"`faultline drain --wait` failed: {output}")
    _expect_clean_exit(drill, worker)
    asked = worker.events_named("worker_draining", cause="request")
    drill.expect(bool(asked), f"{worker.name} did not log that it drains by request")


def _cancel(drill: DrillContext, worker: ObservedProcess, job: UUID) -> None:
    operation = drill.history.invoke("operator", Verb.CANCEL, job=str(job))
    answer = run(drill.conn, protocol.cancel(job, "while its worker drains"))
    drill.history.end(operation, Phase.OK, state=answer)
    drill.inject("cancel", str(job))
    limit = drill.settings.timeout_seconds
    noticed = worker.has_event(
        "lease_lost", timeout_seconds=limit, job_id=str(job), cause="taken_over"
    )
    drill.expect(noticed, "a draining worker did not notice that its job was cancelled")


def _expect_clean_exit(drill: DrillContext, worker: ObservedProcess) -> None:
    try:
        code = worker.wait(drill.settings.timeout_seconds)
    except subprocess.TimeoutExpired:
        worker.kill()
        drill.expect(False, f"{worker.name} did not end")
        return
    drill.expect(code == 0, f"{worker.name} ended with {code}")


def _expect_no_attempt_used(
    drill: DrillContext, jobs: list[UUID], *, released_jobs: list[UUID]
) -> None:
    used = drill.query(
        "SELECT job_id, outcome FROM faultline.attempts_log"
        " WHERE job_id = ANY (%s) AND outcome <> 'released'",
        [jobs],
    )
    drill.expect(not used, f"released jobs used attempts: {used}")
    counted = drill.query(
        "SELECT DISTINCT attempts FROM faultline.jobs WHERE id = ANY (%s)", [jobs]
    )
    drill.expect(counted == [(1,)], f"jobs should have one attempt each, and have {counted}")
    released = drill.count(
        "SELECT count(DISTINCT job_id) FROM faultline.attempts_log"
        " WHERE job_id = ANY (%s) AND outcome = 'released'",
        [released_jobs],
    )
    drill.expect(
        released == len(released_jobs), f"{released} of {len(released_jobs)} were released"
    )


def _held(drill: DrillContext, jobs: list[UUID]) -> int:
    return drill.count(
        "SELECT count(*) FROM faultline.jobs WHERE id = ANY (%s) AND state = 'running'", [jobs]
    )


def _held_by(drill: DrillContext, worker: ObservedProcess, jobs: list[UUID]) -> list[UUID]:
    rows = drill.query(
        "SELECT id FROM faultline.jobs WHERE id = ANY (%s) AND state = 'running'"
        " AND lease_owner = %s ORDER BY id",
        [jobs, _id_of(worker)],
    )
    return [job for (job,) in rows]


def _id_of(worker: ObservedProcess) -> str:
    return str(worker.events_named("worker_started")[0]["worker"])

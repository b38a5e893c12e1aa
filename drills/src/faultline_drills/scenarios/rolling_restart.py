"""Every worker is asked to leave, one after the other, and replaced, while jobs flow.

A deploy is no failure. A worker that is asked to leave, by a signal or by `faultline drain`, claims nothing
more, finishes what it can in the time it has, and hands the rest back without using up an attempt. Until
its end it renews its leases and hears of cancellations. One of them does not react, as a blocked process
does not, and is killed in the end: its job alone is recovered, and costs an attempt.
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
# No attempt may be used up here, so no lease may run out, however busy the machine is; renewals are
# to be seen all the same.
LEASE = ("--lease-seconds", "600", "--heartbeat-seconds", "0.25")
PATIENCE = ("--drain-seconds", str(DRAIN_SECONDS), "--concurrency", str(SLOTS), *LEASE)
ALL_THE_TIME = ("--drain-seconds", "600", "--concurrency", str(SLOTS), *LEASE)
DEAF_SECONDS = 600  # longer than all of the restarts
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
    deaf_job = drill.submit(pay, number=0, plan={"1": "block@start"})
    environment = {BLOCK_VARIABLE: str(DEAF_SECONDS)}
    deaf = drill.worker("--concurrency", "1", *LEASE, environment=environment, name="deaf")
    drill.wait_until(lambda: bool(deaf.events_named("execution_started")), "the block", by=deaf)

    crew = [
        drill.worker(*(PATIENCE if by_request else ALL_THE_TIME))
        for by_request, _ in zip(cycle((False, True)), range(max(2, drill.settings.workers)))
    ]
    drill.wait_until(
        lambda: all(worker.events_named("worker_started") for worker in crew), "the crew"
    )
    # Work that outlasts any drain, the first time: one job more than fits into the hands of all but one.
    endless = [
        drill.submit(pay, number=number, plan={"1": "hang@start"})
        for number in range(1, 2 + SLOTS * (len(crew) - 1))
    ]
    drill.wait_until(lambda: _held(drill, endless) == len(endless), "work in everybody's hands")
    newcomers = [drill.worker(*PATIENCE)]
    with _producer(drill) as others:
        for number, worker in enumerate(crew):
            # As in any deploy: the new one comes, then the old one leaves. The next one comes up meanwhile.
            drill.wait_until(
                lambda: bool(newcomers[-1].events_named("worker_started")), "a new worker"
            )
            if len(newcomers) < len(crew):
                newcomers.append(drill.worker(*PATIENCE))
            (_drain if number % 2 else _restart)(drill, worker, endless)
    deaf.send(signal.SIGTERM)
    drill.inject("kill", deaf.name)
    deaf.kill()

    kept = [job for job in endless if drill.wait_for_state(job, "succeeded", "failed") != "failed"]
    for job in (deaf_job, *others):
        drill.wait_for_state(job, "succeeded")
    drill.expect(len(kept) == len(endless) - 1, "of all jobs the cancelled one alone failed")
    _expect_no_attempt_burned(drill, [*kept, *others], handed_back=kept)


@contextmanager
def _producer(drill: DrillContext) -> Iterator[list[UUID]]:
    """Inside, jobs come in all the time that a draining worker can finish; their ids are complete
    afterwards."""
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
    """By a signal; while it drains, its leases are renewed, and one of its jobs is cancelled. A second signal
    ends the wait for what does not end by itself."""
    ours = _in_hands_of(drill, worker, endless)
    drill.expect(len(ours) > 0, f"{worker.name} holds work that outlasts its drain")
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
        drill.expect(False, "leases are renewed during a drain")
    if ours and not drill.injected["cancel"]:
        _cancel(drill, worker, ours[0])
    worker.send(signal.SIGTERM)
    _expect_in_peace(drill, worker)


def _drain(drill: DrillContext, worker: ObservedProcess, endless: list[UUID]) -> None:
    """By the command, which waits until the worker has left: when its time is up, if not before."""
    drill.expect(bool(_in_hands_of(drill, worker, endless)), f"{worker.name} has work to hand back")
    drill.inject("drain", worker.name)
    command = [sys.executable, "-m", "faultline", "drain", _id_of(worker), "--wait"]
    done = subprocess.run(
        [*command, "--timeout", str(drill.settings.timeout_seconds)],
        env={**os.environ, "DATABASE_URL": drill.url},
        capture_output=True,
        text=True,
        timeout=2 * drill.settings.timeout_seconds,
    )
    said = f"{done.stdout}{done.stderr}".strip()
    drill.expect(done.returncode == 0, f"`faultline drain --wait` ends in peace, not with {said}")
    _expect_in_peace(drill, worker)
    asked = worker.events_named("worker_draining", cause="request")
    drill.expect(bool(asked), f"{worker.name} drains because it was asked to")


def _cancel(drill: DrillContext, worker: ObservedProcess, job: UUID) -> None:
    operation = drill.history.invoke("operator", Verb.CANCEL, job=str(job))
    answer = run(drill.conn, protocol.cancel(job, "while its worker drains"))
    drill.history.end(operation, Phase.OK, state=answer)
    drill.inject("cancel", str(job))
    limit = drill.settings.timeout_seconds
    heard = worker.has_event(
        "lease_lost", timeout_seconds=limit, job_id=str(job), cause="taken_over"
    )
    drill.expect(heard, "a draining worker hears that its job is cancelled")


def _expect_in_peace(drill: DrillContext, worker: ObservedProcess) -> None:
    try:
        code = worker.wait(drill.settings.timeout_seconds)
    except subprocess.TimeoutExpired:
        worker.kill()
        drill.expect(False, f"{worker.name} leaves")
        return
    drill.expect(code == 0, f"{worker.name} leaves in peace, not with {code}")


def _expect_no_attempt_burned(
    drill: DrillContext, jobs: list[UUID], *, handed_back: list[UUID]
) -> None:
    burned = drill.query(
        "SELECT job_id, outcome FROM faultline.attempts_log"
        " WHERE job_id = ANY (%s) AND outcome <> 'released'",
        [jobs],
    )
    drill.expect(not burned, f"handing back costs no attempt, but: {burned}")
    counted = drill.query(
        "SELECT DISTINCT attempts FROM faultline.jobs WHERE id = ANY (%s)", [jobs]
    )
    drill.expect(counted == [(1,)], f"one attempt is counted for each job, and not {counted}")
    released = drill.count(
        "SELECT count(DISTINCT job_id) FROM faultline.attempts_log"
        " WHERE job_id = ANY (%s) AND outcome = 'released'",
        [handed_back],
    )
    drill.expect(released == len(handed_back), f"{released} of {len(handed_back)} are handed back")


def _held(drill: DrillContext, jobs: list[UUID]) -> int:
    return drill.count(
        "SELECT count(*) FROM faultline.jobs WHERE id = ANY (%s) AND state = 'running'", [jobs]
    )


def _in_hands_of(drill: DrillContext, worker: ObservedProcess, jobs: list[UUID]) -> list[UUID]:
    rows = drill.query(
        "SELECT id FROM faultline.jobs WHERE id = ANY (%s) AND state = 'running'"
        " AND lease_owner = %s ORDER BY id",
        [jobs, _id_of(worker)],
    )
    return [job for (job,) in rows]


def _id_of(worker: ObservedProcess) -> str:
    return str(worker.events_named("worker_started")[0]["worker"])

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
from faultline_drills.arena import Arena, DrillNotRun
from faultline_drills.history import Phase, Verb
from faultline_drills.producer import Producer
from faultline_drills.scenario import scenario
from faultline_drills.witness import Witness
from faultline_drills.workload import BLOCK_VARIABLE, pay

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
def rolling_restart(arena: Arena) -> None:
    deaf_job = arena.submit(pay, number=0, plan={"1": "block@start"})
    environment = {BLOCK_VARIABLE: str(DEAF_SECONDS)}
    deaf = arena.worker("--concurrency", "1", *LEASE, environment=environment, name="deaf")
    arena.wait_until(lambda: bool(deaf.heard("execution_started")), "the block", by=deaf)

    crew = [
        arena.worker(*(PATIENCE if by_request else ALL_THE_TIME))
        for by_request, _ in zip(cycle((False, True)), range(max(2, arena.settings.workers)))
    ]
    arena.wait_until(lambda: all(worker.heard("worker_started") for worker in crew), "the crew")
    # Work that outlasts any drain, the first time: one job more than fits into the hands of all but one.
    endless = [
        arena.submit(pay, number=number, plan={"1": "hang@start"})
        for number in range(1, 2 + SLOTS * (len(crew) - 1))
    ]
    arena.wait_until(lambda: _held(arena, endless) == len(endless), "work in everybody's hands")
    newcomers = [arena.worker(*PATIENCE)]
    with _producer(arena) as others:
        for number, worker in enumerate(crew):
            # As in any deploy: the new one comes, then the old one leaves. The next one comes up meanwhile.
            arena.wait_until(lambda: bool(newcomers[-1].heard("worker_started")), "a new worker")
            if len(newcomers) < len(crew):
                newcomers.append(arena.worker(*PATIENCE))
            (_drain if number % 2 else _restart)(arena, worker, endless)
    deaf.send(signal.SIGTERM)
    arena.inject("kill", deaf.name)
    deaf.kill()

    kept = [job for job in endless if arena.wait_for_state(job, "succeeded", "failed") != "failed"]
    for job in (deaf_job, *others):
        arena.wait_for_state(job, "succeeded")
    arena.expect(len(kept) == len(endless) - 1, "of all jobs the cancelled one alone failed")
    _expect_no_attempt_burned(arena, [*kept, *others], handed_back=kept)


@contextmanager
def _producer(arena: Arena) -> Iterator[list[UUID]]:
    """Inside, jobs come in all the time that a draining worker can finish; their ids are complete
    afterwards."""
    jobs: list[UUID] = []
    stop = threading.Event()

    def produce() -> None:
        producer = Producer("shop", arena.url, arena.history)
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
        thread.join(arena.settings.timeout_seconds)


def _restart(arena: Arena, worker: Witness, endless: list[UUID]) -> None:
    """By a signal; while it drains, its leases are renewed, and one of its jobs is cancelled. A second signal
    ends the wait for what does not end by itself."""
    ours = _in_hands_of(arena, worker, endless)
    arena.expect(len(ours) > 0, f"{worker.name} holds work that outlasts its drain")
    arena.inject("restart", worker.name)
    worker.send(signal.SIGTERM)
    arena.wait_until(lambda: bool(worker.heard("worker_draining")), "the drain", by=worker)
    drain = worker.events.index("worker_draining")
    try:
        arena.wait_until(lambda: "lease_renewed" in worker.events[drain:], "a renewal")
    except DrillNotRun:
        arena.expect(False, "leases are renewed during a drain")
    if ours and not arena.injected["cancel"]:
        _cancel(arena, worker, ours[0])
    worker.send(signal.SIGTERM)
    _expect_in_peace(arena, worker)


def _drain(arena: Arena, worker: Witness, endless: list[UUID]) -> None:
    """By the command, which waits until the worker has left: when its time is up, if not before."""
    arena.expect(bool(_in_hands_of(arena, worker, endless)), f"{worker.name} has work to hand back")
    arena.inject("drain", worker.name)
    command = [sys.executable, "-m", "faultline", "drain", _id_of(worker), "--wait"]
    done = subprocess.run(
        [*command, "--timeout", str(arena.settings.timeout_seconds)],
        env={**os.environ, "DATABASE_URL": arena.url},
        capture_output=True,
        text=True,
        timeout=2 * arena.settings.timeout_seconds,
    )
    said = f"{done.stdout}{done.stderr}".strip()
    arena.expect(done.returncode == 0, f"`faultline drain --wait` ends in peace, not with {said}")
    _expect_in_peace(arena, worker)
    asked = worker.heard("worker_draining", cause="request")
    arena.expect(bool(asked), f"{worker.name} drains because it was asked to")


def _cancel(arena: Arena, worker: Witness, job: UUID) -> None:
    operation = arena.history.invoke("operator", Verb.CANCEL, job=str(job))
    answer = run(arena.conn, protocol.cancel(job, "while its worker drains"))
    arena.history.end(operation, Phase.OK, state=answer)
    arena.inject("cancel", str(job))
    limit = arena.settings.timeout_seconds
    heard = worker.wait_for(
        "lease_lost", timeout_seconds=limit, job_id=str(job), cause="taken_over"
    )
    arena.expect(heard, "a draining worker hears that its job is cancelled")


def _expect_in_peace(arena: Arena, worker: Witness) -> None:
    try:
        code = worker.wait(arena.settings.timeout_seconds)
    except subprocess.TimeoutExpired:
        worker.kill()
        arena.expect(False, f"{worker.name} leaves")
        return
    arena.expect(code == 0, f"{worker.name} leaves in peace, not with {code}")


def _expect_no_attempt_burned(arena: Arena, jobs: list[UUID], *, handed_back: list[UUID]) -> None:
    burned = arena.query(
        "SELECT job_id, outcome FROM faultline.attempts_log"
        " WHERE job_id = ANY (%s) AND outcome <> 'released'",
        [jobs],
    )
    arena.expect(not burned, f"handing back costs no attempt, but: {burned}")
    counted = arena.query(
        "SELECT DISTINCT attempts FROM faultline.jobs WHERE id = ANY (%s)", [jobs]
    )
    arena.expect(counted == [(1,)], f"one attempt is counted for each job, and not {counted}")
    released = arena.count(
        "SELECT count(DISTINCT job_id) FROM faultline.attempts_log"
        " WHERE job_id = ANY (%s) AND outcome = 'released'",
        [handed_back],
    )
    arena.expect(released == len(handed_back), f"{released} of {len(handed_back)} are handed back")


def _held(arena: Arena, jobs: list[UUID]) -> int:
    return arena.count(
        "SELECT count(*) FROM faultline.jobs WHERE id = ANY (%s) AND state = 'running'", [jobs]
    )


def _in_hands_of(arena: Arena, worker: Witness, jobs: list[UUID]) -> list[UUID]:
    rows = arena.query(
        "SELECT id FROM faultline.jobs WHERE id = ANY (%s) AND state = 'running'"
        " AND lease_owner = %s ORDER BY id",
        [jobs, _id_of(worker)],
    )
    return [job for (job,) in rows]


def _id_of(worker: Witness) -> str:
    return str(worker.heard("worker_started")[0]["worker"])

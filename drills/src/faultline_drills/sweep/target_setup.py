"""The work of each swept process: jobs of every kind, leases, or schedules."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import LiteralString

from faultline.postgres.sessions import connect, run
from faultline.statements import protocol, workers
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Verb
from faultline_drills.sweep.due_schedules import all_have_fired, broken_firings, leave_schedules
from faultline_drills.sweep.point import SweepTarget
from faultline_drills.workload import tasks

_TO_RECONCILE: LiteralString = (
    "SELECT (SELECT count(*) FROM faultline.jobs WHERE state = 'running')"
    " + (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL)"
)
_LONG_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class TargetSetup:
    target: SweepTarget
    options: tuple[str, ...]
    prepare: Callable[[DrillContext], None]
    is_done: Callable[[DrillContext], bool]  # all its work is done, and it can be stopped
    broken: Callable[[DrillContext], list[str]] = (
        lambda drill: []
    )  # expected in the end, and not so
    finishes_it: bool = False  # whether another worker must do the work that is left


def _enqueue_jobs(drill: DrillContext) -> None:
    """Enqueue jobs of every kind: long, failing, with `job.commit`, and a batch."""
    long, short = drill.settings.lease_seconds * 0.6, drill.settings.lease_seconds * 0.2
    drill.submit(tasks.pay, number=1, parts=2, work_seconds=long)
    drill.submit(tasks.note, number=2)
    drill.submit(tasks.pay, number=3, work_seconds=short, plan={"1": "raise@half"})
    drill.submit(tasks.pay_by_hand, number=4, work_seconds=short)
    for number in range(5, 8):
        drill.submit(tasks.pay_in_batch, number=number)


def _leave_leases(drill: DrillContext) -> None:
    """Three jobs: one of a lost worker, one with an expired lease, one that is queued."""
    for number in range(3):
        drill.submit(tasks.pay, number=number)
    _claim_and_disconnect(drill, "died", lease_seconds=_LONG_SECONDS, registers=True)
    _claim_and_disconnect(drill, "silent", lease_seconds=0.1, registers=False)


def _claim_and_disconnect(
    drill: DrillContext, worker: str, *, lease_seconds: float, registers: bool
) -> None:
    with connect(drill.url, application_name="faultline drill") as conn:
        if registers:
            statement = workers.register_worker(
                worker,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=["default"],
                holds_locks=True,
            )
            run(conn, statement)
        claim = protocol.claim(worker, ["default"], batch_size=1, lease_seconds=lease_seconds)
        for claimed in run(conn, claim):
            job, token = str(claimed.job_id), claimed.fencing_token
            drill.history.record(worker, Verb.CLAIM, job=job, token=token)
            drill.history.invoke(worker, Verb.ATTEMPT, job=job, token=token)


WORKER = TargetSetup(
    SweepTarget.WORKER,
    # One job at a time, for the same messages in the same order; the second worker reconciles.
    ("--concurrency", "1", "--no-reconciler"),
    _enqueue_jobs,
    lambda drill: drill.unfinished() == 0,
)
RECONCILER = TargetSetup(
    SweepTarget.RECONCILER, (), _leave_leases, lambda drill: drill.count(_TO_RECONCILE) == 0
)
SCHEDULER = TargetSetup(
    SweepTarget.SCHEDULER,
    (),
    leave_schedules,
    all_have_fired,
    broken_firings,
    finishes_it=True,
)

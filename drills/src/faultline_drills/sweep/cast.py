"""Who is struck, and in the middle of what: a worker with jobs of each kind, a reconciler with leases to
give back."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import LiteralString

from faultline.postgres.sessions import connect, run
from faultline.statements import protocol, workers
from faultline_drills import workload
from faultline_drills.arena import Arena
from faultline_drills.history import Verb
from faultline_drills.sweep.point import Target

_TO_GIVE_BACK: LiteralString = (
    "SELECT (SELECT count(*) FROM faultline.jobs WHERE state = 'running')"
    " + (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL)"
)
_LONG_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Cast:
    target: Target
    options: tuple[str, ...]
    prepare: Callable[[Arena], None]
    is_done: Callable[[Arena], bool]  # it has done what there is to do, and may be asked to leave


def _give_work(arena: Arena) -> None:
    """One job that outlasts a few heartbeats, one without writes of its own, one that fails once, and
    one that commits in a transaction of the handler's."""
    long, short = arena.settings.lease_seconds * 0.6, arena.settings.lease_seconds * 0.2
    arena.submit(workload.pay, number=1, parts=2, work_seconds=long)
    arena.submit(workload.note, number=2)
    arena.submit(workload.pay, number=3, work_seconds=short, plan={"1": "raise@half"})
    arena.submit(workload.pay_by_hand, number=4, work_seconds=short)


def _leave_leases(arena: Arena) -> None:
    """A job whose worker has died, one whose lease has run out, and one that waits."""
    for number in range(3):
        arena.submit(workload.pay, number=number)
    _claim_and_die(arena, "died", lease_seconds=_LONG_SECONDS, registers=True)
    _claim_and_die(arena, "silent", lease_seconds=0.1, registers=False)


def _claim_and_die(arena: Arena, worker: str, *, lease_seconds: float, registers: bool) -> None:
    with connect(arena.url, application_name="faultline drill") as conn:
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
            arena.history.saw(worker, Verb.CLAIM, job=job, token=token)
            arena.history.invoke(worker, Verb.ATTEMPT, job=job, token=token)


WORKER = Cast(
    Target.WORKER,
    # One job at a time: the same messages in the same order. Recovery is left to the second worker.
    ("--concurrency", "1", "--no-reconciler"),
    _give_work,
    lambda arena: arena.unfinished() == 0,
)
RECONCILER = Cast(
    Target.RECONCILER, (), _leave_leases, lambda arena: arena.count(_TO_GIVE_BACK) == 0
)

"""Six reconcilers requeue expired leases while clients commit late.

Three are processes, whose leader is killed; three are bare loops without leader election. About
half of the clients' short leases expire before the commit. No reconciler may requeue a finished
job, and every late commit must be refused.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import Connection, run
from faultline.statements import protocol
from faultline_drills.clients.concurrent_sessions import run_concurrently
from faultline_drills.context import DrillContext
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

RECONCILERS = 3
CLIENTS = 3
LEASE_SECONDS = 0.1
PAUSE_SECONDS = 0.002


@scenario(shows=("kills", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def concurrent_reconcilers(drill: DrillContext) -> None:
    for number in range(3 * drill.settings.jobs):
        drill.submit(pay, number=number)
    for _ in range(RECONCILERS):
        drill.worker(command="reconciler")
    _kill_the_leader(drill)
    chances = [
        random.Random(drill.random.random())  # noqa: S311 - a drill must be repeatable
        for _ in range(CLIENTS)
    ]
    run_concurrently(
        drill,
        [_client(drill, f"client-{n + 1}", chance) for n, chance in enumerate(chances)]
        + [_reconciler(drill, f"bare-reconciler-{n + 1}") for n in range(RECONCILERS)],
    )


def _kill_the_leader(drill: DrillContext) -> None:
    def leaders() -> list[int]:
        return [
            number
            for number, each in enumerate(drill.workers)
            if each.events_named("reconciler_leading")
        ]

    drill.wait_until(lambda: bool(leaders()), "a leader")
    first = drill.workers[leaders()[0]]
    first.kill()
    drill.inject("kill", first.name)
    drill.wait_until(lambda: len(leaders()) > 1, "a new leader")


def _client(drill: DrillContext, name: str, chance: random.Random) -> Callable[[Connection], None]:
    """Claim a job, wait, and commit, in time or not; the first commit is always late."""

    def work(conn: Connection) -> None:
        deadline = time.monotonic() + drill.settings.timeout_seconds
        wait_seconds = 1.5 * LEASE_SECONDS
        while _has_unfinished_jobs(conn) and time.monotonic() < deadline:
            statement = protocol.claim(name, ["default"], batch_size=1, lease_seconds=LEASE_SECONDS)
            for claim in run(conn, statement):
                time.sleep(wait_seconds)
                _commit(drill, conn, name, claim)
            wait_seconds = chance.uniform(0.0, 1.5 * LEASE_SECONDS)

    return work


def _commit(drill: DrillContext, conn: Connection, name: str, claim: Claim) -> None:
    job, token = str(claim.job_id), claim.fencing_token
    drill.history.record(name, Verb.CLAIM, job=job, token=token)
    attempt = drill.history.invoke(name, Verb.ATTEMPT, job=job, token=token)
    try:
        with conn.transaction():
            conn.execute(
                "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)", [claim.job_id, token]
            )
            run(conn, protocol.commit(claim))
    except StaleLease as stale:
        drill.history.end(attempt, Phase.FAIL, reason=stale.reason)
        refusal = protocol.record_rejection(
            claim.job_id, stale_token=token, worker=name, reason=stale.reason
        )
        run(conn, refusal)
    else:
        drill.history.end(attempt, Phase.OK)


def _reconciler(drill: DrillContext, name: str) -> Callable[[Connection], None]:
    def reconcile(conn: Connection) -> None:
        deadline = time.monotonic() + drill.settings.timeout_seconds
        while _has_unfinished_jobs(conn) and time.monotonic() < deadline:
            for requeued in run(conn, protocol.reconcile(max_jobs=100)):
                job, token = str(requeued.job_id), requeued.fencing_token
                drill.history.record(
                    name, Verb.RECONCILE, job=job, token=token, lost_worker=requeued.worker
                )
            time.sleep(PAUSE_SECONDS)

    return reconcile


def _has_unfinished_jobs(conn: Connection) -> bool:
    return bool(
        conn.execute(
            "SELECT FROM faultline.jobs WHERE state IN ('queued', 'running') LIMIT 1"
        ).fetchall()
    )

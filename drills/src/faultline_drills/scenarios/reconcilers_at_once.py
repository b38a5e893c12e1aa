"""Six reconcilers take back expired leases at once, while clients claim and commit at the last moment.

Three of them are processes of which one leads, and the leader is killed; three do not ask who leads.
The clients are bare ones, with leases so short that about half run out before the commit. Nobody
takes back what is finished, whoever else is about to, and whoever is too late is refused.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from faultline.errors import StaleLease
from faultline.model import Claim
from faultline.postgres.sessions import Connection, run
from faultline.statements import protocol
from faultline_drills.arena import Arena
from faultline_drills.crowd import all_at_once
from faultline_drills.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay

RECONCILERS = 3
CLIENTS = 3
LEASE_SECONDS = 0.1
PAUSE_SECONDS = 0.002


@scenario(shows=("kills", "takeovers", "stale_rejections", "commits"), breaks_naive=True)
def reconcilers_at_once(arena: Arena) -> None:
    for number in range(3 * arena.settings.jobs):
        arena.submit(pay, number=number)
    for _ in range(RECONCILERS):
        arena.worker(command="reconciler")
    _depose_the_leader(arena)
    chances = [
        random.Random(arena.random.random())  # noqa: S311 - a drill must be repeatable
        for _ in range(CLIENTS)
    ]
    all_at_once(
        arena,
        [_client(arena, f"client-{n + 1}", chance) for n, chance in enumerate(chances)]
        + [_reconciler(arena, f"bare-reconciler-{n + 1}") for n in range(RECONCILERS)],
    )


def _depose_the_leader(arena: Arena) -> None:
    def leaders() -> list[int]:
        return [
            number for number, each in enumerate(arena.workers) if each.heard("reconciler_leading")
        ]

    arena.wait_until(lambda: bool(leaders()), "a leader")
    first = arena.workers[leaders()[0]]
    first.kill()
    arena.inject("kill", first.name)
    arena.wait_until(lambda: len(leaders()) > 1, "a new leader")


def _client(arena: Arena, name: str, chance: random.Random) -> Callable[[Connection], None]:
    """Claims a job, waits, and commits, in time or not. The first time it is always too late."""

    def work(conn: Connection) -> None:
        deadline = time.monotonic() + arena.settings.timeout_seconds
        wait_seconds = 1.5 * LEASE_SECONDS
        while _goes_on(conn) and time.monotonic() < deadline:
            statement = protocol.claim(name, ["default"], batch_size=1, lease_seconds=LEASE_SECONDS)
            for claim in run(conn, statement):
                time.sleep(wait_seconds)
                _commit(arena, conn, name, claim)
            wait_seconds = chance.uniform(0.0, 1.5 * LEASE_SECONDS)

    return work


def _commit(arena: Arena, conn: Connection, name: str, claim: Claim) -> None:
    job, token = str(claim.job_id), claim.fencing_token
    arena.history.saw(name, Verb.CLAIM, job=job, token=token)
    attempt = arena.history.invoke(name, Verb.ATTEMPT, job=job, token=token)
    try:
        with conn.transaction():
            conn.execute(
                "INSERT INTO drill.effects (job_id, token) VALUES (%s, %s)", [claim.job_id, token]
            )
            run(conn, protocol.commit(claim))
    except StaleLease as stale:
        arena.history.end(attempt, Phase.FAIL, reason=stale.reason)
        refusal = protocol.record_rejection(
            claim.job_id, stale_token=token, worker=name, reason=stale.reason
        )
        run(conn, refusal)
    else:
        arena.history.end(attempt, Phase.OK)


def _reconciler(arena: Arena, name: str) -> Callable[[Connection], None]:
    def look(conn: Connection) -> None:
        deadline = time.monotonic() + arena.settings.timeout_seconds
        while _goes_on(conn) and time.monotonic() < deadline:
            for reaped in run(conn, protocol.reconcile(max_jobs=100)):
                job, token = str(reaped.job_id), reaped.fencing_token
                arena.history.saw(name, Verb.REAP, job=job, token=token, lost_worker=reaped.worker)
            time.sleep(PAUSE_SECONDS)

    return look


def _goes_on(conn: Connection) -> bool:
    return bool(
        conn.execute(
            "SELECT FROM faultline.jobs WHERE state IN ('queued', 'running') LIMIT 1"
        ).fetchall()
    )

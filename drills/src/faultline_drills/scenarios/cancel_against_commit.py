"""Operators cancel jobs at the very moment at which those commit.

One of the two is first, decided by the lock on the job's row. A commit that is on its way stands, and
the operator is told that the job has succeeded. A job that is cancelled stays so, and the commit that
comes after it is refused with everything in its transaction. There is never both, and never neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import LiteralString
from uuid import UUID

import psycopg

from faultline.errors import FaultlineError
from faultline.model import JobState
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import protocol
from faultline_drills.arena import POLL_SECONDS, Arena
from faultline_drills.crowd import all_at_once
from faultline_drills.history import Phase, Verb
from faultline_drills.nemesis.messages import is_commit
from faultline_drills.proxy import Action, Match, proxy_to
from faultline_drills.scenario import scenario
from faultline_drills.workload import pay_by_hand

WORK_SECONDS = 0.2
_WAITS: LiteralString = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


@scenario(
    shows=("cancels", "late_commits", "late_cancels", "stale_rejections", "dead_jobs", "commits"),
    breaks_naive=True,
)
def cancel_against_commit(arena: Arena) -> None:
    _at_the_very_moment(arena)
    jobs = [
        arena.submit(pay_by_hand, number=number, parts=2, work_seconds=WORK_SECONDS)
        for number in range(2, arena.settings.jobs)
    ]
    arena.worker("--no-self-fencing", "--concurrency", str(len(jobs) or 1))
    delays = [arena.random.uniform(0.0, 2 * WORK_SECONDS) for _ in jobs]
    acts = [_cancellation(arena, job, delay) for job, delay in zip(jobs, delays, strict=True)]
    if acts:
        all_at_once(arena, acts)


def _at_the_very_moment(arena: Arena) -> None:
    """One commit is held up until it is too late, and one cancellation is."""
    refused = arena.submit(pay_by_hand, number=0, parts=2)
    proxy = arena.stack.enter_context(proxy_to(arena.url))
    trap = proxy.on(Match(text="faultline.commit("), Action.HOLD)
    # A transaction that idles for longer than its lease is ended: here it has to wait for us.
    patience = ("--lease-seconds", str(20 * arena.settings.lease_seconds))
    worker = arena.worker("--no-self-fencing", "--concurrency", "1", *patience, url=proxy.url)
    arena.expect(trap.wait(arena.settings.timeout_seconds) is not None, "a commit came by")
    answer = _cancel(arena, arena.conn, refused)
    arena.inject("late_commit", worker.name)
    proxy.release(trap)
    arena.expect(answer is JobState.FAILED, f"a job in mid-air is cancelled, not {answer}")
    arena.wait_until(lambda: bool(worker.heard("worker_exit")), "the refusal")

    trap = proxy.on(Match(where=is_commit), Action.HOLD)
    stands = arena.submit(pay_by_hand, number=1, parts=2)
    arena.expect(trap.wait(arena.settings.timeout_seconds) is not None, "a COMMIT came by")
    with connect(arena.url) as conn, ThreadPoolExecutor(1) as pool:
        pid = conn.info.backend_pid
        answered = pool.submit(_cancel, arena, conn, stands)
        arena.wait_until(
            lambda: answered.done() or bool(arena.query(_WAITS, [pid])), "a cancellation on its way"
        )
        if answered.done():  # without a fence it may have been another commit that was held up
            arena.expect(False, "a cancellation waits for the row")
        else:
            arena.inject("late_cancel", str(stands))
        proxy.release(trap)
        answer = answered.result(arena.settings.timeout_seconds)
    arena.expect(answer is JobState.SUCCEEDED, f"a commit on its way stands, and is not {answer}")
    arena.dismiss([worker])


def _cancellation(arena: Arena, job: UUID, delay_seconds: float) -> Callable[[Connection], None]:
    """Cancel it this long after it was claimed."""

    def act(conn: Connection) -> None:
        deadline = time.monotonic() + arena.settings.timeout_seconds
        query = "SELECT claimed_at IS NOT NULL FROM faultline.jobs WHERE id = %s"
        while time.monotonic() < deadline and not conn.execute(query, [job]).fetchall()[0][0]:
            time.sleep(POLL_SECONDS)
        time.sleep(delay_seconds)
        answer = _cancel(arena, conn, job)
        ((state,),) = conn.execute(
            "SELECT state FROM faultline.jobs WHERE id = %s", [job]
        ).fetchall()
        arena.expect(state == answer, f"job {job} was said to have {answer}, and is {state}")

    return act


def _cancel(arena: Arena, conn: Connection, job: UUID) -> JobState | None:
    """What the operator is told; None for an error, which there must not be."""
    operation = arena.history.invoke("operator", Verb.CANCEL, job=str(job))
    try:
        answer = run(conn, protocol.cancel(job, "changed my mind"))
    except (psycopg.Error, FaultlineError) as error:
        arena.history.end(operation, Phase.INFO)
        arena.expect(False, f"a cancellation ended in {error!r}")
        return None
    arena.history.end(operation, Phase.OK, state=answer)
    arena.inject("cancel", str(job))
    return answer

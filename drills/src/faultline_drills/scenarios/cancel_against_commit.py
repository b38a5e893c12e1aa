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
from faultline_drills.clients.concurrent_sessions import run_concurrently
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.recording.history import Phase, Verb
from faultline_drills.scenario import scenario
from faultline_drills.waiting import POLL_SECONDS
from faultline_drills.workload.tasks import pay_by_hand

WORK_SECONDS = 0.2
_WAITS: LiteralString = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


@scenario(
    shows=("cancels", "late_commits", "late_cancels", "stale_rejections", "dead_jobs", "commits"),
    breaks_naive=True,
)
def cancel_against_commit(drill: DrillContext) -> None:
    _at_the_very_moment(drill)
    jobs = [
        drill.submit(pay_by_hand, number=number, parts=2, work_seconds=WORK_SECONDS)
        for number in range(2, drill.settings.jobs)
    ]
    drill.worker("--no-self-fencing", "--concurrency", str(len(jobs) or 1))
    delays = [drill.random.uniform(0.0, 2 * WORK_SECONDS) for _ in jobs]
    acts = [_cancellation(drill, job, delay) for job, delay in zip(jobs, delays, strict=True)]
    if acts:
        run_concurrently(drill, acts)


def _at_the_very_moment(drill: DrillContext) -> None:
    """One commit is held up until it is too late, and one cancellation is."""
    refused = drill.submit(pay_by_hand, number=0, parts=2)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    interception = proxy.on(Match(text="faultline.commit("), Action.HOLD)
    # A transaction that idles for longer than its lease is ended: here it has to wait for us.
    patience = ("--lease-seconds", str(20 * drill.settings.lease_seconds))
    worker = drill.worker("--no-self-fencing", "--concurrency", "1", *patience, url=proxy.url)
    drill.expect(interception.wait(drill.settings.timeout_seconds) is not None, "a commit came by")
    answer = _cancel(drill, drill.conn, refused)
    drill.inject("late_commit", worker.name)
    proxy.release(interception)
    drill.expect(answer is JobState.FAILED, f"a job in mid-air is cancelled, not {answer}")
    drill.wait_until(lambda: bool(worker.events_named("worker_exit")), "the refusal")

    interception = proxy.on(Match(where=is_commit), Action.HOLD)
    stands = drill.submit(pay_by_hand, number=1, parts=2)
    drill.expect(interception.wait(drill.settings.timeout_seconds) is not None, "a COMMIT came by")
    with connect(drill.url) as conn, ThreadPoolExecutor(1) as pool:
        pid = conn.info.backend_pid
        answered = pool.submit(_cancel, drill, conn, stands)
        drill.wait_until(
            lambda: answered.done() or bool(drill.query(_WAITS, [pid])), "a cancellation on its way"
        )
        if answered.done():  # without a fence it may have been another commit that was held up
            drill.expect(False, "a cancellation waits for the row")
        else:
            drill.inject("late_cancel", str(stands))
        proxy.release(interception)
        answer = answered.result(drill.settings.timeout_seconds)
    drill.expect(answer is JobState.SUCCEEDED, f"a commit on its way stands, and is not {answer}")
    drill.stop_workers([worker])


def _cancellation(
    drill: DrillContext, job: UUID, delay_seconds: float
) -> Callable[[Connection], None]:
    """Cancel it this long after it was claimed."""

    def act(conn: Connection) -> None:
        deadline = time.monotonic() + drill.settings.timeout_seconds
        query = "SELECT claimed_at IS NOT NULL FROM faultline.jobs WHERE id = %s"
        while time.monotonic() < deadline and not conn.execute(query, [job]).fetchall()[0][0]:
            time.sleep(POLL_SECONDS)
        time.sleep(delay_seconds)
        answer = _cancel(drill, conn, job)
        ((state,),) = conn.execute(
            "SELECT state FROM faultline.jobs WHERE id = %s", [job]
        ).fetchall()
        drill.expect(state == answer, f"job {job} was said to have {answer}, and is {state}")

    return act


def _cancel(drill: DrillContext, conn: Connection, job: UUID) -> JobState | None:
    """What the operator is told; None for an error, which there must not be."""
    operation = drill.history.invoke("operator", Verb.CANCEL, job=str(job))
    try:
        answer = run(conn, protocol.cancel(job, "changed my mind"))
    except (psycopg.Error, FaultlineError) as error:
        drill.history.end(operation, Phase.INFO)
        drill.expect(False, f"a cancellation ended in {error!r}")
        return None
    drill.history.end(operation, Phase.OK, state=answer)
    drill.inject("cancel", str(job))
    return answer

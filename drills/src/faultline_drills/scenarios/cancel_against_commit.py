"""Operators cancel jobs at the moment at which they commit.

The lock on the job's row decides which is first. A commit that has locked the row stands, and the
operator gets the state succeeded. A cancelled job stays cancelled, and a later commit is refused
with its whole transaction. Never both, never neither.
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
    """Hold one commit until its job is cancelled, and one cancel until the commit."""
    refused = drill.submit(pay_by_hand, number=0, parts=2)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    interception = proxy.on(Match(text="faultline.commit("), Action.HOLD)
    # A long lease, because PostgreSQL ends a transaction that idles for longer than its lease.
    long_lease = ("--lease-seconds", str(20 * drill.settings.lease_seconds))
    worker = drill.worker("--no-self-fencing", "--concurrency", "1", *long_lease, url=proxy.url)
    drill.expect(
        interception.wait(drill.settings.timeout_seconds) is not None, "no commit was sent"
    )
    answer = _cancel(drill, drill.conn, refused)
    drill.inject("late_commit", worker.name)
    proxy.release(interception)
    drill.expect(answer is JobState.FAILED, f"the cancellation before the commit returned {answer}")
    drill.wait_until(lambda: bool(worker.events_named("worker_exit")), "the refusal")

    interception = proxy.on(Match(where=is_commit), Action.HOLD)
    stands = drill.submit(pay_by_hand, number=1, parts=2)
    drill.expect(
        interception.wait(drill.settings.timeout_seconds) is not None, "no COMMIT was sent"
    )
    with connect(drill.url) as conn, ThreadPoolExecutor(1) as pool:
        pid = conn.info.backend_pid
        answered = pool.submit(_cancel, drill, conn, stands)
        drill.wait_until(
            lambda: answered.done() or bool(drill.query(_WAITS, [pid])), "a cancellation that waits"
        )
        if answered.done():  # without a fence another commit may be held
            drill.expect(False, "the cancellation did not wait for the row")
        else:
            drill.inject("late_cancel", str(stands))
        proxy.release(interception)
        answer = answered.result(drill.settings.timeout_seconds)
    drill.expect(
        answer is JobState.SUCCEEDED, f"the cancellation after the commit returned {answer}"
    )
    drill.stop_workers([worker])


def _cancellation(
    drill: DrillContext, job: UUID, delay_seconds: float
) -> Callable[[Connection], None]:
    """Cancel the job so long after it was claimed."""

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
        drill.expect(
            state == answer,
            f"job {job}: cancel returned {answer}, but it is {state}",
        )

    return act


def _cancel(drill: DrillContext, conn: Connection, job: UUID) -> JobState | None:
    """The state that the operator gets; None for an error, which must not occur."""
    operation = drill.history.invoke("operator", Verb.CANCEL, job=str(job))
    try:
        answer = run(conn, protocol.cancel(job, "changed my mind"))
    except (psycopg.Error, FaultlineError) as error:
        drill.history.end(operation, Phase.INFO)
        drill.expect(False, f"a cancellation raised {error!r}")
        return None
    drill.history.end(operation, Phase.OK, state=answer)
    drill.inject("cancel", str(job))
    return answer

"""How an attempt ends when the database's last answer about it no longer holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from faultline import Faultline, Job, JobState, StaleLease
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import run
from faultline.retry_policy import RetryDecision
from faultline.statements import protocol
from faultline.steady import steady_now
from faultline.workers.background import BackgroundTasks, Wakeup
from faultline.workers.committer import Committer
from faultline.workers.leases import HeldLeases, Lease
from faultline.workers.outcomes import Outcomes
from tests.running import Connection, EventTap, count


def make_outcomes(
    url: str, held_leases: HeldLeases, committer: Committer | None = None
) -> Outcomes:
    def make_session(purpose: str, *, on_connect: Any = None) -> ReconnectingSession:
        return ReconnectingSession(url, purpose=purpose, on_connect=on_connect)

    return Outcomes(
        "worker",
        held_leases=held_leases,
        committer=committer,  # type: ignore[arg-type]
        make_session=make_session,
        background=BackgroundTasks(Wakeup()),
        decide_retry=lambda claim, error: RetryDecision(0.0),
        wakeup=Wakeup(),
    )


def settle(url: str, lease: Lease, act: Callable[[Outcomes], Coroutine[Any, Any, None]]) -> None:
    async def run_it() -> None:
        held_leases = HeldLeases()
        held_leases.add(lease)
        outcomes = make_outcomes(url, held_leases)
        try:
            await act(outcomes)
        finally:
            await outcomes.close()
        assert len(held_leases) == 0

    asyncio.run(run_it())


def claimed(app: Faultline, conn: Connection) -> Lease:
    @app.task()
    async def noop(job: Job) -> None: ...

    noop.enqueue()
    (claim,) = run(conn, protocol.claim("worker", ["default"], batch_size=1, lease_seconds=60))
    return Lease(claim, sent_at=steady_now(), lease_seconds=60)


def test_a_commit_that_succeeded_after_an_expired_reply_is_a_success(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    """The batch was sent twice: the retry was refused, then the first copy committed.

    In between, the lease was renewed.
    """
    lease = claimed(app, conn)
    run(conn, protocol.commit(lease.claim))

    settle(
        app.database_url,
        lease,
        lambda each: each.record_rejection(lease, StaleLease("lease_expired")),
    )

    assert count(conn, "faultline.rejections") == 0
    assert events.of("stale_write_blocked") == []
    assert [event["reason"] for event in events.of("worker_exit")] == ["success"]


def test_an_expired_lease_that_was_not_superseded_is_released_and_recorded(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    lease = claimed(app, conn)

    settle(
        app.database_url,
        lease,
        lambda each: each.record_rejection(lease, StaleLease("lease_expired")),
    )

    assert app.get(lease.claim.job_id).state is JobState.QUEUED
    assert count(conn, "faultline.rejections") == 1
    assert len(events.of("stale_write_blocked")) == 1

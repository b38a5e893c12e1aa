"""Reads the schedule of an explored program when its actors have ended."""

from __future__ import annotations

from typing import Any, LiteralString, TypeVar

from faultline.postgres.reconnecting import ReconnectingSession
from faultline.postgres.sessions import Connection, run
from faultline.reconciler.scheduler import Scheduler
from faultline.statements import invariants
from faultline.statements.statement import Statement
from faultline_drills.explorer.schedule_rules import NAME, ScheduleFacts

T = TypeVar("T")
_AGREEMENT = (
    "a_schedule_has_recorded_what_it_decided",
    "a_firing_has_its_job",
    "a_scheduled_job_has_its_firing",
)
_JOBS_AT: LiteralString = """
    SELECT scheduled_for::text, count(*) FROM faultline.jobs
    WHERE scheduled_for IS NOT NULL GROUP BY 1 ORDER BY 1
"""
_DECIDED: LiteralString = """
    SELECT count(*) FILTER (WHERE outcome = 'fired') + coalesce(sum(skipped), 0),
           count(*) FILTER (WHERE outcome = 'manual')
    FROM faultline.schedule_firings WHERE schedule = %s
"""
_STATE: LiteralString = """
    SELECT revision > 1, paused_at IS NULL AND coalesce(next_fire_at <= clock_timestamp(), true),
           extract(epoch FROM coalesce(next_fire_at, anchor) - anchor) %% every_seconds = 0
    FROM faultline.schedules WHERE name = %s
"""


class _PlainSession(ReconnectingSession):
    """Runs a scheduler's statements on a connection that no actor uses."""

    def __init__(self, conn: Connection) -> None:
        super().__init__("", purpose="scheduler")
        self._plain = conn

    async def run(self, statement: Statement[T]) -> T:
        return run(self._plain, statement)


def look_once(conn: Connection) -> None:
    """Let one more scheduler look, as the next tick does."""
    scheduler = Scheduler("")
    scheduler._session = _PlainSession(conn)
    looking = scheduler.look()
    try:
        looking.send(None)
    except StopIteration:
        return
    looking.close()
    raise AssertionError("the scheduler waits for an event loop")


def read_schedule_facts(conn: Connection) -> ScheduleFacts:
    def rows(query: LiteralString, *params: Any) -> list[tuple[Any, ...]]:
        return conn.execute(query, params or None).fetchall()

    ((decided, manual),) = rows(_DECIDED, NAME)
    ((is_changed, is_due, has_own_time),) = rows(_STATE, NAME)
    disagreements = [
        f"{invariant.claim}: {found.evidence}"
        for invariant in invariants.INVARIANTS
        if invariant.name in _AGREEMENT
        for found in run(conn, invariants.check(invariant))
    ]
    return ScheduleFacts(
        jobs_at=dict(rows(_JOBS_AT)),
        decided=int(decided),
        manual=manual,
        is_changed=is_changed,
        is_due=is_due,
        has_own_time=has_own_time,
        disagreements=tuple(disagreements),
    )

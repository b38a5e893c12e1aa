"""How jobs ended, for callers that wait for their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from faultline.errors import DatabaseUnavailable
from faultline.model import JobState
from faultline.statements.statement import Row, Statement, no_result

CHANNEL = "faultline_results"


@dataclass(frozen=True, slots=True)
class AwaitedJob:
    """How a job ended, or not; state is None if neither job nor ledger entry exists."""

    job_id: UUID
    state: JobState | None
    failed_reason: str | None
    error: str | None
    result: Any
    is_awaited: bool  # its end sends a notification

    @property
    def has_ended(self) -> bool:
        return self.state not in (JobState.QUEUED, JobState.RUNNING)


def outcomes_of(job_ids: Sequence[UUID]) -> Statement[list[AwaitedJob]]:
    """One outcome for each id, in any order. A standby is refused: it may be behind."""

    def read(rows: list[Row]) -> list[AwaitedJob]:
        if any(row[-1] for row in rows):
            raise DatabaseUnavailable("the server is a standby, which may be behind the primary")
        return [
            AwaitedJob(row[0], None if row[1] is None else JobState(row[1]), *row[2:-1])
            for row in rows
        ]

    return Statement(
        """
        SELECT job_id, state, failed_reason, error, result, awaited, pg_is_in_recovery()
        FROM faultline.outcomes(%s::uuid[])
        """,
        (list(job_ids),),
        read,
    )


def await_jobs(job_ids: Sequence[UUID]) -> Statement[None]:
    """Have the end of each of these jobs send a notification on CHANNEL."""
    return Statement("SELECT faultline.await_jobs(%s::uuid[])", (list(job_ids),), no_result)

"""What happened to a job: its attempts as spans of time, and the story in order. Pure but for one read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from faultline.model import JobState
from faultline.statements.jobs import LedgerEntry, LoggedAttempt, Rejection
from faultline.statements.statement import Statement

T = TypeVar("T")

LONGEST = 1_000  # attempts, and refusals, of one job; a story is told from its beginning

_TAKEN_AWAY = ("expired", "worker_lost")
_ENDINGS = {
    "expired": "the lease ran out; the job was taken back",
    "worker_lost": "the worker died; the job was taken back",
    "failed": "the attempt failed",
    "released": "handed back; the attempt does not count",
    "cancelled": "cancelled",
    "retried": "queued again by hand, with all its attempts",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands now, as far as its story needs it."""

    state: JobState
    attempt: int
    token: int
    worker: str | None
    claimed_at: datetime | None
    created_at: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    attempt: int
    token: int
    worker: str | None
    claimed_at: datetime
    ended_at: datetime | None
    outcome: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Moment:
    at: datetime
    kind: str
    token: int | None
    worker: str | None
    text: str


def standing_of(job_id: UUID) -> Statement[Standing | None]:
    return Statement(
        "SELECT state, attempts, fencing_token, lease_owner, claimed_at, created_at, clock_timestamp()"
        " FROM faultline.jobs WHERE id = %s",
        (job_id,),
        lambda rows: Standing(JobState(rows[0][0]), *rows[0][1:]) if rows else None,
    )


def bounded(statement: Statement[list[T]]) -> Statement[list[T]]:
    return replace(statement, sql=statement.sql + " LIMIT %s", params=(*statement.params, LONGEST))


def attempts(
    standing: Standing, logged: Sequence[LoggedAttempt], entry: LedgerEntry | None
) -> list[Attempt]:
    """Every time a worker had the job. The happy path logs nothing: the last one is in the job's row."""
    spans = [
        Attempt(
            *(each.attempt, each.fencing_token, each.worker, each.claimed_at, each.ended_at),
            *(each.outcome, each.error),
        )
        for each in logged
        if each.claimed_at is not None
    ]
    is_logged = any(span.token == standing.token for span in spans)
    if standing.claimed_at is None or is_logged:
        return spans
    last = Attempt(
        *(standing.attempt, standing.token, standing.worker, standing.claimed_at, None),
        *("running", None),
    )
    if entry is not None and entry.fencing_token == standing.token:
        ended = replace(last, worker=entry.worker, ended_at=entry.committed_at, outcome="succeeded")
        return [*spans, ended]
    return [*spans, last] if standing.state is JobState.RUNNING else spans


def story(
    standing: Standing,
    spans: Sequence[Attempt],
    logged: Sequence[LoggedAttempt],
    rejections: Sequence[Rejection],
    entry: LedgerEntry | None,
) -> list[Moment]:
    moments = [Moment(standing.created_at, "enqueued", None, None, "enqueued")]
    moments += _claims(spans)
    moments += [_ending(each) for each in logged]
    moments += [_refusal(each) for each in rejections]
    if entry is not None:
        moments.append(
            Moment(
                *(entry.committed_at, "committed", entry.fencing_token, entry.worker),
                f"committed under token {entry.fencing_token}: in the ledger",
            )
        )
    # Stable: at the same instant a claim comes before its end.
    return sorted(moments, key=lambda moment: moment.at)


def _claims(spans: Sequence[Attempt]) -> Iterator[Moment]:
    before: Attempt | None = None
    for span in spans:
        if before is not None and before.outcome in _TAKEN_AWAY:
            text = f"taken over from {before.worker or 'a worker that is gone'}, with token {span.token}"
            yield Moment(span.claimed_at, "taken_over", span.token, span.worker, text)
        else:
            text = f"claimed with token {span.token}"
            yield Moment(span.claimed_at, "claimed", span.token, span.worker, text)
        before = span


def _ending(logged: LoggedAttempt) -> Moment:
    text = _ENDINGS.get(logged.outcome, logged.outcome)
    if logged.error:
        text = f"{text}: {logged.error}"
    token = logged.fencing_token or None
    return Moment(logged.ended_at, logged.outcome, token, logged.worker, text)


def _refusal(rejection: Rejection) -> Moment:
    text = f"stale write refused: {rejection.reason}"
    if rejection.current_token is not None:
        text += f"; the job is at token {rejection.current_token}"
    if overlap := rejection.overlap.total_seconds():
        text += f"; two attempts ran side by side for {overlap:.2f} s"
    return Moment(rejection.rejected_at, "refused", rejection.stale_token, rejection.worker, text)

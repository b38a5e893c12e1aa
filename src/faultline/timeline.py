"""A job's timeline, rebuilt from the rows that the protocol leaves behind. No I/O.

`faultline jobs show` and the inspector print the same events, from the same statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from faultline.model import JobState
from faultline.statements import jobs, unique_jobs
from faultline.statements.jobs import JobProgress, LedgerEntry, LoggedAttempt, Rejection
from faultline.statements.statement import Reads, result_of
from faultline.statements.unique_jobs import UniqueJob
from faultline.wording import count

LONGEST = 1_000  # attempts, and rejections, of one job that the inspector reads

_RECONCILED = ("expired", "worker_lost")
_ENDINGS = {
    "expired": "the lease expired; the job was reconciled",
    "worker_lost": "the worker died; the job was reconciled",
    "failed": "the attempt failed",
    "released": "released; the attempt does not count",
    "snoozed": "snoozed by its handler; the attempt does not count",
    "cancelled": "cancelled",
    "retried": "retried by an operator, with all its attempts",
    "edited": "the payload was edited by an operator",
    "replaced": "the payload was replaced by a later enqueue of its unique key",
}


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The rows about one job that its timeline is made of."""

    job: JobProgress
    logged: list[LoggedAttempt]
    entry: LedgerEntry | None
    rejections: list[Rejection]
    unique: UniqueJob | None = None


def history_of(job_id: UUID, *, limit: int | None = None) -> Reads[JobHistory | None]:
    """Read a job's history; None if there is no such job. `limit` bounds each list."""
    job = yield from result_of(jobs.progress_of(job_id))
    if job is None:
        return None
    return JobHistory(
        job=job,
        logged=(yield from result_of(jobs.attempts_of(job_id, limit=limit))),
        entry=(yield from result_of(jobs.ledger_entry_of(job_id))),
        rejections=(yield from result_of(jobs.rejections_of(job_id, limit=limit))),
        unique=(yield from result_of(unique_jobs.of_job(job_id))),
    )


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """One claim of the job, from the claim to its end."""

    attempt: int
    token: int
    worker: str | None
    claimed_at: datetime
    ended_at: datetime | None
    outcome: str
    error: str | None


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    at: datetime
    kind: str
    token: int | None
    worker: str | None
    text: str


def attempts(history: JobHistory) -> list[AttemptSpan]:
    """Every claim of the job.

    A claim that runs or has succeeded is in the job's row, not in the log.
    """
    job, entry = history.job, history.entry
    spans = [
        AttemptSpan(
            *(each.attempt, each.fencing_token, each.worker, each.claimed_at, each.ended_at),
            *(each.outcome, each.error),
        )
        for each in history.logged
        if each.claimed_at is not None
    ]
    is_logged = any(span.token == job.token for span in spans)
    if job.claimed_at is None or is_logged:
        return spans
    last = AttemptSpan(
        *(job.attempt, job.token, job.worker, job.claimed_at, None), *("running", None)
    )
    if entry is not None and entry.fencing_token == job.token:
        ended = replace(last, worker=entry.worker, ended_at=entry.committed_at, outcome="succeeded")
        return [*spans, ended]
    return [*spans, last] if job.state is JobState.RUNNING else spans


def events(history: JobHistory) -> list[TimelineEvent]:
    """What has happened to the job, oldest first."""
    entry = history.entry
    text = "enqueued" if history.unique is None else f"enqueued, unique by {history.unique.key}"
    found = [TimelineEvent(history.job.created_at, "enqueued", None, None, text)]
    found += _reschedules(history.unique)
    found += _claims(attempts(history))
    found += [_ending(each) for each in history.logged]
    found += [_refusal(each) for each in history.rejections]
    if entry is not None:
        found.append(
            TimelineEvent(
                *(entry.committed_at, "committed", entry.fencing_token, entry.worker),
                f"committed under token {entry.fencing_token}: in the ledger",
            )
        )
    # The sort is stable: at the same instant a claim stays before its end.
    return sorted(found, key=lambda event: event.at)


def upcoming(job: JobProgress) -> list[TimelineEvent]:
    """The next event of a running or queued job, if nothing else happens before."""
    if job.state is JobState.RUNNING and job.lease_expires_at:
        text = "the lease expires"
        return [TimelineEvent(job.lease_expires_at, "lease_ends", job.token, job.worker, text)]
    if job.waits_for is not None:
        text = f"due, and waits for the limit {job.waits_for}"
        return [TimelineEvent(job.next_run_at, "waits", None, None, text)]
    if job.state is JobState.QUEUED:
        return [TimelineEvent(job.next_run_at, "due", None, None, "due: workers may claim it")]
    return []


def _claims(spans: Sequence[AttemptSpan]) -> Iterator[TimelineEvent]:
    before: AttemptSpan | None = None
    for span in spans:
        if before is not None and before.outcome in _RECONCILED:
            text = (
                f"taken over from {before.worker or 'an unknown worker'}, with token {span.token}"
            )
            yield TimelineEvent(span.claimed_at, "taken_over", span.token, span.worker, text)
        else:
            text = f"claimed with token {span.token}"
            yield TimelineEvent(span.claimed_at, "claimed", span.token, span.worker, text)
        before = span


def _reschedules(unique: UniqueJob | None) -> Iterator[TimelineEvent]:
    """The last change by a later enqueue, with their number; each is not recorded."""
    if unique is None or unique.changed_at is None or not unique.rescheduled:
        return
    times = count(unique.rescheduled, "later enqueue")
    text = f"rescheduled by {times} of its unique key; this is the last one"
    yield TimelineEvent(unique.changed_at, "rescheduled", None, None, text)


def _ending(logged: LoggedAttempt) -> TimelineEvent:
    text = _ENDINGS.get(logged.outcome, logged.outcome)
    if logged.error:
        text = f"{text}: {logged.error}"
    if logged.times > 1:
        text = f"{text}; this is the last of {logged.times:,} snoozes, whose other rows were merged"
    if logged.former_payload is not None:
        text = f"{text}; it was {logged.former_payload}"
    token = logged.fencing_token or None
    return TimelineEvent(logged.ended_at, logged.outcome, token, logged.worker, text)


def _refusal(rejection: Rejection) -> TimelineEvent:
    text = f"stale write refused: {rejection.reason}"
    if rejection.current_token is not None:
        text += f"; the job is at token {rejection.current_token}"
    if overlap := rejection.overlap.total_seconds():
        text += f"; two attempts ran at the same time for {overlap:.2f} s"
    at, token, worker = rejection.rejected_at, rejection.stale_token, rejection.worker
    return TimelineEvent(at, "refused", token, worker, text)

"""What happened to a job, in order, rebuilt from the records that the protocol leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from faultline.model import JobRecord, JobState
from faultline.statements.jobs import LedgerEntry, LoggedAttempt, Rejection

_ENDINGS = {
    "expired": "lease ran out; taken back",
    "worker_lost": "worker died; taken back",
    "failed": "attempt failed",
    "released": "handed back; the attempt does not count",
    "cancelled": "cancelled",
    "retried": "queued again by hand, with all attempts",
}


@dataclass(frozen=True, slots=True)
class Moment:
    at: datetime
    event: str
    says: str
    fencing_token: int | None = None
    worker: str | None = None
    detail: str | None = None


def timeline(
    record: JobRecord,
    attempts: list[LoggedAttempt],
    entry: LedgerEntry | None,
    rejections: list[Rejection],
) -> list[Moment]:
    moments = [Moment(record.created_at, "created", "created")]
    for logged in attempts:
        if logged.claimed_at:
            moments.append(_claimed(logged.claimed_at, logged.fencing_token, logged.worker))
        says = _ENDINGS.get(logged.outcome, logged.outcome)
        moments.append(
            Moment(
                *(logged.ended_at, logged.outcome, says),
                *(logged.fencing_token or None, logged.worker, logged.error),
            )
        )
    # The happy path logs nothing: the last claim is known from the job's own row.
    ended = {logged.fencing_token for logged in attempts if logged.claimed_at}
    if record.claimed_at and record.fencing_token not in ended:
        worker = record.lease_owner or (entry.worker if entry else None)
        moments.append(_claimed(record.claimed_at, record.fencing_token, worker))
    if entry:
        says = "committed: in the ledger"
        moments.append(
            Moment(entry.committed_at, "committed", says, entry.fencing_token, entry.worker)
        )
    moments += [_refused(rejection) for rejection in rejections]
    moments.sort(
        key=lambda moment: moment.at
    )  # stable: at the same instant, a claim before its end
    return moments + _still_to_come(record)


def _claimed(at: datetime, token: int, worker: str | None) -> Moment:
    return Moment(at, "claimed", "claimed", token, worker)


def _refused(rejection: Rejection) -> Moment:
    now_at = f"; the job is at token {rejection.current_token}" if rejection.current_token else ""
    overlap = rejection.overlap.total_seconds()
    side_by_side = f"; two attempts ran side by side for {overlap:.2f} s" if overlap else ""
    return Moment(
        *(rejection.rejected_at, "stale_write_refused", "stale write refused"),
        *(rejection.stale_token, rejection.worker, f"{rejection.reason}{now_at}{side_by_side}"),
    )


def _still_to_come(record: JobRecord) -> list[Moment]:
    if record.state is JobState.RUNNING and record.lease_expires_at:
        token, worker = record.fencing_token, record.lease_owner
        return [Moment(record.lease_expires_at, "lease_ends", "lease ends", token, worker)]
    if record.state is JobState.QUEUED:
        return [Moment(record.next_run_at, "due", "may be claimed from here on")]
    return []

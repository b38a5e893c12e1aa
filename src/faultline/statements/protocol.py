"""The verbs of protocol.sql as values without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import orjson

from faultline.model import Claim, CommitOutcome, Enqueued, EqualJobs, JobSpec, JobState, Renewal
from faultline.payload import encode_payload, encode_payloads
from faultline.statements.statement import Row, Statement, no_result

CHANNEL = "faultline"
# The fields of `Claim`, in their order.
CLAIM_COLUMNS: LiteralString = (
    "job_id::text, fencing_token, lease_id::text, task, queue, payload::text, attempts,"
    " max_attempts, crashes, priority, next_run_at::text, trace_context,"
    " overrides::text, scheduled_for"
)
DRAIN = "drain"  # in the answer to a heartbeat, without a job: a drain is requested
UNREGISTERED = "unregistered"  # likewise: the worker is not in the registry


class Beat(NamedTuple):
    """The answer to a heartbeat."""

    renewals: dict[str, Renewal]  # by the jobs' ids
    is_drain_requested: bool  # by an operator
    is_registered: bool  # False if the row was purged after a day without a heartbeat


class CommitVerdict(NamedTuple):
    outcome: CommitOutcome
    reason: str | None
    current_token: int | None


_COMMITTED = CommitVerdict(CommitOutcome.COMMITTED, None, None)


@dataclass(frozen=True, slots=True)
class ReconciledJob:
    """A job of a dead worker: queued again, or failed because its attempts are spent."""

    job_id: UUID
    fencing_token: int
    worker: str
    attempt: int
    state: JobState
    cause: str


@dataclass(frozen=True, slots=True)
class FailVerdict:
    state: JobState
    next_run_at: datetime
    failed_reason: str | None


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


# ── producers ────────────────────────────────────────────────────────────────────────────────────


def enqueue(
    task: str,
    payload: Mapping[str, Any],
    *,
    queue: str,
    priority: int,
    max_attempts: int,
    run_at: datetime | None = None,
    idempotency_key: str | None = None,
    trace_context: str | None = None,
) -> Statement[Enqueued]:
    return Statement(
        "SELECT job_id, existing FROM faultline.enqueue(%s, %s::jsonb, %s, %s, %s, %s, %s, %s)",
        (
            task,
            encode_payload(payload),
            queue,
            priority,
            run_at,
            idempotency_key,
            max_attempts,
            trace_context,
        ),
        lambda rows: Enqueued(*rows[0]),
    )


def enqueue_many(
    task: str,
    payloads: Sequence[Mapping[str, Any]],
    *,
    queue: str,
    priority: int,
    max_attempts: int,
    run_at: datetime | None = None,
    idempotency_keys: Sequence[str | None] | None = None,
    trace_context: str | None = None,
) -> Statement[list[Enqueued]]:
    return Statement(
        """
        SELECT job_id, existing
        FROM faultline.enqueue_many(
            %s, ARRAY(SELECT p FROM jsonb_array_elements(%s::jsonb) AS p), %s, %s, %s, %s, %s, %s)
        """,
        (
            task,
            encode_payloads(payloads),
            queue,
            priority,
            run_at,
            None if idempotency_keys is None else list(idempotency_keys),
            max_attempts,
            trace_context,
        ),
        lambda rows: [Enqueued(*row) for row in rows],
    )


def enqueue_job(job: JobSpec, *, trace_context: str | None = None) -> Statement[Enqueued]:
    if not job.has_plain_settings:
        many = enqueue_jobs([job], trace_context=trace_context)
        return Statement(many.sql, many.params, lambda rows: Enqueued(*rows[0]))
    return enqueue(
        job.task,
        job.payload,
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        run_at=job.run_at,
        idempotency_key=job.idempotency_key,
        trace_context=trace_context,
    )


def enqueue_specs(
    jobs: Sequence[JobSpec], *, trace_context: str | None = None
) -> Statement[list[Enqueued]]:
    """Jobs with equal settings go through `enqueue_many`, which is faster."""
    first = jobs[0] if jobs else None
    if first is None or not first.has_plain_settings:
        return enqueue_jobs(jobs, trace_context=trace_context)
    if isinstance(jobs, EqualJobs):
        payloads, keys = jobs.payloads, jobs.keys
    elif any(job.settings != first.settings for job in jobs):
        return enqueue_jobs(jobs, trace_context=trace_context)
    else:
        payloads, keys = [job.payload for job in jobs], [job.idempotency_key for job in jobs]
    return enqueue_many(
        first.task,
        payloads,
        queue=first.queue,
        priority=first.priority,
        max_attempts=first.max_attempts,
        run_at=first.run_at,
        idempotency_keys=keys if [key for key in keys if key is not None] else None,
        trace_context=trace_context,
    )


def enqueue_jobs(
    jobs: Sequence[JobSpec], *, trace_context: str | None = None
) -> Statement[list[Enqueued]]:
    return Statement(
        "SELECT job_id, existing, outcome FROM faultline.enqueue_jobs(%s::jsonb, %s)",
        (f"[{','.join([_described(job) for job in jobs])}]", trace_context),
        lambda rows: [Enqueued(*row) for row in rows],
    )


def _described(job: JobSpec) -> str:
    """One job for `faultline.enqueue_jobs`; absent settings are left out."""
    fields = {
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "run_at": None if job.run_at is None else job.run_at.isoformat(),
        "delay": job.delay_seconds,
        "expires_in": job.expires_in_seconds,
        "timeout": job.timeout_seconds,
        "lease": job.lease_seconds,
        "idempotency_key": job.idempotency_key,
        "unique": None if job.unique is None else job.unique.described(job.payload),
        "tags": job.tags,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return f'{orjson.dumps(given).decode()[:-1]},"payload":{encode_payload(job.payload)}}}'


# ── workers ──────────────────────────────────────────────────────────────────────────────────────


def claim(
    worker: str,
    queues: Sequence[str],
    *,
    batch_size: int,
    lease_seconds: float,
    resume_after: str | None = None,
    tasks: str | None = None,
) -> Statement[list[Claim]]:
    """Claim jobs.

    `resume_after` is JSON text: where earlier claims of this caller ended (`workers.claiming`).
    `tasks` is an array literal: what the caller can run (`workers.unknown_tasks`).
    """
    return Statement(
        f"""
        SELECT {CLAIM_COLUMNS}
        FROM faultline.claim(%s, %s, %s, %s, %s::jsonb, %s::text[])
        """,  # noqa: S608
        (worker, list(queues), batch_size, _seconds(lease_seconds), resume_after, tasks),
        claims_of,
    )


def claims_of(rows: list[Row]) -> list[Claim]:
    new = tuple.__new__  # half the time of Claim._make
    return [new(Claim, row) for row in rows]


def heartbeat(worker: str, claims: Sequence[Claim], *, lease_seconds: float) -> Statement[Beat]:
    return Statement(
        """
        SELECT job_id::text, outcome
        FROM faultline.heartbeat(%s, %s::uuid[], %s::bigint[], %s::uuid[], %s)
        UNION ALL SELECT NULL, %s WHERE NOT EXISTS
            (SELECT FROM faultline.workers AS w WHERE w.id = %s)
        """,
        (worker, *holders(claims), _seconds(lease_seconds), UNREGISTERED, worker),
        _beat,
    )


def _beat(rows: list[Row]) -> Beat:
    renewals = {job_id: Renewal(outcome) for job_id, outcome in rows if job_id is not None}
    return Beat(
        renewals,
        is_drain_requested=(None, DRAIN) in rows,
        is_registered=(None, UNREGISTERED) not in rows,
    )


def assert_fence(claim: Claim, *, idle_seconds: float | None = None) -> Statement[None]:
    return Statement(
        "SELECT faultline.assert_fence(%s::uuid, %s, %s::uuid, %s)",
        (*_fence(claim), None if idle_seconds is None else _seconds(idle_seconds)),
        no_result,
    )


def commit(
    claim: Claim, *, result: str | None = None, idle_seconds: float | None = None
) -> Statement[None]:
    """Complete a job; `result` is JSON text."""
    idle_limit = None if idle_seconds is None else _seconds(idle_seconds)
    return Statement(
        "SELECT faultline.commit(%s::uuid, %s, %s::uuid, %s::jsonb, %s)",
        (*_fence(claim), result, idle_limit),
        no_result,
    )


def commit_many(
    claims: Sequence[Claim], results: Sequence[str | None]
) -> Statement[list[CommitVerdict]]:
    """Commit several jobs. One verdict per claim, in their order.

    The database sends only the verdicts other than "committed".
    """
    count = len(claims)

    def read(rows: list[Row]) -> list[CommitVerdict]:
        verdicts = [_COMMITTED] * count
        for position, outcome, reason, current_token in rows:
            verdicts[position - 1] = CommitVerdict(CommitOutcome(outcome), reason, current_token)
        return verdicts

    return Statement(
        """
        SELECT position, outcome, reason, current_token
        FROM faultline.commit_many(%s::uuid[], %s::bigint[], %s::uuid[], %s::text[]::jsonb[])
        WITH ORDINALITY AS v (job_id, outcome, reason, current_token, position)
        WHERE outcome <> 'committed'
        """,
        (*holders(claims), list(results) if any(results) else None),
        read,
    )


def fail(
    claim: Claim, *, error: str, retry_seconds: float = 0.0, reason: str | None = None
) -> Statement[FailVerdict]:
    return Statement(
        "SELECT state, next_run_at, failed_reason FROM faultline.fail(%s::uuid, %s, %s::uuid, %s, %s, %s)",
        (*_fence(claim), error, _seconds(retry_seconds), reason),
        lambda rows: FailVerdict(JobState(rows[0][0]), rows[0][1], rows[0][2]),
    )


def release(claim: Claim) -> Statement[bool]:
    return Statement(
        "SELECT faultline.release(%s::uuid, %s, %s::uuid)", _fence(claim), lambda rows: True
    )


def record_rejection(
    job_id: UUID, *, stale_token: int, worker: str, reason: str
) -> Statement[timedelta]:
    return Statement(
        "SELECT faultline.record_rejection(%s, %s, %s, %s)",
        (job_id, stale_token, worker, reason),
        lambda rows: rows[0][0],
    )


def in_ledger(claim: Claim) -> Statement[bool]:
    """Whether exactly this claim took effect.

    False proves nothing while a COMMIT may still be on its way.
    """
    return Statement(
        """
        SELECT EXISTS (SELECT FROM faultline.ledger
        WHERE job_id = %s AND fencing_token = %s AND lease_id = %s)
        """,
        _fence(claim),
        lambda rows: bool(rows[0][0]),
    )


def leases_of(worker: str) -> Statement[list[Claim]]:
    """The leases that the database has for this worker.

    After a claim without an answer there may be more than the worker knows.
    """
    return Statement(
        f"""
        SELECT {CLAIM_COLUMNS}
        FROM faultline.leases_of(%s)
        """,  # noqa: S608
        (worker,),
        claims_of,
    )


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────


def fail_expired(*, max_jobs: int) -> Statement[list[UUID]]:
    return Statement(
        "SELECT * FROM faultline.fail_expired(%s)",
        (max_jobs,),
        lambda rows: [job_id for (job_id,) in rows],
    )


def reconcile(
    *, max_jobs: int, dead_workers: Sequence[str] = (), lapsed_leases: Sequence[UUID] = ()
) -> Statement[list[ReconciledJob]]:
    return Statement(
        """
        SELECT job_id, fencing_token, worker, attempts, state, cause
        FROM faultline.reconcile(%s, %s::text[], %s::uuid[])
        """,
        (max_jobs, list(dead_workers), list(lapsed_leases)),
        lambda rows: [
            ReconciledJob(job_id, token, worker, attempt, JobState(state), cause)
            for job_id, token, worker, attempt, state, cause in rows
        ],
    )


# ── operators ────────────────────────────────────────────────────────────────────────────────────


def cancel(job_id: UUID, reason: str | None = None) -> Statement[JobState]:
    return Statement(
        "SELECT faultline.cancel(%s, %s)", (job_id, reason), lambda rows: JobState(rows[0][0])
    )


def retry(job_id: UUID) -> Statement[JobState]:
    return Statement("SELECT faultline.retry(%s)", (job_id,), lambda rows: JobState(rows[0][0]))


def delete(job_id: UUID) -> Statement[JobState]:
    """Delete a job that is neither running nor succeeded; returns the state it was in."""
    return Statement("SELECT faultline.delete(%s)", (job_id,), lambda rows: JobState(rows[0][0]))


def edit_payload(job_id: UUID, payload: Mapping[str, Any]) -> Statement[JobState]:
    """Replace the payload of a queued or failed job."""
    return Statement(
        "SELECT faultline.edit_payload(%s, %s::jsonb)",
        (job_id, encode_payload(payload)),
        lambda rows: JobState(rows[0][0]),
    )


def _fence(claim: Claim) -> tuple[str, int, str]:
    return (claim.id, claim.fencing_token, claim.lease)


def holders(claims: Sequence[Claim]) -> tuple[str, str, str]:
    """The claims as three array literals of ids and numbers, which need no quotes."""
    ids = ",".join([claim.id for claim in claims])
    tokens = ",".join([str(claim.fencing_token) for claim in claims])
    leases = ",".join([claim.lease for claim in claims])
    return f"{{{ids}}}", f"{{{tokens}}}", f"{{{leases}}}"


def defer_many(
    claims: Sequence[Claim], *, retry_seconds: float, reason: str
) -> Statement[set[str]]:
    """Release jobs that this worker cannot run; returns the ids that it still held."""
    return Statement(
        """
        SELECT job_id::text
        FROM faultline.defer_many(%s::uuid[], %s::bigint[], %s::uuid[], %s, %s)
        """,
        (
            [claim.id for claim in claims],
            [claim.fencing_token for claim in claims],
            [claim.lease for claim in claims],
            timedelta(seconds=retry_seconds),
            reason,
        ),
        lambda rows: {job_id for (job_id,) in rows},
    )


def release_after_outage(claim: Claim, *, error: str) -> Statement[bool]:
    """Release a job uncharged; False, and still held, after too many outages."""
    return Statement(
        "SELECT faultline.release_after_outage(%s::uuid, %s, %s::uuid, %s)",
        (claim.id, claim.fencing_token, claim.lease, error),
        lambda rows: bool(rows[0][0]),
    )

"""The verbs of protocol.sql as values. No I/O: `database.run` and `run_async` execute them.

A `Statement` is the same value for a thread and for an event loop, so no verb is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from faultline.model import (
    Claim,
    CommitOutcome,
    Enqueued,
    JobRecord,
    JobState,
    Renewal,
)
from faultline.payload import encode_payload

T = TypeVar("T")
Row = tuple[Any, ...]

CHANNEL = "faultline"
LOCK_CLASS = 1717663084  # "faul": the advisory locks of workers are (LOCK_CLASS, lock_key)
LEADER_KEY = 0  # lock keys of workers start at 1
DRAIN = "drain"  # what a heartbeat says of no job: the worker is asked to leave
UNREGISTERED = "unregistered"  # likewise: the worker is not in the registry


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """One round trip: what to send, and how to read what comes back."""

    sql: LiteralString
    params: tuple[Any, ...]
    read: Callable[[list[Row]], T]


class Beat(NamedTuple):
    """The answer to a heartbeat."""

    renewals: dict[str, Renewal]  # by the claims' ids
    is_drain_requested: bool  # an operator wants this worker to leave
    is_registered: bool  # its row may have been purged after a day without a heartbeat


class CommitVerdict(NamedTuple):
    outcome: CommitOutcome
    reason: str | None
    current_token: int | None


_COMMITTED = CommitVerdict(CommitOutcome.COMMITTED, None, None)


@dataclass(frozen=True, slots=True)
class Reaped:
    """A job that was taken back from a worker: queued again, or failed with its attempts spent."""

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


def _nothing(rows: list[Row]) -> None:
    return None


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
        "SELECT job_id, existing FROM faultline.enqueue_many("
        "%s, ARRAY(SELECT p FROM jsonb_array_elements(%s::jsonb) AS p), %s, %s, %s, %s, %s, %s)",
        (
            task,
            f"[{','.join([encode_payload(payload) for payload in payloads])}]",
            queue,
            priority,
            run_at,
            None if idempotency_keys is None else list(idempotency_keys),
            max_attempts,
            trace_context,
        ),
        lambda rows: [Enqueued(*row) for row in rows],
    )


# ── workers ──────────────────────────────────────────────────────────────────────────────────────


def claim(
    worker: str,
    queues: Sequence[str],
    *,
    batch_size: int,
    lease_seconds: float,
    past: str | None = None,
    tasks: str | None = None,
) -> Statement[list[Claim]]:
    """`past` is JSON text: where earlier claims of this caller ended (see `workers.bookmark`). `tasks`
    is an array literal: what the caller can run (see `workers.unknown_tasks`)."""
    return Statement(
        "SELECT job_id::text, fencing_token, lease_id::text, task, queue, payload::text, attempts,"
        " max_attempts, crashes, priority, next_run_at::text, trace_context"
        " FROM faultline.claim(%s, %s, %s, %s, %s::jsonb, %s::text[])",
        (worker, list(queues), batch_size, _seconds(lease_seconds), past, tasks),
        _claims,
    )


def _claims(rows: list[Row]) -> list[Claim]:
    return [Claim._make(row) for row in rows]


def heartbeat(worker: str, claims: Sequence[Claim], *, lease_seconds: float) -> Statement[Beat]:
    return Statement(
        "SELECT job_id::text, outcome"
        " FROM faultline.heartbeat(%s, %s::uuid[], %s::bigint[], %s::uuid[], %s)"
        " UNION ALL SELECT NULL, %s WHERE NOT EXISTS"
        " (SELECT FROM faultline.workers AS w WHERE w.id = %s)",
        (worker, *_columns(claims), _seconds(lease_seconds), UNREGISTERED, worker),
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
        _nothing,
    )


def commit(
    claim: Claim, *, result: str | None = None, idle_seconds: float | None = None
) -> Statement[None]:
    """`result` is JSON text."""
    idle_limit = None if idle_seconds is None else _seconds(idle_seconds)
    return Statement(
        "SELECT faultline.commit(%s::uuid, %s, %s::uuid, %s::jsonb, %s)",
        (*_fence(claim), result, idle_limit),
        _nothing,
    )


def commit_many(
    claims: Sequence[Claim], results: Sequence[str | None]
) -> Statement[list[CommitVerdict]]:
    """One verdict for each claim, in their order. Only those other than "committed" are sent back."""
    count = len(claims)

    def read(rows: list[Row]) -> list[CommitVerdict]:
        verdicts = [_COMMITTED] * count
        for position, outcome, reason, current_token in rows:
            verdicts[position - 1] = CommitVerdict(CommitOutcome(outcome), reason, current_token)
        return verdicts

    return Statement(
        "SELECT position, outcome, reason, current_token"
        " FROM faultline.commit_many(%s::uuid[], %s::bigint[], %s::uuid[], %s::text[]::jsonb[])"
        " WITH ORDINALITY AS v (job_id, outcome, reason, current_token, position)"
        " WHERE outcome <> 'committed'",
        (*_columns(claims), list(results) if any(results) else None),
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
    """Whether exactly this claim took effect; False proves nothing while a COMMIT is in flight."""
    return Statement(
        "SELECT EXISTS (SELECT FROM faultline.ledger"
        " WHERE job_id = %s AND fencing_token = %s AND lease_id = %s)",
        _fence(claim),
        lambda rows: bool(rows[0][0]),
    )


def leases_of(worker: str) -> Statement[list[Claim]]:
    """Everything the database believes this worker to hold; after a lost answer to a claim it may be
    more than the worker knows of."""
    return Statement(
        "SELECT job_id::text, fencing_token, lease_id::text, task, queue, payload::text, attempts,"
        " max_attempts, crashes, priority, next_run_at::text, trace_context"
        " FROM faultline.leases_of(%s)",
        (worker,),
        _claims,
    )


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────


def reconcile(
    *, max_jobs: int, dead_workers: Sequence[str] = (), lapsed_leases: Sequence[UUID] = ()
) -> Statement[list[Reaped]]:
    return Statement(
        "SELECT job_id, fencing_token, worker, attempts, state, cause"
        " FROM faultline.reconcile(%s, %s::text[], %s::uuid[])",
        (max_jobs, list(dead_workers), list(lapsed_leases)),
        lambda rows: [
            Reaped(job_id, token, worker, attempt, JobState(state), cause)
            for job_id, token, worker, attempt, state, cause in rows
        ],
    )


@dataclass(frozen=True, slots=True)
class Survey:
    """What the leading reconciler looks at, several times a second."""

    registered: int  # workers that are not known to be lost
    vanished: list[str]  # those among them whose sessions have all ended
    next_expiry_seconds: float | None  # None: no lease at all
    clock_seconds: float = 0.0  # what the database's clock shows, since 1970


def survey() -> Statement[Survey]:
    return Statement(
        "SELECT (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL),"
        " ARRAY(SELECT worker FROM faultline.vanished_workers()),"
        " (SELECT extract(epoch FROM min(lease_expires_at) - clock_timestamp())::float8"
        " FROM faultline.jobs WHERE state = 'running'),"
        " extract(epoch FROM clock_timestamp())::float8",
        (),
        lambda rows: Survey(*rows[0]),
    )


def try_to_lead(*, silence_limit: str) -> Statement[tuple[bool, int]]:
    """Whether this session leads now, and how many workers there are to compete with.

    In the same breath a leader accepts that the server ends its session when it falls silent.
    """
    return Statement(
        "SELECT CASE WHEN pg_try_advisory_lock(%s, %s)"
        " THEN set_config('idle_session_timeout', %s, false) IS NOT NULL ELSE false END,"
        " (SELECT count(*) FROM faultline.workers WHERE lost_at IS NULL)",
        (LOCK_CLASS, LEADER_KEY, silence_limit),
        lambda rows: (bool(rows[0][0]), int(rows[0][1])),
    )


@dataclass(frozen=True, slots=True)
class LeaseSighting:
    lease_id: UUID
    expires_at: datetime
    lease_seconds: float


def running_leases(*, limit: int) -> Statement[list[LeaseSighting]]:
    return Statement(
        "SELECT lease_id, lease_expires_at, lease_seconds FROM faultline.jobs"
        " WHERE state = 'running' ORDER BY lease_expires_at LIMIT %s",
        (limit,),
        lambda rows: [LeaseSighting(*row) for row in rows],
    )


def register_worker(
    worker: str,
    *,
    host: str,
    pid: int,
    queues: Sequence[str],
    holds_locks: bool,
    lock_key: int | None = None,
) -> Statement[int]:
    """`lock_key` is the one that its sessions hold already, for a worker whose row was purged."""
    return Statement(
        "SELECT faultline.register_worker(%s, %s, %s, %s, %s, %s)",
        (worker, host, pid, list(queues), holds_locks, lock_key),
        lambda rows: int(rows[0][0]),
    )


def hold_worker_lock(lock_key: int) -> Statement[bool]:
    """Whether this session holds the worker's lock, from now until it ends.

    It outlasts a cut network for longer than a lease, as does the session that registered. It does not
    wait: another account may hold the lock, or wait for it, and heartbeats must go on.
    """
    return Statement(
        "SELECT pg_try_advisory_lock_shared(%s, %s),"
        " set_config('tcp_user_timeout', '600000', false)",
        (LOCK_CLASS, lock_key),
        lambda rows: bool(rows[0][0]),
    )


def drain_worker(worker: str) -> Statement[None]:
    return Statement("SELECT faultline.drain_worker(%s)", (worker,), _nothing)


def deregister_worker(worker: str) -> Statement[None]:
    return Statement("SELECT faultline.deregister_worker(%s)", (worker,), _nothing)


def bury_workers(workers: Sequence[str]) -> Statement[None]:
    return Statement("SELECT faultline.bury_workers(%s)", (list(workers),), _nothing)


# ── operators ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """A worker that was asked to leave; lost ones are asked for the case that they come back."""

    worker: str
    requested_at: datetime  # for the first time
    is_lost: bool


def request_drain(workers: Sequence[str] | None) -> Statement[list[DrainRequest]]:
    """None for all that are not known to be lost. One that is not registered is not in the answer."""
    return Statement(
        "SELECT worker, requested_at, is_lost FROM faultline.request_drain(%s::text[])",
        (None if workers is None else list(workers),),
        lambda rows: [DrainRequest(*row) for row in rows],
    )


def is_drain_requested(worker: str) -> Statement[bool]:
    """What the next heartbeat will say; for whoever may have missed the call."""
    return Statement(
        "SELECT EXISTS (SELECT FROM faultline.workers"
        " WHERE id = %s AND drain_requested_at IS NOT NULL)",
        (worker,),
        lambda rows: bool(rows[0][0]),
    )


def call_of(worker: str) -> str:
    """What is notified to make this worker's next heartbeat come at once."""
    return f"!{worker}"


def cancel(job_id: UUID, reason: str | None = None) -> Statement[JobState]:
    return Statement(
        "SELECT faultline.cancel(%s, %s)", (job_id, reason), lambda rows: JobState(rows[0][0])
    )


def retry(job_id: UUID) -> Statement[JobState]:
    return Statement("SELECT faultline.retry(%s)", (job_id,), lambda rows: JobState(rows[0][0]))


_JOB = (
    "SELECT j.id, j.task, j.queue, j.priority, j.payload, j.idempotency_key, j.state,"
    " j.failed_reason, j.attempts, j.max_attempts, j.fencing_token, j.lease_owner,"
    " j.lease_expires_at, j.next_run_at, j.claimed_at, j.created_at, j.finished_at, j.last_error,"
    " l.result FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id"
)


def _job(row: Row) -> JobRecord:
    record = JobRecord(*row)
    return replace(record, state=JobState(record.state))


def get_job(job_id: UUID) -> Statement[JobRecord | None]:
    return Statement(
        f"{_JOB} WHERE j.id = %s",
        (job_id,),
        lambda rows: _job(rows[0]) if rows else None,
    )


def list_jobs(
    *,
    state: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> Statement[list[JobRecord]]:
    """Newest first; `before` is the last id of the page that came before."""
    return Statement(
        f"{_JOB} WHERE (%s::text IS NULL OR j.state = %s) AND (%s::text IS NULL OR j.queue = %s)"
        " AND (%s::text IS NULL OR j.task = %s) AND (%s::uuid IS NULL OR j.id < %s)"
        " ORDER BY j.id DESC LIMIT %s",
        (state, state, queue, queue, task, task, before, before, limit),
        lambda rows: [_job(row) for row in rows],
    )


def _fence(claim: Claim) -> tuple[str, int, str]:
    return (claim.id, claim.fencing_token, claim.lease)


def _columns(claims: Sequence[Claim]) -> tuple[str, str, str]:
    """The claims as three array literals. Nothing in them needs quoting: they are ids and numbers."""
    ids = ",".join([claim.id for claim in claims])
    tokens = ",".join([str(claim.fencing_token) for claim in claims])
    leases = ",".join([claim.lease for claim in claims])
    return f"{{{ids}}}", f"{{{tokens}}}", f"{{{leases}}}"

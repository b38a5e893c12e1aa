"""Plain values that the database, the worker and the user exchange; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple
from uuid import UUID

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_ATTEMPTS = 10


class JobState(StrEnum):
    """The states of a job; scheduled jobs and pending retries are queued too."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class StaleReason(StrEnum):
    """Why the database refuses a stale write; FL001 carries this value."""

    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 - a reason, not a secret
    LEASE_EXPIRED = "lease_expired"
    NOT_RUNNING = "not_running"
    ALREADY_COMMITTED = "already_committed"
    UNKNOWN_JOB = "unknown_job"
    NOTHING_ENTERED = "nothing_entered"
    NOT_ALL_ENTERED = "not_all_entered"


class Renewal(StrEnum):
    """The result of a heartbeat for one lease; LOCKED: another session locks the row."""

    RENEWED = "renewed"
    LOCKED = "locked"
    LOST = "lost"


class CommitOutcome(StrEnum):
    COMMITTED = "committed"
    ALREADY_YOURS = "already_yours"
    LOCKED = "locked"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The result of an enqueue; `existing` if the key already had this job."""

    job_id: UUID
    existing: bool


class Claim(NamedTuple):
    """One claimed job: what to run, and the token and lease that allow its commit.

    A worker creates tens of thousands of these a second, so it is a tuple of the values that PostgreSQL
    sent, and its ids become UUIDs only on demand.
    """

    id: str
    fencing_token: int
    lease: str
    task: str
    queue: str
    payload_json: str  # decoded when the job runs, so that a bad one fails only its own job
    attempt: int
    max_attempts: int
    crashes: int
    priority: int
    due_at: str  # as PostgreSQL wrote it; part of the claim cursor
    trace_context: str | None = None  # of the producer, as `faultline.tracing` wrote it

    @property
    def job_id(self) -> UUID:
        return UUID(self.id)

    @property
    def lease_id(self) -> UUID:
        return UUID(self.lease)

    @property
    def is_suspect(self) -> bool:
        """Whether this job may be what kills its workers.

        It ran in two workers that were lost, or in one, and this is its last attempt.
        """
        return self.crashes >= 2 or (self.crashes == 1 and self.attempt >= self.max_attempts)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job's row."""

    id: UUID
    task: str
    queue: str
    priority: int
    payload: Mapping[str, Any]
    idempotency_key: str | None
    state: JobState
    failed_reason: str | None
    attempts: int
    max_attempts: int
    fencing_token: int
    lease_owner: str | None
    lease_expires_at: datetime | None
    next_run_at: datetime
    claimed_at: datetime | None
    created_at: datetime
    finished_at: datetime | None
    last_error: str | None
    result: Any


class CommitPhase(Enum):
    """How far the transaction that completes an attempt's job has come."""

    UNCOMMITTED = auto()
    FENCED = auto()  # the ledger entry is written, and COMMIT is not yet answered
    COMMITTED = auto()

"""The values that travel between the database, the worker and the user. No behaviour, no I/O."""

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
    """Where a job is. Jobs for later, and those that wait for another attempt, are queued too."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class StaleReason(StrEnum):
    """Why the database refuses a write; the words that FL001 carries."""

    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 - a reason, not a secret
    LEASE_EXPIRED = "lease_expired"
    NOT_RUNNING = "not_running"
    ALREADY_COMMITTED = "already_committed"
    UNKNOWN_JOB = "unknown_job"
    NOTHING_ENTERED = "nothing_entered"
    NOT_ALL_ENTERED = "not_all_entered"


class Renewal(StrEnum):
    """What a heartbeat says of one lease. Locked is not lost: somebody holds the row just now."""

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
    """The answer to an enqueue; `existing` when the idempotency key had been used for it before."""

    job_id: UUID
    existing: bool


class Claim(NamedTuple):
    """One job in one worker's hands: what to run, and what proves the right to commit it.

    A worker makes tens of thousands of these a second, so it is a tuple of what PostgreSQL sent, and
    its ids become UUIDs only for those who ask.
    """

    id: str
    fencing_token: int
    lease: str
    task: str
    queue: str
    payload_json: str  # decoded when the job is run: one that cannot be is that job's problem alone
    attempt: int
    max_attempts: int
    crashes: int
    priority: int
    due_at: str  # as PostgreSQL wrote it: where the next claim goes on from
    trace_context: str | None = None  # of the enqueuer, as `faultline.tracing` wrote it

    @property
    def job_id(self) -> UUID:
        return UUID(self.id)

    @property
    def lease_id(self) -> UUID:
        return UUID(self.lease)

    @property
    def is_suspect(self) -> bool:
        """Whether this job may be what kills its workers: it was there when two of them were lost, or
        one, and this is its last chance."""
        return self.crashes >= 2 or (self.crashes == 1 and self.attempt >= self.max_attempts)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the database knows it now."""

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
    """How far an attempt has come with the transaction that completes its job."""

    UNCOMMITTED = auto()
    FENCED = auto()  # the ledger entry is in a transaction whose COMMIT has no answer (yet)
    COMMITTED = auto()

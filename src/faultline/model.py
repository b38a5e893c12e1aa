"""Plain values that the database, the worker and the user exchange; no I/O."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload
from uuid import UUID

from faultline.errors import InvalidInput

if TYPE_CHECKING:
    from faultline.unique import Unique

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_ATTEMPTS = 10
_LONGEST_SECONDS = 100 * 366 * 86_400  # of an override, as faultline.job_overrides


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


class WaitsForResults(Protocol):
    """The part of an application that waits for the results of jobs."""

    def result(self, job_id: UUID, timeout: float | timedelta | None = None) -> Any: ...
    def result_async(
        self, job_id: UUID, timeout: float | timedelta | None = None
    ) -> Coroutine[Any, Any, Any]: ...


class EnqueueOutcome(StrEnum):
    """What an enqueue did: a new job, or an existing one of its key.

    EXISTING is the job of the idempotency key. The others are the job of the unique key: KEPT as it was,
    REPLACED its payload, or RESCHEDULED to the new time.
    """

    QUEUED = "queued"
    EXISTING = "existing"
    KEPT = "kept"
    REPLACED = "replaced"
    RESCHEDULED = "rescheduled"


@dataclass(frozen=True, slots=True, init=False)
class Enqueued:
    """The result of an enqueue; `existing` if a key already had this job."""

    job_id: UUID
    existing: bool
    _unique: str | None = field(default=None, compare=False, repr=False)  # the outcome
    _app: WaitsForResults | None = field(default=None, compare=False, repr=False)

    def __init__(
        self,
        job_id: UUID,
        existing: bool,
        _unique: str | None = None,
        _app: WaitsForResults | None = None,
    ) -> None:
        # A frozen dataclass calls object.__setattr__ by name, which takes twice as long.
        _set_job_id(self, job_id)
        _set_existing(self, existing)
        _set_unique(self, _unique)
        _set_app(self, _app)

    def result(self, timeout: float | timedelta | None = None) -> Any:
        """Wait for the result of this job, as `app.result` does."""
        return self._waiting().result(self.job_id, timeout)

    async def result_async(self, timeout: float | timedelta | None = None) -> Any:
        return await self._waiting().result_async(self.job_id, timeout)

    @property
    def outcome(self) -> EnqueueOutcome:
        if self._unique is not None:
            return EnqueueOutcome(self._unique)
        return EnqueueOutcome.EXISTING if self.existing else EnqueueOutcome.QUEUED

    def bind(self, app: WaitsForResults) -> Enqueued:
        """Let it wait through `app`; returns itself."""
        _set_app(self, app)
        return self

    def _waiting(self) -> WaitsForResults:
        if self._app is None:
            raise InvalidInput(
                "this Enqueued was copied or made without an application",
                hint="wait with app.result(enqueued.job_id)",
            )
        return self._app

    def __reduce__(self) -> tuple[Any, ...]:
        return Enqueued, (
            self.job_id,
            self.existing,
            self._unique,
        )  # an application cannot be pickled


_set_job_id, _set_existing, _set_unique, _set_app = (
    getattr(Enqueued, name).__set__ for name in Enqueued.__slots__
)


def bind_all(answers: list[Enqueued], app: WaitsForResults) -> list[Enqueued]:
    """Let all of them wait for their results through `app`; returns the same list."""
    for answer in answers:
        _set_app(answer, app)
    return answers


class JobSpec(NamedTuple):
    """A job that is not enqueued yet: made by `task.job(…)`, for `app.enqueue_many`."""

    task: str
    queue: str
    priority: int
    max_attempts: int
    run_at: datetime | None
    delay_seconds: float | None
    expires_in_seconds: float | None
    timeout_seconds: float | None
    lease_seconds: float | None
    unique: Unique | None
    tags: tuple[str, ...] | None  # None: it has none
    payload: Mapping[str, Any]
    idempotency_key: str | None = None

    @property
    def settings(self) -> tuple[Any, ...]:
        """Everything but payload and key: jobs with equal settings are enqueued fastest."""
        return self[:11]

    def copies(
        self, payloads: Iterable[Mapping[str, Any]], keys: Iterable[str | None]
    ) -> EqualJobs:
        """Jobs with these settings, one for each payload."""
        return EqualJobs(self, list(payloads), list(keys))

    @property
    def has_plain_settings(self) -> bool:
        """Whether it needs no setting that only `faultline.enqueue_jobs` takes."""
        return self[5:11] == _NO_SETTINGS


class EqualJobs(Sequence[JobSpec]):
    """Jobs with the settings of the first one, so that these need not be compared.

    A job is made when a function asks for it, such as a hook of the user. An enqueue needs only the payloads
    and the keys.
    """

    def __init__(
        self,
        settings_of: JobSpec,
        payloads: Sequence[Mapping[str, Any]],
        keys: Sequence[str | None],
    ) -> None:
        self._settings_of = settings_of
        self.payloads = payloads
        self.keys = keys

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> JobSpec: ...
    @overload
    def __getitem__(self, index: slice) -> list[JobSpec]: ...
    def __getitem__(self, index: int | slice) -> JobSpec | list[JobSpec]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        settings_of = self._settings_of
        return settings_of._replace(payload=self.payloads[index], idempotency_key=self.keys[index])


_NO_SETTINGS = (None, None, None, None, None, None)


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
    overrides_json: str | None = None  # settings of this job instead of its task's
    scheduled_for: datetime | None = None  # the planned time, if a schedule enqueued the job

    @property
    def job_id(self) -> UUID:
        return UUID(self.id)

    @property
    def lease_id(self) -> UUID:
        return UUID(self.lease)

    def override(self, name: str) -> float | None:
        """The job's own `timeout` or `lease` in seconds, if the enqueue set it.

        None for anything but a finite number. The database refuses such values; if one comes all the same,
        the job runs with its task's settings, and the worker does not fail for its other jobs.
        """
        if self.overrides_json is None:
            return None
        found = json.loads(self.overrides_json).get(name)
        is_number = type(found) in (int, float) and 0 < found <= _LONGEST_SECONDS
        return found if is_number else None

    @property
    def is_suspect(self) -> bool:
        """Whether this job may be what kills its workers.

        It ran in two workers that were lost, or in one, and this is its last attempt.
        """
        return self.crashes >= 2 or (self.crashes == 1 and self.attempt >= self.max_attempts)


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """How far a job is, as its handler last reported by `job.progress`."""

    fraction: float  # 0 to 1
    message: str | None
    reported_at: datetime


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
    scheduled_for: datetime | None  # the planned time, if a schedule enqueued it
    result: Any
    progress: ReportedProgress | None = None  # None once it has succeeded
    unique_key: str | None = None  # it was enqueued with `unique`
    waits_for: str | None = None  # the limit key that a queued job waits for
    tags: tuple[str, ...] = ()


class CommitPhase(Enum):
    """How far the transaction that completes an attempt's job has come."""

    UNCOMMITTED = auto()
    FENCED = auto()  # the ledger entry is written, and COMMIT is not yet answered
    COMMITTED = auto()

"""The errors that Faultline raises, each with a stable code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class FaultlineError(Exception):
    """Base of all errors. `code` stays the same between releases; messages may change."""

    code: ClassVar[str] = "faultline_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class StaleLease(FaultlineError):
    """The database refused a write by a worker whose lease was superseded or ran out.

    Its transaction cannot commit any more, even if the handler catches this error. If a method of the
    job raised it on a connection of yours, that connection is closed, with or without savepoints.
    """

    code = "stale_lease"

    def __init__(
        self,
        reason: str,
        *,
        job_id: str | None = None,
        stale_token: int | None = None,
        current_token: int | None = None,
        jobs: Sequence[StaleLease] = (),
    ) -> None:
        super().__init__(f"stale lease: {reason}")
        self.reason = reason
        self.job_id = job_id
        self.stale_token = stale_token
        self.current_token = current_token
        self.jobs = tuple(jobs)  # one for each lost job, if the transaction was for several jobs


class IllegalTransition(FaultlineError):
    """The database refused a change of a job's state or of a ledger entry (FL002)."""

    code = "illegal_transition"


class TokenViolation(FaultlineError):
    """The database refused a change that would reuse or lower a fencing token (FL003)."""

    code = "token_violation"


class IdempotencyConflict(FaultlineError):
    """The idempotency key was already used with another task or payload (FL004)."""

    code = "idempotency_conflict"

    def __init__(self, message: str, *, job_id: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id


class InvalidInput(FaultlineError):
    """A value from the caller cannot be stored or run; nothing was written (FL005)."""

    code = "invalid_input"


class PayloadTooLarge(InvalidInput):
    """The encoded payload is over the limit; nothing was written."""

    code = "payload_too_large"


class UnknownJob(FaultlineError):
    """No job has this id (FL006)."""

    code = "unknown_job"


class UniqueKeyHeld(FaultlineError):
    """A job cannot be retried while another one counts for its unique key (FL011)."""

    code = "unique_key_held"

    def __init__(self, message: str, *, job_id: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id


class UnknownSchedule(FaultlineError):
    """No schedule has this name (FL010)."""

    code = "unknown_schedule"


class InvalidSchedule(InvalidInput):
    """The cron expression or the time zone of a schedule cannot be used."""

    code = "invalid_schedule"


class UnknownLimit(FaultlineError):
    """No limit has this name (FL012)."""

    code = "unknown_limit"


class JobFailed(FaultlineError):
    """The job whose result was awaited has failed; `error` is its last error's text."""

    code = "job_failed"

    def __init__(self, job_id: str, *, failed_reason: str, error: str | None) -> None:
        lines = (error or "").strip().splitlines()
        super().__init__(f"job {job_id} failed ({failed_reason}){': ' + lines[0] if lines else ''}")
        self.job_id = job_id
        self.failed_reason = failed_reason
        self.error = error


class ResultTimeout(FaultlineError):
    """The job had not ended when the timeout passed; it goes on."""

    code = "result_timeout"

    def __init__(self, job_id: str, *, seconds: float) -> None:
        super().__init__(
            f"job {job_id} has not ended after {seconds:g} s, and goes on",
            hint=f"ask again later, or see why it waits: faultline why {job_id}",
        )
        self.job_id = job_id


class FenceNotHeld(FaultlineError):
    """Above READ COMMITTED a job must be locked before it can be committed (FL007)."""

    code = "fence_not_held"


class ServerChanged(FaultlineError):
    """The database was restored, and refuses claims until a new epoch begins (FL008).

    It runs on another server, or comes from a base backup. `faultline epoch bump` begins the epoch.
    """

    code = "server_changed"


class UnknownTask(FaultlineError):
    """A job names a task that this application does not define."""

    code = "unknown_task"


class NotCommitted(FaultlineError):
    """The job's transaction was not committed, or its COMMIT refused (FL009).

    It was rolled back, the handler sent COMMIT too early, or the session was lost. The attempt has
    failed, even if the handler catches this error, and nothing of the transaction took effect.
    """

    code = "not_committed"


class HandlerExit(FaultlineError):
    """A handler raised SystemExit or the like; only its attempt ends, not the worker."""

    code = "handler_exit"

    @classmethod
    def of(cls, error: BaseException) -> HandlerExit:
        try:
            return cls(f"the handler raised {error!r}")
        except BaseException:  # its repr() may raise anything
            return cls(f"the handler raised {type(error).__name__}")


class HandlerError(FaultlineError):
    """Replaces a handler's exception whose methods or attributes are not safe to use."""

    code = "handler_error"


class AttemptTimeout(FaultlineError):
    """An attempt ran longer than its task's `timeout_seconds`."""

    code = "attempt_timeout"


class Reject(FaultlineError):
    """Raised by a handler to fail the job at once, without using its other attempts."""

    code = "rejected"


class InvalidSettings(FaultlineError):
    """Settings that are out of range or contradict each other."""

    code = "invalid_settings"


class UnsupportedSystem(InvalidSettings):
    """This part of Faultline does not run on this operating system."""

    code = "unsupported_system"


class NoTasks(InvalidSettings):
    """A worker was started for an application that has no tasks."""

    code = "no_tasks"


class DatabaseUnavailable(FaultlineError):
    """PostgreSQL cannot be reached or refuses connections.

    `needs_correction` says that the server answered, and does not know the database or the account, or
    refuses the account: waiting does not help before a person has corrected the URL or the server.
    """

    code = "database_unavailable"

    def __init__(
        self, message: str, *, hint: str | None = None, needs_correction: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.needs_correction = needs_correction


class DatabaseRefused(FaultlineError):
    """PostgreSQL refused a statement: a missing right, a lock, a read-only server."""

    code = "database_refused"


class SchemaMismatch(FaultlineError):
    """The schema is missing, or too old or too new for this version of Faultline."""

    code = "schema_mismatch"


class TracingUnavailable(FaultlineError):
    """Tracing is enabled, but the packages that export traces are not installed."""

    code = "tracing_unavailable"


class PortUnavailable(FaultlineError):
    """The address to listen on is in use, or does not belong to this machine."""

    code = "port_unavailable"


class EmbeddedServerError(FaultlineError):
    """The embedded PostgreSQL could not be found, created or started."""

    code = "embedded_server"

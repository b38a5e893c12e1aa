"""Every error that Faultline raises on purpose, each with a stable code and what to do about it."""

from __future__ import annotations

from typing import ClassVar


class FaultlineError(Exception):
    """Root of the family. `code` never changes between releases; the wording may."""

    code: ClassVar[str] = "faultline_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class StaleLease(FaultlineError):
    """The database refused a write by a worker whose lease was superseded or ran out.

    The transaction it was raised in is doomed: swallowing this error commits nothing, and a
    connection of yours on which a job's own methods met it is cut, savepoints or not.
    """

    code = "stale_lease"

    def __init__(
        self,
        reason: str,
        *,
        job_id: str | None = None,
        stale_token: int | None = None,
        current_token: int | None = None,
    ) -> None:
        super().__init__(f"stale lease: {reason}")
        self.reason = reason
        self.job_id = job_id
        self.stale_token = stale_token
        self.current_token = current_token


class IllegalTransition(FaultlineError):
    """The database refused to move a job, or a ledger entry, where it may never go (FL002)."""

    code = "illegal_transition"


class TokenViolation(FaultlineError):
    """The database refused a change that would reuse or lower a fencing token (FL003)."""

    code = "token_violation"


class IdempotencyConflict(FaultlineError):
    """The same idempotency key was used before for other work (FL004)."""

    code = "idempotency_conflict"

    def __init__(self, message: str, *, job_id: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id


class InvalidInput(FaultlineError):
    """Something given by the caller cannot be stored or run; nothing was written (FL005)."""

    code = "invalid_input"


class PayloadTooLarge(InvalidInput):
    """The encoded payload is over the limit; nothing was written."""

    code = "payload_too_large"


class UnknownJob(FaultlineError):
    """No job has this id (FL006)."""

    code = "unknown_job"


class FenceNotHeld(FaultlineError):
    """Above READ COMMITTED a job must be locked before it can be committed (FL007)."""

    code = "fence_not_held"


class ServerChanged(FaultlineError):
    """The database was restored into another server, or from a base backup: no claim is granted until an
    operator says that this one goes on (FL008)."""

    code = "server_changed"


class UnknownTask(FaultlineError):
    """A job names a task that this application does not define."""

    code = "unknown_task"


class NotCommitted(FaultlineError):
    """The job's transaction was not committed, or refused by PostgreSQL half-way (FL009).

    It was rolled back, committed by hand before its time, or lost with its session. The attempt has
    failed, also if the handler swallows this error, and nothing of that transaction took effect.
    """

    code = "not_committed"


class HandlerExit(FaultlineError):
    """A handler tried to end the process (SystemExit and the like); only its attempt has ended."""

    code = "handler_exit"

    @classmethod
    def of(cls, error: BaseException) -> HandlerExit:
        try:
            return cls(f"the handler raised {error!r}")
        except BaseException:  # its repr() may raise anything
            return cls(f"the handler raised {type(error).__name__}")


class HandlerError(FaultlineError):
    """Stands for an exception of a handler whose own methods or attributes cannot be used safely."""

    code = "handler_error"


class AttemptTimeout(FaultlineError):
    """An attempt ran longer than its task's `timeout_seconds`."""

    code = "attempt_timeout"


class Reject(FaultlineError):
    """Raised by a handler to say: do not run this job again, whatever attempts are left."""

    code = "rejected"


class InvalidSettings(FaultlineError):
    """Settings that contradict each other, refused before anything runs."""

    code = "invalid_settings"


class DatabaseUnavailable(FaultlineError):
    """PostgreSQL cannot be reached or refuses connections."""

    code = "database_unavailable"


class DatabaseRefused(FaultlineError):
    """PostgreSQL was reached and refused a command: rights, a lock, or a server that only reads."""

    code = "database_refused"


class SchemaMismatch(FaultlineError):
    """The database's schema is missing, too old or too new for this version of Faultline."""

    code = "schema_mismatch"


class TracingUnavailable(FaultlineError):
    """Traces were asked for, and what sends them is not installed."""

    code = "tracing_unavailable"


class PortUnavailable(FaultlineError):
    """An address to serve on is taken by somebody else, or is not one of this machine's."""

    code = "port_unavailable"


class EmbeddedServerError(FaultlineError):
    """The embedded PostgreSQL could not be found, created or started."""

    code = "embedded_server"

"""Translates the driver's errors into Faultline's, with what to do about each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import orjson
import psycopg
from psycopg_pool import PoolTimeout

from faultline import errors
from faultline.postgres.answer_limit import ReplyTimeout
from faultline.postgres.connection_failures import unavailable


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        translated = translate(error)
        if translated is None:
            raise
        raise translated from error


def translate(error: psycopg.Error) -> errors.FaultlineError | None:
    """The error as one of Faultline's; None if there is no translation."""
    diag = error.diag
    message, hint = diag.message_primary or str(error), diag.message_hint
    match error.sqlstate:
        case "FL001":
            detail = orjson.loads(diag.message_detail or "{}")
            return errors.StaleLease(
                detail.get("reason", "unknown"),
                job_id=detail.get("job_id"),
                stale_token=detail.get("stale_token"),
                current_token=detail.get("current_token"),
            )
        case "FL002":
            return errors.IllegalTransition(message, hint=hint)
        case "FL003":
            return errors.TokenViolation(message, hint=hint)
        case "FL004":
            detail = orjson.loads(diag.message_detail or "{}")
            return errors.IdempotencyConflict(message, job_id=detail.get("job_id"), hint=hint)
        case "FL005":
            return errors.InvalidInput(message, hint=hint)
        case "FL006":
            return errors.UnknownJob(message, hint=hint)
        case "FL007":
            return errors.FenceNotHeld(message, hint=hint)
        case "FL008":
            return errors.ServerChanged(message, hint=hint)
        case "FL009":
            return errors.NotCommitted(message, hint=hint)
        case "FL010":
            return errors.UnknownSchedule(message, hint=hint)
        case "FL011":
            detail = orjson.loads(diag.message_detail or "{}")
            return errors.UniqueKeyHeld(message, job_id=detail.get("job_id"), hint=hint)
        case "FL012":
            return errors.UnknownLimit(message, hint=hint)
        case "23514" if diag.schema_name == "faultline":
            rule = (diag.constraint_name or "").replace("_", " ")
            return errors.InvalidInput(f"refused by the database: {rule}")
        case "3F000" | "42883" | "42P01" if "faultline" in message:
            return errors.SchemaMismatch(
                "this database has no Faultline schema, or an older one",
                hint="run: faultline migrate",
            )
    return None


_MAX_CAUSES = 20
# Shutdown, crash, start, demotion. Also as other drivers and a child process report them.
_SERVER_LOST = ("57P01", "57P02", "57P03", "25006")


def is_connection_lost(error: BaseException) -> bool:
    """Whether the session is gone, so that the outcome of its statement is unknown."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate[:2] in ("08", "57")


def is_server_loss(error: BaseException) -> bool:
    """Whether the error, or its cause, says that the server or the network failed.

    Each of these errors has other causes too: a handler can end its own session, or write where it may
    only read.
    """
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen and len(seen) < _MAX_CAUSES:
        if _says_server_loss(each):
            return True
        seen.add(id(each))
        each = each.__cause__ or each.__context__
    return False


def _says_server_loss(error: BaseException) -> bool:
    try:
        if isinstance(error, errors.DatabaseUnavailable):
            return True
        sqlstate = getattr(error, "sqlstate", None)
        return (
            sqlstate in _SERVER_LOST
            or (sqlstate != "57014" and is_connection_lost(error))
            or getattr(error, "is_server_loss", False) is True
        )
    except BaseException:  # the attributes of a handler's exception are the user's code
        return False


def is_serialization_conflict(error: BaseException) -> bool:
    """Whether it is a serialization conflict, also one reported by a child process."""
    return getattr(error, "sqlstate", None) in ("40001", "40P01")


def is_read_only_refusal(error: BaseException | None) -> bool:
    """Whether a write met a read-only session; a standby answers 0A000 to BEGIN."""
    return getattr(error, "sqlstate", None) in ("25006", "0A000")


_LOOK = "check that the server is running: faultline doctor"
_MAY_HAVE_HAPPENED = (
    "it may have been done all the same: repeat it, for new jobs under the same idempotency key"
)


# Which role may use the function or table that PostgreSQL's message names.
_ROLES = {
    "faultline_producer": ("enqueue", "enqueue_many", "api_keys", "touch_api_key"),
    "faultline_operator": ("cancel", "retry", "pause_queue", "resume_queue", "request_drain"),
    "faultline_inspector": ("jobs", "ledger", "rejections", "attempts_log", "queues", "workers"),
}


def _grant_for(message: str) -> str:
    named = message.rpartition(" ")[2]
    for role, names in _ROLES.items():
        if message.startswith("permission denied for") and named in names:
            return f"GRANT {role} TO its account; faultline migrate --roles makes the role"
    return (
        "grant its account the role for what it does: faultline_producer, faultline_worker,"
        " faultline_inspector or faultline_operator; faultline migrate --roles makes them"
    )


def explain_error(error: psycopg.Error) -> errors.FaultlineError:
    """Translate any error of the driver, for callers without a better message."""
    if known := translate(error):
        return known
    message = error.diag.message_primary or " ".join(str(error).split())
    if isinstance(error, PoolTimeout):
        return errors.DatabaseUnavailable(f"no connection to PostgreSQL: {message}", hint=_LOOK)
    if error.sqlstate == "57014":
        return errors.DatabaseRefused(
            f"PostgreSQL ended the statement (57014): {message}",
            hint="nothing of it was done; raise statement_timeout for this account, or try again",
        )
    if isinstance(error, ReplyTimeout):
        return errors.DatabaseUnavailable(message, hint=_MAY_HAVE_HAPPENED)
    if is_connection_lost(error):
        return errors.DatabaseUnavailable(
            f"PostgreSQL ended the session: {message}", hint=_MAY_HAVE_HAPPENED
        )
    match error.sqlstate:
        case "42501":
            hint = error.diag.message_hint or _grant_for(message)
        case "25006":
            hint = "this is a standby, or a session that only reads: connect to the primary"
        case "55P03":
            hint = "a transaction holds the lock: faultline why JOB names it; then try again"
        case _:
            hint = "see the server's log; faultline doctor checks the server's settings"
    return errors.DatabaseRefused(f"PostgreSQL refused ({error.sqlstate}): {message}", hint=hint)


@contextlib.contextmanager
def driver_errors(*, keep_conflicts: bool = False) -> Iterator[None]:
    """Raise a driver's error as a FaultlineError with the original as its cause.

    With `keep_conflicts` a serialization conflict is not translated, for callers that retry.
    """
    try:
        yield
    except psycopg.Error as error:
        if keep_conflicts and is_serialization_conflict(error):
            raise
        raise explain_error(error) from error


@contextlib.contextmanager
def pool_errors(url: str) -> Iterator[None]:
    """Explain the error of a pool that cannot connect."""
    try:
        yield
    except PoolTimeout as error:
        raise unavailable(url, error) from error

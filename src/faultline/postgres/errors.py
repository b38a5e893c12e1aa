"""Translates the driver's errors into Faultline's, with what to do about each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What PostgreSQL reported in an error, whichever driver received it."""

    sqlstate: str
    message: str
    detail: str | None
    hint: str | None
    schema: str | None
    constraint: str | None


def translate(error: psycopg.Error) -> errors.FaultlineError | None:
    """The error as one of Faultline's; None if there is no translation."""
    report = report_of(error)
    return None if report is None else translate_report(report)


def report_of(error: BaseException) -> ServerReport | None:
    """The server's report in an error of psycopg, psycopg2 or asyncpg."""
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if not isinstance(sqlstate, str):
        return None
    fields = getattr(error, "diag", error)
    names = ("message_primary", "message"), ("message_detail", "detail"), ("message_hint", "hint")
    message, detail, hint = (
        getattr(fields, ours, None) or getattr(fields, theirs, None) for ours, theirs in names
    )
    return ServerReport(
        sqlstate,
        message or str(error),
        detail,
        hint,
        getattr(fields, "schema_name", None),
        getattr(fields, "constraint_name", None),
    )


def translate_report(report: ServerReport) -> errors.FaultlineError | None:
    message, hint = report.message, report.hint
    match report.sqlstate:
        case "FL001":
            detail = orjson.loads(report.detail or "{}")
            return _stale_lease(detail, [_stale_lease(job) for job in detail.get("jobs", ())])
        case "FL002":
            return errors.IllegalTransition(message, hint=hint)
        case "FL003":
            return errors.TokenViolation(message, hint=hint)
        case "FL004":
            detail = orjson.loads(report.detail or "{}")
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
            detail = orjson.loads(report.detail or "{}")
            return errors.UniqueKeyHeld(message, job_id=detail.get("job_id"), hint=hint)
        case "FL012":
            return errors.UnknownLimit(message, hint=hint)
        case "23514" if report.schema == "faultline":
            rule = (report.constraint or "").replace("_", " ")
            return errors.InvalidInput(f"refused by the database: {rule}")
        case "3F000" | "42883" | "42P01" if "faultline" in message:
            return errors.SchemaMismatch(
                "this database has no Faultline schema, or an older one",
                hint="faultline migrate",
            )
    return None


def _stale_lease(
    detail: dict[str, Any], jobs: Sequence[errors.StaleLease] = ()
) -> errors.StaleLease:
    return errors.StaleLease(
        detail.get("reason", "unknown"),
        job_id=detail.get("job_id"),
        stale_token=detail.get("stale_token"),
        current_token=detail.get("current_token"),
        jobs=jobs,
    )


_MAX_WRAPPERS = 4


def wrapped_errors(error: BaseException) -> Iterator[BaseException]:
    """An error of a library, and the errors of the driver that it wraps."""
    each: BaseException | None = error
    for _ in range(_MAX_WRAPPERS):
        if each is None:
            return
        yield each
        each = getattr(each, "orig", None) or each.__cause__


def translate_wrapped(error: BaseException) -> errors.FaultlineError | None:
    """The same for an error of SQLAlchemy, Django or asyncpg.

    The driver's own error is read first: SQLAlchemy 2.0 copies the SQLSTATE of asyncpg's into its own, but
    not the details.
    """
    for each in reversed(tuple(wrapped_errors(error))):
        report = report_of(each)
        if report is not None and (translated := translate_report(report)):
            return translated
    return None


@contextlib.contextmanager
def translated_library_errors() -> Iterator[None]:
    """Raise PostgreSQL's refusals as errors of Faultline, and no other errors."""
    try:
        yield
    except errors.FaultlineError:
        raise
    except Exception as error:
        translated = translate_wrapped(error)
        if translated is None:
            raise
        raise translated from error


_MAX_CAUSES = 20
_CONFLICTS = ("40001", "40P01")
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
        sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        return (
            sqlstate in _SERVER_LOST
            or (isinstance(sqlstate, str) and sqlstate.startswith("08"))
            or _is_closed_session(error)
            or (sqlstate != "57014" and is_connection_lost(error))
            or getattr(error, "is_server_loss", False) is True
        )
    except BaseException:  # the attributes of a handler's exception are the user's code
        return False


def _is_closed_session(error: BaseException) -> bool:
    """Whether another driver than psycopg lost its session, and so has no sqlstate."""
    library, name = type(error).__module__.partition(".")[0], type(error).__name__
    return library in ("asyncpg", "psycopg2") and name in ("InterfaceError", "OperationalError")


def is_serialization_conflict(error: BaseException) -> bool:
    """Whether it is a serialization conflict, also one reported by a child process."""
    if getattr(error, "sqlstate", None) in _CONFLICTS:
        return True
    library = type(error).__module__.partition(".")[0]
    if library not in ("sqlalchemy", "django"):
        return False
    reports = map(report_of, wrapped_errors(error))
    return any(report is not None and report.sqlstate in _CONFLICTS for report in reports)


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
            return (
                f"GRANT {role} TO the account in the URL; faultline migrate --roles makes the role"
            )
    return (
        "grant the account in the URL the role for what it does: faultline_producer, faultline_worker,"
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
            hint = error.diag.message_hint or (
                "a transaction holds the lock: faultline why JOB names it; then try again"
            )
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

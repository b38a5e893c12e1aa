"""The event log of a process: one line per event, as JSON or as text.

The names of events are a contract. Routine events (claims, starts, commits) are logged at debug level
only, because they would slow down a busy worker. Log lines of handlers are written by `line`, in the same
format: see `faultline.logs`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, TextIO

import orjson


class Event(StrEnum):
    LEASE_ACQUIRED = "lease_acquired"
    LEASE_RENEWED = "lease_renewed"
    LEASE_LOST = "lease_lost"
    LEASE_REAPED = "lease_reaped"
    EXECUTION_STARTED = "execution_started"
    COMMIT_OK = "commit_ok"
    COMMIT_UNKNOWN = "commit_unknown"
    STALE_WRITE_BLOCKED = "stale_write_blocked"
    JOB_RETRY_SCHEDULED = "job_retry_scheduled"
    JOB_DEAD = "job_dead"
    JOB_RELEASED = "job_released"
    JOB_SNOOZED = "job_snoozed"  # by its handler
    JOBS_DEFERRED = "jobs_deferred"  # the worker does not know their task
    JOBS_RESCHEDULED = "jobs_rescheduled"  # the database's clock was set back
    HANDLER_ERROR_AFTER_COMMIT = "handler_error_after_commit"
    RESULT_DISCARDED = "result_discarded"  # a handler returned a value after its commit
    WORKER_STARTED = "worker_started"
    WORKER_DRAINING = "worker_draining"
    WORKER_EXIT = "worker_exit"  # one attempt has ended: success, stale, failed, released, deferred
    WORKER_STOPPED = "worker_stopped"  # the process ends
    WORKER_LOST = "worker_lost"
    LOOP_BLOCKED = "loop_blocked"  # a worker's event loop makes no progress
    LOOP_RESUMED = "loop_resumed"
    SESSION_ENDED = "session_ended"  # the session of a frozen worker that locked a job
    RECONCILER_LEADING = "reconciler_leading"
    PURGED = "purged"
    SCHEDULE_FIRED = "schedule_fired"
    SCHEDULE_SKIPPED = "schedule_skipped"  # times that were due did not fire, by the policy
    SCHEDULE_FAILED = "schedule_failed"  # its next time cannot be computed
    SCHEDULE_REANCHORED = (
        "schedule_reanchored"  # an interval counts from now: the clock was set back
    )
    SCHEDULE_UNDECLARED = "schedule_undeclared"  # no live worker's code declares it
    SCHEDULE_REFUSED = "schedule_refused"  # an operator's schedule has the name that code declares
    SCHEDULE_DECLARED = "schedule_declared"  # added or changed at the start of a worker
    DATABASE_UNAVAILABLE = "database_unavailable"
    DATABASE_STILL_UNAVAILABLE = "database_still_unavailable"  # the outage lasts
    DATABASE_BACK = "database_back"
    DEGRADED = "degraded"
    EMBEDDED_SERVER_STARTED = "embedded_server_started"  # it outlives the process
    QUEUE_UNUSED = "queue_unused"  # a worker serves a queue that no task of its app uses
    TASKS_UNSERVED = "tasks_unserved"  # a worker does not serve the queues of these tasks
    PROCESS_RESTARTED = "process_restarted"
    CODE_CHANGED = "code_changed"  # the worker is started again (--reload)
    PROCESS_DRAINED = "process_drained"  # by an operator: the supervisor does not restart it


ROUTINE = frozenset(
    {
        Event.LEASE_ACQUIRED,
        Event.LEASE_RENEWED,
        Event.EXECUTION_STARTED,
        Event.COMMIT_OK,
        Event.WORKER_EXIT,
        Event.SCHEDULE_FIRED,
    }
)
WARNINGS = frozenset(
    {
        Event.LEASE_LOST,
        Event.LEASE_REAPED,
        Event.STALE_WRITE_BLOCKED,
        Event.COMMIT_UNKNOWN,
        Event.JOB_DEAD,
        Event.JOBS_DEFERRED,
        Event.JOBS_RESCHEDULED,
        Event.HANDLER_ERROR_AFTER_COMMIT,
        Event.RESULT_DISCARDED,
        Event.WORKER_LOST,
        Event.LOOP_BLOCKED,
        Event.SESSION_ENDED,
        Event.DATABASE_UNAVAILABLE,
        Event.DATABASE_STILL_UNAVAILABLE,
        Event.DEGRADED,
        Event.SCHEDULE_SKIPPED,
        Event.SCHEDULE_FAILED,
        Event.SCHEDULE_REANCHORED,
        Event.SCHEDULE_UNDECLARED,
        Event.SCHEDULE_REFUSED,
        Event.QUEUE_UNUSED,
        Event.TASKS_UNSERVED,
        Event.PROCESS_RESTARTED,
    }
)


class LogSettings(NamedTuple):
    """How a process writes its log, for child processes that write to the same stderr."""

    style: str
    verbose: bool


class EventLog:
    """Writes events to a stream or to the logging module; at first to neither."""

    def __init__(self) -> None:
        self._logger: Any = None
        self._stream: TextIO | None = None
        self.is_verbose = False
        self.is_json = False

    def open(
        self, *, style: str = "auto", verbose: bool = False, stream: TextIO | None = None
    ) -> None:
        out: TextIO | None = stream or sys.stderr
        if out is None:  # stderr was closed when the process started
            return
        self._stream = out
        self.is_json = style == "json" or (style == "auto" and not out.isatty())
        self.is_verbose = verbose
        self._logger = _Lines(out) if self.is_json else _readable(out, verbose=verbose)

    def use_logging(self) -> None:
        """Write events to the logger `faultline`, if the log was not opened.

        For workers in the process of another program, which configures its logging.
        """
        if self._logger is None:
            self._logger = _Records()

    @property
    def stream(self) -> TextIO | None:
        """Where lines are written; None if the log was not opened."""
        return self._stream

    @property
    def inherited(self) -> LogSettings | None:
        """The settings for child processes; None if this log does not write to stderr."""
        if self._stream is None or self._stream is not sys.stderr:
            return None
        return LogSettings("json" if self.is_json else "console", self.is_verbose)

    @property
    def is_open(self) -> bool:
        return self._logger is not None

    def emit(self, event: Event, **fields: Any) -> None:
        if self._logger is None or (event in ROUTINE and not self.is_verbose):
            return
        level = "debug" if event in ROUTINE else "warning" if event in WARNINGS else "info"
        # A closed or full log must not stop the worker.
        with contextlib.suppress(OSError, ValueError):
            getattr(self._logger, level)(event.value, **fields)

    def line(self, level: str, text: str, fields: Mapping[str, Any]) -> None:
        """Write a log line of a handler or a library."""
        if self._logger is None:
            return
        own = {f"{name}_" if name in _RESERVED else name: each for name, each in fields.items()}
        if self.is_json:
            own = {"level": level, **own}
        with contextlib.suppress(OSError, ValueError):
            getattr(self._logger, level)(text, **own)


_RESERVED = frozenset({"event", "level", "at"})


class _Lines:
    """Writes one JSON object per line, for every level."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()  # the heartbeat thread logs too
        self.debug = self.info = self.warning = self.error = self.critical = self._write

    def _write(self, event: str, /, **fields: Any) -> None:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = dump({"event": event, **fields, "at": at}) + "\n"
        with self._lock:
            self._out.write(line)  # one write per line: processes share a stderr
            self._out.flush()


class _Records:
    """Writes records of the logging module: the event, then its fields."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("faultline")

    def debug(self, event: str, /, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def _write(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        shown = " ".join(f"{name}={value}" for name, value in fields.items())
        self._logger.log(level, "%s %s", event, shown)


def _readable(out: TextIO, *, verbose: bool) -> Any:
    """A logger for terminals; structlog is imported here because it loads slowly."""
    import structlog

    level = logging.DEBUG if verbose else logging.INFO
    return structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.add_log_level,
            traceback_below,
            structlog.dev.ConsoleRenderer(colors=is_colored(out)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )


def is_colored(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR")


def traceback_below(logger: Any, level: str, fields: MutableMapping[str, Any]) -> Any:
    """Make structlog's console print a traceback on lines of its own, below the event."""
    if trace := fields.pop("traceback", None):
        fields["exception"] = trace
    return fields


def dump(fields: dict[str, Any]) -> str:
    """The fields as one line of JSON, whatever their values are."""
    try:
        return orjson.dumps(fields, default=str).decode()
    except TypeError:  # a lone surrogate or a large number, which the json module can write
        return json.dumps(fields, default=str)


log = EventLog()
emit = log.emit

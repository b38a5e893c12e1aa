"""The event log of a process: one line per event, as JSON or as text.

The names of events are a contract. Routine events (claims, starts, commits) are logged at debug level
only, because they would slow down a busy worker.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

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
    JOBS_DEFERRED = "jobs_deferred"  # the worker does not know their task
    JOBS_RESCHEDULED = "jobs_rescheduled"  # the database's clock was set back
    HANDLER_ERROR_AFTER_COMMIT = "handler_error_after_commit"
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
    DATABASE_UNAVAILABLE = "database_unavailable"
    DATABASE_BACK = "database_back"
    DEGRADED = "degraded"
    PROCESS_RESTARTED = "process_restarted"
    PROCESS_DRAINED = "process_drained"  # by an operator: the supervisor does not restart it


ROUTINE = frozenset(
    {
        Event.LEASE_ACQUIRED,
        Event.LEASE_RENEWED,
        Event.EXECUTION_STARTED,
        Event.COMMIT_OK,
        Event.WORKER_EXIT,
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
        Event.WORKER_LOST,
        Event.LOOP_BLOCKED,
        Event.SESSION_ENDED,
        Event.DATABASE_UNAVAILABLE,
        Event.DEGRADED,
        Event.PROCESS_RESTARTED,
    }
)


class EventLog:
    """Writes events to a stream; it writes nothing until `open` is called."""

    def __init__(self) -> None:
        self._logger: Any = None
        self.is_verbose = False

    def open(
        self, *, style: str = "auto", verbose: bool = False, stream: TextIO | None = None
    ) -> None:
        out: TextIO | None = stream or sys.stderr
        if out is None:  # stderr was closed when the process started
            return
        as_json = style == "json" or (style == "auto" and not out.isatty())
        self.is_verbose = verbose
        self._logger = _Lines(out) if as_json else _readable(out, verbose=verbose)

    def emit(self, event: Event, **fields: Any) -> None:
        if self._logger is None or (event in ROUTINE and not self.is_verbose):
            return
        # A closed or full log must not stop the worker.
        with contextlib.suppress(OSError, ValueError):
            if event in ROUTINE:
                self._logger.debug(event.value, **fields)
            elif event in WARNINGS:
                self._logger.warning(event.value, **fields)
            else:
                self._logger.info(event.value, **fields)


class _Lines:
    """Writes one JSON object per line, for every level."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()  # the heartbeat thread logs too
        self.debug = self.info = self.warning = self._write

    def _write(self, event: str, **fields: Any) -> None:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = _dump({"event": event, **fields, "at": at}) + "\n"
        with self._lock:
            self._out.write(line)  # one write per line: processes share a stderr
            self._out.flush()


def _readable(out: TextIO, *, verbose: bool) -> Any:
    """A logger for terminals; structlog is imported here because it loads slowly."""
    import structlog

    level = logging.DEBUG if verbose else logging.INFO
    return structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )


def _dump(fields: dict[str, Any]) -> str:
    try:
        return orjson.dumps(fields, default=str).decode()
    except TypeError:  # a lone surrogate or a large number, which the json module can write
        return json.dumps(fields, default=str)


log = EventLog()
emit = log.emit

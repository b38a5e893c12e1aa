"""Log lines of an attempt carry its job's id, task, attempt and token.

The worker sets one context variable around each attempt. The fields are read from it only when a line is
logged: by a factory of log records for the logging module, by a processor for structlog. In a worker that
the command line started, lines for which the application has configured no handler go to the event log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from faultline.batch import Batch
from faultline.event_records import PREFIX as _PREFIX
from faultline.events import LogSettings, dump, is_colored, log, traceback_below
from faultline.handler_errors import logged_traceback
from faultline.job import Job

_current: ContextVar[Job | Batch[Any] | None] = ContextVar("faultline_job", default=None)
set_current_job = _current.set

# The attributes of a record that the logging module sets itself; all others came with `extra`.
_STANDARD = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "exc_text", "stack_info")
)


def current_job() -> Job | None:
    """The job whose handler is running in this thread or asyncio task, or None.

    A thread that a handler starts itself has no job, unless it runs in a copy of the handler's context. In a
    batch handler it is None: its lines belong to many jobs.
    """
    job = _current.get()
    return None if isinstance(job, Batch) else job


def _fields(job: Job | Batch[Any]) -> dict[str, Any]:
    if isinstance(job, Batch):
        return {**_NO_JOB, "task": job.task, "batch_jobs": len(job)}
    return {
        "job_id": str(job.id),
        "task": job.task,
        "attempt": job.attempt,
        "token": job.token,
    }


# ── the logging module ───────────────────────────────────────────────────────────────────────────


def _annotate(record: logging.LogRecord) -> logging.LogRecord:
    job = _current.get()
    fields = _NO_JOB if job is None else _fields(job)
    for name, value in fields.items():
        record.__dict__.setdefault(_PREFIX + name, value)  # events name their job themselves
    return record


_NO_JOB = {"job_id": None, "task": None, "attempt": None, "token": None}


class JobFieldsFilter(logging.Filter):
    """Adds `faultline_job_id`, `_task`, `_attempt` and `_token` to each log record.

    Workers do this by themselves. Add the filter to a handler whose format names these fields and that
    also serves other processes, or if the application sets its own factory of log records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        _annotate(record)
        return True


class _AnnotatedRecords:
    """A factory of log records that adds the job to those of another factory."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        return _annotate(self._make(*args, **kwargs))


def annotate_records() -> None:
    """Make every log record of this process carry the job; once."""
    make = logging.getLogRecordFactory()
    if not isinstance(make, _AnnotatedRecords):
        logging.setLogRecordFactory(_AnnotatedRecords(make))


class _EventLogHandler(logging.Handler):
    """Writes log records to the event log, in its format."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields: dict[str, Any] = {"logger": record.name}
            for name, value in vars(record).items():
                if name.startswith(_PREFIX):
                    if value is not None:
                        fields[name.removeprefix(_PREFIX)] = value
                elif name not in _STANDARD:
                    fields.setdefault(name, value)
            if record.exc_info and record.exc_info[1] is not None:
                fields["traceback"] = logged_traceback(record.exc_info[1])
            if record.stack_info:
                fields["stack"] = record.stack_info
            log.line(_level(record.levelno), record.getMessage(), fields)
        except Exception:
            self.handleError(record)


def _level(number: int) -> str:
    if number >= logging.CRITICAL:
        return "critical"
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"


# ── structlog ────────────────────────────────────────────────────────────────────────────────────


def add_job(logger: Any, method: str, fields: MutableMapping[str, Any]) -> Any:
    """A structlog processor: adds job_id, task, attempt and token of the attempt."""
    if (job := _current.get()) is not None:
        for name, value in _fields(job).items():
            if value is not None:
                fields.setdefault(name, value)
    return fields


def _traceback_as_field(logger: Any, method: str, fields: MutableMapping[str, Any]) -> Any:
    if trace := fields.pop("exception", None):
        fields["traceback"] = trace
    return fields


def _configure_structlog() -> None:
    """Configure structlog if the application uses it and has not configured it."""
    structlog: Any = sys.modules.get("structlog")
    if structlog is None or structlog.is_configured():
        return
    processors = [
        structlog.contextvars.merge_contextvars,
        add_job,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    if log.is_json:
        processors += [
            structlog.processors.format_exc_info,
            _traceback_as_field,
            structlog.processors.JSONRenderer(lambda fields, **_: dump(dict(fields))),
        ]
    else:
        colors = is_colored(log.stream) if log.stream is not None else False
        processors += [
            traceback_below,
            structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="at"),
        ]
    structlog.configure(
        processors=processors,
        logger_factory=structlog.WriteLoggerFactory(log.stream),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )


# ── the defaults of a worker process ─────────────────────────────────────────────────────────────


def use_event_log() -> None:
    """Write log lines to the event log if the application has configured no logging.

    Call it after the application was imported, and again after its startup functions. The handler of last
    resort serves loggers without any handler, so a later `logging.basicConfig()` still takes effect.
    """
    if log.stream is None:
        return
    root = logging.getLogger()
    if not root.handlers and not uses_event_log():
        logging.lastResort = _EventLogHandler(logging.NOTSET)
        if root.level == logging.WARNING:  # Python's default
            root.setLevel(logging.INFO)
    _configure_structlog()


def uses_event_log() -> bool:
    return isinstance(logging.lastResort, _EventLogHandler)


def inherited_settings() -> LogSettings | None:
    """The log settings for a child process, if this process uses the event log."""
    return log.inherited if uses_event_log() else None

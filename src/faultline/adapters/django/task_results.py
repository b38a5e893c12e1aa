"""Results of `django.tasks`, read from the rows of jobs."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from faultline import errors
from faultline.adapters.django.task_library import base
from faultline.errors import FaultlineError, Reject
from faultline.model import JobRecord, JobState
from faultline.statements.jobs import LedgerEntry, LoggedAttempt

_CAUSES = "\n\nThe above exception was the direct cause of"
_FAILED = re.compile(r"\w+: ([\w.<>]+): ")


class TaskFailed(Reject):
    """A function of `django.tasks` raised an exception.

    The message begins with the path of its class.
    """

    code = "task_failed"


class TaskRaised(FaultlineError):
    """The same, of a backend that retries."""

    code = "task_raised"


def message_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}"


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A job of a backend, with what its timeline knows."""

    record: JobRecord
    attempts: list[LoggedAttempt]
    entry: LedgerEntry | None

    def result(self, backend: str) -> Any:
        """The TaskResult; ImportError if the function is not where it was."""
        record, payload = self.record, self.record.payload
        begun = [each for each in self.attempts if each.claimed_at is not None]
        times = [each.claimed_at for each in begun]
        workers = [each.worker or "" for each in begun]
        if record.state is JobState.RUNNING:
            workers.append(record.lease_owner or "")
        if self.entry is not None:
            workers.append(self.entry.worker or "")
        if record.claimed_at is not None and len(workers) > len(begun):
            times.append(record.claimed_at)
        task = import_string(payload["task"])
        result = base.TaskResult(
            task=replace(
                task,
                backend=backend,
                queue_name=record.queue,
                priority=payload["priority"],
                run_after=_moment(payload["run_after"]),
            ),
            id=str(record.id),
            status=_status(record.state),
            enqueued_at=enqueued_at(record.id),
            started_at=_local(times[0] if times else None),
            last_attempted_at=_local(times[-1] if times else None),
            finished_at=_local(record.finished_at),
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=backend,
            errors=[_error(each.error) for each in begun if each.error],
            worker_ids=workers,
        )
        if record.state is JobState.FAILED and not result.errors:  # it never ran, or was lost
            result.errors.append(_error(record.last_error or str(record.failed_reason)))
        object.__setattr__(result, "_return_value", record.result)
        return result


def _status(state: JobState) -> Any:
    statuses = base.TaskResultStatus
    return {
        JobState.QUEUED: statuses.READY,
        JobState.RUNNING: statuses.RUNNING,
        JobState.SUCCEEDED: statuses.SUCCESSFUL,
        JobState.FAILED: statuses.FAILED,
    }[state]


def _error(text: str) -> Any:
    """The error of one attempt, whose text begins with a summary in a line of its own."""
    summary, _, trace = text.partition("\n\n")
    name = summary.partition(":")[0]
    if name in (TaskFailed.__name__, TaskRaised.__name__) and (found := _FAILED.match(summary)):
        own = trace.partition(_CAUSES)[0]
        return base.TaskError(exception_class_path=found[1], traceback=f"{own.strip()}\n")
    module = errors if hasattr(errors, name) else builtins
    path = f"{module.__name__}.{name}" if hasattr(module, name) else "faultline.errors.JobFailed"
    return base.TaskError(exception_class_path=path, traceback=trace or summary)


def enqueued_at(job_id: UUID) -> datetime:
    """The time in a job's id, which is that of its creation, in UTC."""
    milliseconds, fraction = job_id.int >> 80, (job_id.int >> 64) & 0xFFF
    since = timedelta(milliseconds=milliseconds, microseconds=fraction * 1000 // 4096)
    moment = _local(datetime(1970, 1, 1, tzinfo=UTC) + since)
    assert moment is not None  # noqa: S101
    return moment


def _local(moment: datetime | None) -> datetime | None:
    """As Django stores times: aware, or naive in its time zone without USE_TZ."""
    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

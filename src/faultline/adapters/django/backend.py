"""A backend for `django.tasks`: its tasks are jobs of Faultline.

TASKS = {"default": {"BACKEND": "faultline.adapters.django.backend.FaultlineBackend"}}
"""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any
from uuid import UUID

from django.utils import timezone

from faultline.adapters.django.application import app_for
from faultline.adapters.django.task_library import (
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    base,
    signals,
)
from faultline.adapters.django.task_results import StoredTask, enqueued_at
from faultline.adapters.django.task_runner import ASYNC, PLAIN, current_job, runners_of
from faultline.errors import InvalidInput, InvalidSettings
from faultline.model import DEFAULT_MAX_ATTEMPTS
from faultline.payload import check_queue_name
from faultline.statements import jobs
from faultline.suggestions import did_you_mean

__all__ = ["FaultlineBackend", "current_job", "faultline_priority"]

_OPTIONS = ("database", "max_attempts", "retry_errors", "timeout", "lease")
_STEPS = 10  # Faultline's priorities, of which 0 is the first


class FaultlineBackend(BaseTaskBackend):  # type: ignore[misc]
    """Enqueues tasks in the open transaction, and reads their results from the queue."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        for name in self.options:
            if name not in _OPTIONS:
                raise InvalidSettings(
                    f"TASKS[{alias!r}] has an unknown option {name!r}",
                    hint=did_you_mean(name, _OPTIONS) or f"options are {', '.join(_OPTIONS)}",
                )
        self.retries: bool = self.options.get("retry_errors", False)
        self._app = app_for(self.options.get("database"))
        self._runners = runners_of(self._app)

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        try:
            check_queue_name(task.queue_name)
        except InvalidInput as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a job; inside of `transaction.atomic()` it exists if that commits."""
        self.validate_task(task)
        result = base.TaskResult(
            task=task,
            id="",
            status=base.TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        run_at = task.run_after
        if run_at is not None and timezone.is_naive(run_at):
            run_at = timezone.make_aware(run_at)
        runner = self._runners[iscoroutinefunction(task.func)]
        enqueued = runner.options(
            queue=task.queue_name,
            priority=faultline_priority(task.priority),
            run_at=run_at,
            max_attempts=self.options.get("max_attempts", DEFAULT_MAX_ATTEMPTS),
            timeout=self.options.get("timeout"),
            lease=self.options.get("lease"),
        ).enqueue(
            backend=self.alias,
            task=task.module_path,
            args=result.args,
            kwargs=result.kwargs,
            priority=task.priority,
            run_after=None if task.run_after is None else task.run_after.isoformat(),
        )
        object.__setattr__(result, "id", str(enqueued.job_id))
        object.__setattr__(result, "enqueued_at", enqueued_at(enqueued.job_id))
        signals.task_enqueued.send(sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        try:
            job_id = UUID(str(result_id))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        record = self._app.execute(jobs.get_job(job_id))
        if record is None or record.task not in (PLAIN, ASYNC):
            raise TaskResultDoesNotExist(result_id)
        attempts = self._app.execute(jobs.attempts_of(job_id))
        entry = self._app.execute(jobs.ledger_entry_of(job_id))
        return StoredTask(record, attempts, entry).result(self.alias)


def faultline_priority(priority: int) -> int:
    """One of ten steps: 100 is 0, 0 is 5 and -100 is 9."""
    low: int = base.TASK_MIN_PRIORITY
    high: int = base.TASK_MAX_PRIORITY
    return _STEPS - 1 - (priority - low) * _STEPS // (high - low + 1)

"""The handlers that run functions of `django.tasks` in Faultline's workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from faultline.adapters.django.application import DjangoFaultline
from faultline.adapters.django.task_library import base, library, signals
from faultline.adapters.django.task_results import TaskFailed, TaskRaised, message_of
from faultline.errors import FaultlineError, InvalidInput
from faultline.job import Job
from faultline.postgres.errors import is_serialization_conflict, is_server_loss
from faultline.task import Task

PLAIN, ASYNC = "django.tasks", "django.tasks.async"
_job: ContextVar[Job | None] = ContextVar("faultline_django_job", default=None)


def current_job() -> Job:
    """The job of the function of `django.tasks` that runs here.

    `with current_job().atomic():` commits the function's writes under the fence.
    """
    job = _job.get()
    if job is None:
        raise InvalidInput("current_job() is for functions of django.tasks that a worker runs")
    return job


def runners_of(app: DjangoFaultline) -> tuple[Task[..., Any], Task[..., Any]]:
    """The application's tasks for plain and for async functions, registered once."""
    if PLAIN not in app.tasks:
        app.task(name=PLAIN)(_run)
        app.task(name=ASYNC)(_run_async)
    return app.tasks[PLAIN], app.tasks[ASYNC]


class Running:
    """One attempt: its TaskResult, its signals, and the error that it ends in."""

    def __init__(self, job: Job, result: Any) -> None:
        self.job = job
        self.backend = library.task_backends[result.backend]
        self.result = result
        self.function = result.task.func
        context = [base.TaskContext(task_result=result)] if result.task.takes_context else []
        self.arguments: Sequence[Any] = [*context, *result.args]
        self.keywords: dict[str, Any] = result.kwargs

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Around the function: tell Django, and raise what the worker shall record."""
        token = _job.set(self.job)
        signals.task_started.send(sender=type(self.backend), task_result=self.result)
        try:
            yield
        except FaultlineError:  # a refusal, or what the function asks of Faultline
            raise
        except (Exception, SystemExit) as error:
            if is_serialization_conflict(error) or is_server_loss(error):
                raise  # the worker runs it again
            retries = self.backend.retries
            if not retries or self.job.attempt >= self.job.max_attempts:
                self._tell("FAILED")
            raise (TaskRaised if retries else TaskFailed)(message_of(error)) from error
        else:
            self._tell("SUCCESSFUL")
        finally:
            _job.reset(token)

    def _tell(self, status: str) -> None:
        object.__setattr__(self.result, "status", base.TaskResultStatus[status])
        signals.task_finished.send(sender=type(self.backend), task_result=self.result)


def _run(
    job: Job, /, backend: str, task: str, args: list[Any], kwargs: dict[str, Any], **_: Any
) -> Any:
    running = Running(job, library.task_backends[backend].get_result(str(job.id)))
    with running():
        return base.normalize_json(running.function(*running.arguments, **running.keywords))


async def _run_async(
    job: Job, /, backend: str, task: str, args: list[Any], kwargs: dict[str, Any], **_: Any
) -> Any:
    result = await library.task_backends[backend].aget_result(str(job.id))
    running = Running(job, result)
    with running():
        return base.normalize_json(await running.function(*running.arguments, **running.keywords))

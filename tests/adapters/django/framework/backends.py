"""Faultline's backend in the roles of Django's two backends, for Django's tests."""

from __future__ import annotations

from typing import Any

from faultline.adapters.django import app
from faultline.adapters.django.backend import FaultlineBackend
from faultline.adapters.django.schema import forget_jobs
from faultline.adapters.django.testing import enqueued_jobs, run_jobs


class DummyBackend(FaultlineBackend):
    """Stores tasks, as Django's dummy does.

    The tests also read all results and clear them.
    """

    @property
    def results(self) -> list[Any]:
        return [self.get_result(str(job.id)) for job in enqueued_jobs()]

    def clear(self) -> None:
        forget_jobs(app.alias)


class ImmediateBackend(FaultlineBackend):
    """Runs each task at once, by a worker, and returns its finished result."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        run_jobs(raise_errors=False)
        result.refresh()
        return result

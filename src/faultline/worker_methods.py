"""The methods of an application that import its tasks and run its workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from faultline.config import Retention, WorkerSettings
from faultline.errors import InvalidInput
from faultline.queue_shares import GivenShares
from faultline.task_imports import TaskImports

if TYPE_CHECKING:
    from faultline.app import Faultline
    from faultline.workers.running_worker import RunningWorker


class WorkerMethods:
    """A base class of `Faultline`. The modules of workers are imported on use."""

    _imports: TaskImports

    def autodiscover(self, *packages: str) -> None:
        """Import all modules of these packages when a worker or a command needs the tasks.

        Modules named `__main__`, `conftest`, `tests` or `test_…` are left out.
        """
        self._imports.add_packages(packages)

    def import_tasks(self) -> None:
        """Import the modules of `imports` and `autodiscover` now.

        Workers and commands call it. A program that looks up tasks by name may call it too.
        """
        self._imports.load()

    def run_worker(
        self,
        queues: Sequence[str] | GivenShares | None = None,
        *,
        concurrency: int | None = None,
        drain_seconds: float | None = None,
        max_jobs: int | None = None,
        reconciler: bool = True,
        retention: Retention | None = None,
        settings: WorkerSettings | None = None,
    ) -> None:
        """Run jobs until SIGTERM, SIGINT or `faultline drain`, like `faultline worker`.

        Without `queues` it serves the queues of the application's tasks, and `default`; `["*"]` is every
        queue. `{"billing": 5, "*": 20}` gives queues slots, `QueueShare` weights too. `settings` has all
        settings, and excludes the other ones. A handler that cannot be ended ends
        the process with exit code 1.
        """
        from faultline.workers.worker_process import run_in_main_thread

        chosen = _settings(
            settings,
            queues=queues,
            concurrency=concurrency,
            drain_seconds=drain_seconds,
            max_jobs=max_jobs,
        )
        kept = _kept(retention, reconciler=reconciler)
        run_in_main_thread(cast("Faultline", self), chosen, retention=kept)

    def worker(
        self,
        queues: Sequence[str] | GivenShares | None = None,
        *,
        concurrency: int | None = None,
        drain_seconds: float | None = None,
        max_jobs: int | None = None,
        reconciler: bool = True,
        retention: Retention | None = None,
        settings: WorkerSettings | None = None,
    ) -> RunningWorker:
        """Run a worker on this event loop: `async with app.worker():`, without signals.

        The worker drains at the end of the block. An error that ends the worker cancels the block, and is
        raised at its end. The arguments are those of `run_worker`.
        """
        from faultline.workers.running_worker import RunningWorker

        chosen = _settings(
            settings,
            queues=queues,
            concurrency=concurrency,
            drain_seconds=drain_seconds,
            max_jobs=max_jobs,
        )
        kept = _kept(retention, reconciler=reconciler)
        return RunningWorker(cast("Faultline", self), chosen, retention=kept)


def _settings(settings: WorkerSettings | None, **given: Any) -> WorkerSettings:
    chosen = {name: value for name, value in given.items() if value is not None}
    if settings is None:
        return WorkerSettings(**chosen)
    if chosen:
        raise InvalidInput(
            f"settings excludes {', '.join(chosen)}", hint="give them to WorkerSettings"
        )
    return settings


def _kept(retention: Retention | None, *, reconciler: bool) -> Retention | None:
    if not reconciler and retention is not None:
        raise InvalidInput(
            "retention is applied by the reconciler, which is off", hint="leave out one of the two"
        )
    return (retention or Retention()) if reconciler else None

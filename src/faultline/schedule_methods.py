"""The methods of an application that define and operate schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from faultline.enqueue_options import Seconds
from faultline.errors import InvalidInput
from faultline.model import JobSpec
from faultline.schedules import DEFAULT_MISSED_LIMIT, Missed, Schedule, make_schedule
from faultline.statements import schedules
from faultline.statements.schedules import ScheduleRecord
from faultline.statements.statement import Statement
from faultline.task import Task

T = TypeVar("T")
TaskT = TypeVar("TaskT", bound=Task[Any, Any])


class ScheduleMethods:
    """A base class of `Faultline`."""

    _schedules: dict[str, Schedule]

    if TYPE_CHECKING:

        def execute(self, statement: Statement[T]) -> T: ...
        def execute_async(self, statement: Statement[T]) -> Coroutine[Any, Any, T]: ...
        def operate(self, action: str, target: str, statement: Statement[T]) -> T: ...
        def operate_async(
            self, action: str, target: str, statement: Statement[T]
        ) -> Coroutine[Any, Any, T]: ...

    @overload
    def schedule(
        self,
        what: str | None = None,
        /,
        *,
        every: Seconds | None = None,
        tz: str = "UTC",
        anchor: datetime | None = None,
        name: str | None = None,
        missed: str = Missed.ONCE,
        missed_limit: int = DEFAULT_MISSED_LIMIT,
        jitter: Seconds = 0,
    ) -> Callable[[TaskT], TaskT]: ...
    @overload
    def schedule(
        self,
        what: JobSpec,
        cron: str | None = None,
        /,
        *,
        every: Seconds | None = None,
        tz: str = "UTC",
        anchor: datetime | None = None,
        name: str | None = None,
        missed: str = Missed.ONCE,
        missed_limit: int = DEFAULT_MISSED_LIMIT,
        jitter: Seconds = 0,
    ) -> Schedule: ...
    def schedule(
        self,
        what: JobSpec | str | None = None,
        cron: str | None = None,
        /,
        *,
        every: Seconds | None = None,
        tz: str = "UTC",
        anchor: datetime | None = None,
        name: str | None = None,
        missed: str = Missed.ONCE,
        missed_limit: int = DEFAULT_MISSED_LIMIT,
        jitter: Seconds = 0,
    ) -> Any:
        """Enqueue a job at planned times: by a cron expression, or `every` so often.

        As a decorator above `@app.task` it enqueues the task without arguments:
        `@app.schedule("0 6 * * *", tz="Europe/Berlin")`. With a job it takes that job:
        `app.schedule(charge.job(invoice=1), every=timedelta(minutes=5))`. Each worker that starts writes the
        schedules of its application into the database. The name defaults to the task's. `missed` says which
        times fire after an outage: 'skip', 'once' or 'all', at most `missed_limit`. Each job is due up to
        `jitter` seconds after its planned time. Planned times of `every` are multiples from `anchor`, the
        beginning of 1970 if it is not given.
        """
        make = functools.partial(
            make_schedule,
            every=every,
            tz=tz,
            anchor=anchor,
            name=name,
            missed=missed,
            missed_limit=missed_limit,
            jitter=jitter,
        )
        if isinstance(what, JobSpec):
            return self._add_schedule(make(what, cron))
        if cron is not None or not isinstance(what, str | None):
            raise InvalidInput(
                "the first argument of app.schedule is a cron expression or a job",
                hint="app.schedule(charge.job(…), '0 6 * * *')",
            )

        def decorate(task: TaskT) -> TaskT:
            if not isinstance(task, Task):
                raise InvalidInput(
                    "app.schedule decorates a task, not a function",
                    hint="write @app.schedule(…) above @app.task",
                )
            self._add_schedule(make(task.job(), what))
            return task

        return decorate

    def _add_schedule(self, schedule: Schedule) -> Schedule:
        former = self._schedules.get(schedule.name)
        # A notebook or a reload may define the same schedule again.
        if former is not None and former != schedule:
            raise InvalidInput(
                f"two schedules are named {schedule.name}", hint="give one of them a name="
            )
        self._schedules[schedule.name] = schedule
        return schedule

    @property
    def declared_schedules(self) -> Mapping[str, Schedule]:
        """The schedules that this application's code declares, by name."""
        return MappingProxyType(self._schedules)

    # ── in the database ──────────────────────────────────────────────────────────────────────────

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules of the database, of code and of operators."""
        return self.execute(schedules.schedules())

    async def schedules_async(self) -> list[ScheduleRecord]:
        return await self.execute_async(schedules.schedules())

    def pause_schedule(self, name: str, reason: str | None = None) -> bool:
        """Stop a schedule from firing; the times that pass meanwhile never fire.

        Returns False if it was paused already.
        """
        verb = schedules.pause(name, reason)
        return self.operate("pause", f"schedule {name}", verb)

    async def pause_schedule_async(self, name: str, reason: str | None = None) -> bool:
        verb = schedules.pause(name, reason)
        return await self.operate_async("pause", f"schedule {name}", verb)

    def resume_schedule(self, name: str) -> bool:
        """Let a schedule fire again from now on. False if it was not paused."""
        return self.operate("resume", f"schedule {name}", schedules.resume(name))

    async def resume_schedule_async(self, name: str) -> bool:
        verb = schedules.resume(name)
        return await self.operate_async("resume", f"schedule {name}", verb)

    def run_schedule(self, name: str) -> UUID:
        """Enqueue the schedule's job now, beside its planned times; returns the job."""
        return self.operate("run", f"schedule {name}", schedules.run_now(name))

    async def run_schedule_async(self, name: str) -> UUID:
        verb = schedules.run_now(name)
        return await self.operate_async("run", f"schedule {name}", verb)

    def remove_schedule(self, name: str) -> None:
        """Remove a schedule that no live worker declares."""
        self.operate("remove", f"schedule {name}", schedules.remove(name))

    async def remove_schedule_async(self, name: str) -> None:
        verb = schedules.remove(name)
        await self.operate_async("remove", f"schedule {name}", verb)

"""The options that select jobs: --state, --queue, --task, --tag, --error, times."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import click

from faultline.cli.completion import complete_queue, complete_task
from faultline.cli.context import Context
from faultline.cli.durations import with_unit
from faultline.cli.known_queues import near_queue
from faultline.job_selection import job_filter
from faultline.model import JobState
from faultline.postgres.sessions import Connection, run
from faultline.statements import clock
from faultline.statements.job_filter import JobFilter
from faultline.suggestions import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

_TIMES = ("created_after", "created_before", "finished_after", "finished_before")


class _Moment(click.ParamType[datetime | timedelta]):
    """An ISO time with a zone, or how long ago: 90s, 30m, 12h, 7d, 2w."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | timedelta:
        if (seconds := with_unit(value)) is not None:
            return timedelta(seconds=seconds)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(
                f"{value[:80]!r} is neither a time ago (30m, 12h, 7d) nor an ISO time with a zone"
                " (2030-01-31T09:00:00+01:00).",
                param,
                ctx,
            )
        return moment


class FilterOptions:
    """The values of the options; `resolve` makes a filter of them."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    @property
    def is_empty(self) -> bool:
        return not self._given

    def suggestion(self, context: Context, conn: Connection) -> str | None:
        """A question with the closest queue or task, if the given one is unknown."""
        if (queue := self._given.get("queue")) is not None and (
            question := near_queue(context, conn, queue)
        ):
            return question
        task = self._given.get("task")
        if task is None or context.app_path is None:
            return None
        context.app.import_tasks()
        return None if task in context.app.tasks else did_you_mean(task, context.app.tasks)

    def resolve(self, conn: Connection, job_ids: Sequence[UUID] = ()) -> JobFilter:
        """A time ago is counted from the database's clock, which wrote the jobs' times."""
        values = dict(self._given)
        if any(isinstance(values.get(name), timedelta) for name in _TIMES):
            now = run(conn, clock.database_time())
            for name in _TIMES:
                if isinstance(values.get(name), timedelta):
                    values[name] = now - values[name]
        return job_filter(**values, ids=job_ids or None)


_OPTIONS = (
    click.option(
        "--state",
        type=click.Choice([state.value for state in JobState]),
        help="Only jobs in this state.",
    ),
    click.option("--queue", help="Only jobs of this queue.", shell_complete=complete_queue),
    click.option("--task", help="Only jobs of this task.", shell_complete=complete_task),
    click.option("--tag", help="Only jobs with this tag."),
    click.option("--error", metavar="CLASS", help="Only jobs whose last error has this class."),
    click.option(
        "--failed-reason",
        metavar="REASON",
        help="Only jobs that failed for this reason, such as attempts_spent, rejected, cancelled"
        " or poison.",
    ),
    *(
        click.option(
            f"--{name.replace('_', '-')}",
            type=_Moment(),
            metavar="TIME",
            help=f"Only jobs {name.partition('_')[0]} {'at or after' if 'after' in name else 'before'}"
            " this time: 12h (ago), 7d, or ISO with a zone.",
        )
        for name in _TIMES
    ),
)
_NAMES = ("state", "queue", "task", "tag", "error", "failed_reason", *_TIMES)


def filter_options(command: F) -> F:
    """Give a command these options, as the argument `options`."""

    @functools.wraps(command)
    def called(**values: Any) -> Any:
        taken = {name: values.pop(name) for name in _NAMES}
        given = {name: value for name, value in taken.items() if value is not None}
        return command(**values, options=FilterOptions(given))

    for option in reversed(_OPTIONS):
        called = option(called)
    return called  # type: ignore[return-value]

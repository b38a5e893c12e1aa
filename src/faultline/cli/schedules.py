"""The commands of the group `schedules`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click

from faultline.cli.completion import complete_queue, complete_task
from faultline.cli.context import Context, audited, session
from faultline.cli.durations import METAVAR, Duration
from faultline.cli.enqueue import parse_time, read_payload, task_settings, warn_of_unused_queue
from faultline.cli.output import duration, json_option, print_json, print_table
from faultline.config import LONGEST_RETRY_SECONDS
from faultline.enqueue_options import EnqueueOptions, seconds_of
from faultline.errors import UnknownSchedule
from faultline.payload import check_task_name, checked_tags
from faultline.postgres.sessions import Connection, run
from faultline.schedule_view import document, full_document, in_zone, notes, upcoming
from faultline.schedules import DEFAULT_MISSED_LIMIT, Missed, make_schedule
from faultline.statements import schedules as statements
from faultline.statements.schedules import Firing, ScheduleRecord
from faultline.suggestions import did_you_mean
from faultline.task import job_spec

if TYPE_CHECKING:
    from rich.text import Text

_FIRINGS = 10


@click.group()
def schedules() -> None:
    """List, pause, run, add and remove schedules."""


@schedules.command(name="list")
@json_option
@click.pass_obj
def list_schedules(context: Context, as_json: bool) -> None:
    """List the schedules with their next times, in their time zones."""
    with session(context) as conn:
        found = run(conn, statements.schedules())
    if as_json:
        print_json([document(each) for each in found])
    elif not found:
        click.echo("no schedules")
    else:
        print_table(
            ["schedule", "state", "when", "zone", "next", "last planned", "task", "declared by"],
            [_row(each) for each in found],
        )
        for each in found:
            for note in notes(each):
                click.echo(f"{each.name}: {note}")


def _row(schedule: ScheduleRecord) -> list[str | Text]:
    times = upcoming(schedule, 1)
    return [
        schedule.name,
        schedule.state,
        _expression(schedule),
        schedule.time_zone,
        _shown(times[0]) if times else "",
        _in_zone(schedule, schedule.last_planned_at),
        schedule.task,
        schedule.declared_by,
    ]


@schedules.command()
@click.argument("name")
@json_option
@click.pass_obj
def show(context: Context, name: str, as_json: bool) -> None:
    """Show a schedule, its next times and its newest firings."""
    with session(context) as conn, _suggesting(conn, name):
        found = run(conn, statements.find(name))
        if found is None:
            raise UnknownSchedule(f"there is no schedule {name!r}")
        firings = run(conn, statements.firings(name, limit=_FIRINGS))
    if as_json:
        print_json(full_document(found, firings))
        return
    for label, text in _lines(found):
        click.echo(f"{label:<14} {text}")
    for note in notes(found):
        click.echo(f"note           {note}")
    if firings:
        print_table(
            ["planned", "outcome", "fired", "job"], [_firing_row(found, each) for each in firings]
        )


def _lines(schedule: ScheduleRecord) -> Iterator[tuple[str, str]]:
    yield "schedule", schedule.name
    yield "state", schedule.state
    yield "when", f"{_expression(schedule)} ({schedule.time_zone})"
    yield "task", f"{schedule.task} in the queue {schedule.queue}"
    limit = f", at most {schedule.missed_limit}" if schedule.missed == Missed.ALL else ""
    yield "missed", f"{schedule.missed}{limit}"
    if schedule.jitter_seconds:
        yield "jitter", f"up to {duration(schedule.jitter_seconds)}"
    yield "declared by", f"{schedule.declared_by}, revision {schedule.revision}"
    for position, time in enumerate(upcoming(schedule)):
        yield "" if position else "next", _shown(time)


def _firing_row(schedule: ScheduleRecord, firing: Firing) -> list[str | Text]:
    skipped = f" ({firing.skipped:,} times)" if firing.skipped else ""
    return [
        _in_zone(schedule, firing.planned_at),
        firing.outcome + skipped,
        _in_zone(schedule, firing.fired_at),
        str(firing.job_id or ""),
    ]


@schedules.command()
@click.argument("name")
@click.option("--reason", help="Shown by `faultline schedules`.")
@json_option
@click.pass_obj
def pause(context: Context, name: str, reason: str | None, as_json: bool) -> None:
    """Stop a schedule from firing.

    Times that pass meanwhile never fire. Jobs that were enqueued before run.
    """
    with _acting(context, "pause", name) as conn:
        changed = run(conn, statements.pause(name, reason))
    if as_json:
        print_json({"schedule": name, "paused": True, "changed": changed})
    else:
        click.echo(f"{name} is paused" if changed else f"{name} was paused already")


@schedules.command()
@click.argument("name")
@json_option
@click.pass_obj
def resume(context: Context, name: str, as_json: bool) -> None:
    """Let a schedule fire again, at its first time from now on."""
    with _acting(context, "resume", name) as conn:
        changed = run(conn, statements.resume(name))
    if as_json:
        print_json({"schedule": name, "paused": False, "changed": changed})
    else:
        click.echo(f"{name} is resumed" if changed else f"{name} was not paused")


@schedules.command(name="run-now")
@click.argument("name")
@json_option
@click.pass_obj
def run_now(context: Context, name: str, as_json: bool) -> None:
    """Enqueue the schedule's job at once, beside its planned times."""
    with _acting(context, "run", name) as conn:
        job_id = run(conn, statements.run_now(name))
    if as_json:
        print_json({"schedule": name, "job_id": job_id})
    else:
        click.echo(str(job_id))


@schedules.command()
@click.argument("name")
@json_option
@click.pass_obj
def remove(context: Context, name: str, as_json: bool) -> None:
    """Remove a schedule.

    One that the code of a live worker declares is refused: remove it there, or pause it.
    """
    with _acting(context, "remove", name) as conn:
        run(conn, statements.remove(name))
    if as_json:
        print_json({"schedule": name, "removed": True})
    else:
        click.echo(f"{name} is removed")


@schedules.command()
@click.argument("name")
@click.argument("task", shell_complete=complete_task)
@click.argument("payload", metavar="[PAYLOAD_JSON]", default="{}")
@click.option("--cron", help="Minute, hour, day of the month, month and day of the week.")
@click.option(
    "--every",
    type=Duration(is_whole=True),
    metavar=METAVAR,
    help="Fire this often instead: 300 or 5m.",
)
@click.option("--anchor", metavar="ISO", help="Count --every from this time, given with its zone.")
@click.option("--tz", default="UTC", show_default=True, help="The time zone of --cron.")
@click.option("--queue", help="The queue; else the task's.", shell_complete=complete_queue)
@click.option("--priority", type=int, help="From 0 (first) to 9 (last); else the task's own or 5.")
@click.option("--max-attempts", type=int, help="Attempts of each job; else the task's own or 10.")
@click.option(
    "--expires-in",
    type=Duration(),
    metavar=METAVAR,
    help="Fail a job not started within this time.",
)
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="A word to find its jobs by; repeatable."
)
@click.option(
    "--missed",
    type=click.Choice([policy.value for policy in Missed]),
    default=Missed.ONCE.value,
    show_default=True,
    help="Which times fire after an outage.",
)
@click.option(
    "--missed-limit",
    type=int,
    default=DEFAULT_MISSED_LIMIT,
    show_default=True,
    help="How many times fire with --missed all.",
)
@click.option(
    "--jitter",
    type=Duration(),
    default=0,
    metavar=METAVAR,
    help="Delay each job by up to this long.",
)
@click.option("--replace", is_flag=True, help="Change the schedule if it exists.")
@click.option("--force", is_flag=True, help="Add it even if --app has no such task.")
@json_option
@click.pass_obj
def add(
    context: Context,
    name: str,
    task: str,
    payload: str,
    cron: str | None,
    every: int | None,
    anchor: str | None,
    tz: str,
    queue: str | None,
    priority: int | None,
    max_attempts: int | None,
    expires_in: float | None,
    tags: tuple[str, ...],
    missed: str,
    missed_limit: int,
    jitter: float,
    replace: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Add a schedule that enqueues TASK.

    PAYLOAD_JSON is a JSON object of the task's arguments; - reads it from stdin.
    """
    arguments = read_payload(payload)
    options = EnqueueOptions(
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        expires_in_seconds=seconds_of("--expires-in", expires_in, LONGEST_RETRY_SECONDS),
        tags=checked_tags(tags),
    )
    settings, _ = task_settings(context, check_task_name(task), arguments, force)
    if queue is not None and not force:
        warn_of_unused_queue(context, queue)
    schedule = make_schedule(
        job_spec(task, settings, options, arguments, None),
        cron,
        every=every,
        tz=tz,
        anchor=parse_time("--anchor", anchor),
        name=name,
        missed=missed,
        missed_limit=missed_limit,
        jitter=jitter,
    )
    with session(context) as conn:
        with audited(conn, "add", f"schedule {name}"):
            outcome = run(conn, statements.add(schedule.definition, replace=replace))
        found = run(conn, statements.find(name))
    times = [] if found is None else upcoming(found, 1)
    if as_json:
        print_json(
            {"schedule": name, "outcome": outcome, "next_fire_at": times[0] if times else None}
        )
    else:
        following = f"; it fires next at {_shown(times[0])}" if times else ""
        click.echo(f"{name} is {outcome}{following}")


# ── names and times ──────────────────────────────────────────────────────────────────────────────


@contextmanager
def _acting(context: Context, action: str, name: str) -> Iterator[Connection]:
    with (
        session(context) as conn,
        _suggesting(conn, name),
        audited(conn, action, f"schedule {name}"),
    ):
        yield conn


@contextmanager
def _suggesting(conn: Connection, name: str) -> Iterator[None]:
    """Name the schedules that an unknown name resembles."""
    try:
        yield
    except UnknownSchedule as error:
        known = run(conn, statements.names())
        question = did_you_mean(name, known)
        raise UnknownSchedule(
            error.message, hint=question or "list the schedules: faultline schedules list"
        ) from None


def _expression(schedule: ScheduleRecord) -> str:
    seconds = schedule.every_seconds
    if seconds is None:
        return schedule.cron or ""
    return f"every {seconds} s" if seconds < 60 else f"every {duration(seconds)}"


def _in_zone(schedule: ScheduleRecord, time: datetime | None) -> str:
    return "" if time is None else _shown(in_zone(schedule, time))


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S %Z}"

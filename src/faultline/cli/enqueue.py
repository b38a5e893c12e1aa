"""The command `enqueue`: creates one job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args

import click

from faultline.cli.completion import complete_queue, complete_task, queues_of
from faultline.cli.context import Context, session, with_lock_timeout
from faultline.cli.durations import METAVAR, Duration
from faultline.cli.output import json_option, print_json
from faultline.config import LONGEST_RETRY_SECONDS
from faultline.enqueue_options import EnqueueOptions, lease_seconds_of, seconds_of
from faultline.errors import InvalidInput, UnknownTask
from faultline.payload import check_task_name, checked_tags, encode_payload, parse_json
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.suggestions import did_you_mean, joined
from faultline.task import TaskSettings, job_spec
from faultline.unique import OnConflict, Unique, While
from faultline.wording import plain


@click.command()
@click.argument("task", shell_complete=complete_task)
@click.argument("payload", metavar="[PAYLOAD_JSON]", default="{}")
@click.option(
    "--queue",
    help="The queue; if absent, the task's own or `default`.",
    shell_complete=complete_queue,
)
@click.option(
    "--priority", type=int, help="From 0 (first) to 9 (last); if absent, the task's own or 5."
)
@click.option("--run-at", metavar="ISO", help="Do not start before this time, given with its zone.")
@click.option(
    "--delay",
    type=Duration(),
    metavar=METAVAR,
    help="Do not start before this time from now: 300 or 5m.",
)
@click.option(
    "--expires-in",
    type=Duration(),
    metavar=METAVAR,
    help="Fail the job if it has not started within this time.",
)
@click.option(
    "--timeout",
    type=Duration(),
    metavar=METAVAR,
    help="How long an attempt may take; else the task's.",
)
@click.option(
    "--lease", type=Duration(), metavar=METAVAR, help="How long its lease is; else the task's."
)
@click.option(
    "--unique-by",
    metavar="NAMES",
    help="Enqueue no second job with equal values of these arguments: customer_id,region; all: '*'.",
)
@click.option(
    "--unique-while",
    type=click.Choice(get_args(While)),
    help="A job counts until its first claim or its end; unfinished if absent.",
)
@click.option(
    "--unique-for", type=Duration(), metavar=METAVAR, help="A job counts for at least this long."
)
@click.option(
    "--on-conflict",
    type=click.Choice(get_args(OnConflict)),
    help="What to do with the job that counts; keep if absent.",
)
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="A word to find the job by; repeatable."
)
@click.option("--key", help="The idempotency key; one key never creates two jobs.")
@click.option(
    "--max-attempts",
    type=int,
    help="How many attempts the job has; if absent, the task's own or 10.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Enqueue even if --app has no such task, or the arguments do not fit it.",
)
@json_option
@click.pass_obj
def enqueue(
    context: Context,
    task: str,
    payload: str,
    queue: str | None,
    priority: int | None,
    run_at: str | None,
    delay: float | None,
    expires_in: float | None,
    timeout: float | None,
    lease: float | None,
    unique_by: str | None,
    unique_while: While | None,
    unique_for: float | None,
    on_conflict: OnConflict | None,
    tags: tuple[str, ...],
    key: str | None,
    max_attempts: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Enqueue one job.

    PAYLOAD_JSON is a JSON object of the task's arguments; - reads it from stdin.
    """
    check_task_name(task)
    arguments = read_payload(payload)
    settings, bind = task_settings(context, task, arguments, force)
    if queue is not None and not force:
        warn_of_unused_queue(context, queue)
    unique = _unique(unique_by, unique_while, on_conflict, unique_for)
    options = EnqueueOptions(
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        run_at=parse_time("--run-at", run_at),
        delay_seconds=seconds_of("--delay", delay, LONGEST_RETRY_SECONDS, shortest=0),
        expires_in_seconds=seconds_of("--expires-in", expires_in, LONGEST_RETRY_SECONDS),
        timeout_seconds=seconds_of("--timeout", timeout, LONGEST_RETRY_SECONDS),
        lease_seconds=lease_seconds_of("--lease", lease),
        unique=None if unique is None else bind(unique),
        tags=checked_tags(tags),
        idempotency_key=key,
    )
    statement = protocol.enqueue_job(job_spec(task, settings, options, arguments, key))
    with session(context) as conn, with_lock_timeout(conn):
        enqueued = run(conn, statement)
    if as_json:
        print_json(
            {
                "job_id": enqueued.job_id,
                "existing": enqueued.existing,
                "outcome": enqueued.outcome,
            }
        )
    else:
        note = "existed before" if enqueued.outcome == "existing" else enqueued.outcome.value
        click.echo(f"{enqueued.job_id}{f' ({note})' if enqueued.existing else ''}")


def _unique(
    by: str | None, while_: While | None, on_conflict: OnConflict | None, seconds: float | None
) -> Unique | None:
    if by is None:
        if while_ is not None or on_conflict is not None or seconds is not None:
            raise InvalidInput(
                "--unique-while, --unique-for and --on-conflict need --unique-by",
                hint="--unique-by customer_id, or '*' for all arguments",
            )
        return None
    names = () if by == "*" else tuple(name.strip() for name in by.split(","))
    return Unique(
        by=names, while_=while_ or "unfinished", on_conflict=on_conflict or "keep", for_=seconds
    )


def read_payload(given: str) -> Any:
    text = sys.stdin.buffer.read() if given == "-" else given
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InvalidInput(
            f"the payload is not JSON: {error}",
            hint="give an object of arguments: '{\"order_id\": 7}'",
        ) from None
    encode_payload(value)
    return value


def task_settings(
    context: Context, name: str, arguments: Any, force: bool
) -> tuple[TaskSettings, Callable[[Unique], Unique]]:
    """The task's settings, and what binds a `Unique` to its arguments."""
    if context.app_path is None:
        return TaskSettings(), _as_it_is
    context.app.import_tasks()
    try:
        task = context.app.find_task(name)
        if not force:
            task.check_arguments(encode_payload(arguments))
    except (UnknownTask, InvalidInput) as error:
        if not force:
            hint = joined(error.hint, "--force stores it anyway")
            raise type(error)(error.message, hint=hint) from None
        return TaskSettings(), _as_it_is
    return task.settings, task.bind_unique


def warn_of_unused_queue(context: Context, queue: str) -> None:
    """Tell of a queue that resembles one of the application's, and that no task uses.

    It is no error: workers may be told to serve queues that no task names.
    """
    if context.app_path is None or queue in (known := queues_of(context.app)):
        return
    if question := did_you_mean(queue, known):
        click.echo(f"warning: no task uses the queue {plain(queue)}; {question}", err=True)


def _as_it_is(unique: Unique) -> Unique:
    return unique


def parse_time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(
            f"{option} {text[:80]!r} is not an ISO time with a zone",
            hint=f"{option} 2030-01-31T09:00:00+01:00",
        )
    return moment

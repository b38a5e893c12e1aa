"""The command `enqueue`: creates one job."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Any

import click

from faultline.cli.context import Context, session, with_lock_timeout
from faultline.cli.output import json_option, print_json
from faultline.errors import InvalidInput, UnknownTask
from faultline.payload import (
    check_idempotency_key,
    check_max_attempts,
    check_priority,
    check_queue_name,
    check_task_name,
    encode_payload,
    parse_json,
)
from faultline.postgres.sessions import Connection, run
from faultline.statements import clock, protocol
from faultline.task import TaskOptions

_MAX_DELAY_SECONDS = 10 * 365 * 86400


@click.command()
@click.argument("task")
@click.argument("payload", metavar="[PAYLOAD_JSON]", default="{}")
@click.option("--queue", help="The queue; if absent, the task's own or `default`.")
@click.option(
    "--priority", type=int, help="From 0 (first) to 9 (last); if absent, the task's own or 5."
)
@click.option("--run-at", metavar="ISO", help="Do not start before this time, given with its zone.")
@click.option(
    "--delay", type=float, metavar="SECONDS", help="Do not start before this many seconds from now."
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
    key: str | None,
    max_attempts: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Enqueue one job.

    PAYLOAD_JSON is a JSON object of the task's arguments; - reads it from stdin.
    """
    check_task_name(task)
    arguments = _read_payload(payload)
    options = _task_options(context, task, arguments, force)
    if run_at is not None and delay is not None:
        raise InvalidInput("--run-at and --delay exclude each other", hint="give one of them")
    with session(context) as conn:
        statement = protocol.enqueue(
            task,
            arguments,
            queue=check_queue_name(options.queue if queue is None else queue),
            priority=check_priority(options.priority if priority is None else priority),
            max_attempts=check_max_attempts(
                options.max_attempts if max_attempts is None else max_attempts
            ),
            run_at=_parse_time(run_at) if delay is None else _time_after(conn, delay),
            idempotency_key=None if key is None else check_idempotency_key(key),
        )
        with with_lock_timeout(conn):
            enqueued = run(conn, statement)
    if as_json:
        print_json(enqueued)
    else:
        click.echo(f"{enqueued.job_id}{' (existed before)' if enqueued.existing else ''}")


def _read_payload(given: str) -> Any:
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


def _task_options(context: Context, name: str, arguments: Any, force: bool) -> TaskOptions:
    if context.app_path is None:
        return TaskOptions()
    try:
        task = context.app.find_task(name)
        if not force:
            task.arguments(encode_payload(arguments))
    except UnknownTask as error:
        if not force:
            raise UnknownTask(
                error.message, hint=f"{error.hint}; --force enqueues the job anyway"
            ) from None
        return TaskOptions()
    return task.options


def _parse_time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(
            f"--run-at {text[:80]!r} is not an ISO time with a zone",
            hint="--run-at 2030-01-31T09:00:00+01:00",
        )
    return moment


def _time_after(conn: Connection, delay: float) -> datetime:
    """Computed from the database's clock, which decides when a job is due."""
    if not 0 <= delay <= _MAX_DELAY_SECONDS:
        raise InvalidInput(
            f"--delay {delay:g} is out of range", hint="give 0 to 315,360,000 seconds (ten years)"
        )
    return run(conn, clock.database_time()) + timedelta(seconds=delay)

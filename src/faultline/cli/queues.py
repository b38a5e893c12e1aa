"""The commands `queues`, `queues list`, `queues pause` and `queues resume`."""

from __future__ import annotations

from itertools import groupby

import click

from faultline.cli.completion import complete_queue
from faultline.cli.context import Context, audited, session
from faultline.cli.known_queues import other_queues
from faultline.cli.output import duration, json_option, print_json, print_table
from faultline.errors import InvalidInput
from faultline.payload import check_queue_name
from faultline.postgres.sessions import Connection, run
from faultline.statements import queues as statements
from faultline.statements.queues import EXACT_UP_TO, QueueCount
from faultline.suggestions import did_you_mean, joined

_exactly = click.option(
    "--exact-up-to",
    type=click.IntRange(1, 10_000_000),
    default=EXACT_UP_TO,
    show_default=True,
    help="Count exactly up to this many jobs in each queue, and estimate beyond.",
)


@click.group(invoke_without_command=True)
@_exactly
@json_option
@click.pass_context
def queues(click_context: click.Context, exact_up_to: int, as_json: bool) -> None:
    """Count due, waiting, running and failed jobs of each queue.

    The counts are read from indexes alone, so finished jobs do not slow the command down.
    """
    if click_context.invoked_subcommand is None:
        _print_counts(click_context.obj, exact_up_to, as_json)


@queues.command("list")
@_exactly
@json_option
@click.pass_obj
def list_queues(context: Context, exact_up_to: int, as_json: bool) -> None:
    """Count the jobs of each queue, as `faultline queues` does."""
    _print_counts(context, exact_up_to, as_json)


def _print_counts(context: Context, exact_up_to: int, as_json: bool) -> None:
    with session(context) as conn:
        found = run(conn, statements.queues(exact_up_to=exact_up_to))
        paused = run(conn, statements.paused())
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no queues")
    else:
        print_table(
            ["queue", *(state.value for state in statements.CountedState)],
            [
                [queue, *(_format_count(counted) for counted in counts)]
                for queue, counts in groupby(found, key=lambda counted: counted.queue)
            ],
        )
    for each in paused:
        because = f": {each.reason}" if each.reason else ""
        click.echo(f"{each.queue} is paused since {each.paused_at:%Y-%m-%d %H:%M:%S %Z}{because}")


@queues.command()
@click.argument("queue", shell_complete=complete_queue)
@click.option("--reason", help="Shown by `faultline why` and `faultline queues`.")
@click.option("--force", is_flag=True, help="Pause a queue that has no job, worker or task yet.")
@json_option
@click.pass_obj
def pause(context: Context, queue: str, reason: str | None, force: bool, as_json: bool) -> None:
    """Stop workers from claiming jobs of QUEUE.

    Jobs can still be enqueued, and running jobs finish. A queue that has no job, that no worker claims from
    and that no task of --app uses is refused, because its name is probably mistyped.
    """
    with session(context) as conn, audited(conn, "pause", f"queue {queue}"):
        check_queue_name(queue)
        if not force:
            _require_known(context, conn, queue, "--force pauses it before its first job")
        is_new = run(conn, statements.pause(queue, reason))
    if as_json:
        print_json({"queue": queue, "paused": True, "changed": is_new})
    else:
        click.echo(f"{queue} is paused" if is_new else f"{queue} was paused already")


def _require_known(context: Context, conn: Connection, queue: str, advice: str) -> None:
    """Refuse a queue that neither the database nor the application knows."""
    others = other_queues(context, conn, queue)
    if others is not None:
        hint = joined(did_you_mean(queue, others), advice)
        raise InvalidInput(f"there is no queue {queue!r}", hint=hint)


@queues.command()
@click.argument("queue", shell_complete=complete_queue)
@json_option
@click.pass_obj
def resume(context: Context, queue: str, as_json: bool) -> None:
    """Let workers claim jobs of QUEUE again.

    A queue that is not paused is left as it is. One that does not exist is refused, as by `pause`.
    """
    with session(context) as conn, audited(conn, "resume", f"queue {queue}"):
        check_queue_name(queue)
        was_paused = run(conn, statements.resume(queue))
        if not was_paused:
            _require_known(context, conn, queue, "`faultline queues` lists them")
    if as_json:
        print_json({"queue": queue, "paused": False, "changed": was_paused})
    elif was_paused:
        click.echo(f"{queue} is resumed")
    else:
        click.echo(f"{queue} was not paused")


def _format_count(counted: QueueCount) -> str:
    """12, oldest 3 min · ≥ 10,000 (about 52,100) · about 1,250,000 · empty: unknown"""
    if counted.is_exact:
        number = f"{counted.at_least:,}"
    elif not counted.at_least:
        return "" if counted.estimate is None else f"about {counted.estimate:,}"
    else:
        number = f"≥ {counted.at_least:,}"
        number += f" (about {counted.estimate:,})" if counted.estimate is not None else ""
    if counted.oldest_seconds is None:
        return number
    if counted.oldest_seconds < 0:
        return f"{number}, next in {duration(-counted.oldest_seconds)}"
    return f"{number}, oldest {duration(counted.oldest_seconds)}"

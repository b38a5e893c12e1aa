"""The commands `queues`, `queues pause` and `queues resume`."""

from __future__ import annotations

from itertools import groupby

import click

from faultline.cli.context import Context
from faultline.cli.output import duration, print_json, print_table
from faultline.cli.session import audited, session
from faultline.postgres.sessions import run
from faultline.statements import queues as statements
from faultline.statements.queues import EXACT_UP_TO, QueueCount


@click.group(invoke_without_command=True)
@click.option(
    "--exact-up-to",
    type=click.IntRange(1, 10_000_000),
    default=EXACT_UP_TO,
    show_default=True,
    help="Count this far in each queue; beyond it, estimate.",
)
@click.option("--json", "as_json", is_flag=True)
@click.pass_context
def queues(click_context: click.Context, exact_up_to: int, as_json: bool) -> None:
    """What waits, runs and has failed in each queue, and for how long.

    Read from indexes alone: it costs the same whether a thousand jobs have finished or ten million.
    """
    if click_context.invoked_subcommand is not None:
        return
    with session(click_context.obj) as conn:
        found = run(conn, statements.queues(exact_up_to=exact_up_to))
        paused = run(conn, statements.paused())
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no queues")
    else:
        print_table(
            ["queue", *(standing.value for standing in statements.Standing)],
            [
                [queue, *(_said(counted) for counted in counts)]
                for queue, counts in groupby(found, key=lambda counted: counted.queue)
            ],
        )
    for each in paused:
        because = f": {each.reason}" if each.reason else ""
        click.echo(f"{each.queue} is paused since {each.paused_at:%Y-%m-%d %H:%M:%S %Z}{because}")


@queues.command()
@click.argument("queue")
@click.option("--reason", help="Shown to whoever asks why nothing runs.")
@click.pass_obj
def pause(context: Context, queue: str, reason: str | None) -> None:
    """Let no worker claim from QUEUE. Jobs can still be enqueued, and what runs is finished."""
    with session(context) as conn, audited(conn, "pause", f"queue {queue}"):
        ran = run(conn, statements.pause(queue, reason))
    click.echo(f"{queue} is paused" if ran else f"{queue} was paused already")


@queues.command()
@click.argument("queue")
@click.pass_obj
def resume(context: Context, queue: str) -> None:
    """Let workers claim from QUEUE again."""
    with session(context) as conn, audited(conn, "resume", f"queue {queue}"):
        was_paused = run(conn, statements.resume(queue))
    click.echo(f"{queue} is resumed" if was_paused else f"{queue} was not paused")


def _said(counted: QueueCount) -> str:
    """12, the oldest 3 min · ≥ 10,000 (about 52,100) · about 1,250,000"""
    if counted.is_exact:
        said = f"{counted.at_least:,}"
    elif not counted.at_least:
        return "?" if counted.estimate is None else f"about {counted.estimate:,}"
    else:
        said = f"≥ {counted.at_least:,}"
        said += f" (about {counted.estimate:,})" if counted.estimate is not None else ""
    if counted.oldest_seconds is None:
        return said
    if counted.oldest_seconds < 0:
        return f"{said}, next in {duration(-counted.oldest_seconds)}"
    return f"{said}, oldest {duration(counted.oldest_seconds)}"

"""The command `queues`: how much waits, runs and has failed, and since when."""

from __future__ import annotations

from itertools import groupby

import click

from faultline import queue_inspection
from faultline.cli.context import Context
from faultline.cli.output import duration, print_json, print_table
from faultline.cli.session import session
from faultline.database import run
from faultline.queue_inspection import EXACT_UP_TO, QueueCount


@click.command()
@click.option(
    "--exact-up-to",
    type=click.IntRange(1, 10_000_000),
    default=EXACT_UP_TO,
    show_default=True,
    help="Count this far in each queue; beyond it, estimate.",
)
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def queues(context: Context, exact_up_to: int, as_json: bool) -> None:
    """What waits, runs and has failed in each queue, and for how long.

    Read from indexes alone: it costs the same whether a thousand jobs have finished or ten million.
    """
    with session(context) as conn:
        found = run(conn, queue_inspection.queues(exact_up_to=exact_up_to))
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no queues")
        return
    print_table(
        ["queue", *(standing.value for standing in queue_inspection.Standing)],
        [
            [queue, *(_said(counted) for counted in counts)]
            for queue, counts in groupby(found, key=lambda counted: counted.queue)
        ],
    )


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

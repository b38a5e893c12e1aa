"""The command `top`: a live overview of the queue in a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import groupby

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from faultline.cli.context import Context
from faultline.cli.output import console, count, duration, one_line
from faultline.errors import FaultlineError, InvalidSettings
from faultline.inspector import overview, risk
from faultline.inspector.overview import OverviewData, Throughput
from faultline.inspector.reader import Reader
from faultline.inspector.risk import Level
from faultline.inspector.snapshots import LedgerSamples
from faultline.inspector.worker_view import GONE
from faultline.statements import leases
from faultline.statements.leases import LeaseRow
from faultline.statements.queues import QueueCount, Standing
from faultline.statements.workers import WorkerStatus
from faultline.wording import plain

AT_A_GLANCE = 8  # rows of each table
_COLORS = {Level.LOW: "green", Level.MEDIUM: "yellow", Level.HIGH: "red"}


@dataclass(frozen=True, slots=True)
class Glance:
    data: OverviewData
    rate: Throughput
    soonest: list[LeaseRow]


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and leave; needs no terminal.")
@click.option(
    "--every",
    "pause_seconds",
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.pass_obj
def top(context: Context, once: bool, pause_seconds: float) -> None:
    """What waits, runs, fails and is at risk, live. Reads only; leave with Ctrl-C."""
    if not once and not sys.stdout.isatty():
        raise InvalidSettings("this is not a terminal", hint="faultline top --once")
    with context.connection():  # says what is wrong before the screen is taken
        pass
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_print_once(context) if once else _keep_looking(context, pause_seconds))


async def _print_once(context: Context) -> None:
    reader = Reader(context.database_url, sessions=1)
    try:
        console().print(frame(await _glance(reader, LedgerSamples())))
    finally:
        await reader.close()


async def _keep_looking(context: Context, pause_seconds: float) -> None:
    reader, samples = Reader(context.database_url, sessions=1), LedgerSamples()
    shown: RenderableType = "looking …"
    try:
        with Live(shown, console=console(), screen=True, auto_refresh=False) as live:
            while True:
                try:
                    shown = frame(await _glance(reader, samples))
                    live.update(shown, refresh=True)
                except FaultlineError as error:
                    live.update(away(shown, error), refresh=True)
                await asyncio.sleep(pause_seconds)
    finally:
        await reader.close()


async def _glance(reader: Reader, samples: LedgerSamples) -> Glance:
    async with reader.transaction() as tx:
        found = await overview.read(tx)
        soonest = await tx.read(leases.page(limit=AT_A_GLANCE))
    return Glance(found, samples.add(found.sample), soonest.leases)


def frame(glance: Glance) -> RenderableType:
    found = glance.data
    parts: list[RenderableType] = [_headline(found), _numbers(glance), _workers(found), Text()]
    parts += [_queues(found), Text(), _leases(glance), Text(), _rejections(found)]
    return Group(*parts)


def away(shown: RenderableType, error: FaultlineError) -> RenderableType:
    """What was seen last, under what is wrong."""
    return Group(Text(f"database away: {one_line(error)}", "bold red"), Text(), shown)


def _headline(found: OverviewData) -> Text:
    level = found.risk.level
    line = Text.assemble(
        f"faultline  {found.now:%Y-%m-%d %H:%M:%S %Z}   stale risk ",
        (level.value, f"bold {_COLORS[level]}"),
        f" ({found.risk.score})",
    )
    for reason in found.risk.reasons:
        line.append(f"\n  {reason.text}", _COLORS[level])
    return line


def _numbers(glance: Glance) -> Text:
    sums = overview.totals(glance.data.counts)
    about = "" if sums.pop("is_exact") else "about "
    numbers = " · ".join(f"{about}{number:,} {name}" for name, number in sums.items())
    rate = glance.rate.succeeded_per_second
    pace = "" if rate is None else f" · {rate:,.1f} succeeded/s"
    refused = glance.data.rejections
    bound = "" if refused.is_exact else "≥ "
    return Text(
        f"{numbers}{pace} · {bound}{refused.last_hour:,} stale writes refused in the last hour"
    )


def _workers(found: OverviewData) -> Text:
    statuses = Counter(worker.status for worker in found.workers)
    said = ", ".join(f"{statuses[status]} {status}" for status in WorkerStatus if statuses[status])
    running = sum(worker.running for worker in found.workers)
    return Text(f"workers: {said or 'none'}; {count(running, 'job')} in their hands")


def _queues(found: OverviewData) -> Table:
    table = _table("queue", "due", "scheduled", "running", "failed", "oldest due")
    rows = {
        queue: {each.standing: each for each in group}
        for queue, group in groupby(found.counts, key=lambda each: each.queue)
    }
    fullest = sorted(rows, key=lambda queue: (-rows[queue][Standing.DUE].at_least, queue))
    for queue in fullest[:AT_A_GLANCE]:
        standings = rows[queue]
        shown = (Standing.DUE, Standing.SCHEDULED, Standing.RUNNING, Standing.FAILED)
        oldest = standings[Standing.DUE].oldest_seconds
        age = "" if oldest is None else duration(max(0.0, oldest))
        table.add_row(Text(plain(queue)), *(_number(standings[each]) for each in shown), age)
    _say_rest(table, len(rows), "queue")
    return table


def _number(counted: QueueCount) -> str:
    return f"{'' if counted.is_exact else '≥ '}{counted.at_least:,}"


def _leases(glance: Glance) -> Table:
    table = _table("lease of job", "task", "owner", "token", "left", "")
    gone = {worker.id for worker in glance.data.workers if worker.status in GONE}
    for lease in glance.soonest:
        level = risk.of_lease(lease.remaining_share, owner_is_gone=lease.owner in gone)
        left = lease.remaining_seconds
        table.add_row(
            str(lease.job_id),
            Text(one_line(lease.task, 30)),
            Text(one_line(lease.owner, 40)),
            str(lease.token),
            duration(left) if left > 0 else f"over for {duration(-left)}",
            Text(f"{lease.remaining_share:.0%} {level}", _COLORS[level]),
        )
    return table


def _rejections(found: OverviewData) -> Table:
    table = _table("refused", "job", "worker", "token", "reason", "side by side")
    for each in found.newest_rejections[:AT_A_GLANCE]:
        ago = max(0.0, (found.now - each.rejected_at).total_seconds())
        table.add_row(
            f"{duration(ago)} ago",
            str(each.job_id),
            Text(one_line(each.worker, 40)),
            f"{each.stale_token} → {each.current_token}" if each.current_token else "",
            Text(one_line(each.reason, 30)),
            duration(each.overlap_seconds) if each.overlap_seconds else "",
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    return table


def _say_rest(table: Table, rows: int, noun: str) -> None:
    if rows > AT_A_GLANCE:
        table.add_row(Text(f"and {count(rows - AT_A_GLANCE, noun)} more", "dim"))

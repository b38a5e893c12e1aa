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
from faultline.cli.output import console, count, duration, one_line, print_json
from faultline.errors import FaultlineError, InvalidSettings
from faultline.inspector import overview, risk
from faultline.inspector.overview import LedgerSamples, OverviewData, Throughput
from faultline.inspector.reader import Reader
from faultline.inspector.risk import RiskLevel
from faultline.inspector.worker_view import GONE
from faultline.statements import leases
from faultline.statements.leases import LeaseRow
from faultline.statements.queues import CountedState, QueueCount
from faultline.statements.workers import WorkerStatus
from faultline.wording import plain

SHOWN_ROWS = 8  # of each table
_COLORS = {RiskLevel.LOW: "green", RiskLevel.MEDIUM: "yellow", RiskLevel.HIGH: "red"}


@dataclass(frozen=True, slots=True)
class FrameData:
    overview: OverviewData
    rate: Throughput
    soonest: list[LeaseRow]


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and exit; needs no terminal.")
@click.option(
    "--every",
    "pause_seconds",
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    help="Seconds between two refreshes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one frame as JSON and exit.")
@click.pass_obj
def top(context: Context, once: bool, pause_seconds: float, as_json: bool) -> None:
    """Show queues, workers, leases and refused writes, live.

    It only reads. Ctrl-C ends it.
    """
    once = once or as_json
    if not once and not sys.stdout.isatty():
        raise InvalidSettings("stdout is not a terminal", hint="faultline top --once")
    with context.connection():  # report errors before the screen is cleared
        pass
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_print_once(context, as_json) if once else _refresh(context, pause_seconds))


async def _print_once(context: Context, as_json: bool) -> None:
    reader = Reader(context.database_url, sessions=1)
    try:
        data = await _read_frame(reader, LedgerSamples())
    finally:
        await reader.close()
    if as_json:
        document = overview.document(data.overview, data.rate)
        print_json({**document, "queues": data.overview.counts, "soonest_leases": data.soonest})
    else:
        console().print(frame(data))


async def _refresh(context: Context, pause_seconds: float) -> None:
    reader, samples = Reader(context.database_url, sessions=1), LedgerSamples()
    shown: RenderableType = "reading …"
    try:
        with Live(shown, console=console(), screen=True, auto_refresh=False) as live:
            while True:
                try:
                    shown = frame(await _read_frame(reader, samples))
                    live.update(shown, refresh=True)
                except FaultlineError as error:
                    live.update(unavailable(shown, error), refresh=True)
                await asyncio.sleep(pause_seconds)
    finally:
        await reader.close()


async def _read_frame(reader: Reader, samples: LedgerSamples) -> FrameData:
    async with reader.transaction() as tx:
        found = await overview.read(tx)
        soonest = await tx.read(leases.page(limit=SHOWN_ROWS))
    return FrameData(found, samples.add(found.sample), soonest.leases)


def frame(data: FrameData) -> RenderableType:
    found = data.overview
    parts: list[RenderableType] = [_headline(found), _numbers(data), _workers(found), Text()]
    parts += [_queues(found), Text(), _leases(data), Text(), _rejections(found)]
    return Group(*parts)


def unavailable(shown: RenderableType, error: FaultlineError) -> RenderableType:
    """The last frame, below the error."""
    return Group(Text(f"database unavailable: {one_line(error)}", "bold red"), Text(), shown)


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


def _numbers(data: FrameData) -> Text:
    sums = overview.totals(data.overview.counts)
    about = "" if sums.pop("is_exact") else "about "
    numbers = " · ".join(f"{about}{number:,} {name}" for name, number in sums.items())
    rate = data.rate.succeeded_per_second
    pace = "" if rate is None else f" · {rate:,.1f} succeeded/s"
    refused = data.overview.rejections
    bound = "" if refused.is_exact else "≥ "
    return Text(
        f"{numbers}{pace} · {bound}{refused.last_hour:,} stale writes refused in the last hour"
    )


def _workers(found: OverviewData) -> Text:
    statuses = Counter(worker.status for worker in found.workers)
    by_status = ", ".join(
        f"{statuses[status]} {status}" for status in WorkerStatus if statuses[status]
    )
    running = sum(worker.running for worker in found.workers)
    return Text(f"workers: {by_status or 'none'}; {count(running, 'job')} running")


def _queues(found: OverviewData) -> Table:
    table = _table("queue", "due", "waiting", "scheduled", "running", "failed", "oldest due")
    rows = {
        queue: {each.standing: each for each in group}
        for queue, group in groupby(found.counts, key=lambda each: each.queue)
    }
    fullest = sorted(rows, key=lambda queue: (-rows[queue][CountedState.DUE].at_least, queue))
    for queue in fullest[:SHOWN_ROWS]:
        counts = rows[queue]
        shown = (
            CountedState.DUE,
            CountedState.WAITING,
            CountedState.SCHEDULED,
            CountedState.RUNNING,
            CountedState.FAILED,
        )
        oldest = counts[CountedState.DUE].oldest_seconds
        age = "" if oldest is None else duration(max(0.0, oldest))
        table.add_row(Text(plain(queue)), *(_number(counts[each]) for each in shown), age)
    _add_rest(table, len(rows), "queue")
    return table


def _number(counted: QueueCount) -> str:
    return f"{'' if counted.is_exact else '≥ '}{counted.at_least:,}"


def _leases(data: FrameData) -> Table:
    table = _table("lease of job", "task", "owner", "token", "left", "")
    gone = {worker.id for worker in data.overview.workers if worker.status in GONE}
    for lease in data.soonest:
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
    table = _table("refused", "job", "worker", "token", "reason", "overlap")
    for each in found.newest_rejections[:SHOWN_ROWS]:
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


def _add_rest(table: Table, rows: int, noun: str) -> None:
    if rows > SHOWN_ROWS:
        table.add_row(Text(f"and {count(rows - SHOWN_ROWS, noun)} more", "dim"))

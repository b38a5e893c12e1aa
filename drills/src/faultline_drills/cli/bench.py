"""`faultline bench`: measures Faultline on your PostgreSQL and prints one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from faultline.cli.context import Context
from faultline.config import MAX_CONCURRENCY
from faultline.postgres.migrate import migrate
from faultline_drills.bench import (
    STEPS,
    BenchReport,
    BenchSettings,
    MeasuredRate,
    Measurement,
    run_bench,
)
from faultline_drills.bench.bench_settings import MAX_PAYLOAD_BYTES, MAX_SECONDS, MAX_WORKERS
from faultline_drills.bench.recommendations import how_chosen
from faultline_drills.bench.sampling import REPEATS
from faultline_drills.cli.scratch_server import drill_server
from faultline_drills.cli.shared_options import json_option
from faultline_drills.cli.terminal import progress_bar
from faultline_drills.provenance import Provenance, provenance
from faultline_drills.servers.scratch_database import scratch_database

DEFAULTS = BenchSettings()
_PIPE_WIDTH = 200
# The title of each section, by its first row.
_SECTIONS = {
    "round_trip": "the server",
    "bulk_enqueue": "Faultline on it",
}


@click.command()
@click.option(
    "--seconds",
    default=DEFAULTS.seconds,
    type=click.FloatRange(1, MAX_SECONDS),
    show_default=True,
    help="Approximate duration of the whole run.",
)
@click.option(
    "--workers",
    default=DEFAULTS.workers,
    type=click.IntRange(1, MAX_WORKERS),
    show_default=True,
    help="Worker processes.",
)
@click.option(
    "-c",
    "--concurrency",
    default=DEFAULTS.concurrency,
    type=click.IntRange(1, MAX_CONCURRENCY),
    show_default=True,
    help="Jobs that each worker runs at once.",
)
@click.option(
    "--payload",
    default=DEFAULTS.payload_bytes,
    type=click.IntRange(0, MAX_PAYLOAD_BYTES),
    metavar="BYTES",
    show_default=True,
    help="Size of each job's payload.",
)
@click.option(
    "--seed", default=DEFAULTS.seed, show_default=True, help="Seed of payloads and pauses."
)
@json_option
@click.pass_obj
def bench(
    context: Context,
    seconds: float,
    workers: int,
    concurrency: int,
    payload: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure Faultline's speed on your PostgreSQL.

    It measures enqueueing, draining, latency and recovery in a new database on the given server, else
    on a temporary one, and drops the database afterwards. Run it on the machine of your workers, while
    the server is otherwise idle.
    """
    settings = BenchSettings(
        seconds=seconds,
        workers=workers,
        concurrency=concurrency,
        payload_bytes=payload,
        seed=seed,
    )
    console = Console(highlight=False, stderr=as_json, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    with ExitStack() as stack:
        server = stack.enter_context(drill_server(context.given_url, console))
        url = stack.enter_context(scratch_database(server, prefix="faultline_bench"))
        migrate(url)
        show = stack.enter_context(_display(console))
        report = run_bench(url, settings, on_step=show)
    origin = provenance(settings.command, seed=seed, postgres=report.server.version)
    if as_json:
        print(json.dumps({**report.facts(), "provenance": origin.facts()}))
    else:
        print_report(console, report, origin)


@contextmanager
def _display(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the current step: a progress bar on a terminal, else a line per step."""
    with progress_bar(console, "[dim]{task.description}[/]") as progress:
        task = progress.add_task("starting", total=len(STEPS))
        begun = 0

        def show(step: str) -> None:
            nonlocal begun
            progress.update(task, completed=begun, description=step)
            begun += 1
            if not console.is_terminal:
                console.print(f"[dim]{begun}/{len(STEPS)} {step}[/]")

        yield show


def print_report(console: Console, report: BenchReport, origin: Provenance) -> None:
    for warning in report.server.warnings:
        console.print(f"[bold red]NOT DURABLE[/] {warning}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "median", "p99", "repeats", "n"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for measurement in report.measurements:
        if heading := _SECTIONS.get(measurement.name):
            table.add_row(f"[bold]{heading}[/]")
        table.add_row(f"  {measurement.title}", *_cells(measurement))
    console.print(table)
    settings = report.settings
    console.print(
        f"[dim]{settings.workers} worker process{'es' if settings.workers > 1 else ''}, concurrency"
        f" {settings.concurrency}, {settings.payload_bytes:,} bytes of payload; recovery: two workers at"
        f" default settings.\nRepeats: the lowest and highest result of {REPEATS} repeats (for times: of"
        " their medians; for recovery: of all kills). The p99 of fewer than 100 samples is the longest."
        f" Took {report.seconds:.0f} s.[/]\n"
    )
    for sentence in report.interpretation:
        console.print(escape(sentence))
    console.print(f"\n[bold]recommended settings[/] {how_chosen()}")
    for each in report.recommendations:
        console.print(f"  [bold]{escape(each.setting)}[/] {escape(each.reason)}")
    durability = ", ".join(
        f"{name} {value or 'none'}" for name, value in report.server.settings.items()
    )
    console.print(
        f"\n[dim]{escape(origin.line)} · Faultline {origin.faultline}\n{escape(durability)}[/]"
    )


def _cells(measurement: Measurement) -> list[str]:
    low, high = min(measurement.repeats), max(measurement.repeats)
    if isinstance(measurement, MeasuredRate):
        return [
            f"{measurement.median:,.0f}/s",
            "",
            f"{low:,.0f} – {high:,.0f}",
            f"{measurement.n:,}",
        ]
    return [
        f"{_ms(measurement.p50)} ms",
        f"{_ms(measurement.p99)} ms",
        f"{_ms(low)} – {_ms(high)}",
        f"{measurement.n:,}",
    ]


def _ms(seconds: float) -> str:
    """Milliseconds with about three significant digits."""
    milliseconds = seconds * 1000
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2
    return f"{milliseconds:,.{digits}f}"

"""`faultline drill sweep`: injects a fault at every message that a process sends."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from faultline.cli.context import Context
from faultline_drills.cli.scratch_server import drill_server
from faultline_drills.cli.shared_options import json_option, seed_help, subject_option
from faultline_drills.cli.terminal import VERDICT_STYLES, exit_code, progress_bar
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.provenance import provenance, server_version
from faultline_drills.subjects import Subject
from faultline_drills.sweep import PointResult, SweepFault, SweepReport, SweepSettings, SweepTarget
from faultline_drills.sweep import sweep as run_sweep

_SHOWN_FINDINGS = 3
# Only processes are killed here, never the server, so commits need not wait for the disk.
_SERVER_SETTINGS = {"max_connections": "200", "fsync": "off"}


@click.command()
@click.option(
    "--target",
    "targets",
    multiple=True,
    type=click.Choice([each.value for each in SweepTarget]),
    help="Inject faults only into this process; may be repeated.  [default: all five]",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice([each.value for each in SweepFault]),
    help="Inject only this fault; may be repeated.  [default: all six]",
)
@click.option(
    "--points",
    type=click.IntRange(min=1),
    help="Try only this many points, chosen by the seed.  [default: all]",
)
@click.option("--seed", default=1, show_default=True, help=seed_help)
@subject_option
@click.option(
    "--no-self-fencing",
    is_flag=True,
    help="Start the worker without self-fencing, so that only PostgreSQL's fence protects.",
)
@json_option
@click.pass_obj
def sweep(
    context: Context,
    targets: Sequence[str],
    faults: Sequence[str],
    points: int | None,
    seed: int,
    subject: str,
    no_self_fencing: bool,
    as_json: bool,
) -> None:
    """Inject faults at each message a process sends.

    A worker, a reconciler, a scheduler or a migrator (on an empty database, and on one to be upgraded)
    runs through a proxy that numbers its messages to PostgreSQL. At each message the process is killed,
    cut off or stopped in six ways, each time with a new database. A second worker finishes the jobs and
    fires the schedules, and the checker judges. Two faults run at a time; --points makes the sweep shorter.

    The exit code is 0 if no rule was broken, 1 if one was, and 2 if too few messages were reached
    or one of them ended with an error.
    """
    settings = SweepSettings(
        targets=tuple(map(SweepTarget, targets)) or tuple(SweepTarget),
        faults=tuple(map(SweepFault, faults)) or tuple(SweepFault),
        sample=points,
        seed=seed,
        subject=Subject(subject),
        worker_options=("--no-self-fencing",) if no_self_fencing else (),
    )
    console = Console(highlight=False, stderr=as_json, soft_wrap=True)
    with ExitStack() as stack:
        url = stack.enter_context(drill_server(context.given_url, settings=_SERVER_SETTINGS))
        origin = provenance(settings.command, seed=seed, postgres=server_version(url))
        show = stack.enter_context(_display(console))
        report = run_sweep(url, settings, on_point=show)
    if as_json:
        print(json.dumps({**report.facts(), "provenance": origin.facts()}))
    else:
        _print_report(console, report)
    sys.exit(exit_code(report.verdict))


@contextmanager
def _display(console: Console) -> Iterator[Callable[[PointResult, int], None]]:
    """A progress bar with the last point; points that broke a rule stay on the screen."""
    progress = progress_bar(console, "[dim]{task.description}[/]")
    with progress:
        task = progress.add_task("recording a run without faults", total=None)

        def show(result: PointResult, total: int) -> None:
            where = f"{result.point.target}, {result.point}: {result.fault}"
            progress.update(task, total=total, advance=1, description=escape(where))
            if result.verdict is not DrillVerdict.VALID:
                _print_failure(console, result, where)

        yield show


def _print_failure(console: Console, result: PointResult, where: str) -> None:
    style = VERDICT_STYLES[result.verdict]
    console.print(f"  [{style}]{result.verdict:<8}[/] {escape(where)}")
    for finding in result.findings[:_SHOWN_FINDINGS]:
        console.print(f"           [{style}]{finding.rule}[/]: {escape(finding.evidence)}")


def _print_report(console: Console, report: SweepReport) -> None:
    faults = [fault for fault in SweepFault if any(each.fault is fault for each in report.results)]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("at")
    for fault in faults:
        table.add_column(fault.value, justify="right")
    last = None
    for (target, label), row in report.matrix().items():
        if target is not last:
            table.add_row(f"[bold]{target}[/]")
            last = target
        table.add_row(f"  {escape(str(label))}", *[_cell(row.get(fault)) for fault in faults])
    console.print(table)
    counted = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in report.tally.items() if count
    )
    style = VERDICT_STYLES[report.verdict]
    console.print(
        f"\n[{style}]{report.verdict}[/]: {len(report.results)} of {report.available} faults injected,"
        f" {len(report.unreached)} not reached, {len(report.errors)} ended with an error,"
        f" {len(report.violations)} broke a rule;"
        f" subject {report.subject}, seed {report.seed}, {report.seconds:.0f} s\n[dim]{counted}[/]"
    )
    for sentence in report.left_out:
        console.print(f"  [dim]left out: {escape(sentence)}[/]")
    for reason in report.missing:
        console.print(f"  [yellow]too little was reached[/]: {escape(reason)}")


def _cell(ends: Counter[DrillVerdict] | None) -> str:
    """Counts per verdict: ✓3 valid, ✗1 invalid, ·1 not reached."""
    if ends is None:
        return ""
    signs = {DrillVerdict.VALID: "✓", DrillVerdict.INVALID: "✗", DrillVerdict.UNKNOWN: "·"}
    return " ".join(
        f"[{VERDICT_STYLES[verdict]}]{sign}{ends[verdict]}[/]"
        for verdict, sign in signs.items()
        if ends[verdict]
    )

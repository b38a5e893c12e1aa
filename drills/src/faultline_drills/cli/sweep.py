"""`faultline drill sweep`: strike a process at every message that it sends."""

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
from faultline_drills.cli.shared_options import json_option, subject_option
from faultline_drills.cli.terminal import VERDICT_STYLES, exit_code, progress_bar
from faultline_drills.judging.checker import Verdict
from faultline_drills.provenance import provenance, server_version
from faultline_drills.subjects import Subject
from faultline_drills.sweep import PointResult, SweepFault, SweepReport, SweepSettings, SweepTarget
from faultline_drills.sweep import sweep as run_sweep

_SHOWN_FINDINGS = 3
# Processes are struck here, never the server: it need not wait for a disk hundreds of times.
_SERVER_SETTINGS = {"max_connections": "200", "fsync": "off"}


@click.command()
@click.option(
    "--target",
    "targets",
    multiple=True,
    type=click.Choice([each.value for each in SweepTarget]),
    help="Who is struck; all four by default.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice([each.value for each in SweepFault]),
    help="In which way; in all six by default.",
)
@click.option(
    "--points", type=click.IntRange(min=1), help="Only so many, drawn by the seed; all by default."
)
@click.option("--seed", default=1, show_default=True)
@subject_option
@click.option(
    "--no-self-fencing", is_flag=True, help="The struck worker does not look at its own clock."
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
    """Kill, cut off or stop a process at each message that it sends to PostgreSQL.

    A real worker, reconciler or migrator (on an empty database, and on one that is due for an upgrade)
    runs through a proxy that numbers its messages; each is struck in six ways, on a database of its
    own. A second worker finishes, and the checker judges. Two are struck at a time; --points makes it
    shorter.

    Exit code 0 when nothing is wrong, 1 when a rule was broken, 2 when too little was reached.
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
        _tell(console, report)
    sys.exit(exit_code(report.verdict))


@contextmanager
def _display(console: Console) -> Iterator[Callable[[PointResult, int], None]]:
    """A bar with what was struck last; what broke a rule stays on the screen."""
    progress = progress_bar(console, "[dim]{task.description}[/]")
    with progress:
        task = progress.add_task("listening to a run without a fault", total=None)

        def show(result: PointResult, total: int) -> None:
            where = f"{result.point.target}, {result.point}: {result.fault}"
            progress.update(task, total=total, advance=1, description=escape(where))
            if result.verdict is not Verdict.VALID:
                _complain(console, result, where)

        yield show


def _complain(console: Console, result: PointResult, where: str) -> None:
    style = VERDICT_STYLES[result.verdict]
    console.print(f"  [{style}]{result.verdict:<8}[/] {escape(where)}")
    for finding in result.findings[:_SHOWN_FINDINGS]:
        console.print(f"           [{style}]{finding.rule}[/]: {escape(finding.evidence)}")


def _tell(console: Console, report: SweepReport) -> None:
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
        f"\n[{style}]{report.verdict}[/]: {len(report.results)} of {report.available} strikes,"
        f" {len(report.unreached)} not reached, {len(report.violations)} broke a rule;"
        f" subject {report.subject}, seed {report.seed}, {report.seconds:.0f} s\n[dim]{counted}[/]"
    )
    for sentence in report.left_out:
        console.print(f"  [dim]left out: {escape(sentence)}[/]")
    for reason in report.missing:
        console.print(f"  [yellow]too little was shown[/]: {escape(reason)}")


def _cell(ends: Counter[Verdict] | None) -> str:
    """✓3 for three that held, ✗1 for one that did not, ·1 for one that was not reached."""
    if ends is None:
        return ""
    signs = {Verdict.VALID: "✓", Verdict.INVALID: "✗", Verdict.UNKNOWN: "·"}
    return " ".join(
        f"[{VERDICT_STYLES[verdict]}]{sign}{ends[verdict]}[/]"
        for verdict, sign in signs.items()
        if ends[verdict]
    )

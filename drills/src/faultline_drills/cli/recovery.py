"""`faultline drill recovery`: measures how long a killed worker's job waits."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.progress import track

from faultline.cli.context import Context
from faultline.config import WorkerSettings
from faultline_drills.cli.scratch_server import drill_database
from faultline_drills.cli.shared_options import json_option
from faultline_drills.recovery import RecoveryReport, measure_recovery

_BAR_WIDTH = 40


@click.command()
@click.option(
    "--kills",
    default=10,
    type=click.IntRange(min=1),
    show_default=True,
    help="Number of workers to kill.",
)
@json_option
@click.pass_obj
def recovery(context: Context, kills: int, as_json: bool) -> None:
    """Measure how fast a killed worker's job runs elsewhere.

    Two workers run with default settings. The one that runs the job gets SIGKILL, and is replaced
    after each measurement.
    """
    console = Console(highlight=False, soft_wrap=True)
    with drill_database(context, None if as_json else console) as url:
        steps = iter(track(range(kills), "killing workers", console=console, transient=True))
        next(steps, None)

        def show(seconds: float) -> None:
            if not as_json:
                console.print(f"  killed; the job ran elsewhere after {seconds:.3f} s")
            next(steps, None)

        report = measure_recovery(url, kills=kills, on_kill=show)
    if as_json:
        print(json.dumps(_facts(report)))
        return
    _plot(console, report)


def _facts(report: RecoveryReport) -> dict[str, object]:
    return {
        "kills": len(report.seconds),
        "p50_seconds": round(report.median, 3),
        "p95_seconds": round(report.p95, 3),
        "max_seconds": round(report.longest, 3),
        "seconds": [round(seconds, 3) for seconds in report.seconds],
    }


def _plot(console: Console, report: RecoveryReport) -> None:
    bound = WorkerSettings().recovery_after_crash_seconds
    console.print("\n[bold]From SIGKILL until the job runs elsewhere[/bold]")
    for seconds in sorted(report.seconds):
        width = max(1, round(_BAR_WIDTH * seconds / max(report.longest, bound)))
        console.print(f"  {seconds:6.3f} s  {'█' * width}")
    console.print(
        f"\n  n = {len(report.seconds)}, p50 {report.median:.3f} s, p95 {report.p95:.3f} s,"
        f" max {report.longest:.3f} s"
        f"\n  [dim]by design the job is requeued within {bound:g} s;"
        " the time to claim and start it is added[/dim]"
    )

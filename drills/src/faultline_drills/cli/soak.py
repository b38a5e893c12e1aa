"""`faultline drill soak`: runs a whole system under random faults."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from faultline.cli.context import Context
from faultline.cli.output import duration
from faultline_drills.cli.scratch_server import cleanup_on_signals
from faultline_drills.cli.shared_options import (
    json_option,
    save_to_option,
    seed_help,
    subject_option,
)
from faultline_drills.cli.terminal import VERDICT_STYLES, exit_code
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.nemesis import FAULTS
from faultline_drills.soak import Progress, SoakReport, SoakSettings, run_soak
from faultline_drills.subjects import Subject

DEFAULTS = SoakSettings()
_SHOWN_FINDINGS = 8
_MINUTE_SECONDS = 60


@click.command()
@click.option("--minutes", default=1.0, show_default=True, help="How long faults are injected.")
@click.option("--workers", default=DEFAULTS.workers, show_default=True, help="Worker processes.")
@click.option(
    "--producers", default=DEFAULTS.producers, show_default=True, help="Producer processes."
)
@click.option(
    "--reconcilers",
    default=DEFAULTS.reconcilers,
    show_default=True,
    help="Reconciler processes, besides the one inside every worker.",
)
@click.option("--seed", default=DEFAULTS.seed, show_default=True, help=seed_help)
@click.option(
    "--lease-seconds",
    default=DEFAULTS.lease_seconds,
    show_default=True,
    help="Duration of a lease.",
)
@click.option(
    "--jobs-per-second",
    default=DEFAULTS.jobs_per_second,
    show_default=True,
    help="Jobs that all producers enqueue together; in soaks of hours the rate falls.",
)
@click.option(
    "--limited-keys",
    default=DEFAULTS.limited_keys,
    show_default=True,
    help="Keys of the jobs of which a limit lets two run at once for each key; 0: no such jobs.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice(list(FAULTS)),
    help="Inject only this kind of fault; may be repeated.  [default: all possible here]",
)
@subject_option
@save_to_option
@json_option
@click.pass_obj
def soak(
    context: Context,
    minutes: float,
    workers: int,
    producers: int,
    reconcilers: int,
    seed: int,
    lease_seconds: float,
    jobs_per_second: float,
    limited_keys: int,
    faults: tuple[str, ...],
    subject: str,
    save_to: Path | None,
    as_json: bool,
) -> None:
    """Inject random faults into a running system.

    Producers, workers and reconcilers run while a nemesis kills, stops and disconnects them. Dead
    processes are replaced. In the end the faults stop, all jobs finish, and the history is judged.

    The exit code is 0 if no rule was broken, 1 if one was, and 2 if a kind of fault was never
    injected or had no effect.
    """
    settings = SoakSettings(
        seconds=minutes * _MINUTE_SECONDS,
        workers=workers,
        producers=producers,
        reconcilers=reconcilers,
        seed=seed,
        subject=Subject(subject),
        lease_seconds=lease_seconds,
        jobs_per_second=jobs_per_second,
        limited_keys=limited_keys,
        faults=faults,
    )
    sys.exit(run_and_report(context, settings, save_to=save_to, as_json=as_json))


def run_and_report(
    context: Context, settings: SoakSettings, *, save_to: Path | None, as_json: bool
) -> int:
    """Run the soak with a live display, print the report, and return the exit code."""
    console = Console(highlight=False, stderr=as_json, soft_wrap=True)
    with ExitStack() as stack:
        stack.enter_context(cleanup_on_signals())
        display = _LiveDisplay(console, settings)
        stack.enter_context(display.live)
        report = run_soak(
            settings,
            server_url=context.given_url,
            on_fault=display.show_fault,
            on_progress=display.update,
        )
    verdict = report.judgement.verdict
    saved = None
    if save_to is not None or verdict is DrillVerdict.INVALID:
        saved = report.save(save_to or Path("reports", "drills"))
    if as_json:
        print(json.dumps(report.facts()))
    else:
        _print_report(console, report, saved)
    return exit_code(verdict)


class _LiveDisplay:
    """Shows progress: a live table on a terminal, else one line per fault."""

    def __init__(self, console: Console, settings: SoakSettings) -> None:
        self._console = console
        self._settings = settings
        self._last_fault = "none yet"
        self._progress: Progress | None = None
        self.live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=4,
            transient=True,
            auto_refresh=console.is_terminal,
        )

    def show_fault(self, line: str) -> None:
        """Called by the nemesis thread."""
        self._last_fault = line
        if not self._console.is_terminal:
            seconds = 0.0 if self._progress is None else self._progress.seconds
            self._console.print(f"  {seconds:7.1f} s  {escape(line)}")

    def update(self, progress: Progress) -> None:
        self._progress = progress

    def _draw(self) -> Group | Text:
        now = self._progress
        if now is None:
            return Text("starting …")
        table = Table(box=None, padding=(0, 3, 0, 0), show_header=False)
        table.add_row("elapsed", f"{duration(now.seconds)} of {duration(self._settings.seconds)}")
        table.add_row("phase", now.phase)
        table.add_row("jobs", f"{now.submitted:,} enqueued, {now.committed:,} committed")
        table.add_row("takeovers", f"{now.takeovers:,}")
        table.add_row("stale writes refused", f"{now.stale_rejections:,}")
        table.add_row("processes replaced", f"{now.replaced:,}")
        table.add_row("faults", _counted(now.faults) or "none yet")
        table.add_row("last fault", self._last_fault)
        return Group(table)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(
        f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items() if count
    )


def _print_report(console: Console, report: SoakReport, saved: Path | None) -> None:
    judgement = report.judgement
    style = VERDICT_STYLES[judgement.verdict]
    console.print(f"[{style}]{judgement.verdict}[/] after {duration(report.seconds)}")
    console.print(f"  {_counted(report.tally)}")
    for finding in judgement.findings[:_SHOWN_FINDINGS]:
        console.print(f"  [{style}]{finding.rule}[/]: {escape(finding.evidence)}")
    if (more := len(judgement.findings) - _SHOWN_FINDINGS) > 0:
        console.print(f"  and {more} more")
    if saved is not None:
        console.print(f"  [dim]saved: {saved}, with the history in the same folder[/]")

"""`faultline demo`: the stale-worker race, live, with a verdict."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from faultline.cli.context import Context
from faultline.cli.playground import playground
from faultline.drills.race import RaceEvent, RaceReport, RaceSettings, run_race
from faultline.drills.race.timeline import lanes, moments

# The milestones of the race, for the progress display: (worker, event).
_STEPS = {
    ("A", "execution_started"): "A runs the job",
    ("A", "stalled"): "A stalls; its lease is running out",
    ("B", "lease_acquired"): "B has taken over",
    ("B", "commit_ok"): "B has committed",
    ("A", "woken"): "A is back",
    ("A", "stale_write_blocked"): "A was refused",
}
_SHOWN = {event for _, event in _STEPS} | {"worker_exit", "lease_reaped", "lease_lost"}


@click.command()
@click.option(
    "--log-only", is_flag=True, help="Nothing but the structured log, one JSON object per line."
)
@click.option(
    "--lease-seconds", default=1.0, show_default=True, help="How long a lease lasts here."
)
@click.pass_obj
def demo(context: Context, log_only: bool, lease_seconds: float) -> None:
    """Two workers, one job: A stalls past its lease, B takes over, A comes back and is refused.

    Runs on a PostgreSQL of its own that is gone afterwards, or, with DATABASE_URL, in a database of
    its own on that server. Exit code 0 only if the job took effect exactly once.
    """
    console = Console(highlight=False, soft_wrap=True)
    settings = RaceSettings(lease_seconds=lease_seconds)
    with ExitStack() as stack:
        if not log_only:
            console.print(
                "[bold]The stale-worker race[/bold]: a worker stalls in the middle of a job, its lease"
                " runs out,\na second worker takes over, and the first one comes back. What happens?\n"
            )
        url = stack.enter_context(playground(context, None if log_only else console))
        show = stack.enter_context(_display(console, log_only))
        report = run_race(url, settings, show)
    if log_only:
        print(json.dumps({"event": "verdict", "holds": report.holds, **report.checks}))
    else:
        _explain(console, report)
    sys.exit(0 if report.holds else 1)


@contextmanager
def _display(console: Console, log_only: bool) -> Iterator[Callable[[RaceEvent], None]]:
    """Event lines as they happen; on a terminal with a progress bar below them."""
    with ExitStack() as stack:
        progress = None
        if console.is_terminal and not log_only:
            progress = stack.enter_context(
                Progress(
                    SpinnerColumn(),
                    BarColumn(bar_width=24),
                    TextColumn("{task.description}"),
                    TimeElapsedColumn(),
                    console=console,
                    transient=True,
                )
            )
            task = progress.add_task("starting worker A", total=len(_STEPS))

        def show(event: RaceEvent) -> None:
            if log_only or event.event in _SHOWN:
                console.print(_line(event), markup=False)
            if progress is not None and (step := _STEPS.get((event.worker, event.event))):
                progress.update(task, advance=1, description=step)

        yield show


def _line(event: RaceEvent) -> str:
    return json.dumps({"event": event.event, "worker": event.worker, **event.fields})


def _explain(console: Console, report: RaceReport) -> None:
    story = moments(report.events)
    start = story[0].at if story else 0.0
    console.print("\n[bold]Timeline[/bold]")
    styles = {"✓": "green", "✗": "red", "‖": "yellow", "!": "yellow"}
    for moment in story:
        style = styles.get(moment.mark, "default")
        console.print(
            f"  t={moment.at - start:5.2f}  {moment.worker}  [{style}]{moment.mark} {moment.text}[/]"
        )
    console.print("\n  [dim]█ at work  ░ stalled  ▶ claim  ✓ committed  ✗ refused[/dim]")
    for lane in lanes(report.events):
        console.print(f"  {lane}", markup=False)
    console.print("\n[bold]Verdict[/bold]")
    for claim, holds in report.checks.items():
        console.print(f"  [green]✓[/] {claim}" if holds else f"  [bold red]✗ {claim}[/]")
    if report.holds:
        console.print(
            f"\nOne payment, not two: token {report.max_token} took effect, and what token 1 had"
            " written in its transaction is gone.\n[dim]Self-fencing was off for this race: nothing"
            " but the database stood between the late worker and a second payment.[/dim]"
        )
    else:
        console.print("\n[bold red]The verdict does not hold.[/] The workers also said:")
        for line in report.stray_lines[-40:]:
            console.print(f"  {line}", markup=False)

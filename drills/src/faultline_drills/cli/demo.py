"""`faultline demo`: the stale-worker race, then both queues under faults."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from faultline.cli.context import Context
from faultline_drills.campaign import CampaignSettings
from faultline_drills.cli.campaign_progress import run_campaigns, run_race_on
from faultline_drills.cli.scratch_server import drill_server
from faultline_drills.cli.terminal import exit_code
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.provenance import provenance
from faultline_drills.race import RaceEvent, RaceReport, RaceSettings
from faultline_drills.race.race_timeline import lanes, moments
from faultline_drills.report.campaign_groups import conclude, group_campaigns
from faultline_drills.report.plots import NoPlots, draw_duplicates, require_plots, save
from faultline_drills.report.summary import summarise
from faultline_drills.subjects import Subject

FAULT_RATE = 0.1
DEFAULTS = CampaignSettings()

# The milestones of the race, for the progress display: (worker, event).
_STEPS = {
    ("A", "execution_started"): "A runs the job",
    ("A", "stalled"): "A stalls; its lease is running out",
    ("B", "lease_acquired"): "B has taken over",
    ("B", "commit_ok"): "B has committed",
    ("A", "woken"): "A has resumed",
    ("A", "stale_write_blocked"): "A was refused",
}
_STYLES = {"✓": "green", "✗": "red", "‖": "yellow", "!": "yellow"}
# The fields of the summary that are printed; the file has all of them.
_PRINTED = (
    "fault_rate",
    "faultline_duplicates",
    "naive_duplicates",
    "invariant_violations",
    "stale_writes_prevented",
    "safe_for_controlled_release_validation",
    "seed",
    "duplicate_rate",
    "faults_injected",
)


@click.command()
@click.option(
    "--log-only",
    is_flag=True,
    help="Run only the race, and print only its log, one JSON object per line.",
)
@click.option(
    "--lease-seconds", default=1.0, show_default=True, help="Duration of a lease in the race."
)
@click.option("--no-campaign", is_flag=True, help="Run only the race.")
@click.option("--jobs", default=DEFAULTS.jobs, show_default=True, help="Jobs per campaign.")
@click.option(
    "--seed",
    default=DEFAULTS.seed,
    show_default=True,
    help="Seed of the fault plan.",
)
@click.option(
    "--save-to",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports", "latest"),
    show_default=True,
    help="Folder for the summary and the plot.",
)
@click.pass_obj
def demo(
    context: Context,
    log_only: bool,
    lease_seconds: float,
    no_campaign: bool,
    jobs: int,
    seed: int,
    save_to: Path,
) -> None:
    """See PostgreSQL refuse a stale worker's late commit.

    Two workers, one job: A stalls past its lease, B takes over, and A resumes and is refused.

    Then two campaigns run the same jobs and faults, on Faultline and on the same queue without its
    fence, and count the jobs that took effect more than once. One job in ten is hit by a fault.

    The demo starts a temporary PostgreSQL. With DATABASE_URL it creates databases on that server and
    drops them afterwards. The exit code is 0 if every job took effect exactly once on Faultline and
    some jobs did not without the fence, 1 if a rule was broken, and 2 if the faults were not injected,
    so that nothing is shown.
    """
    console = Console(highlight=False, soft_wrap=True)
    with ExitStack() as stack:
        if not log_only:
            console.print(
                "[bold]The stale-worker race[/bold]: a worker stalls in the middle of a job, its lease"
                " expires,\na second worker takes over, and the first one resumes. What happens?\n"
            )
        server_url = stack.enter_context(
            drill_server(context.given_url, None if log_only else console)
        )
        with _display(console, log_only) as show:
            report = run_race_on(server_url, RaceSettings(lease_seconds=lease_seconds), show)
        if log_only:
            print(json.dumps({"event": "verdict", "holds": report.holds, **report.checks}))
        else:
            _print_verdict(console, report)
        if log_only or no_campaign or not report.holds:
            sys.exit(0 if report.holds else 1)
        code = compare_subjects(console, server_url, jobs, seed, save_to)
    sys.exit(code)


def compare_subjects(console: Console, server_url: str, jobs: int, seed: int, save_to: Path) -> int:
    """Run a campaign on each queue, report it, and return the exit code."""
    settings = [
        CampaignSettings(jobs=jobs, seed=seed, fault_rate=FAULT_RATE, subject=subject)
        for subject in Subject
    ]
    console.print(
        f"\n[bold]Under faults[/bold]: {jobs} jobs, {DEFAULTS.workers} workers, {FAULT_RATE:.0%} of the"
        " jobs are hit by a fault: their worker is killed at the start,\nbetween two writes or at its"
        " commit, or stalls past its lease, or 50 clients retry or submit them at once.\nFaultline and the"
        " same queue without its fence get the same faults.\n"
    )
    groups = group_campaigns(run_campaigns(console, settings, server_url))
    conclusion = conclude(groups)
    command = f"faultline demo --jobs {jobs} --seed {seed}"
    origin = provenance(command, seed=seed, postgres=groups[0].campaigns[0].postgres)
    summary = summarise(groups, conclusion, origin)
    save_to.mkdir(parents=True, exist_ok=True)
    written = [save_to / "benchmark_summary.json"]
    written[0].write_text(json.dumps(summary, indent=2) + "\n")
    try:
        require_plots()
        note = origin.line
        written += save(draw_duplicates(groups, note), save_to, "benchmark_comparison", note)
    except NoPlots as missing:
        console.print(f"[yellow]no plot: {missing.message}; try: {escape(missing.hint or '')}[/]")
    console.print(f"\n{_in_lines({name: summary[name] for name in _PRINTED})}", markup=False)
    console.print(f"[dim]written: {', '.join(map(str, written))}[/]")
    for reason in conclusion.reasons:
        console.print(f"[bold red]{conclusion.verdict}[/]: {escape(reason)}")
    if conclusion.verdict is DrillVerdict.VALID:
        console.print(
            f"\n[green]Of {jobs} jobs, {summary['faultline_duplicates']} took effect more than once on"
            f" Faultline[/], and {summary['naive_duplicates']} on the same queue without its fence."
        )
    return exit_code(conclusion.verdict)


def _in_lines(facts: dict[str, Any]) -> str:
    """JSON with one line per name."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


@contextmanager
def _display(console: Console, log_only: bool) -> Iterator[Callable[[RaceEvent], None]]:
    """Print the race's events as they happen, with a progress bar on a terminal."""
    with ExitStack() as stack:
        progress = None
        began: float | None = None
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
            nonlocal began
            if log_only:
                console.print(_line(event), markup=False)
            for moment in () if log_only else moments([event]):
                began = moment.at if began is None else began
                style = _STYLES.get(moment.mark, "default")
                console.print(
                    f"  t={moment.at - began:5.2f}  {moment.worker}  [{style}]{moment.mark}"
                    f" {escape(moment.text)}[/]"
                )
            if progress is not None and (step := _STEPS.get((event.worker, event.event))):
                progress.update(task, advance=1, description=step)

        yield show


def _line(event: RaceEvent) -> str:
    return json.dumps({"event": event.event, "worker": event.worker, **event.fields})


def _print_verdict(console: Console, report: RaceReport) -> None:
    console.print(
        "\n  [dim]█ running  ░ stalled  ▶ claims  ‖ stalls  ▷ resumes  ✓ committed  ✗ refused[/dim]"
    )
    for lane in lanes(report.events):
        console.print(f"  {lane}", markup=False)
    console.print("\n[bold]Verdict[/bold]")
    for claim, holds in report.checks.items():
        console.print(f"  [green]✓[/] {claim}" if holds else f"  [bold red]✗ {claim}[/]")
    if report.holds:
        console.print(
            f"\nOne payment, not two: token {report.max_token} took effect, and the payment written under"
            " token 1 was rolled back.\n[dim]Self-fencing was off in this race: only PostgreSQL's fence"
            " prevented a second payment.[/dim]"
        )
    else:
        console.print("\n[bold red]A claim does not hold.[/] Other output of the workers:")
        for line in report.stray_lines[-40:]:
            console.print(f"  {line}", markup=False)

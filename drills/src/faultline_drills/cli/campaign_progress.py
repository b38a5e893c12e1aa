"""Runs races and campaigns with a progress bar and a summary line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from faultline_drills.campaign import CampaignReport, CampaignSettings, run_campaign
from faultline_drills.race import RaceEvent, RaceReport, RaceSettings, run_race
from faultline_drills.servers.scratch_database import scratch_database
from faultline_drills.subjects import Subject, install

NAMES = {Subject.FAULTLINE: "Faultline", Subject.NAIVE: "without the fence"}


def run_race_on(
    server_url: str,
    settings: RaceSettings,
    on_event: Callable[[RaceEvent], None] = lambda event: None,
) -> RaceReport:
    with scratch_database(server_url) as url:
        install(Subject.FAULTLINE, url)
        return run_race(url, settings, on_event)


def run_campaigns(
    console: Console, campaigns: Sequence[CampaignSettings], server_url: str
) -> list[CampaignReport]:
    """Run the campaigns one after another and print a line about each."""
    reports = []
    with Progress(
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("[yellow]{task.fields[fault]}[/]"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        whole = progress.add_task("jobs", total=sum(each.jobs for each in campaigns), fault="")
        before = 0
        for settings in campaigns:
            title = f"{NAMES[settings.subject]}, {settings.fault_rate:.0%} faults"
            progress.update(whole, description=title, fault="starting workers")

            def show(done: int, injected: str, before: int = before) -> None:
                progress.update(whole, completed=before + done)
                if injected:
                    progress.update(whole, fault=escape(" ".join(injected.split())))

            report = run_campaign(settings, server_url, show)
            before += settings.jobs
            reports.append(report)
            console.print(summary_line(report))
    return reports


def summary_line(report: CampaignReport) -> str:
    settings, tally = report.settings, report.tally
    if report.duplicates:
        style, mark = "red", "✗"
        jobs = "job" if report.duplicates == 1 else "jobs"
        outcome = f"{report.duplicates} {jobs} took effect more than once"
    else:
        style, mark = "green", "✓"
        outcome = "no job took effect more than once"
    return (
        f"  [{style}]{mark} {NAMES[settings.subject]:<17} {outcome}[/]"
        f" [dim]· {settings.jobs} jobs, {settings.fault_rate:.0%} faults, seed {settings.seed}:"
        f" {sum(report.injected.values())} faults injected, {tally.get('kills', 0)} kills,"
        f" {tally.get('stops', 0)} stalls, {tally.get('takeovers', 0)} takeovers,"
        f" {tally.get('stale_rejections', 0)} late commits refused; {report.seconds:.0f} s[/]"
    )

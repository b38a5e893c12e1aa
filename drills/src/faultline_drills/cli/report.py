"""`faultline drill report`: runs campaigns and scenarios, and writes a report."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from faultline.cli.context import Context
from faultline_drills.campaign import CampaignSettings
from faultline_drills.cli.campaign_progress import run_campaigns, run_race_on
from faultline_drills.cli.scratch_server import drill_server
from faultline_drills.cli.terminal import VERDICT_STYLES, exit_code, progress_bar
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.provenance import Provenance, provenance, server_version
from faultline_drills.race import RaceReport, RaceSettings
from faultline_drills.report.campaign_groups import CampaignGroup, group_campaigns
from faultline_drills.report.html_page import as_html
from faultline_drills.report.markdown import as_markdown, headline
from faultline_drills.report.plots import (
    draw_duplicates,
    draw_recoveries,
    require_plots,
    save,
    save_as,
)
from faultline_drills.report.race_drawing import DrawnRace, draw_still, save_animation
from faultline_drills.report.report_data import read_other_reports, report_data
from faultline_drills.report.scenario_matrix import ScenarioRow, count_scenarios, run_scenarios
from faultline_drills.subjects import Subject

FAULT_RATES = (0.05, 0.1, 0.2)
QUICK_REPEATS, QUICK_JOBS = 1, 60
DEFAULTS = CampaignSettings()


@dataclass(frozen=True, kw_only=True)
class ReportScope:
    """The campaigns and scenarios to run."""

    repeats: int
    jobs: int
    seed: int
    with_scenarios: bool

    @property
    def command(self) -> str:
        words = f"faultline drill report --repeats {self.repeats} --jobs {self.jobs}"
        return words + f" --seed {self.seed}" + ("" if self.with_scenarios else " --no-scenarios")

    @property
    def campaigns(self) -> list[CampaignSettings]:
        return [
            CampaignSettings(
                jobs=self.jobs, fault_rate=rate, seed=self.seed + repeat, subject=subject
            )
            for rate in FAULT_RATES
            for repeat in range(self.repeats)
            for subject in Subject
        ]


@click.command()
@click.option("--repeats", default=4, show_default=True, help="Campaigns per fault rate and queue.")
@click.option("--jobs", default=200, show_default=True, help="Jobs per campaign.")
@click.option("--seed", default=DEFAULTS.seed, show_default=True, help="Seed of the first repeat.")
@click.option("--no-scenarios", is_flag=True, help="Run campaigns only.")
@click.option(
    "--quick", is_flag=True, help="Run short campaigns and no scenarios, in about a minute."
)
@click.option("--gif", is_flag=True, help="Only run and draw the race, into docs/gifs.")
@click.option(
    "--save-to",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the files.  [default: reports/latest]",
)
@click.pass_obj
def report(
    context: Context,
    repeats: int,
    jobs: int,
    seed: int,
    no_scenarios: bool,
    quick: bool,
    gif: bool,
    save_to: Path | None,
) -> None:
    """Run campaigns and scenarios, and write a report.

    Campaigns inject faults into 5, 10 and 20 % of the jobs, on Faultline and on the same queue without
    its fence. Then every scenario runs. The report is written as JSON, Markdown and HTML, with plots
    (these need matplotlib: pip install 'faultline-drills[report]'). It includes the results of mutants,
    explore, sweep and soak that are in the same folder.

    The exit code is 0 if no rule was broken, 1 if one was, and 2 if the faults were not injected, so
    that nothing is shown.
    """
    require_plots()
    console = Console(highlight=False, soft_wrap=True)
    if quick:
        repeats, jobs, no_scenarios = QUICK_REPEATS, QUICK_JOBS, True
    scope = ReportScope(repeats=repeats, jobs=jobs, seed=seed, with_scenarios=not no_scenarios)
    with drill_server(context.given_url, console) as url:
        # Read now: the files may be edited while this runs, but the code that runs is loaded.
        command = "faultline drill report --gif" if gif else scope.command
        origin = provenance(command, seed=None if gif else seed, postgres=server_version(url))
        race = run_race_on(url, RaceSettings())
        if gif:
            _print_written(console, _draw_race(race, origin, save_to or Path("docs", "gifs")))
            sys.exit(0 if race.holds else 1)
        groups = group_campaigns(run_campaigns(console, scope.campaigns, url))
        rows = _run_scenarios(console, url, seed) if scope.with_scenarios else None
    folder = save_to or Path("reports", "latest")
    facts = report_data(groups, rows, race.checks, origin, read_other_reports(folder))
    _print_written(console, _write(facts, groups, race, origin, folder))
    console.print(headline(facts).replace("**", ""), markup=False)
    for reason in facts["why_not"]:
        console.print(f"[bold red]{facts['verdict']}[/]: {escape(reason)}")
    sys.exit(exit_code(DrillVerdict(facts["verdict"])))


def _run_scenarios(console: Console, url: str, seed: int) -> list[ScenarioRow]:
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar(console, "{task.description}"))
        task = progress.add_task("scenarios", total=count_scenarios(), completed=-1)

        def show(row: ScenarioRow) -> None:
            control = "" if row.naive is None else f", without the fence {row.naive}"
            style = VERDICT_STYLES.get(row.faultline, "yellow")
            console.print(
                f"  [{style}]{row.faultline:<8}[/] {row.scenario}[dim]{control}; {row.seconds:.1f} s[/]"
            )

        return run_scenarios(
            url,
            seed,
            on_start=lambda name: progress.update(task, advance=1, description=name),
            on_row=show,
        )


def _draw_race(report: RaceReport, origin: Provenance, folder: Path) -> list[Path]:
    race = DrawnRace(report)
    note = origin.line
    still = save_as(draw_still(race, note), folder / "stale_worker.svg", note)
    return [still, save_animation(race, note, folder / "stale_worker.gif")]


def _write(
    facts: dict[str, Any],
    groups: list[CampaignGroup],
    race: RaceReport,
    origin: Provenance,
    folder: Path,
) -> list[Path]:
    ours = [group for group in groups if group.subject is Subject.FAULTLINE]
    crash = [seconds for group in ours for seconds in group.crash_seconds]
    takeover = [seconds for group in ours for seconds in group.takeover_seconds]
    note = origin.line
    drawn = save(draw_duplicates(groups, note), folder, "duplicates", note)
    drawn += save(draw_recoveries(crash, takeover, note), folder, "recovery", note)
    drawn += _draw_race(race, origin, folder)
    captions = {
        "Jobs that took effect more than once": "duplicates",
        "Recovery": "recovery",
        "The stale-worker race": "stale_worker",
    }
    svgs = {title: (folder / f"{stem}.svg").read_text() for title, stem in captions.items()}
    texts = {
        "report.json": json.dumps(facts, indent=2) + "\n",
        "report.md": as_markdown(facts, [f"{stem}.svg" for stem in captions.values()]),
        "report.html": as_html(facts, svgs),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [*(folder / name for name in texts), *drawn]


def _print_written(console: Console, paths: list[Path]) -> None:
    console.print(f"[dim]written: {', '.join(map(str, paths))}[/]")

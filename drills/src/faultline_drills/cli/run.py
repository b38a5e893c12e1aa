"""`faultline drill run`: runs scenarios and prints their verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from faultline.cli.context import Context
from faultline.errors import InvalidInput
from faultline_drills.cli.scratch_server import cleanup_on_signals
from faultline_drills.cli.shared_options import (
    json_option,
    save_to_option,
    seed_help,
    subject_option,
)
from faultline_drills.cli.terminal import VERDICT_STYLES, exit_code, progress_bar
from faultline_drills.drill import DrillReport, run_drill
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.scenario import (
    DrillSettings,
    Scenario,
    all_scenarios,
    complete_scenario,
    find_scenario,
)
from faultline_drills.subjects import Subject

DEFAULTS = DrillSettings()
_SHOWN_FINDINGS = 5


@click.command()
@click.argument("names", nargs=-1, metavar="[SCENARIO]...", shell_complete=complete_scenario)
@click.option("--seed", default=DEFAULTS.seed, show_default=True, help=seed_help)
@click.option(
    "--fault-rate",
    default=DEFAULTS.fault_rate,
    show_default=True,
    help="Share of jobs hit by a fault, in scenarios that choose at random.",
)
@click.option("--jobs", default=DEFAULTS.jobs, show_default=True, help="Jobs per scenario.")
@click.option("--workers", default=DEFAULTS.workers, show_default=True, help="Worker processes.")
@click.option(
    "--lease-seconds",
    default=DEFAULTS.lease_seconds,
    show_default=True,
    help="Duration of a lease.",
)
@click.option(
    "--timeout-seconds",
    default=DEFAULTS.timeout_seconds,
    show_default=True,
    help="Longest wait for any one event; after that the drill counts as not run.",
)
@subject_option
@save_to_option
@json_option
@click.pass_obj
def run(
    context: Context,
    names: Sequence[str],
    seed: int,
    fault_rate: float,
    jobs: int,
    workers: int,
    lease_seconds: float,
    timeout_seconds: float,
    subject: str,
    save_to: Path | None,
    as_json: bool,
) -> None:
    """Run scenarios, by default all, and judge the results.

    The exit code is 0 if no rule was broken, 1 if one was, and 2 if a scenario did not bring about
    the failure that it rehearses, and so shows nothing.
    """
    settings = DrillSettings(
        seed=seed,
        jobs=jobs,
        workers=workers,
        fault_rate=fault_rate,
        lease_seconds=lease_seconds,
        timeout_seconds=timeout_seconds,
        subject=Subject(subject),
    )
    chosen = [find_scenario(name) for name in names] or list(all_scenarios().values())
    if save_to is not None:
        try:
            save_to.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"--save-to {save_to}: {error.strerror}") from None
    sys.exit(run_scenarios(context, chosen, settings, save_to=save_to, as_json=as_json))


def run_scenarios(
    context: Context,
    chosen: Sequence[Scenario],
    settings: DrillSettings,
    *,
    save_to: Path | None,
    as_json: bool,
    is_replay: bool = False,
) -> int:
    """Run the scenarios, print their results, and return the exit code."""
    console = Console(highlight=False, stderr=as_json, soft_wrap=True)
    reports = _run_all(
        console, chosen, settings, context.given_url, save_to, as_json, is_replay=is_replay
    )
    if not as_json:
        _print_summary(console, reports)
    return exit_code(*(report.judgement.verdict for report in reports))


def _run_all(
    console: Console,
    chosen: Sequence[Scenario],
    settings: DrillSettings,
    server_url: str | None,
    save_to: Path | None,
    as_json: bool,
    *,
    is_replay: bool,
) -> list[DrillReport]:
    reports: list[DrillReport] = []
    with ExitStack() as stack:
        stack.enter_context(cleanup_on_signals())
        progress = stack.enter_context(_progress(console))
        task = progress.add_task("", total=len(chosen), fault="")
        for each in chosen:
            progress.update(task, description=each.name, fault="")
            if missing := each.missing_requirement():
                console.print(f"  [yellow]-[/] {each.name}: cannot run here, {escape(missing)}")
                progress.advance(task)
                continue

            def show(line: str) -> None:
                progress.update(task, fault=escape(line))

            report = run_drill(
                each, settings, server_url=server_url, on_fault=show, is_replay=is_replay
            )
            reports.append(report)
            if save_to is not None or report.judgement.verdict is DrillVerdict.INVALID:
                saved = report.save(save_to or Path("reports", "drills"))
            else:
                saved = None
            if as_json:
                print(json.dumps(report.facts()), flush=True)
            else:
                _print_report(console, report, saved)
            progress.advance(task)
    return reports


def _progress(console: Console) -> Progress:
    return progress_bar(console, "{task.description}", "[dim]{task.fields[fault]}[/]")


def _print_report(console: Console, report: DrillReport, saved: Path | None) -> None:
    judgement = report.judgement
    style = VERDICT_STYLES[judgement.verdict]
    counted = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in report.tally.items() if count
    )
    console.print(
        f"  [{style}]{judgement.verdict:<8}[/] {report.scenario:<28} [dim]{counted};"
        f" {report.seconds:.1f} s[/]"
    )
    for finding in judgement.findings[:_SHOWN_FINDINGS]:
        console.print(f"           [{style}]{finding.rule}[/]: {escape(finding.evidence)}")
    more = len(judgement.findings) - _SHOWN_FINDINGS
    if more > 0:
        console.print(f"           and {more} more")
    if saved is not None:
        console.print(
            f"           [dim]seed {report.settings.seed}, PostgreSQL {report.postgres}; saved: {saved};"
            f" replay it with: faultline drill replay {saved}[/]"
        )


def _print_summary(console: Console, reports: Sequence[DrillReport]) -> None:
    counts = dict.fromkeys(DrillVerdict, 0)
    for report in reports:
        counts[report.judgement.verdict] += 1
    verdicts = ", ".join(
        f"[{VERDICT_STYLES[verdict]}]{count} {verdict}[/]"
        for verdict, count in counts.items()
        if count
    )
    drills = "1 drill" if len(reports) == 1 else f"{len(reports)} drills"
    console.print(f"\n{drills}: {verdicts or 'none was run'}")

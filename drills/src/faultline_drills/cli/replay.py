"""`faultline drill replay`: run a saved drill, soak or interleaving again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from faultline.cli.context import Context
from faultline.errors import InvalidInput
from faultline_drills.cli import run, soak
from faultline_drills.cli.explore import logging_discarded, show_steps
from faultline_drills.cli.scratch_server import drill_database
from faultline_drills.cli.shared_options import json_option
from faultline_drills.cli.terminal import table_console
from faultline_drills.explorer.programs import description_of
from faultline_drills.explorer.replay_file import ReplayResult, load, replay_interleaving
from faultline_drills.scenario import DrillSettings, find_scenario
from faultline_drills.soak import SoakSettings
from faultline_drills.subjects import Subject


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
@click.pass_obj
def replay(context: Context, file: Path, as_json: bool) -> None:
    """Run a saved drill, soak or interleaving again.

    An interleaving is repeated step by step. A drill or a soak runs with the same seed, settings and
    faults, but its processes may be scheduled differently. The exit code is 1 if a rule is broken again.
    """
    saved = _read(file)
    match saved.get("kind"):
        case "drill":
            scenario = find_scenario(saved["scenario"])
            settings = DrillSettings(**_with_subject(saved["settings"]))
            sys.exit(
                run.run_scenarios(
                    context, [scenario], settings, save_to=None, as_json=as_json, is_replay=True
                )
            )
        case "soak":
            given = _with_subject(saved["settings"])
            soaking = SoakSettings(**{**given, "faults": tuple(given["faults"])})
            folder = file.parent / "again"  # the replayed files stay unchanged
            sys.exit(soak.run_and_report(context, soaking, save_to=folder, as_json=as_json))
        case _:
            sys.exit(_step_through(context, file, as_json))


def _read(file: Path) -> dict[str, Any]:
    try:
        saved = json.loads(file.read_text())
    except ValueError as error:
        raise InvalidInput(
            f"{file} is not a report of a drill: {error}",
            hint="name the .json file that a drill saved",
        ) from None
    if not isinstance(saved, dict):
        raise InvalidInput(
            f"{file} is not a report of a drill", hint="name the .json file, not the history"
        )
    return saved


def _with_subject(settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, "subject": Subject(settings["subject"])}


def _step_through(context: Context, file: Path, as_json: bool) -> int:
    console = table_console(stderr=as_json)
    saved = load(file)
    with (
        logging_discarded(),
        drill_database(
            context, None if as_json else console, subject=Subject(saved.subject)
        ) as url,
    ):
        replayed = replay_interleaving(url, saved)
    if as_json:
        print(json.dumps(_facts(replayed), indent=2))
    else:
        _show(console, replayed)
    return 1 if replayed.is_reproduced else 0


def _show(console: Console, replayed: ReplayResult) -> None:
    saved, execution = replayed.replay, replayed.execution
    console.print(
        f"[bold]{saved.program}[/], {saved.subject}: {escape(description_of(saved.program))}\n"
    )
    show_steps(console, execution.record.steps)
    if execution.record.interleaving != saved.interleaving:
        console.print("\n[yellow]the actors take other steps than when it was saved[/]")
    for finding in execution.findings:
        console.print(
            f"\n[bold red]{finding.rule.replace('_', ' ')}[/]: {escape(finding.evidence)}"
        )
    if replayed.is_reproduced:
        console.print("\n[bold red]reproduced[/]")
    else:
        rules = ", ".join(rule.replace("_", " ") for rule in saved.rules)
        console.print(f"\n[green]not reproduced[/]; when it was saved it broke: {rules}")


def _facts(replayed: ReplayResult) -> dict[str, object]:
    execution = replayed.execution
    return {
        "program": replayed.replay.program,
        "subject": replayed.replay.subject,
        "reproduced": replayed.is_reproduced,
        "same_steps": execution.record.interleaving == replayed.replay.interleaving,
        "rules": sorted(execution.broken_rules),
        "steps": [
            [step.actor, step.action, step.result, step.jobs] for step in execution.record.steps
        ],
    }

"""`faultline drill replay`: see a violation that the explorer found once more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from faultline.cli.context import Context
from faultline.cli.drill.explore import show_steps, unheard, wide_console
from faultline.cli.playground import playground
from faultline.drills.explorer.programs import story_of
from faultline.drills.explorer.replay import Replayed, load, run_again
from faultline.drills.subjects import Subject


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@click.pass_obj
def replay(context: Context, file: Path, as_json: bool) -> None:
    """Perform the schedule in FILE again, step by step.

    Exit code 1 when it breaks a rule that it broke before, 0 when it does not.
    """
    console = wide_console(stderr=as_json)
    saved = load(file)
    with (
        unheard(),
        playground(context, None if as_json else console, subject=Subject(saved.subject)) as url,
    ):
        replayed = run_again(url, saved)
    if as_json:
        print(json.dumps(_facts(replayed), indent=2))
    else:
        _show(console, replayed)
    sys.exit(1 if replayed.is_reproduced else 0)


def _show(console: Console, replayed: Replayed) -> None:
    saved, outcome = replayed.replay, replayed.outcome
    console.print(f"[bold]{saved.program}[/], {saved.subject}: {escape(story_of(saved.program))}\n")
    show_steps(console, outcome.performed.steps)
    if outcome.performed.vector != saved.vector:
        console.print("\n[yellow]the actors no longer take the same steps[/]")
    for finding in outcome.findings:
        console.print(
            f"\n[bold red]{finding.rule.replace('_', ' ')}[/]: {escape(finding.evidence)}"
        )
    if replayed.is_reproduced:
        console.print("\n[bold red]reproduced[/]")
    else:
        rules = ", ".join(rule.replace("_", " ") for rule in saved.rules)
        console.print(f"\n[green]not reproduced[/]: it broke {rules} when it was found")


def _facts(replayed: Replayed) -> dict[str, object]:
    outcome = replayed.outcome
    return {
        "program": replayed.replay.program,
        "subject": replayed.replay.subject,
        "reproduced": replayed.is_reproduced,
        "same_steps": outcome.performed.vector == replayed.replay.vector,
        "rules": sorted(outcome.broken_rules),
        "steps": [
            [step.actor, step.what, step.heard, step.rows] for step in outcome.performed.steps
        ],
    }

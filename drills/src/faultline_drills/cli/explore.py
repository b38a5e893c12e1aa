"""`faultline drill explore`: runs real sessions in systematically chosen orders."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from faultline.cli.context import Context
from faultline.events import log
from faultline_drills.cli.scratch_server import drill_database
from faultline_drills.cli.shared_options import json_option, subject_option
from faultline_drills.cli.terminal import exit_code, table_console
from faultline_drills.explorer import PROGRAMS, ExploreReport, ProgramReport
from faultline_drills.explorer import explore as explore_programs
from faultline_drills.explorer.explorer import Counterexample
from faultline_drills.explorer.interleaving import Step
from faultline_drills.explorer.interleaving_diagram import draw_interleaving
from faultline_drills.explorer.page import as_markdown
from faultline_drills.explorer.programs import description_of
from faultline_drills.explorer.replay_file import save
from faultline_drills.provenance import Provenance, provenance
from faultline_drills.subjects import Subject

_COUNTED = ("takeovers", "stale_rejections", "lock_waits", "commits")
_INTERLEAVINGS = 100
_MANY = 1_000_000


@click.command()
@click.option(
    "--program",
    "programs",
    multiple=True,
    type=click.Choice(list(PROGRAMS)),
    metavar="NAME",
    help="Explore only this program; may be repeated.  [default: all]",
)
@click.option(
    "--list", "only_list", is_flag=True, help="List the programs and what happens in each."
)
@click.option(
    "--bound",
    type=click.IntRange(0, 3),
    default=2,
    show_default=True,
    help="Try all interleavings with up to this many preemptions, then random ones.",
)
@click.option(
    "--interleavings",
    type=click.IntRange(min=1),
    help=f"Try at most this many per program.  [default: {_INTERLEAVINGS}; unlimited with --seconds or"
    " --complete]",
)
@click.option(
    "--complete",
    is_flag=True,
    help="Try all interleavings within --bound, and no random ones.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    help="Stop after this time, for all programs together.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the search order.")
@subject_option
@click.option(
    "--save-to",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports", "explorer"),
    show_default=True,
    help="Folder for the replay file and diagram of a violation.",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write what was explored to this Markdown file.",
)
@json_option
@click.pass_obj
def explore(
    context: Context,
    programs: Sequence[str],
    only_list: bool,
    bound: int,
    interleavings: int | None,
    complete: bool,
    seconds: float | None,
    seed: int,
    subject: str,
    save_to: Path,
    markdown: Path | None,
    as_json: bool,
) -> None:
    """Run real sessions in many orders and judge each one.

    Each program is a few workers, reconcilers and clients that compete for a job. Their statements
    run one at a time, in every order that a few preemptions allow.

    The exit code is 0 if no rule was broken, 1 if one was (a short interleaving that breaks it is
    printed and saved), and 2 if the run shows nothing because no takeover, refusal, commit or lock
    wait happened.
    """
    console = table_console(stderr=as_json)
    if only_list:
        _list(console)
        return
    chosen = list(programs) or list(PROGRAMS)
    limit = interleavings or (_MANY if complete or seconds is not None else _INTERLEAVINGS)
    with (
        logging_discarded(),
        drill_database(context, None if as_json else console, subject=Subject(subject)) as url,
        _display(console, chosen, limit) as show,
    ):
        report = explore_programs(
            url,
            chosen,
            max_preemptions=bound,
            max_interleavings=limit,
            max_seconds=seconds,
            seed=seed,
            on_interleaving=show,
            only_complete=complete,
        )
    saved = _save(report, save_to, subject)
    words = [f"faultline drill explore --bound {bound} --seed {seed}"]
    words += [f"--program {name}" for name in programs]
    words += ["--complete"] if complete else []
    words += [f"--seconds {seconds:g}"] if seconds else []
    words += [f"--interleavings {limit}"] if limit < _MANY else []
    words += [f"--subject {subject}"] if subject != Subject.FAULTLINE else []
    words += [f"--markdown {markdown}"] if markdown is not None else []
    origin = provenance(" ".join(words), seed=seed, postgres=report.server_version)
    if markdown is not None:
        markdown.write_text(as_markdown(report, origin))
    if as_json:
        print(json.dumps(_facts(report, saved, origin), indent=2))
    else:
        _show(console, report, saved)
    sys.exit(exit_code(report.verdict))


@contextmanager
def logging_discarded() -> Iterator[None]:
    """Discard the library's log: thousands of expected refusals would hide the result."""
    with Path(os.devnull).open("w") as nowhere:
        log.open(style="json", stream=nowhere)
        yield


@contextmanager
def _display(
    console: Console, programs: Sequence[str], limit: int
) -> Iterator[Callable[[ProgramReport], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[dim]{task.fields[found]}[/]"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        total = None if limit >= _MANY else limit * len(programs)
        task = progress.add_task("", total=total, found="")
        done: dict[str, ProgramReport] = {}

        def show(report: ProgramReport) -> None:
            done[report.name] = report
            refused = sum(each.counts["stale_rejections"] for each in done.values())
            waits = sum(each.counts["lock_waits"] for each in done.values())
            progress.update(
                task,
                description=f"{report.name:24}",
                completed=sum(each.interleavings for each in done.values()),
                found=f"{refused} refused, {waits} lock waits",
            )

        yield show


def _list(console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    for name in PROGRAMS:
        table.add_row(f"[bold]{name}[/]", escape(description_of(name)))
    console.print(table)


# ── results ──────────────────────────────────────────────────────────────────────────────────────


def _save(report: ExploreReport, folder: Path, subject: str) -> Path | None:
    found = report.counterexample
    if found is None:
        return None
    path = folder / f"{subject}-{found.program}.json"
    save(found, path, subject=subject, server_version=report.server_version)
    path.with_suffix(".svg").write_text(
        draw_interleaving(
            found.execution.record.steps,
            title=f"{found.program}: {description_of(found.program)}",
            violation=violation_of(found),
        )
    )
    return path


def violation_of(found: Counterexample) -> str:
    finding = found.execution.findings[0]
    return f"{finding.rule.replace('_', ' ')}: {finding.evidence}"


def _show(console: Console, report: ExploreReport, saved: Path | None) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("program", no_wrap=True)
    headings = ("executed", "distinct", "complete to bound", "most preemptions")
    for name in (*headings, *(name.replace("_", " ") for name in _COUNTED)):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for each in report.programs:
        complete = "-" if each.complete_bound < 0 else str(each.complete_bound)
        figures = [each.executed, each.interleavings, complete, each.most_preemptions]
        figures += [each.counts[name] for name in _COUNTED]
        verdict = "[green]valid[/]" if each.executed else "not run"
        if each.counterexample is not None:
            verdict = "[bold red]invalid[/]"
        table.add_row(each.name, *(f"{figure}" for figure in figures), verdict)
    console.print(table)
    executed = [each for each in report.programs if each.executed]
    seconds = sum(each.seconds for each in executed)
    rate = report.interleavings / seconds if seconds else 0.0
    console.print(
        f"\n{report.interleavings:,} different interleavings of {_programs(executed)} in"
        f" {seconds:.1f} s ({rate:.0f} per second), seed {report.seed}; complete up to some bound:"
        f" {_programs([each for each in executed if each.complete_bound >= 0])}"
    )
    found = report.counterexample
    if found is not None:
        console.print(
            f"\n[bold red]a rule was broken[/] after {found.found_after} interleavings of {found.program}:"
            f"\n  {escape(description_of(found.program))}\n"
        )
        show_steps(console, found.execution.record.steps)
        console.print(f"\n[bold red]{escape(violation_of(found))}[/]")
        console.print(f"\nreplay it with: faultline drill replay {saved}", soft_wrap=True)
    elif report.missing:
        console.print(f"\n[yellow]the run shows nothing:[/] {', '.join(report.missing)}")
    else:
        console.print("\n[green]no rule was broken[/]")


def _programs(some: Sequence[object]) -> str:
    return "1 program" if len(some) == 1 else f"{len(some)} programs"


def show_steps(console: Console, steps: Sequence[Step]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "actor", "step", "token", "result", "the jobs afterwards"):
        table.add_column(name)
    for number, step in enumerate(steps, 1):
        token = "" if step.token is None else str(step.token)
        cells = (str(number), step.actor, step.action, token, step.result, step.jobs)
        table.add_row(*map(escape, cells))
    console.print(table)


def _facts(report: ExploreReport, saved: Path | None, origin: Provenance) -> dict[str, Any]:
    found = report.counterexample
    return {
        "verdict": report.verdict.value,
        "missing": report.missing,
        "seed": report.seed,
        "provenance": origin.facts(),
        "interleavings": report.interleavings,
        "programs": [
            {
                "name": each.name,
                "executed": each.executed,
                "distinct": each.interleavings,
                "complete_bound": each.complete_bound,
                "most_preemptions": each.most_preemptions,
                "seconds": round(each.seconds, 3),
                **dict(each.counts),
            }
            for each in report.programs
        ],
        "violation": None
        if found is None
        else {
            "program": found.program,
            "found_after": found.found_after,
            "rule": found.execution.findings[0].rule,
            "evidence": found.execution.findings[0].evidence,
            "interleaving": list(found.interleaving),
            "replay": str(saved),
        },
    }

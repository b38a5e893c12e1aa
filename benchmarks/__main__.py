"""`python -m benchmarks`: run, list, check."""

from __future__ import annotations

import random
import shlex
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.check import check_peer
from benchmarks.display import TerminalDisplay
from benchmarks.environments import NotInstalled, environment_of
from benchmarks.journal import CannotResume, seed_of
from benchmarks.peer import OWN, PEERS, BadPeer, load_peer, load_peers, peer_names
from benchmarks.results import Results
from benchmarks.run import Plan, run_plan
from benchmarks.section import SECTIONS
from benchmarks.servers import postgres_server, redis_server
from benchmarks.trial import Stage
from benchmarks.workloads import WORKLOADS
from faultline_drills.cli.scratch_server import cleanup_on_signals

_REPEATS = 3
# The short form: one repeat of the workloads that matter most, at a fraction of the jobs.
_SHORT_WORKLOADS = ("bulk_enqueue", "single_enqueue", "drain", "write", "latency")
_SHORT_PEERS = (*OWN, "procrastinate", "pgqueuer")
_SHORT_SCALE = 0.3
_TIMEOUT_SECONDS, _SHORT_TIMEOUT_SECONDS = 180.0, 45.0


@click.group()
def cli() -> None:
    """Faultline beside its peers, in one run, on one PostgreSQL."""


@cli.command("list")
def list_peers() -> None:
    """The peers, and the workloads."""
    console = Console()
    peers = Table("peer", "title", "broker", "runtime", "packages", "cannot")
    for peer in load_peers(peer_names()):
        packages = escape("\n".join(peer.packages) or "(this checkout)")
        peers.add_row(
            peer.name, peer.title, peer.broker, peer.runtime, packages, ", ".join(peer.cannot)
        )
    workloads = Table("workload", "what is done")
    for workload in WORKLOADS.values():
        workloads.add_row(workload.name, workload.about)
    console.print(peers)
    console.print(workloads)


@cli.command()
@click.argument("name")
@click.option("--database-url", metavar="URL", help="A PostgreSQL to use instead of one of ours.")
def check(name: str, database_url: str | None) -> None:
    """Run each role of one peer once, and say what is wrong with it."""
    console = Console(highlight=False)
    try:
        peer = load_peer(PEERS / name)
        program = environment_of(peer).program
    except (BadPeer, NotInstalled) as problem:
        raise click.ClickException(str(problem)) from None
    wrong = 0
    with cleanup_on_signals(), postgres_server(database_url) as postgres, redis_server() as redis:
        for what, flaw in check_peer(peer, program, Stage(postgres, redis)):
            console.print(f"  {'[red]✗' if flaw else '[green]✓'}[/] {what} {escape(flaw or '')}")
            wrong += flaw is not None
    sys.exit(1 if wrong else 0)


@cli.command()
@click.option("--peers", "chosen_peers", metavar="A,B", help='Only these; "" for our own three.')
@click.option("--workloads", "chosen_workloads", metavar="A,B", help="Only these.")
@click.option(
    "--sections", "chosen_sections", metavar="A,B", help=f'Of {", ".join(SECTIONS)}; "" for none.'
)
@click.option("--short", is_flag=True, help="A few peers, one repeat, a fraction of the jobs.")
@click.option("--repeats", type=click.IntRange(min=1), help="How often everything is measured.")
@click.option("--scale", type=float, help="Share of the number of jobs that each peer names.")
@click.option("--seed", type=int, help="Decides the order of the peers.")
@click.option("--database-url", metavar="URL", help="A PostgreSQL to use instead of one of ours.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports/latest"),
    show_default=True,
)
@click.option("--resume", is_flag=True, help="Take only the turns that --output does not have yet.")
def run(
    chosen_peers: str | None,
    chosen_workloads: str | None,
    chosen_sections: str | None,
    short: bool,
    repeats: int | None,
    scale: float | None,
    seed: int | None,
    database_url: str | None,
    output: Path,
    resume: bool,
) -> None:
    """Measure, and write performance.json, performance.md and plots.

    Every sample is written to samples.jsonl when it is taken. An interrupted run writes the report of
    what it has, and --resume with the same options goes on from there (sections begin anew).
    """
    known = peer_names()
    all_peers = [name for name in (_SHORT_PEERS if short else known) if name in known]
    peers = _chosen(chosen_peers, known, all_peers, "peer")
    own = [name for name in OWN if name in known and name not in peers]
    workloads = _chosen(
        chosen_workloads,
        list(WORKLOADS),
        list(_SHORT_WORKLOADS if short else WORKLOADS),
        "workload",
    )
    sections = _chosen(chosen_sections, list(SECTIONS), list(SECTIONS), "section")
    try:
        loaded = load_peers([*own, *peers])
        if seed is None:
            seed = seed_of(output) if resume else random.SystemRandom().randrange(10**6)
    except (BadPeer, CannotResume) as problem:
        raise click.ClickException(str(problem)) from None
    plan = Plan(
        command=shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        peers=loaded,
        workloads=[WORKLOADS[name] for name in workloads],
        sections=sections,
        repeats=repeats or (1 if short else _REPEATS),
        scale=scale or (_SHORT_SCALE if short else 1.0),
        seed=seed,
        short=short,
        timeout_seconds=_SHORT_TIMEOUT_SECONDS if short else _TIMEOUT_SECONDS,
        database_url=database_url,
        output=output,
        resume=resume,
    )
    console = Console(highlight=False)
    try:
        with cleanup_on_signals(), TerminalDisplay(console) as display:
            results, files = run_plan(plan, display)
    except CannotResume as problem:
        raise click.ClickException(str(problem)) from None
    _conclude(console, results, files)
    if results.is_interrupted:
        again = "the same command with --resume takes them"
        console.print(f"  interrupted: {results.turns_left} measurements are missing; {again}")
        sys.exit(130)


def _chosen(given: str | None, known: list[str], otherwise: list[str], noun: str) -> list[str]:
    """What was named, checked; an empty text or `none` for nothing, None for what is usual."""
    if given is None:
        return otherwise
    names = [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]
    if unknown := [name for name in names if name not in known]:
        hint = f"there are: {', '.join(known)}"
        raise click.BadParameter(f"no {noun} is named {' or '.join(unknown)}; {hint}")
    return names


def _conclude(console: Console, results: Results, files: list[Path]) -> None:
    told = Table("to reach", "against", "wanted", "measured", "")
    verdicts = [verdict for verdict in results.verdicts if verdict.measured is not None]
    for verdict in verdicts:
        outcome = f"[{'green' if verdict.reached else 'red'}]{verdict.outcome}[/]"
        against = verdict.against + (f" ({verdict.note})" if verdict.note else "")
        told.add_row(verdict.what, against, verdict.wanted, verdict.figure, outcome)
    console.print(told)
    console.print(f"  {len(results.verdicts) - len(verdicts)} more were not measured in this run")
    for entrant in results.entrants:
        if entrant.not_installed:
            reason = f"not installed: {entrant.not_installed}"
            console.print(f"  {entrant.peer.title}: {reason}", markup=False)
    for path in files:
        console.print(f"  wrote {path}", markup=False)


if __name__ == "__main__":
    cli(prog_name="python -m benchmarks")

"""The commands of `python -m benchmarks`: run, list and check."""

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
from benchmarks.plan import MINUTES, REPEATS, SHORT_MINUTES, SHORT_SCALE, Plan
from benchmarks.results import Results
from benchmarks.run import run_plan
from benchmarks.section import ONLY_WITH_ALL, SECTIONS
from benchmarks.selection import DEFAULT, EVERYTHING, SHORT, SHORT_PEERS, Selection
from benchmarks.servers import postgres_server, redis_server
from benchmarks.trial import TrialServers
from benchmarks.turn_limits import GENEROUS, LIMITED
from benchmarks.turn_limits import SHORT as SHORT_LIMITS
from benchmarks.workloads import WORKLOADS
from faultline_drills.cli.scratch_server import cleanup_on_signals


@click.group()
def cli() -> None:
    """Compare Faultline with other queues, in one run, on one PostgreSQL."""


@cli.command("list")
def list_peers() -> None:
    """List the peers and the workloads."""
    console = Console()
    peers = Table("peer", "title", "broker", "runtime", "packages", "cannot")
    for peer in load_peers(peer_names()):
        packages = escape("\n".join(peer.packages) or "(this checkout)")
        peers.add_row(
            peer.name, peer.title, peer.broker, peer.runtime, packages, ", ".join(peer.cannot)
        )
    workloads = Table("workload", "description")
    for workload in WORKLOADS.values():
        workloads.add_row(workload.name, workload.about)
    console.print(peers)
    console.print(workloads)


@cli.command()
@click.argument("name")
@click.option(
    "--database-url", metavar="URL", help="Use this PostgreSQL instead of an embedded one."
)
def check(name: str, database_url: str | None) -> None:
    """Run each role of one peer once, and report its errors."""
    console = Console(highlight=False)
    try:
        peer = load_peer(PEERS / name)
        program = environment_of(peer).program
    except (BadPeer, NotInstalled) as problem:
        raise click.ClickException(str(problem)) from None
    wrong = 0
    with cleanup_on_signals(), postgres_server(database_url) as postgres, redis_server() as redis:
        for what, flaw in check_peer(peer, program, TrialServers(postgres, redis)):
            console.print(f"  {'[red]✗' if flaw else '[green]✓'}[/] {what} {escape(flaw or '')}")
            wrong += flaw is not None
    sys.exit(1 if wrong else 0)


@cli.command()
@click.option(
    "--peers",
    "chosen_peers",
    metavar="A,B",
    help='Only these; "" for Faultline, naive and raw_sql alone.',
)
@click.option("--workloads", "chosen_workloads", metavar="A,B", help="Only these.")
@click.option(
    "--sections",
    "chosen_sections",
    metavar="A,B",
    help=f'Some of {", ".join(SECTIONS)}; "" for none.',
)
@click.option("--short", is_flag=True, help="Run a few peers, one repeat, a fraction of the jobs.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Run every peer, workload and section in every repeat (hours).",
)
@click.option("--repeats", type=click.IntRange(min=1), help="The number of repeats.")
@click.option("--scale", type=float, help="Multiply each peer's number of jobs by this.")
@click.option("--seed", type=int, help="The seed for the order of the peers.")
@click.option(
    "--database-url", metavar="URL", help="Use this PostgreSQL instead of an embedded one."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports/latest"),
    show_default=True,
)
@click.option("--resume", is_flag=True, help="Measure only what --output does not have yet.")
def run(
    chosen_peers: str | None,
    chosen_workloads: str | None,
    chosen_sections: str | None,
    short: bool,
    everything: bool,
    repeats: int | None,
    scale: float | None,
    seed: int | None,
    database_url: str | None,
    output: Path,
    resume: bool,
) -> None:
    """Measure, and write performance.json, performance.md and plots.

    Without options, five repeats of each row with a goal, and once what the other peers do: less than 40
    minutes on two cores. --short takes less than 4. Every sample is written to samples.jsonl at once. An
    interrupted run writes a report of its samples; --resume with the same options continues it (sections
    start again).
    """
    try:
        plan = plan_of(
            chosen_peers=chosen_peers,
            chosen_workloads=chosen_workloads,
            chosen_sections=chosen_sections,
            short=short,
            everything=everything,
            repeats=repeats,
            scale=scale,
            seed=seed_of(output) if resume and seed is None else seed,
            database_url=database_url,
            output=output,
            resume=resume,
        )
    except (BadPeer, CannotResume) as problem:
        raise click.ClickException(str(problem)) from None
    console = Console(highlight=False)
    try:
        with cleanup_on_signals(), TerminalDisplay(console) as display:
            results, files = run_plan(plan, display)
    except CannotResume as problem:
        raise click.ClickException(str(problem)) from None
    _conclude(console, results, files)
    if results.turns_left:
        again = "run the same command with --resume to take them"
        why = "interrupted" if results.is_interrupted else "the time was used up"
        console.print(f"  {why}: {results.turns_left} measurements are missing; {again}")
    if results.is_interrupted:
        sys.exit(130)


def plan_of(
    *,
    chosen_peers: str | None = None,
    chosen_workloads: str | None = None,
    chosen_sections: str | None = None,
    short: bool = False,
    everything: bool = False,
    repeats: int | None = None,
    scale: float | None = None,
    seed: int | None = None,
    database_url: str | None = None,
    output: Path = Path("reports/latest"),
    resume: bool = False,
) -> Plan:
    """Return the plan that these options describe.

    Peers and workloads that are named, and all with --all, run in every repeat and without a time limit.
    """
    known = peer_names()
    is_usual = not everything and chosen_workloads is None
    is_limited = is_usual and chosen_peers is None
    selection: Selection = (SHORT if short else DEFAULT) if is_limited else EVERYTHING
    wanted = (SHORT if short else DEFAULT).workloads
    workloads = [name for name in WORKLOADS if everything or name in wanted]
    sections = [
        name
        for name, section in SECTIONS.items()
        if (everything or name not in ONLY_WITH_ALL) and not (short and not section.short_seconds)
    ]
    otherwise = [name for name in known if not short or name in SHORT_PEERS]
    peers = _chosen(chosen_peers, known, otherwise, "peer")
    own = [name for name in OWN if name in known and name not in peers]
    names = _chosen(chosen_workloads, list(WORKLOADS), workloads, "workload")
    return Plan(
        command=shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        peers=load_peers([*own, *peers]),
        workloads=[WORKLOADS[name] for name in names],
        sections=_chosen(chosen_sections, list(SECTIONS), sections, "section"),
        repeats=repeats or (1 if short else REPEATS),
        scale=scale or (SHORT_SCALE if short else 1.0),
        seed=random.SystemRandom().randrange(10**6) if seed is None else seed,
        short=short,
        limits=SHORT_LIMITS if short else LIMITED if is_usual else GENEROUS,
        selection=selection,
        minutes=(SHORT_MINUTES if short else MINUTES) if is_limited else None,
        everything=everything,
        database_url=database_url,
        output=output,
        resume=resume,
    )


def _chosen(given: str | None, known: list[str], otherwise: list[str], noun: str) -> list[str]:
    """Return the given names, checked; none for "" or `none`; the default for None."""
    if given is None:
        return otherwise
    names = [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]
    if unknown := [name for name in names if name not in known]:
        hint = f"choose from: {', '.join(known)}"
        raise click.BadParameter(f"no {noun} is named {' or '.join(unknown)}; {hint}")
    return names


def _conclude(console: Console, results: Results, files: list[Path]) -> None:
    table = Table("goal", "compared with", "required", "measured", "")
    verdicts = [verdict for verdict in results.verdicts if verdict.measured is not None]
    for verdict in verdicts:
        outcome = f"[{'green' if verdict.reached else 'red'}]{verdict.outcome}[/]"
        against = verdict.against + (f" ({verdict.note})" if verdict.note else "")
        table.add_row(verdict.what, against, verdict.wanted, verdict.figure, outcome)
    console.print(table)
    console.print(
        f"  {len(results.verdicts) - len(verdicts)} more goals were not measured in this run"
    )
    for participant in results.participants:
        if participant.not_installed:
            reason = f"not installed: {participant.not_installed}"
            console.print(f"  {participant.peer.title}: {reason}", markup=False)
    for path in files:
        console.print(f"  wrote {path}", markup=False)


if __name__ == "__main__":
    cli(prog_name="python -m benchmarks")

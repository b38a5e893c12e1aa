"""The command `drain`: asks workers to finish or release their jobs and to stop."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import click
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from faultline.cli.context import Context, audited, session
from faultline.cli.output import console, count, duration, json_option, one_line, print_json
from faultline.cli.usage_errors import UsageProblem
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection, run
from faultline.statements.workers import WorkerSighting, WorkerStatus, registry, request_drain
from faultline.suggestions import did_you_mean

# What became of a worker: it was only asked, has stopped, is lost, or runs on after the timeout.
End = Literal["asked", "stopped", "lost", "running"]
_POLL_SECONDS = 0.2
_LISTED = 8  # workers that an error message lists


@click.command()
@click.argument("workers", nargs=-1, metavar="[WORKER]...")
@click.option("--all", "all_workers", is_flag=True, help="Drain every registered worker.")
@click.option(
    "--wait", is_flag=True, help="Wait until the workers have stopped; exit code 1 if one has not."
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(0.1, 86_400),
    metavar="SECONDS",
    help="How long to wait.  [default: 300]",
)
@json_option
@click.pass_obj
def drain(
    context: Context,
    workers: tuple[str, ...],
    all_workers: bool,
    wait: bool,
    timeout_seconds: float | None,
    as_json: bool,
) -> None:
    """Ask workers to finish or release their jobs, and to stop.

    WORKER is a worker's id, or a quoted pattern: 'web-3-*' matches the workers of the host web-3. They
    claim no more jobs. A released job has used up no attempt. The supervisor of --processes does not start
    a drained worker again, but an orchestrator does: scale it down instead, or let the orchestrator send
    SIGTERM, which drains too. With --all, no registered worker is no error.
    """
    if bool(workers) == all_workers:
        raise UsageProblem(
            "no worker is given" if not workers else "workers and --all exclude each other",
            hint="name the workers, or: faultline drain --all --wait",
        )
    if timeout_seconds is not None and not wait:
        raise UsageProblem("--timeout has no effect without --wait", hint="add --wait")
    with session(context) as conn:
        sightings = {each.id: each for each in run(conn, registry())}
        target = "all workers" if all_workers else f"worker {', '.join(workers)}"
        with audited(conn, "drain", target):
            names = None if all_workers else _matching(workers, sightings)
            asked = [each.worker for each in run(conn, request_drain(names))]
        present = [name for name in asked if _is_present(sightings.get(name))]
        for name in asked:
            if not as_json:
                click.echo(_request_line(name, sightings.get(name)))
        if not asked and not as_json:
            click.echo("no worker is registered")
        ends: dict[str, End] = dict.fromkeys(asked, "asked")
        ends.update((name, "lost") for name in asked if name not in present)
        if wait:
            ends.update(_wait(conn, present, timeout_seconds or 300.0, quiet=as_json))
    if as_json:
        print_json([{"worker": name, "state": end} for name, end in ends.items()])
    if not {"asked", "stopped"}.issuperset(ends.values()):
        sys.exit(1)


def _matching(wanted: Sequence[str], sightings: Iterable[str]) -> list[str]:
    """The ids that match; if a pattern matches none, no worker is asked to drain."""
    known = list(sightings)
    found: dict[str, None] = {}
    for pattern in wanted:
        ids = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        if not ids:
            raise InvalidInput(f"there is no worker {pattern!r}", hint=_hint(pattern, known))
        found.update(dict.fromkeys(ids))
    return list(found)


def _hint(pattern: str, known: list[str]) -> str:
    if not known:
        return "no worker is registered; a stopped worker is not listed"
    if question := did_you_mean(pattern, known):
        return f"{question} A stopped worker is not listed"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"there are {', '.join(known[:_LISTED])}{more}; a stopped worker is not listed"


def _is_present(sighting: WorkerSighting | None) -> bool:
    return sighting is None or sighting.status is not WorkerStatus.LOST


def _request_line(name: str, sighting: WorkerSighting | None) -> str:
    if sighting is None:  # it registered after the registry was read
        return f"asked {one_line(name)} to drain"
    if sighting.status is WorkerStatus.LOST:
        ago = duration(sighting.silent_seconds)
        return f"{one_line(name)} is lost, last heartbeat {ago} ago; if it comes back, it drains"
    return f"asked {one_line(name)} to drain; it runs {count(sighting.running, 'job')}"


def _wait(
    conn: Connection, names: Sequence[str], timeout_seconds: float, *, quiet: bool
) -> dict[str, End]:
    """Wait for the workers to stop; returns what became of each."""
    deadline = time.monotonic() + timeout_seconds
    left = dict.fromkeys(names)
    ends: dict[str, End] = dict.fromkeys(names, "running")
    with _live(quiet) as live:
        while left:
            sightings = {each.id: each for each in run(conn, registry())}
            for name in list(left):
                if name in sightings and _is_present(sightings[name]):
                    continue
                del left[name]
                is_lost = name in sightings
                ends[name] = "lost" if is_lost else "stopped"
                line = _end_line(name, is_lost, f"{len(names) - len(left)} of {len(names)}")
                if not quiet:
                    _print(line, live)
            staying = [sightings[name] for name in left]
            if staying and time.monotonic() > deadline:
                break
            if live is not None:
                live.update(_table(staying), refresh=True)
            if left:
                time.sleep(_POLL_SECONDS)
    if left:
        click.echo(_timeout_report(staying, timeout_seconds), err=True)
    return ends


def _print(line: str, live: Live | None) -> None:
    """Print above the live table, if there is one."""
    if live is None:
        click.echo(line)
    else:
        live.console.print(Text(line))


@contextmanager
def _live(quiet: bool) -> Iterator[Live | None]:
    """On a terminal, a live table of the workers that have not stopped."""
    if quiet or not sys.stdout.isatty():
        yield None
        return
    with Live(console=console(), auto_refresh=False, transient=True) as live:
        yield live


def _end_line(name: str, is_lost: bool, counted: str) -> str:
    if is_lost:
        return (
            f"{one_line(name)} was lost before it had drained; its jobs are reconciled ({counted})"
        )
    return f"{one_line(name)} has stopped ({counted})"


def _timeout_report(staying: Sequence[WorkerSighting], timeout_seconds: float) -> str:
    lines = [f"after {duration(timeout_seconds)} {count(len(staying), 'worker')} had not stopped:"]
    lines += [f"  {one_line(each.id)}: {_state(each)}" for each in staying]
    return "\n".join(lines)


def _state(each: WorkerSighting) -> str:
    held = count(each.running, "job")
    if each.status is WorkerStatus.SILENT:
        return f"silent for {duration(each.silent_seconds)}, {held} running"
    doing = "draining" if each.status is WorkerStatus.DRAINING else "has not reacted yet"
    return f"{doing}, {held} running"


def _table(staying: Sequence[WorkerSighting]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in staying:
        table.add_row(Text(one_line(each.id)), Text(_state(each), "dim"))
    return table

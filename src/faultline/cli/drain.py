"""The command `drain`: asks workers to finish or release their jobs and to stop."""

from __future__ import annotations

import difflib
import fnmatch
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from faultline.cli.context import Context, audited, session
from faultline.cli.output import console, count, duration, one_line
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection, run
from faultline.statements.workers import WorkerSighting, WorkerStatus, registry, request_drain

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
@click.pass_obj
def drain(
    context: Context,
    workers: tuple[str, ...],
    all_workers: bool,
    wait: bool,
    timeout_seconds: float | None,
) -> None:
    """Ask workers to finish or release their jobs, and to stop.

    WORKER is a worker's id, or a quoted pattern: 'web-3-*' matches the workers of the host web-3. They
    claim no more jobs. A released job has used up no attempt. The supervisor of --processes does not start
    a drained worker again, but an orchestrator does: scale it down instead, or let the orchestrator send
    SIGTERM, which drains too.
    """
    if bool(workers) == all_workers:
        raise InvalidInput(
            "no worker is given" if not workers else "workers and --all exclude each other",
            hint="name the workers, or: faultline drain --all --wait",
        )
    if timeout_seconds is not None and not wait:
        raise InvalidInput("--timeout has no effect without --wait", hint="add --wait")
    with session(context) as conn:
        sightings = {each.id: each for each in run(conn, registry())}
        target = "all workers" if all_workers else f"worker {', '.join(workers)}"
        with audited(conn, "drain", target):
            names = None if all_workers else _matching(workers, sightings)
            asked = [each.worker for each in run(conn, request_drain(names))]
        present = [name for name in asked if _is_present(sightings.get(name))]
        for name in asked:
            click.echo(_request_line(name, sightings.get(name)))
        if not asked:
            click.echo("no worker is registered")
        is_done = not wait or _wait(conn, present, timeout_seconds or 300.0)
    if not is_done or len(present) < len(asked):
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
    if close := difflib.get_close_matches(pattern, known, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(close)}? A stopped worker is not listed"
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


def _wait(conn: Connection, names: Sequence[str], timeout_seconds: float) -> bool:
    """Wait for the workers to stop; whether all of them did, and none was lost."""
    deadline = time.monotonic() + timeout_seconds
    left, all_stopped = dict.fromkeys(names), True
    with _live() as live:
        while left:
            sightings = {each.id: each for each in run(conn, registry())}
            for name in list(left):
                if name in sightings and _is_present(sightings[name]):
                    continue
                del left[name]
                is_lost = name in sightings
                all_stopped = all_stopped and not is_lost
                line = _end_line(name, is_lost, f"{len(names) - len(left)} of {len(names)}")
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
    return all_stopped and not left


def _print(line: str, live: Live | None) -> None:
    """Print above the live table, if there is one."""
    if live is None:
        click.echo(line)
    else:
        live.console.print(Text(line))


@contextmanager
def _live() -> Iterator[Live | None]:
    """On a terminal, a live table of the workers that have not stopped."""
    if not sys.stdout.isatty():
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

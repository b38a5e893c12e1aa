"""The command `drain`: ask workers to hand back what they cannot finish, and to leave."""

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

from faultline.cli.context import Context
from faultline.cli.output import console, count, duration, one_line
from faultline.cli.session import audited, session
from faultline.errors import InvalidInput
from faultline.postgres.sessions import Connection, run
from faultline.statements.workers import WorkerSighting, WorkerStatus, registry, request_drain

_LOOK_SECONDS = 0.2
_NAMED = 8  # workers that an error message lists


@click.command()
@click.argument("workers", nargs=-1, metavar="[WORKER]...")
@click.option("--all", "everyone", is_flag=True, help="Every worker that is registered.")
@click.option("--wait", is_flag=True, help="Until they have left; exit code 1 if one does not.")
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
    everyone: bool,
    wait: bool,
    timeout_seconds: float | None,
) -> None:
    """Take workers out: they claim nothing more, finish what they can, hand back the rest and leave.

    WORKER is a worker's id, or a pattern of ids in quotes: 'web-3-*' are those of the host web-3. A job that
    is handed back has used up no attempt. A worker under --processes is not started again; one under an
    orchestrator is, since to that it looks like any process that has ended: scale it down instead, or let
    the orchestrator send SIGTERM, which drains too.
    """
    if bool(workers) == everyone:
        raise InvalidInput(
            "say which workers, or --all" if not workers else "either workers, or --all, not both",
            hint="faultline drain --all --wait; faultline top --once shows how many there are",
        )
    if timeout_seconds is not None and not wait:
        raise InvalidInput("--timeout is how long to --wait")
    with session(context) as conn:
        sightings = {each.id: each for each in run(conn, registry())}
        target = "all workers" if everyone else f"worker {', '.join(workers)}"
        with audited(conn, "drain", target):
            names = None if everyone else _find(workers, sightings)
            asked = [each.worker for each in run(conn, request_drain(names))]
        present = [name for name in asked if _is_there(sightings.get(name))]
        for name in asked:
            click.echo(_said(name, sightings.get(name)))
        if not asked:
            click.echo("no worker is registered")
        is_done = not wait or _wait(conn, present, timeout_seconds or 300.0)
    if not is_done or len(present) < len(asked):
        sys.exit(1)


def _find(wanted: Sequence[str], sightings: Iterable[str]) -> list[str]:
    """The ids that are meant; nobody is asked when one of them means nobody."""
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
        return "no worker is registered; one that has left is forgotten"
    if close := difflib.get_close_matches(pattern, known, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(close)}? One that has left is forgotten"
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return f"there are {', '.join(known[:_NAMED])}{more}; one that has left is forgotten"


def _is_there(sighting: WorkerSighting | None) -> bool:
    return sighting is None or sighting.status is not WorkerStatus.LOST


def _said(name: str, sighting: WorkerSighting | None) -> str:
    if sighting is None:  # it has registered in this very moment
        return f"asked {one_line(name)} to drain"
    if sighting.status is WorkerStatus.LOST:
        ago = duration(sighting.silent_seconds)
        return f"{one_line(name)} is gone already: lost, last heard of {ago} ago. If it comes back, it drains"
    return f"asked {one_line(name)} to drain, with {count(sighting.running, 'job')} in its hands"


def _wait(conn: Connection, names: Sequence[str], timeout_seconds: float) -> bool:
    """Whether all of them left in peace."""
    deadline = time.monotonic() + timeout_seconds
    left, is_peaceful = dict.fromkeys(names), True
    with _live() as live:
        while left:
            sightings = {each.id: each for each in run(conn, registry())}
            for name in list(left):
                if name in sightings and _is_there(sightings[name]):
                    continue
                del left[name]
                is_lost = name in sightings
                is_peaceful = is_peaceful and not is_lost
                farewell = _farewell(name, is_lost, f"{len(names) - len(left)} of {len(names)}")
                _say(farewell, live)
            staying = [sightings[name] for name in left]
            if staying and time.monotonic() > deadline:
                break
            if live is not None:
                live.update(_picture(staying), refresh=True)
            if left:
                time.sleep(_LOOK_SECONDS)
    if left:
        click.echo(_complaint(staying, timeout_seconds), err=True)
    return is_peaceful and not left


def _say(line: str, live: Live | None) -> None:
    """Above the live picture, if there is one."""
    if live is None:
        click.echo(line)
    else:
        live.console.print(Text(line))


@contextmanager
def _live() -> Iterator[Live | None]:
    """On a terminal: what is left, under the lines that say what has happened."""
    if not sys.stdout.isatty():
        yield None
        return
    with Live(console=console(), auto_refresh=False, transient=True) as live:
        yield live


def _farewell(name: str, is_lost: bool, counted: str) -> str:
    if is_lost:
        return f"{one_line(name)} was lost before it had drained; what it held is recovered ({counted})"
    return f"{one_line(name)} has left ({counted})"


def _complaint(staying: Sequence[WorkerSighting], timeout_seconds: float) -> str:
    lines = [f"after {duration(timeout_seconds)} {count(len(staying), 'worker')} had not left:"]
    lines += [f"  {one_line(each.id)}: {_state(each)}" for each in staying]
    return "\n".join(lines)


def _state(each: WorkerSighting) -> str:
    held = count(each.running, "job")
    if each.status is WorkerStatus.SILENT:
        return f"silent for {duration(each.silent_seconds)}, {held} in its hands"
    doing = "draining" if each.status is WorkerStatus.DRAINING else "has not reacted yet"
    return f"{doing}, {held} in its hands"


def _picture(staying: Sequence[WorkerSighting]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in staying:
        table.add_row(Text(one_line(each.id)), Text(_state(each), "dim"))
    return table

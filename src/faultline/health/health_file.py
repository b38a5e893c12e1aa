"""The health file: a process's report about itself, replaced atomically.

All times are of the machine's monotonic clock, never of a calendar.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = 1
_MAX_BYTES = 1 << 20


class Vitals(NamedTuple):
    """What only the service in the process knows."""

    name: str
    doing: str  # shown in the probe's output
    unready: str | None = None  # why it does not count as ready
    heartbeat_has_ended: bool = False
    heartbeat_due_at: float | None = None  # None: a heartbeat is in progress, or not needed
    unanswered: str | None = None  # set when no heartbeat was answered for the length of a lease


class ChildStatus(NamedTuple):
    """One of several supervised processes."""

    slot: int
    pid: int | None
    state: str  # running, waiting (to be restarted) or drained
    since: float
    file: str  # its own health file, in the same directory


class Report(NamedTuple):
    kind: str  # worker, reconciler or supervisor
    pid: int
    started_at: float
    written_at: float
    loop_turned_at: float | None  # None: its event loop does not run yet
    vitals: Vitals | None  # None: it is starting
    children: tuple[ChildStatus, ...] = ()


def to_json(report: Report) -> dict[str, Any]:
    vitals = None if report.vitals is None else report.vitals._asdict()
    children = [child._asdict() for child in report.children]
    return {"format": FORMAT, **report._asdict(), "vitals": vitals, "children": children}


def from_json(value: Any) -> Report:
    """Raises ValueError for anything but a report of this format."""
    try:
        fields = dict(value)
        if fields.pop("format") != FORMAT:
            raise ValueError("it was written by another version of Faultline")
        vitals = fields.pop("vitals")
        children = tuple(ChildStatus(**child) for child in fields.pop("children"))
        known = None if vitals is None else Vitals(**vitals)
        return Report(**fields, vitals=known, children=children)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("it is not a health file") from error


def write(path: Path, report: Report) -> None:
    """Write a draft and rename it: readers see the old report or the new one."""
    draft = path.with_name(f"{_draft_prefix(path)}{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(draft, flags, 0o644), "w") as file:  # noqa: PTH123 - a descriptor
        json.dump(to_json(report), file)
    draft.replace(path)


def read(path: Path) -> Report | None:
    """None if there is no file; ValueError or OSError if it cannot be read."""
    try:
        with path.open() as file:
            return from_json(json.loads(file.read(_MAX_BYTES)))
    except FileNotFoundError:
        return None


def remove(path: Path) -> None:
    """Also removes the drafts of processes that were killed while they wrote."""
    for each in (path, *_drafts(path)):
        with contextlib.suppress(OSError):
            each.unlink()


def _draft_prefix(path: Path) -> str:
    return f".{path.name}."


def _drafts(path: Path) -> Iterator[Path]:
    prefix = _draft_prefix(path)
    with contextlib.suppress(OSError):
        for each in path.parent.iterdir():
            if each.name.startswith(prefix) and each.name.removeprefix(prefix).isdigit():
                yield each

"""What a process says of itself. Every time is by the machine's steady clock, never by a calendar."""

from __future__ import annotations

from typing import Any, NamedTuple

FORMAT = 1


class Vitals(NamedTuple):
    """What only the service in the process knows."""

    name: str
    doing: str  # for whoever reads the probe's line
    unready: str | None = None  # why it should not count as ready
    heartbeat_has_ended: bool = False
    heartbeat_due_at: float | None = None  # None: it is talking to the database, or not needed
    unanswered: str | None = None  # set when no heartbeat was answered for a lease


class Child(NamedTuple):
    """One of several supervised processes."""

    slot: int
    pid: int | None
    state: str  # running, waiting (to be started again) or drained
    since: float
    file: str  # its own report, in the same directory


class Report(NamedTuple):
    kind: str  # worker, reconciler or supervisor
    pid: int
    started_at: float
    written_at: float
    loop_turned_at: float | None  # None: its event loop does not run yet
    vitals: Vitals | None  # None: it is starting
    children: tuple[Child, ...] = ()


def to_json(report: Report) -> dict[str, Any]:
    vitals = None if report.vitals is None else report.vitals._asdict()
    children = [child._asdict() for child in report.children]
    return {"format": FORMAT, **report._asdict(), "vitals": vitals, "children": children}


def from_json(value: Any) -> Report:
    """Raises ValueError when it is none."""
    try:
        fields = dict(value)
        if fields.pop("format") != FORMAT:
            raise ValueError("it is of another version of Faultline")
        vitals = fields.pop("vitals")
        children = tuple(Child(**child) for child in fields.pop("children"))
        known = None if vitals is None else Vitals(**vitals)
        return Report(**fields, vitals=known, children=children)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("it is not a health file") from error

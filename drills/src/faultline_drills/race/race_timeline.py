"""The race as text: its events in words, and one lane per worker. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

LANE_WIDTH = 60


@dataclass(frozen=True, slots=True)
class RaceEvent:
    """An event, `at` seconds after the race began."""

    at: float
    worker: str  # "A", "B", or "-" for the race itself
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RaceMoment:
    at: float
    worker: str
    mark: str
    text: str


def moments(events: Iterable[RaceEvent]) -> list[RaceMoment]:
    """The important events, in words."""
    described = (_describe(event) for event in sorted(events, key=lambda event: event.at))
    return [moment for moment in described if moment is not None]


def _describe(event: RaceEvent) -> RaceMoment | None:
    fields = event.fields
    match event.event:
        case "lease_acquired":
            verb = "claims the job" if fields["token"] == 1 else "takes the job over"
            mark, text = "▶", f"{verb}, token {fields['token']}"
        case "stalled":
            mark, text = "‖", "stalls: every thread stopped, heartbeats included"
        case "woken":
            mark, text = "▷", "resumes where it was stopped"
        case "gone":
            mark, text = "✝", f"ended (exit code {fields['exit_code']})"
        case "lease_reaped":
            mark, text = "↺", f"requeues the job ({fields['cause']})"
        case "lease_lost":
            mark, text = "!", "learns that it lost its lease"
        case "commit_ok":
            mark, text = "✓", f"commits under token {fields['token']}"
        case "stale_write_blocked":
            mark = "✗"
            text = (
                f"tries to commit under token {fields['stale_token']}: PostgreSQL refuses"
                f" ({fields['reason']}, current token {fields['current_token']})"
            )
        case _:
            return None
    return RaceMoment(event.at, event.worker, mark, text)


def lanes(events: Sequence[RaceEvent], *, width: int = LANE_WIDTH) -> list[str]:
    """One line per worker, from its first claim on: █ running, ░ stalled."""
    shown = [moment for moment in moments(events) if moment.mark in "▶‖▷✓✗✝"]
    if not shown:
        return []
    start, end = shown[0].at, max(shown[-1].at, shown[0].at + 0.001)

    def column(at: float) -> int:
        return round((at - start) / (end - start) * (width - 1))

    drawn = []
    for worker in sorted({moment.worker for moment in shown}):
        cells = [" "] * width
        own = [moment for moment in shown if moment.worker == worker]
        for moment, following in zip(own, [*own[1:], None], strict=True):
            until = column(following.at) if following else column(moment.at)
            fill = {"‖": "░", "✓": " ", "✗": " ", "✝": " "}.get(moment.mark, "█")
            for position in range(column(moment.at), until + 1):
                cells[position] = fill
        for moment in own:
            cells[column(moment.at)] = moment.mark
        drawn.append(f"{worker} {''.join(cells).rstrip()}")
    return drawn

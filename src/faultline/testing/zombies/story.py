"""The log of one run: what the two workers did, in order."""

from __future__ import annotations

import threading
from dataclasses import dataclass

NO_ACTOR = ""


@dataclass(frozen=True, slots=True)
class StoryLine:
    actor: str  # "A", the worker with the fault; "B", the worker that takes over; or NO_ACTOR
    token: int | None
    text: str


class Story:
    def __init__(self) -> None:
        self._lines: list[StoryLine] = []
        self._lock = threading.Lock()

    def add(self, text: str, *, actor: str = NO_ACTOR, token: int | None = None) -> None:
        with self._lock:
            self._lines.append(StoryLine(actor, token, text))

    @property
    def lines(self) -> tuple[StoryLine, ...]:
        with self._lock:
            return tuple(self._lines)

    def __str__(self) -> str:
        return "\n".join(_format(line) for line in self.lines)


def _format(line: StoryLine) -> str:
    if line.actor == NO_ACTOR:
        return f"          ── {line.text}"
    return f"  {line.actor} token {line.token}  {line.text}"

"""What happened in one run, line by line, in the order in which it happened."""

from __future__ import annotations

import threading
from dataclasses import dataclass

REFEREE = ""


@dataclass(frozen=True, slots=True)
class Line:
    actor: str  # A, the attempt that is struck; B, whoever comes after it; or nobody
    token: int | None
    text: str


class Story:
    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._lock = threading.Lock()

    def tell(self, text: str, *, actor: str = REFEREE, token: int | None = None) -> None:
        with self._lock:
            self._lines.append(Line(actor, token, text))

    @property
    def lines(self) -> tuple[Line, ...]:
        with self._lock:
            return tuple(self._lines)

    def __str__(self) -> str:
        return "\n".join(_shown(line) for line in self.lines)


def _shown(line: Line) -> str:
    if line.actor == REFEREE:
        return f"          ── {line.text}"
    return f"  {line.actor} token {line.token}  {line.text}"

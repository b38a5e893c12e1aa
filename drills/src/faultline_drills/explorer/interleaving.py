"""Interleavings as plain data: who was let through when, and who else could have been. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Interleaving = tuple[str, ...]  # one actor's name for each decision


@dataclass(frozen=True, slots=True)
class Decision:
    """One turn: who could have taken it, who did, and whose turn went on until then."""

    runnable: tuple[str, ...]
    chosen: str
    current: str | None  # who moved last, if it can move on

    def preempts(self, choice: str) -> bool:
        """Taking the turn from somebody who could go on. After a wait or an end, nobody is preempted."""
        return self.current is not None and choice != self.current


@dataclass(frozen=True, slots=True)
class Step:
    """What happened at one turn, for people to read."""

    actor: str
    action: str
    result: str = ""
    jobs: str = ""  # the jobs afterwards, as everybody else sees them
    token: int | None = None


@dataclass(slots=True)
class ExecutionRecord:
    decisions: list[Decision] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    waited: list[tuple[str, str]] = field(
        default_factory=list
    )  # who, and at which step, for a lock
    is_deadlocked: bool = False
    errors: list[tuple[str, BaseException]] = field(default_factory=list)

    @property
    def interleaving(self) -> Interleaving:
        return tuple(decision.chosen for decision in self.decisions)

    @property
    def preemptions(self) -> int:
        return sum(decision.preempts(decision.chosen) for decision in self.decisions)


class FollowInterleaving:
    """Decides by an interleaving, and where that ends, or asks for somebody who cannot move, lets the current
    actor go on; else the first in line."""

    def __init__(self, interleaving: Sequence[str] = ()) -> None:
        self._vector = interleaving

    def __call__(self, turn: int, runnable: tuple[str, ...], current: str | None) -> str:
        if turn < len(self._vector) and self._vector[turn] in runnable:
            return self._vector[turn]
        return current if current is not None else runnable[0]

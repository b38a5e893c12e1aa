"""Interleavings as plain data: which actor took, or could take, each turn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Interleaving = tuple[str, ...]  # one actor's name for each decision


@dataclass(frozen=True, slots=True)
class Decision:
    """One turn: the actors that could take it, and the one that was chosen."""

    runnable: tuple[str, ...]
    chosen: str
    current: str | None  # the actor that moved last, if it can move again

    def preempts(self, choice: str) -> bool:
        """Whether `choice` takes the turn from an actor that could continue.

        After an actor waits for a lock or ends, choosing another one is no preemption.
        """
        return self.current is not None and choice != self.current


@dataclass(frozen=True, slots=True)
class Step:
    """What happened at one turn, in words for a timeline."""

    actor: str
    action: str
    result: str = ""
    jobs: str = ""  # the jobs afterwards, as other sessions see them
    token: int | None = None


@dataclass(slots=True)
class ExecutionRecord:
    """What happened while one interleaving was executed."""

    decisions: list[Decision] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    lock_waits: list[tuple[str, str]] = field(default_factory=list)  # actor and step
    is_deadlocked: bool = False
    errors: list[tuple[str, BaseException]] = field(default_factory=list)

    @property
    def interleaving(self) -> Interleaving:
        return tuple(decision.chosen for decision in self.decisions)

    @property
    def preemptions(self) -> int:
        return sum(decision.preempts(decision.chosen) for decision in self.decisions)


class FollowInterleaving:
    """Chooses actors in a given order.

    Where the order ends, or names an actor that cannot move, the current actor continues; if it
    cannot, the first runnable actor is chosen.
    """

    def __init__(self, interleaving: Sequence[str] = ()) -> None:
        self._interleaving = interleaving

    def __call__(self, turn: int, runnable: tuple[str, ...], current: str | None) -> str:
        if turn < len(self._interleaving) and self._interleaving[turn] in runnable:
            return self._interleaving[turn]
        return current if current is not None else runnable[0]

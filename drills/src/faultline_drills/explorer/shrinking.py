"""Makes a failing interleaving as short a story as it can: fewer preemptions, then fewer decisions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby, pairwise
from typing import Protocol, TypeVar

from faultline_drills.explorer.interleaving import ExecutionRecord, Interleaving

MAX_TRIES = 120


class Shrinkable(Protocol):
    @property
    def record(self) -> ExecutionRecord: ...
    @property
    def broken_rules(self) -> set[str]: ...


T = TypeVar("T", bound=Shrinkable)


def shrink(found: T, attempt: Callable[[Interleaving], T], *, max_tries: int = MAX_TRIES) -> T:
    """The smallest interleaving near `found` that breaks one of the same rules. `attempt` performs one."""
    wanted = found.broken_rules
    best = found
    tries = 0
    improved = True
    while improved and tries < max_tries:
        improved = False
        for candidate in _smaller(best.record):
            if tries >= max_tries:
                break
            tries += 1
            outcome = attempt(candidate)
            fails = bool(outcome.broken_rules & wanted)
            if fails and _size(outcome.record) < _size(best.record):
                best, improved = outcome, True
                break
    return best


def _size(record: ExecutionRecord) -> tuple[int, int, int]:
    interleaving = record.interleaving
    switches = sum(a != b for a, b in pairwise(interleaving))
    return (record.preemptions, switches, len(interleaving))


def _smaller(record: ExecutionRecord) -> Iterator[Interleaving]:
    """Beginnings first, since what follows a beginning preempts nobody; then with everything that one
    actor does put first or last; then with two turns in the other order."""
    interleaving = record.interleaving
    turns = [list(turn) for _, turn in groupby(interleaving)]
    preemptions = [
        number
        for number, decision in enumerate(record.decisions)
        if decision.preempts(decision.chosen)
    ]
    for length in range(max(preemptions, default=-1) + 1):
        yield interleaving[:length]
    for actor in dict.fromkeys(interleaving):
        own = [name for name in interleaving if name == actor]
        rest = [name for name in interleaving if name != actor]
        yield (*own, *rest)
        yield (*rest, *own)
    for first in range(len(turns) - 1):
        swapped = [*turns[:first], turns[first + 1], turns[first], *turns[first + 2 :]]
        yield tuple(chain.from_iterable(swapped))

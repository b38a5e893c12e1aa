"""Makes a failing schedule as short a story as it can: fewer preemptions, then fewer decisions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby, pairwise
from typing import Protocol, TypeVar

from faultline_drills.explorer.schedule import Performed, Vector

MAX_TRIES = 120


class Tried(Protocol):
    @property
    def performed(self) -> Performed: ...
    @property
    def broken_rules(self) -> set[str]: ...


T = TypeVar("T", bound=Tried)


def minimise(found: T, attempt: Callable[[Vector], T], *, max_tries: int = MAX_TRIES) -> T:
    """The smallest schedule near `found` that breaks one of the same rules. `attempt` performs one."""
    wanted = found.broken_rules
    best = found
    tries = 0
    improved = True
    while improved and tries < max_tries:
        improved = False
        for candidate in _smaller(best.performed):
            if tries >= max_tries:
                break
            tries += 1
            outcome = attempt(candidate)
            fails = bool(outcome.broken_rules & wanted)
            if fails and _size(outcome.performed) < _size(best.performed):
                best, improved = outcome, True
                break
    return best


def _size(performed: Performed) -> tuple[int, int, int]:
    vector = performed.vector
    switches = sum(a != b for a, b in pairwise(vector))
    return (performed.preemptions, switches, len(vector))


def _smaller(performed: Performed) -> Iterator[Vector]:
    """Beginnings first, since what follows a beginning preempts nobody; then with everything that one
    actor does put first or last; then with two turns in the other order."""
    vector = performed.vector
    turns = [list(turn) for _, turn in groupby(vector)]
    preemptions = [
        number
        for number, decision in enumerate(performed.decisions)
        if decision.preempts(decision.chosen)
    ]
    for length in range(max(preemptions, default=-1) + 1):
        yield vector[:length]
    for actor in dict.fromkeys(vector):
        own = [name for name in vector if name == actor]
        others = [name for name in vector if name != actor]
        yield (*own, *others)
        yield (*others, *own)
    for first in range(len(turns) - 1):
        swapped = [*turns[:first], turns[first + 1], turns[first], *turns[first + 2 :]]
        yield tuple(chain.from_iterable(swapped))

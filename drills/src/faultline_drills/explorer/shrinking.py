"""Shrinks a failing interleaving to fewer preemptions and switches. Pure."""

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
    """The smallest execution near `found` that breaks one of the same rules.

    `attempt` executes an interleaving.
    """
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
            execution = attempt(candidate)
            fails = bool(execution.broken_rules & wanted)
            if fails and _size(execution.record) < _size(best.record):
                best, improved = execution, True
                break
    return best


def _size(record: ExecutionRecord) -> tuple[int, int, int]:
    interleaving = record.interleaving
    switches = sum(a != b for a, b in pairwise(interleaving))
    return (record.preemptions, switches, len(interleaving))


def _smaller(record: ExecutionRecord) -> Iterator[Interleaving]:
    """Candidates, in the order in which they are tried.

    First prefixes, since no preemption follows the end of a prefix; then all turns of one actor
    moved to the front or to the end; then two neighbouring turns swapped.
    """
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

"""Chooses interleavings: fewest preemptions first, then random ones. Pure.

Most concurrency bugs need only one or two preemptions, so a search that is complete up to a number
of preemptions finds them before a random search would.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from faultline_drills.explorer.interleaving import Decision, Interleaving


class Frontier:
    """Prefixes of interleavings to try, by the preemptions they need."""

    def __init__(self, *, max_preemptions: int, seed: int) -> None:
        self._max_preemptions = max_preemptions
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._waiting: dict[int, list[Interleaving]] = defaultdict(list)
        self._waiting[0].append(())

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def complete_bound(self) -> int:
        """The number of preemptions up to which every interleaving was tried, or -1."""
        unfinished = [bound for bound, prefixes in self._waiting.items() if prefixes]
        return min(unfinished, default=self._max_preemptions + 1) - 1

    def next_prefix(self) -> Interleaving | None:
        """A random prefix with the fewest preemptions.

        Random, so that a limited budget does not cut off one kind.
        """
        for bound in range(self._max_preemptions + 1):
            if prefixes := self._waiting[bound]:
                chosen = self._random.randrange(len(prefixes))
                prefixes[chosen], prefixes[-1] = prefixes[-1], prefixes[chosen]
                return prefixes.pop()
        return None

    def add_alternatives(self, prefix: Interleaving, decisions: Sequence[Decision]) -> None:
        """Add the choices after `prefix` that `decisions` did not make."""
        cost = 0
        taken: list[str] = []
        for turn, decision in enumerate(decisions):
            if turn >= len(prefix):
                for other in decision.runnable:
                    other_cost = cost + decision.preempts(other)
                    if other != decision.chosen and other_cost <= self._max_preemptions:
                        self._waiting[other_cost].append((*taken, other))
            cost += decision.preempts(decision.chosen)
            taken.append(decision.chosen)


class RandomInterleaving:
    """Chooses actors at random, from a seed.

    The current actor continues more often than not: with uniform choices no actor gets far.
    """

    def __init__(self, seed: int, *, switch_probability: float = 0.4) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._switch_probability = switch_probability

    def __call__(self, turn: int, runnable: tuple[str, ...], current: str | None) -> str:
        if current is not None and self._random.random() > self._switch_probability:
            return current
        return self._random.choice(runnable)

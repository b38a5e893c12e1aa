"""The rule that no priority starves: every tenth claim begins at another priority."""

from __future__ import annotations

from collections.abc import Sequence

from faultline.model import Claim

ROTATE_EVERY = 10  # claims that return jobs
_PRIORITIES = 10


class PriorityRotation:
    """Chooses the priority at which a claim begins its search.

    A claim that gets as many jobs as it asked for may not have reached the lower priorities. Nine claims
    begin at priority 0. The tenth begins behind the last priority that the tenth before it had reached, and
    goes on from 9 to 0. It passes a priority only after it has claimed the oldest due jobs of that
    priority. So if P priorities have due jobs, each is reached by one of ROTATE_EVERY * P claims.

    Claims without jobs do not count: they have searched everything.
    """

    def __init__(self) -> None:
        self._claims = 0  # since the last one that began elsewhere
        self._next = 1

    def first_priority(self) -> int:
        return self._next if self._is_due else 0

    def record(self, claims: Sequence[Claim]) -> None:
        """Record the answer to a claim that began at `first_priority`."""
        if not claims:
            return
        if not self._is_due:
            self._claims += 1
            return
        reached = max((claim.priority - self._next) % _PRIORITIES for claim in claims)
        self._next = (self._next + reached + 1) % _PRIORITIES
        self._claims = 0

    @property
    def _is_due(self) -> bool:
        return self._claims >= ROTATE_EVERY - 1

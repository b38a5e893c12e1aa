"""Where a worker's claims have got to, so that the next one need not walk past what they used up.

Finished jobs leave entries in the index that claims read until vacuum removes them, and one old
snapshot anywhere keeps vacuum from it. Going on from the last job claimed keeps a claim's cost flat.
A job that was queued again may lie before the mark, so every now and then a claim looks at everything:
the more seldom, the more such a look costs.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from faultline.model import Claim

_FULL_LOOK_SECONDS = 0.25
_FULL_LOOK_SHARE = 20  # a full look costs at most one part in so many of the time
_MAX_LANES = 100  # the ones that were used last: every claim sends them all


class ClaimCursor:
    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Claim] = {}
        self._full_look_at = 0.0

    def resume_after(self, now: float) -> str | None:
        """For `protocol.claim`; None when it is time for a full look."""
        if not self._last or now >= self._full_look_at:
            return None
        lanes: dict[str, dict[str, list[str]]] = {}
        for (queue, priority), claim in self._last.items():
            lanes.setdefault(queue, {})[str(priority)] = [claim.due_at, claim.id]
        return orjson.dumps(lanes).decode()

    def advance(
        self, claims: Sequence[Claim], *, was_full: bool, began: float, ended: float
    ) -> None:
        """After a claim; those in `claims` are in the order in which PostgreSQL took them."""
        for claim in claims:
            lane = (claim.queue, claim.priority)
            self._last.pop(lane, None)  # the last ones stand at the end
            self._last[lane] = claim
        while len(self._last) > _MAX_LANES:
            del self._last[next(iter(self._last))]
        if was_full:
            cost = _FULL_LOOK_SHARE * (ended - began)
            self._full_look_at = ended + max(_FULL_LOOK_SECONDS, cost)

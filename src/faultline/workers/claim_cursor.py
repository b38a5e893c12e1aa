"""The position of a worker's last claim, from which the next claim continues.

Finished jobs leave entries in the index that claims read until vacuum removes them, and an old snapshot
anywhere keeps vacuum from it. A claim that continues from the last claimed job does not read them again. A
job that was queued again may lie before that position, so now and then a claim starts at the beginning: less
often, the longer such a claim takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from faultline.model import Claim

_FULL_LOOK_SECONDS = 0.25
_FULL_LOOK_SHARE = 20  # full claims take at most 1/20 of the time
_MAX_LANES = 100  # the lanes used last: every claim sends them all


class ClaimCursor:
    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Claim] = {}
        self._full_look_at = 0.0

    def resume_after(self, now: float) -> str | None:
        """The argument of `protocol.claim`; None when a full claim is due."""
        if not self._last or now >= self._full_look_at:
            return None
        lanes: dict[str, dict[str, list[str]]] = {}
        for (queue, priority), claim in self._last.items():
            lanes.setdefault(queue, {})[str(priority)] = [claim.due_at, claim.id]
        return orjson.dumps(lanes).decode()

    def advance(
        self, claims: Sequence[Claim], *, was_full: bool, began: float, ended: float
    ) -> None:
        """Record a claim; `claims` are in the order in which PostgreSQL returned them."""
        for claim in claims:
            lane = (claim.queue, claim.priority)
            self._last.pop(lane, None)  # keep the most recently used lane last
            self._last[lane] = claim
        while len(self._last) > _MAX_LANES:
            del self._last[next(iter(self._last))]
        if was_full:
            cost = _FULL_LOOK_SHARE * (ended - began)
            self._full_look_at = ended + max(_FULL_LOOK_SECONDS, cost)

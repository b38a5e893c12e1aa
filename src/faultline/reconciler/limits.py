"""Repairs the places and lines of limits, once a second while limits are in use."""

from __future__ import annotations

import time

from faultline.postgres.reconnecting import ReconnectingSession
from faultline.statements import limits

_REPAIR_SECONDS = 1.0
_MAX_ROWS = 1000
# A repair takes at most this share of the time, however long the lines are.
_REPAIRING_SHARE = 10


class LimitsRepair:
    """Finds what the end of a lease, which frees places itself, could not do."""

    def __init__(self) -> None:
        self._repair_at = 0.0

    async def look(self, session: ReconnectingSession) -> None:
        began = time.monotonic()
        if began < self._repair_at:
            return
        is_full = False
        if await session.run(limits.IN_USE):
            repaired = await session.run(limits.repair(_MAX_ROWS))
            is_full = _MAX_ROWS in (repaired.freed, repaired.resumed, repaired.forgotten)
        ended = time.monotonic()
        pause = 0.0 if is_full else _REPAIR_SECONDS
        self._repair_at = ended + max(pause, _REPAIRING_SHARE * (ended - began))

"""Repairs the places and lines of limits, once a second while limits are in use."""

from __future__ import annotations

import time
from typing import Any

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
        self._after: dict[str, Any] = {}  # where the last page ended

    async def look(self, session: ReconnectingSession) -> None:
        began = time.monotonic()
        if began < self._repair_at:
            return
        repaired = await session.run(limits.repair(_MAX_ROWS, self._after))
        self._after = repaired.next
        is_full = bool(repaired.next) or max(repaired.freed, repaired.resumed) >= _MAX_ROWS
        ended = time.monotonic()
        pause = 0.0 if is_full else _REPAIR_SECONDS
        self._repair_at = ended + max(pause, _REPAIRING_SHARE * (ended - began))

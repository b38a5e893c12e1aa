"""Decides whether an attempt ended because the server failed: it is not charged."""

from __future__ import annotations

import asyncio
from typing import Protocol

from faultline.postgres.errors import is_server_loss
from faultline.postgres.outage import Outage
from faultline.workers.attempt import Attempt

# The server closes its sessions one after the other, and may close the handler's first.
_LOOK_AGAIN_SECONDS = 0.25


class WatchedSession(Protocol):
    """A session of the worker's own that was open when the attempt began."""

    async def was_lost_since(self, moment: float) -> bool: ...


class ServerFailure:
    """Compares the handler's error with what happened to the worker's own sessions.

    An error of a handler's statement shows only that the handler's session failed, which the handler may
    have caused. If the worker's own sessions failed too, the server failed.
    """

    def __init__(self, outage: Outage, control: WatchedSession | None = None) -> None:
        self._outage = outage
        self._control = control

    async def caused(self, attempt: Attempt, error: Exception | None) -> bool:
        if attempt.transactions.server_failed:
            return True
        if error is None or not is_server_loss(error):
            return False
        since = attempt.lease.taken_at
        if await self._was_seen(since):
            return True
        if self._control is None:
            return False
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return await self._was_seen(since)

    async def _was_seen(self, since: float) -> bool:
        """Whether the worker's own sessions failed since then; asks the control session."""
        if self._outage.was_on_since(since):
            return True
        return self._control is not None and await self._control.was_lost_since(since)

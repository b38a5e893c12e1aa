"""Decides whether the server is to blame for the end of an attempt, so that it is not charged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from faultline.postgres.errors import is_server_loss
from faultline.postgres.outage import Outage
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.workers.attempt import Attempt

# The server ends its sessions one after the other: that of the handler may be the first.
_LOOK_AGAIN_SECONDS = 0.25


class Blame:
    """`control` returns the session that claims: it was there when the attempt began.

    An error that a handler's statement raised says only that the handler's own session failed, and the
    handler can have caused that. It is the server's failure if the worker's sessions failed as well.
    """

    def __init__(
        self, outage: Outage, control: Callable[[], ReconnectingSession] | None = None
    ) -> None:
        self._outage = outage
        self._control = control

    async def is_the_servers(self, attempt: Attempt, error: Exception | None) -> bool:
        if attempt.job._is_blameless:
            return True
        if error is None or not is_server_loss(error):
            return False
        since = attempt.lease.taken_at
        if await self._has_failed(since):
            return True
        if self._control is None:
            return False
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        return await self._has_failed(since)

    async def _has_failed(self, since: float) -> bool:
        """Whether the worker's own sessions failed since then; the control session is asked."""
        if self._outage.was_on_since(since):
            return True
        return self._control is not None and await self._control().was_lost_since(since)

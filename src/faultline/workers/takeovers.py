"""Whom a claimed job was taken over from, and how long it was nobody's. Only metrics ask, and only of jobs
that have lost a worker before."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from faultline.errors import FaultlineError
from faultline.metrics import meter
from faultline.model import Claim
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.statements import losses


class Takeovers:
    """Has a session of its own, from the first time it needs one."""

    def __init__(
        self, link: ReconnectingSession, *, spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._link = link
        self._spawn = spawn

    def look_among(self, claims: Sequence[Claim]) -> None:
        if suspects := [claim for claim in claims if claim.crashes > 0]:
            self._spawn(self._look(suspects))

    async def _look(self, claims: Sequence[Claim]) -> None:
        try:
            takeovers = await self._link.run(losses.takeovers(claims))
        except (FaultlineError, DriverError):
            return  # a number less, and the link has counted the error
        for takeover in takeovers:
            meter.current.taken_over(takeover.cause, takeover.recovery_seconds)

    async def close(self) -> None:
        await self._link.close()

"""Counts takeovers for the metrics, and how long each job had no owner."""

from __future__ import annotations

from collections.abc import Sequence

from faultline.errors import FaultlineError
from faultline.metrics import meter
from faultline.model import Claim
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.statements import losses
from faultline.workers.background import BackgroundTasks


class TakeoverMetrics:
    """Has its own session, which is opened for the first job that has lost a worker."""

    def __init__(self, session: ReconnectingSession, background: BackgroundTasks) -> None:
        self._session = session
        self._background = background

    def count(self, claims: Sequence[Claim]) -> None:
        if taken_over := [claim for claim in claims if claim.crashes > 0]:
            self._background.spawn(self._count(taken_over))

    async def _count(self, claims: Sequence[Claim]) -> None:
        try:
            takeovers = await self._session.run(losses.takeovers(claims))
        except (FaultlineError, DriverError):
            return  # one count less; the session has counted the error
        for takeover in takeovers:
            meter.current.taken_over(takeover.cause, takeover.recovery_seconds)

    async def close(self) -> None:
        await self._session.close()

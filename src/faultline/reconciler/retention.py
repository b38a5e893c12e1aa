"""Purges jobs, ledger, audit log, unique keys and firings in small batches."""

from __future__ import annotations

import asyncio
import random
import time

from faultline.config import Retention
from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, raise_if_cancelled
from faultline.statements.retention import REST_FACTOR, Sweep

# A reconciler that has just begun to lead looks for dead workers first.
FIRST_SWEEP_SECONDS = 60.0
SWEEP_SECONDS = 600.0
_SHORTEST_REST_SECONDS = 0.01
_ANSWER_SECONDS = 60.0  # one batch may remove many rows


class RetentionTask:
    """Opens its own session for each sweep: recovery never waits behind a purge."""

    def __init__(self, url: str, retention: Retention) -> None:
        self._retention = retention
        self._session = ReconnectingSession(
            url, purpose="retention", answer_seconds=_ANSWER_SECONDS
        )

    async def run(self) -> None:
        """Sweep until cancelled. An error is logged, and the next sweep tries again."""
        pause = FIRST_SWEEP_SECONDS
        while True:
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spread
            pause = SWEEP_SECONDS
            try:
                await self._sweep()
            except (FaultlineError, DriverError) as error:
                raise_if_cancelled(error)
                message = " ".join(str(error).split())
                emit(Event.DEGRADED, reason=f"retention did not finish its sweep: {message}")
            finally:
                await self._session.close()

    async def _sweep(self) -> None:
        sweep = Sweep(self._retention, is_automatic=True)
        try:
            while (statement := sweep.next_statement) is not None:
                started = time.monotonic()
                sweep.add(await self._session.run(statement))
                rest = REST_FACTOR * (time.monotonic() - started)
                await asyncio.sleep(max(rest, _SHORTEST_REST_SECONDS))
        finally:
            if purged := sweep.purged:
                emit(
                    Event.PURGED,
                    succeeded=purged.succeeded,
                    failed=purged.failed,
                    ledger_entries=purged.entries,
                    audit_entries=purged.audit,
                    unique_keys=purged.unique_keys,
                    firings=purged.firings,
                )

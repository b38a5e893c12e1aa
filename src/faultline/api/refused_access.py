"""Audit log entries for refused access, at most one a minute for each kind.

A flood of refusals must not become a flood of rows. The first refusal of a kind is written at once; later
ones are counted and written together a minute later. All wrong keys of one address are one kind. All refusals
with one key, action and code are one kind. There are at most twenty kinds a minute; all further refusals are
counted as one kind, "several".
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from faultline.api.api_errors import ApiError
from faultline.errors import FaultlineError
from faultline.postgres.driver import DriverError
from faultline.statements import audit
from faultline.statements.audit import Actor
from faultline.statements.statement import Statement

WRITE_SECONDS = 60.0
MAX_KINDS = 20
UNKNOWN_KEY = "unknown key"
_CHECK_SECONDS = 1.0
_CLOSE_SECONDS = 3.0
_SEVERAL_TARGETS = "several"
_SEVERAL = Actor(UNKNOWN_KEY, "several", "several addresses")

Run = Callable[[Statement[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class RefusedAccess:
    actor: Actor
    action: str
    code: str
    target: str | None = None

    @property
    def kind(self) -> Hashable:
        """Refusals of one kind are counted and written together."""
        if self.actor.kind == UNKNOWN_KEY:
            return self.actor.address, self.code
        return self.actor, self.action, self.code


class RefusedAccessLog:
    """`run` executes the statement that writes a row.

    If it fails, the refusals stay counted.
    """

    def __init__(self, run: Run, *, seconds: float = WRITE_SECONDS) -> None:
        self._run, self._seconds = run, seconds
        self._waiting: dict[Hashable, tuple[RefusedAccess, int]] = {}
        self._written_at: dict[Hashable, float] = {}
        self._writer: asyncio.Task[None] | None = None
        self._has_waiting = asyncio.Event()
        self._writing = asyncio.Lock()

    def note(self, refused: RefusedAccess) -> None:
        """Count a refusal. The first one starts the task that writes."""
        kinds = self._waiting.keys() | self._written_at.keys()
        if refused.kind not in kinds and len(kinds) >= MAX_KINDS:
            refused = RefusedAccess(_SEVERAL, "any", "several")
        self._count(refused, 1)
        self._has_waiting.set()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    def _count(self, refused: RefusedAccess, times: int) -> None:
        first, before = self._waiting.get(refused.kind, (refused, 0))
        if first.target != refused.target:
            first = replace(first, target=_SEVERAL_TARGETS)
        self._waiting[refused.kind] = (first, before + times)

    async def close(self) -> None:
        """Finish the current write and write all counts, within a few seconds."""
        if self._writer is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS), self._writing:
                self._written_at.clear()
                await self._write_due(time.monotonic())
        self._writer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._writer

    async def _write(self) -> None:
        while True:
            await self._has_waiting.wait()
            async with self._writing:
                await self._write_due(time.monotonic())
            if self._waiting:
                await asyncio.sleep(min(self._seconds, _CHECK_SECONDS))
            else:
                self._has_waiting.clear()

    async def _write_due(self, now: float) -> None:
        recent = now - self._seconds
        self._written_at = {kind: at for kind, at in self._written_at.items() if at > recent}
        for kind in [kind for kind in self._waiting if kind not in self._written_at]:
            self._written_at[kind] = now
            refused, times = self._waiting.pop(kind)
            statement = audit.record_refusal(
                refused.actor,
                action=refused.action,
                target=refused.target,
                code=refused.code,
                times=times,
            )
            is_recorded = False
            try:
                with contextlib.suppress(FaultlineError, DriverError, ApiError):
                    is_recorded = await self._run(statement) is not False
            finally:
                # The database is unavailable, its limit per minute is reached, or this was cancelled.
                if not is_recorded:
                    self._count(refused, times)
            if not is_recorded:
                return

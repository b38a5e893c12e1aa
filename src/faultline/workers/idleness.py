"""Announces that a worker has free slots, so that a job that becomes due wakes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from faultline.statements.statement import Statement
from faultline.statements.workers import announce_idle, withdraw_idle

_BUSY_SECONDS = 0.05  # a worker that is busy for less stays announced
_AGAIN_SECONDS = 10.0  # a crash of the server empties the table of idle workers


class Idleness:
    """Which queues of this worker are announced in the database.

    A worker whose slots are taken withdraws only when that lasts, or when it is notified. A notification
    that it cannot follow is passed on to another idle worker. While the worker does not listen, it announces
    nothing: then it polls.
    """

    def __init__(self, worker_id: str, run: Callable[[Statement[Any]], Awaitable[Any]]) -> None:
        self._worker_id = worker_id
        self._run = run
        self._is_listening = False
        self._announced: frozenset[str] = frozenset()
        self._announced_at = 0.0
        self._busy_since: float | None = None

    def listen(self, *, is_listening: bool) -> None:
        """The listener has a new session, or none: announce again.

        The server may have lost what was announced before.
        """
        self._is_listening = is_listening
        self._announced = frozenset()

    async def is_free(self, queues: Collection[str], *, now: float) -> bool:
        """The last claim took all due jobs, and these queues have free slots.

        Returns whether to claim once more: a job may have become due before the announcement.
        """
        self._busy_since = None
        free = frozenset(queues)
        if not self._is_listening or not free:
            return False
        age = now - self._announced_at
        if free == self._announced and age < _AGAIN_SECONDS:
            return False
        if free < self._announced and age < _BUSY_SECONDS:
            return False
        is_new = not free <= self._announced
        self._announced, self._announced_at = free, now
        await self._run(announce_idle(self._worker_id, sorted(free)))
        return is_new

    async def is_busy(self, notified: Sequence[str], *, now: float) -> None:
        """The worker claims again by itself.

        `notified` are queues for which it has no slot.
        """
        if self._busy_since is None:
            self._busy_since = now
        if notified or (self._announced and now - self._busy_since > _BUSY_SECONDS):
            await self.withdraw(notified)

    async def withdraw(self, notified: Sequence[str]) -> None:
        """Be woken no more, and pass these notifications on."""
        self._announced = frozenset()
        await self._run(withdraw_idle(self._worker_id, notified))

"""Announces that a worker has free slots, so that a job that becomes due wakes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from faultline.statements.statement import Statement
from faultline.statements.workers import announce_idle, withdraw_idle

_BUSY_SECONDS = 0.05  # a worker that is busy for less stays announced
# A lost row of the table of idle workers is noticed after this long. A crash of the server, which empties the
# table, also ends the worker's session, and it announces itself on the next one.
_AGAIN_SECONDS = 30.0
_AGAIN_WITHOUT_LEADER_SECONDS = 5.0  # at a start no reconciler may lead yet
_WATCHED_POLLS = 5  # a worker that is told of every due job polls this much less often


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
        self._is_led = False  # a reconciler tells it of jobs whose time has come

    @property
    def poll_factor(self) -> float:
        """By how much longer than usual this worker may wait between two claims."""
        is_watched = self._announced and self._is_led and self._busy_since is None
        return _WATCHED_POLLS if is_watched else 1

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
        again = _AGAIN_SECONDS if self._is_led else _AGAIN_WITHOUT_LEADER_SECONDS
        if free == self._announced and age < again:
            return False
        if free < self._announced and age < _BUSY_SECONDS:
            return False
        is_new = not free <= self._announced
        self._announced, self._announced_at = free, now
        self._is_led = await self._run(announce_idle(self._worker_id, sorted(free)))
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

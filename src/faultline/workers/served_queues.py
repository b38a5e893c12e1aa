"""The queues that a worker claims from: given ones, those of its tasks, or all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from faultline.app import Faultline
from faultline.config import WorkerSettings
from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.metrics import meter
from faultline.model import DEFAULT_QUEUE
from faultline.payload import check_queue_name
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import is_transient
from faultline.queue_shares import EVERY_QUEUE
from faultline.statements import queues
from faultline.statements.statement import Statement
from faultline.suggestions import did_you_mean
from faultline.wording import listing
from faultline.workers.batching import jobs_per_slot
from faultline.workers.bounded_calls import NoReply

_LOOK_SECONDS = 5.0
_SHORTEST_PAUSE_SECONDS = 0.2  # after a notification about a queue that is new to this worker
_LOOKING_SHARE = 20  # looks take at most 1/20 of the time
_MAX_NAMED_TASKS = 20
_MAX_NAMED_QUEUES = 5


class ServedQueues:
    """`names` changes while the worker runs, if it serves every queue."""

    def __init__(self, app: Faultline, settings: WorkerSettings) -> None:
        given = tuple(
            check_queue_name(name) for name in settings.queues or () if name != EVERY_QUEUE
        )
        self.tasks = {task.name: task.settings.queue for task in app.tasks.values()}
        self._app = app
        self.is_every = EVERY_QUEUE in (settings.queues or ())
        self._own = tuple(sorted({DEFAULT_QUEUE, *self.tasks.values(), *given}))
        self._is_given = bool(given) and not self.is_every
        self.names = given if self._is_given else self._own
        self._look = asyncio.Event()

    def jobs_per_slot(self, names: Iterable[str]) -> int:
        """How many jobs a slot takes; 1 unless all tasks of these queues take batches."""
        wanted = set(names)
        return jobs_per_slot(
            task for task in self._app.tasks.values() if task.settings.queue in wanted
        )

    def report_mismatches(self) -> None:
        """Log queues that no task uses, and tasks whose queue is not served."""
        if not self._is_given:
            return
        used = sorted(set(self.tasks.values()))
        for name in self.names:
            if name not in used:
                reason = f"no task of this app uses the queue {name}"
                if used:
                    known = f"its tasks use {listing(used, _MAX_NAMED_QUEUES)}"
                    reason += f"; {did_you_mean(name, used) or known}"
                emit(Event.QUEUE_UNUSED, queue=name, reason=reason)
        unserved = [task for task, queue in self.tasks.items() if queue not in self.names]
        if unserved:
            emit(
                Event.TASKS_UNSERVED,
                reason="another worker must serve the queue of 1 task"
                if len(unserved) == 1
                else f"another worker must serve the queues of {len(unserved)} tasks",
                queues=sorted({self.tasks[task] for task in unserved}),
                tasks=unserved[:_MAX_NAMED_TASKS],
            )

    def is_served(self, notified: str) -> bool:
        """Whether a notification is about a served queue; a new one makes `follow` look."""
        if notified in self.names:
            return True
        if self.is_every and not notified.startswith("!"):  # else it is for one worker
            self._look.set()
        return False

    async def follow(
        self,
        run: Callable[[Statement[list[str]]], Awaitable[list[str]]],
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        """Look for queues with waiting jobs until cancelled, if every queue is served."""
        while self.is_every:
            began = time.monotonic()
            try:
                found = await run(queues.queues_with_waiting_jobs())
                names = tuple(sorted({*self._own, *found}))
                if names != self.names:
                    self.names = names
                    meter.current.expect(names)
                    await on_change()
            except NoReply:
                return
            except (FaultlineError, DriverError) as error:
                if not is_transient(error):
                    raise
            cost = _LOOKING_SHARE * (time.monotonic() - began)
            await asyncio.sleep(max(_SHORTEST_PAUSE_SECONDS, min(cost, _LOOK_SECONDS)))
            await self._wait_for_look(max(cost, _LOOK_SECONDS))

    async def _wait_for_look(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._look.wait(), seconds)
        except TimeoutError:
            return
        self._look.clear()

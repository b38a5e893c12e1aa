"""What a worker has in its hands: jobs that wait for a slot, jobs that run, and ends being written down."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from faultline.metrics import meter
from faultline.steady import steady_now
from faultline.workers.leases import Lease

Work = Callable[[Lease], Coroutine[Any, Any, None]]

# What was claimed ahead and has not been started by then is handed back, for others to run.
_PATIENCE_SECONDS = 0.5


class Slots:
    """`run` makes an attempt of a lease and `release` hands it back; `on_ended` is told of each attempt's
    end, and `wake` of everything that ends."""

    def __init__(
        self,
        slots: int,
        *,
        run: Work,
        release: Work,
        on_ended: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._slots = slots
        self._run = run
        self._release = release
        self._on_ended = on_ended
        self._wake = wake
        self._backlog: deque[Lease] = deque()  # claimed ahead, waiting for a slot
        self._running: set[asyncio.Task[None]] = set()
        self._chores: set[asyncio.Task[None]] = set()  # ends that are being written down
        self.are_closed = False
        self.started = 0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._backlog)

    def take(self, leases: Sequence[Lease]) -> None:
        """Start them as slots are free, or hand them back if they came too late."""
        self._backlog.extend(leases)
        if self.are_closed:
            self.hand_back()
        self._fill_slots()

    def close(self) -> None:
        """Nothing is started from now on, and what waits is handed back."""
        self.are_closed = True
        self.hand_back()

    def hand_back_overdue(self) -> None:
        """The jobs have become slower than those before them: another worker may be free."""
        if self._backlog and steady_now() > self._backlog[0].taken_at + _PATIENCE_SECONDS:
            self.hand_back()

    def hand_back(self) -> None:
        while self._backlog:
            self.do(self._release(self._backlog.popleft()))

    def do(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._done)

    async def finish(self, timeout_seconds: float, *, unless: asyncio.Event | None = None) -> None:
        """Wait until nothing is under way any more, or the time is up, or `unless` is set."""
        interruption = asyncio.create_task((unless or asyncio.Event()).wait())
        deadline = steady_now() + timeout_seconds
        while (left := deadline - steady_now()) > 0 and not interruption.done():
            under_way = self._running | self._chores
            if not under_way:
                break
            meter.current.flush(steady_now(), running=self.running)
            await asyncio.wait(
                {*under_way, interruption}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
        interruption.cancel()

    def drop(self) -> None:
        """End whatever is still under way."""
        for task in (*self._running, *self._chores):
            task.cancel()

    def _fill_slots(self) -> None:
        backlog, running, slots = self._backlog, self._running, self._slots
        while backlog and len(running) < slots:
            self.started += 1
            task = asyncio.create_task(self._run(backlog.popleft()))
            running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._on_ended()
        if self._backlog:
            self._fill_slots()
        self._wake()
        _see(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._chores.discard(task)
        self._wake()
        _see(task)


def _see(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "an attempt ended in an error of the worker's own", "exception": error}
        )

"""Several worker processes under one: started together, restarted when they die, stopped together."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from types import FrameType

from faultline.events import Event, emit
from faultline.link import Backoff

_LOOK_SECONDS = 0.2
_HEALTHY_SECONDS = 10.0


class Supervisor:
    """Runs `command` in `count` processes until it is told to stop by SIGTERM or SIGINT.

    A signal is passed on, so each worker drains by itself; a second one is passed on too. Each has one of
    `count` slots; `options` are those of the process in a slot, and `on_end` is told when it has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        count: int,
        options: Callable[[int], Sequence[str]] = lambda slot: (),
        on_end: Callable[[int], None] = lambda slot: None,
    ) -> None:
        self._command = list(command)
        self._options = options
        self._on_end = on_end
        self._children: list[subprocess.Popen[bytes] | None] = [None] * count
        self._started_at = [0.0] * count
        self._retry_at = [0.0] * count
        self._backoffs = [Backoff(shortest=0.2, longest=30.0) for _ in range(count)]
        self._stopping = False  # a plain flag: a signal may arrive while a lock of an Event is held

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while not self._stopping:
            for slot in range(len(self._children)):
                self._keep_alive(slot)
            time.sleep(_LOOK_SECONDS)
        codes = [child.wait() for child in self._children if child is not None]
        # One that had just been started ends by the signal itself, which is what was asked of it.
        return max((abs(code) for code in codes if code != -signal.SIGTERM), default=0)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        for child in self._children:
            if child is not None and child.poll() is None:
                child.send_signal(signal.SIGTERM)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _keep_alive(self, slot: int) -> None:
        child, now = self._children[slot], time.monotonic()
        if child is not None and child.poll() is None:
            if now - self._started_at[slot] > _HEALTHY_SECONDS:
                self._backoffs[slot].reset()
            return
        if child is not None:
            self._children[slot] = None
            self._on_end(slot)
            pause = self._backoffs[slot].next_pause()
            self._retry_at[slot] = now + pause
            emit(
                Event.PROCESS_RESTARTED,
                pid=child.pid,
                exit_code=child.returncode,
                restart_in_seconds=round(pause, 2),
            )
        if now >= self._retry_at[slot] and not self._stopping:
            # A group of its own: a Ctrl-C in the terminal reaches only us, and is passed on once.
            command = [*self._command, *self._options(slot)]
            started = subprocess.Popen(command, start_new_session=True)
            self._children[slot] = started
            self._started_at[slot] = now
            if self._is_stopping():  # the signal came while it was being started, and passed it by
                started.send_signal(signal.SIGTERM)

"""Progress of a handler in a child process, on its way to the worker."""

from __future__ import annotations

import multiprocessing.connection
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from faultline.model import Claim

Pipe = multiprocessing.connection.Connection
_PAUSE_SECONDS = 0.25  # between two messages


@dataclass(frozen=True, slots=True)
class Progressed:
    """The handler has reported its progress."""

    fraction: float
    message: str | None


class SharedPipe:
    """The child's end of the pipe, to which several of its threads send."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        with self._lock:
            self._pipe.send(message)

    def recv(self) -> Any:
        return self._pipe.recv()


class ChildProgress:
    """Sends the newest report of one attempt, a few times a second.

    A thread sends, so that the newest report also arrives when the handler then computes for minutes. It
    begins with the first report and ends with the attempt.
    """

    def __init__(self, pipe: SharedPipe) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._newest: deque[Progressed] = deque(maxlen=1)  # append and pop are one step each
        self._thread: threading.Thread | None = None
        self._has_ended = threading.Event()
        self._has_report = threading.Event()

    def report(self, claim: Claim, fraction: float, message: str | None) -> None:
        self._newest.append(Progressed(fraction, message))
        self._has_report.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="faultline-progress", daemon=True
            )
            self._thread.start()

    def end(self) -> None:
        """Send the last report; reports that come later are ignored.

        They would reach the worker as reports of the next job.
        """
        self._send()
        with self._lock:
            self._has_ended.set()
        self._has_report.set()

    def _run(self) -> None:
        while not self._has_ended.is_set():
            self._has_report.wait()
            self._has_report.clear()
            self._send()
            self._has_ended.wait(_PAUSE_SECONDS)

    def _send(self) -> None:
        with self._lock:
            if self._newest and not self._has_ended.is_set():
                self._pipe.send(self._newest.pop())

"""One line on the terminal for each finished attempt, or a summary per second.

Writing to a terminal may block, for example after Ctrl-S, and must not block the event loop. So a thread
writes, and drops lines while the terminal does not accept any.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import TextIO

from faultline.events import log
from faultline.model import Claim
from faultline.steady import steady_now
from faultline.wording import count, duration
from faultline.workers.leases import Lease

MAX_LINES = 20  # in a window; further attempts are summarized at its end
_WINDOW_SECONDS = 1.0
_MAX_WAITING = 200
_CLOSE_SECONDS = 0.5
_WORDS = {"success": "succeeded"}
_RETRYING = "retrying"
_UNSTARTED = frozenset({"released", "stale"})  # not shown if the handler had not begun
_COLORS = {"succeeded": "32", "failed": "31"}
_OTHER_COLOR = "33"


def job_lines() -> JobLines | None:
    """The lines of a worker, if its log is text and not verbose; else None.

    A verbose log has events of every attempt.
    """
    if log.stream is None or log.is_json or log.is_verbose:
        return None
    return JobLines(log.stream)


class JobLines:
    """Writes at most MAX_LINES per window. Called on the event loop."""

    def __init__(self, out: TextIO, *, window_seconds: float = _WINDOW_SECONDS) -> None:
        self._lines = LineWriter(out)
        self._window_seconds = window_seconds
        self._is_colored = out.isatty() and "NO_COLOR" not in os.environ
        self._timer: asyncio.TimerHandle | None = None
        self._ended = 0  # in this window
        self._is_fast = False  # the last window had more than MAX_LINES
        self._hidden: Counter[str] = Counter()

    def attempt_ended(
        self, lease: Lease, exit_reason: str, *, retry_in_seconds: float | None = None
    ) -> None:
        """Write the end of an attempt, or count it for the summary of this window.

        `retry_in_seconds` says that the attempt has failed, and that the job is queued again.
        """
        if exit_reason == "deferred" or (lease.began_at is None and exit_reason in _UNSTARTED):
            return
        self._ended += 1
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._window_seconds, self._end_window)
        outcome = _WORDS.get(exit_reason, exit_reason)
        if retry_in_seconds is not None:
            outcome = _RETRYING
        if self._is_fast or self._ended > MAX_LINES:
            self._hidden[outcome] += 1
        else:
            seconds = None if lease.began_at is None else steady_now() - lease.began_at
            self._lines.write(self._line(lease.claim, outcome, seconds, retry_in_seconds))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._summarize()
        self._lines.close()

    def _end_window(self) -> None:
        self._timer = None
        self._is_fast = self._ended > MAX_LINES
        self._ended = 0
        self._summarize()
        if self._is_fast:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._window_seconds, self._end_window)

    def _summarize(self) -> None:
        if self._hidden:
            parts = (
                f"{number:,} {self._colored(outcome)}"
                for outcome, number in self._hidden.most_common()
            )
            total = count(self._hidden.total(), "more job")
            self._lines.write(f"{_now()}  {total}: {', '.join(parts)}")
            self._hidden.clear()

    def _line(
        self, claim: Claim, outcome: str, seconds: float | None, retry_in_seconds: float | None
    ) -> str:
        words = [_now(), claim.task, claim.id]  # whole, so that commands take it
        if retry_in_seconds is not None:
            of = f"(attempt {claim.attempt} of {claim.max_attempts})"
            words.append(f"{self._colored(outcome)} in {_seconds(retry_in_seconds)} {of}")
        else:
            if claim.attempt > 1:
                words.append(f"attempt {claim.attempt}")
            words.append(self._colored(outcome))
        if seconds is not None:
            words.append(f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds))
        return "  ".join(words)

    def _colored(self, outcome: str) -> str:
        if not self._is_colored:
            return outcome
        return f"\x1b[{_COLORS.get(outcome, _OTHER_COLOR)}m{outcome}\x1b[0m"


class LineWriter:
    """Writes lines in a thread, and drops those that it cannot write soon."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="faultline-job-lines", daemon=True
            )
            self._thread.start()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(line)

    def close(self) -> None:
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            with contextlib.suppress(OSError, ValueError):  # the terminal was closed
                self._out.write(f"{line}\n")
                self._out.flush()


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if 1 <= seconds < 60 else duration(seconds)


def _now() -> str:
    return datetime.now(UTC).strftime("%H:%M:%SZ")

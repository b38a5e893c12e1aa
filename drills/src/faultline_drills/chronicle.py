"""Turns what worker processes say into the operations of a history."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from faultline_drills.history import History, Phase, Verb

_REFUSED = ("job_retry_scheduled", "job_dead", "job_released")


class Chronicle:
    def __init__(self, history: History) -> None:
        self.history = history
        self.said: Counter[str] = Counter()  # how often each event was heard
        self._attempts: dict[tuple[str, str, int], int] = {}
        self._lock = threading.Lock()

    def hear(self, process: str, event: str, fields: dict[str, Any]) -> None:
        with self._lock:
            self.said[event] += 1
        job, token = fields.get("job_id"), fields.get("token", fields.get("stale_token"))
        if job is None or token is None:
            return  # not about an attempt
        if event == "lease_acquired":
            self.history.saw(process, Verb.CLAIM, job=job, token=token)
            attempt = self.history.invoke(process, Verb.ATTEMPT, job=job, token=token)
            self._attempts[process, job, token] = attempt
        elif event == "commit_ok":
            self._end(process, job, token, Phase.OK)
        elif event == "stale_write_blocked":
            self._end(process, job, token, Phase.FAIL, reason=fields.get("reason"))
        elif event in _REFUSED:
            self._end(process, job, token, Phase.FAIL, reason=event)
        elif event == "lease_reaped":
            self.history.saw(
                process, Verb.REAP, job=job, token=token, lost_worker=fields.get("lost_worker")
            )

    def ended(self, process: str) -> None:
        """It will say nothing any more."""
        self.history.abandon(process)

    def _end(self, process: str, job: str, token: int, phase: Phase, **detail: Any) -> None:
        attempt = self._attempts.get((process, job, token))
        if attempt is not None:
            self.history.end(attempt, phase, **detail)
        elif phase is Phase.OK:  # under a token that it was not heard to have been given
            self.history.saw(process, Verb.ATTEMPT, job=job, token=token)

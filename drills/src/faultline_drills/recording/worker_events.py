"""Turns the events that worker processes log into operations of the history."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from faultline_drills.recording.history import History, Phase, Verb

_REFUSED = ("job_retry_scheduled", "job_dead", "job_released")


class WorkerEventRecorder:
    def __init__(self, history: History) -> None:
        self.history = history
        self.counts: Counter[str] = Counter()  # by event name
        self._attempts: dict[tuple[str, str, int], int] = {}
        self._lock = threading.Lock()

    def record(self, process: str, event: str, fields: dict[str, Any]) -> None:
        with self._lock:
            self.counts[event] += 1
        job, token = fields.get("job_id"), fields.get("token", fields.get("stale_token"))
        if job is None or token is None:
            return  # not about an attempt
        if event == "lease_acquired":
            self.history.record(process, Verb.CLAIM, job=job, token=token)
            attempt = self.history.invoke(process, Verb.ATTEMPT, job=job, token=token)
            self._attempts[process, job, token] = attempt
        elif event == "commit_ok":
            self._end(process, job, token, Phase.OK)
        elif event == "stale_write_blocked":
            self._end(process, job, token, Phase.FAIL, reason=fields.get("reason"))
        elif event in _REFUSED:
            self._end(process, job, token, Phase.FAIL, reason=event)
        elif event == "lease_reaped":
            lost_worker = fields.get("lost_worker")
            self.history.record(
                process, Verb.RECONCILE, job=job, token=token, lost_worker=lost_worker
            )

    def process_ended(self, process: str) -> None:
        """The process logs no further event: its open operations have an unknown outcome."""
        self.history.mark_unknown(process)

    def _end(self, process: str, job: str, token: int, phase: Phase, **detail: Any) -> None:
        attempt = self._attempts.get((process, job, token))
        if attempt is not None:
            self.history.end(attempt, phase, **detail)
        elif phase is Phase.OK:  # under a token that no event reported as claimed
            self.history.record(process, Verb.ATTEMPT, job=job, token=token)

"""Whether a worker is ready: registered, answered by the database, not stopping."""

from __future__ import annotations

from faultline.steady import steady_now
from faultline.workers.heartbeat import Heartbeat


class Readiness:
    """The event loop writes, another thread reads: each field is a single number."""

    def __init__(self, heartbeat: Heartbeat, *, max_unanswered_seconds: float) -> None:
        self._heartbeat = heartbeat
        self._max_unanswered_seconds = max_unanswered_seconds
        self._asking_since: float | None = None
        self._refused_since: float | None = None

    def claim_begins(self) -> None:
        self._asking_since = steady_now()

    def claim_ends(self, *, is_answered: bool) -> None:
        began, self._asking_since = self._asking_since, None
        if is_answered:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = began

    def why_not(self, *, is_leaving: bool) -> str | None:
        heartbeat, now = self._heartbeat, steady_now()
        if is_leaving:
            return "is draining"
        if not heartbeat.is_started:
            return "is not registered: the database has not answered yet"
        if (since := self._refused_since) is not None:
            return f"cannot claim, for {now - since:.1f} s: the database is away, or refuses"
        if (since := self._asking_since) is not None and now - since > self._max_unanswered_seconds:
            return f"has had no answer to a claim for {now - since:.1f} s"
        return self.why_unanswered()

    def why_unanswered(self) -> str | None:
        """For how long no heartbeat was answered, if so long that leases may be lost."""
        answered_at, now = self._heartbeat.answered_at, steady_now()
        if answered_at is not None and now - answered_at > self._max_unanswered_seconds:
            return f"has had no answer to a heartbeat for {now - answered_at:.1f} s"
        return None

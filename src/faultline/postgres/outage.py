"""One record per process and database of whether the database can be used.

A process has several sessions. The first one that fails begins the outage, and the first failed one that
works again ends it. Each is logged once for all sessions, and the end wakes the sessions that wait before
their next try. An outage that lasts is logged again after a minute, then every five minutes. In a text log,
for a person who has just started the process, a database that was never reached is logged after 5 s too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from faultline.events import Event, emit, log
from faultline.steady import steady_now

# A session that still fails this long after the end has found a new outage.
_AFTERMATH_SECONDS = 5.0
_NEVER_REACHED_SECONDS = 5.0
_FIRST_REMINDER_SECONDS = 60.0
_REMINDER_SECONDS = 300.0


class Outage:
    """Shared by all sessions of a process to one database, and by all threads."""

    def __init__(self, *, now: Callable[[], float] = steady_now) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._failing: set[str] = set()  # sessions, by purpose, that were part of the last outage
        self._began_at: float | None = None
        self._ended_at = float("-inf")
        self._remind_at = float("inf")
        self._was_reached = False  # by any session of this process
        self._waiting: set[Callable[[], None]] = set()

    @property
    def is_on(self) -> bool:
        return self._began_at is not None

    def was_on_since(self, moment: float) -> bool:
        """Whether an outage was on at or after `moment` of the steady clock."""
        return self.is_on or self._ended_at >= moment

    def fail(self, purpose: str, error: BaseException, *, worked_at: float | None = None) -> None:
        """Record that a session failed; log it if it is the first, or a reminder is due.

        A session that last worked before the end of the last outage, and was idle since, notices only
        that one.
        """
        now = self._now()
        text = " ".join(str(error).split())
        with self._lock:
            is_known = purpose in self._failing
            self._failing.add(purpose)
            away_seconds = None if self._began_at is None else now - self._began_at
            if away_seconds is None:
                if is_known and now < self._ended_at + _AFTERMATH_SECONDS:
                    return  # it has not tried again since the outage ended
                if worked_at is not None and worked_at < self._ended_at:
                    return
                self._began_at = now
                self._remind_at = now + self._seconds_to_first_reminder()
            elif now < self._remind_at:
                return
            elif away_seconds < _FIRST_REMINDER_SECONDS:
                self._remind_at = now - away_seconds + _FIRST_REMINDER_SECONDS
            else:
                self._remind_at = now + _REMINDER_SECONDS
        if away_seconds is None:
            emit(Event.DATABASE_UNAVAILABLE, purpose=purpose, error=text)
        else:
            emit(
                Event.DATABASE_STILL_UNAVAILABLE,
                purpose=purpose,
                away_seconds=round(away_seconds, 3),
                error=text,
            )

    def _seconds_to_first_reminder(self) -> float:
        return (
            _NEVER_REACHED_SECONDS
            if log.is_text and not self._was_reached
            else _FIRST_REMINDER_SECONDS
        )

    def recover(self, purpose: str) -> None:
        """Record that a session works; if it had failed, the outage is over."""
        self._was_reached = True
        # the usual case, without the lock
        if self._began_at is None and purpose not in self._failing:
            return
        with self._lock:
            if purpose not in self._failing and self._failing:
                return  # it never failed, so its success says nothing about the outage
            self._failing.discard(purpose)
            began_at, self._began_at = self._began_at, None
            if began_at is None:
                return
            self._ended_at = self._now()
            away_seconds = round(self._ended_at - began_at, 3)
            waiting = tuple(self._waiting)
        emit(Event.DATABASE_BACK, purpose=purpose, away_seconds=away_seconds)
        for wake in waiting:
            wake()

    def withdraw(self, purpose: str) -> None:
        """Forget a session that was closed."""
        with self._lock:
            self._failing.discard(purpose)

    def add_waiting(self, wake: Callable[[], None]) -> None:
        """Have `wake` called at the end of the outage, in the thread that notices it."""
        with self._lock:
            self._waiting.add(wake)

    def remove_waiting(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.discard(wake)


_outages: weakref.WeakValueDictionary[str, Outage] = weakref.WeakValueDictionary()
_finding = threading.Lock()


def outage_of(url: str) -> Outage:
    """The record of this process for this database."""
    with _finding:
        found = _outages.get(url)
        if found is None:
            found = _outages[url] = Outage()
        return found

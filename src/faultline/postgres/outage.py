"""One record per process and database of whether the database can be used.

A process has several sessions. The first that fails begins the outage, and the first of the failed
ones that works again ends it: each is logged once for all of them, and the end wakes those that still
wait before their next try.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from faultline.events import Event, emit
from faultline.steady import steady_now

# A session that still fails this long after the end has found an outage of its own.
_AFTERMATH_SECONDS = 5.0


class Outage:
    """Shared by all sessions of a process to one database; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failing: set[str] = set()  # sessions, by purpose, that were part of the last outage
        self._began_at: float | None = None
        self._ended_at = float("-inf")
        self._waiting: set[Callable[[], None]] = set()

    @property
    def is_on(self) -> bool:
        return self._began_at is not None

    def was_on_since(self, moment: float) -> bool:
        """`moment` is by the steady clock."""
        return self.is_on or self._ended_at >= moment

    def fail(self, purpose: str, error: BaseException, *, opened_at: float | None = None) -> None:
        """A session failed; logged if it is the first.

        One that was opened before the last outage ended, and was idle since, only now notices that one.
        """
        now = steady_now()
        with self._lock:
            is_known = purpose in self._failing
            self._failing.add(purpose)
            if self._began_at is not None:
                return
            if is_known and now < self._ended_at + _AFTERMATH_SECONDS:
                return  # it had no chance yet to notice the end
            if opened_at is not None and opened_at < self._ended_at:
                return
            self._began_at = now
        emit(Event.DATABASE_UNAVAILABLE, purpose=purpose, error=" ".join(str(error).split()))

    def recover(self, purpose: str) -> None:
        """A session works; if it had failed, the outage is over."""
        if self._began_at is None and purpose not in self._failing:  # as a rule: without the lock
            return
        with self._lock:
            if purpose not in self._failing and self._failing:
                return  # it never failed, so that it works says nothing
            self._failing.discard(purpose)
            began_at, self._began_at = self._began_at, None
            if began_at is None:
                return
            self._ended_at = steady_now()
            away_seconds = round(self._ended_at - began_at, 3)
            waiting = tuple(self._waiting)
        emit(Event.DATABASE_BACK, purpose=purpose, away_seconds=away_seconds)
        for wake in waiting:
            wake()

    def withdraw(self, purpose: str) -> None:
        """A session was closed, and will not be the one that ends the outage."""
        with self._lock:
            self._failing.discard(purpose)

    def add_waiting(self, wake: Callable[[], None]) -> None:
        """`wake` is called when the outage ends, in whichever thread notices it."""
        with self._lock:
            self._waiting.add(wake)

    def remove_waiting(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.discard(wake)


_outages: weakref.WeakValueDictionary[str, Outage] = weakref.WeakValueDictionary()
_finding = threading.Lock()


def outage_of(url: str) -> Outage:
    """The record that this process keeps for this database."""
    with _finding:
        found = _outages.get(url)
        if found is None:
            found = _outages[url] = Outage()
        return found

"""One poller for all who listen: it looks only while somebody does, and tells them all the same.

However many dashboards are open, the database answers one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from faultline.errors import FaultlineError
from faultline.inspector.answers import dump
from faultline.inspector.discretion import Discretion, Told
from faultline.inspector.snapshots import Snapshot, Snapshots

SHORTEST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0
COST_SHARE = 10  # between two looks, at least this many times what one took
SAME_SECONDS = 5.0  # what has not changed is said again after this long
WAITING_EVENTS = 250  # for one listener, before it is too slow to be kept
REMEMBERED_REFUSALS = 1_000

Event = bytes

_log = logging.getLogger(__name__)


def event(name: str, data: Any, *, event_id: str | None = None) -> Event:
    """As the browser's EventSource reads it. JSON has no line breaks of its own."""
    identity = f"id: {event_id}\n".encode() if event_id is not None else b""
    return identity + b"event: " + name.encode() + b"\ndata: " + dump(data) + b"\n\n"


class TooManyListeners(Exception):
    """As many streams are open as there may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooManyFromAddress(TooManyListeners):
    """As many streams are open to one address as it may have."""


class Listener:
    """One open stream: what it has not been sent yet."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(WAITING_EVENTS)
        self.is_dropped = False

    def tell(self, said: Event) -> None:
        try:
            self._events.put_nowait(said)
        except asyncio.QueueFull:
            self.drop()

    def drop(self) -> None:
        self.is_dropped = True
        while not self._events.empty():
            self._events.get_nowait()
        self._events.put_nowait(None)

    @property
    def waiting(self) -> int:
        return self._events.qsize()

    async def next(self) -> Event | None:
        """None: there will be no more."""
        return await self._events.get()


class Broadcast:
    def __init__(
        self,
        snapshots: Snapshots,
        *,
        max_listeners: int,
        max_from_address: int | None = None,
        discretion: Discretion | None = None,
    ) -> None:
        self._discretion = discretion or Discretion(is_discreet=False)
        self._snapshots = snapshots
        self._max_listeners = max_listeners
        self._max_from_address = max_from_address or max_listeners
        self._by_address: Counter[str] = Counter()
        self._listeners: set[Listener] = set()
        self._poller: asyncio.Task[None] | None = None
        self._last_overview: Event | None = None
        self._last_said: dict[str, Any] = {}
        self._said_at = 0.0
        self._away_reason: str | None = None
        self._refusals_seen: deque[str] | None = None  # None: nothing was seen yet
        self.looks = 0

    @contextlib.contextmanager
    def listening(self, address: str = "") -> Iterator[Listener]:
        """A new listener at this address; one address cannot take all places."""
        if self._by_address[address] >= self._max_from_address:
            raise TooManyFromAddress(self._max_from_address)
        if len(self._listeners) >= self._max_listeners:
            raise TooManyListeners(self._max_listeners)
        self._by_address[address] += 1
        listener = Listener()
        self._listeners.add(listener)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        elif self._away_reason is not None:
            listener.tell(_away(self._away_reason))
        elif self._last_overview is not None:
            listener.tell(self._last_overview)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    @property
    def is_polling(self) -> bool:
        return self._poller is not None

    async def close(self) -> None:
        for listener in self._listeners:
            listener.drop()
        if self._poller is not None:
            self._poller.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._poller

    def _tell(self, said: Event) -> None:
        for listener in self._listeners:
            listener.tell(said)

    async def _poll(self) -> None:
        """Until nobody listens. The next listener starts it anew, and knows nothing of what was before."""
        try:
            while self._listeners:
                pause = SHORTEST_PAUSE_SECONDS
                try:
                    self.looks += 1
                    snapshot = await self._snapshots.latest()
                except FaultlineError as error:
                    self._say_away(_reason(self._discretion.told(error)))
                except Exception:  # whatever it is, those who listen must not wait in vain
                    _log.exception("the inspector cannot look")
                    self._say_away("the inspector failed: see its log")
                else:
                    self._say(snapshot)
                    pause = max(pause, COST_SHARE * snapshot.cost_seconds)
                await asyncio.sleep(min(pause, LONGEST_PAUSE_SECONDS))
        finally:
            self._poller, self._last_overview, self._last_said = None, None, {}
            self._away_reason, self._refusals_seen = None, None

    def _say_away(self, reason: str) -> None:
        if self._away_reason is None:
            self._tell(_away(reason))
        self._away_reason = reason

    def _say(self, snapshot: Snapshot) -> None:
        if self._away_reason is not None:
            self._away_reason = None
            self._tell(event("database", {"ok": True, "reason": None}))
            self._said_at = 0.0
        self._last_overview = event("overview", snapshot.document)
        facts = _facts(snapshot)
        if facts != self._last_said or time.monotonic() - self._said_at >= SAME_SECONDS:
            self._last_said, self._said_at = facts, time.monotonic()
            self._tell(self._last_overview)
        self._say_refusals(snapshot)

    def _say_refusals(self, snapshot: Snapshot) -> None:
        """Those that were not among the newest before. Ids alone would not do: one that was given out
        earlier may become visible later."""
        newest = snapshot.survey.newest_refusals
        if self._refusals_seen is None:
            self._refusals_seen = deque(maxlen=REMEMBERED_REFUSALS)
        else:
            for refusal in reversed(newest):
                if refusal.id not in self._refusals_seen:
                    self._tell(event("rejection", refusal, event_id=refusal.id))
        known = set(self._refusals_seen)
        self._refusals_seen.extend(each.id for each in reversed(newest) if each.id not in known)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    """What can be news: not what differs from look to look by itself."""
    document = snapshot.document
    rate = document["throughput"].succeeded_per_second
    own = {"now", "database", "throughput"}
    return {"rate": rate, **{name: fact for name, fact in document.items() if name not in own}}


def _reason(told: Told) -> str:
    return told.message if told.hint is None else f"{told.message} ({told.hint})"


def _away(reason: str) -> Event:
    return event("database", {"ok": False, "reason": reason})

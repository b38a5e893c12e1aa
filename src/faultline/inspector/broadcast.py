"""One poller that sends the same events to all open streams.

The number of open dashboards therefore does not change the load on the database.
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
from faultline.inspector.overview import Snapshot, Snapshots
from faultline.inspector.responses import ErrorRedaction, PublicError, to_json

SHORTEST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0
COST_SHARE = 10  # the pause is at least this many times the duration of a reading
REPEAT_SECONDS = 5.0  # an unchanged overview is sent again after this long
WAITING_EVENTS = 250  # of one listener; then it is too slow, and dropped
REMEMBERED_REJECTIONS = 1_000

Event = bytes

_log = logging.getLogger(__name__)


def event(name: str, data: Any, *, event_id: str | None = None) -> Event:
    """One server-sent event. Our JSON has no line breaks."""
    identity = f"id: {event_id}\n".encode() if event_id is not None else b""
    return identity + b"event: " + name.encode() + b"\ndata: " + to_json(data) + b"\n\n"


class TooManyListeners(Exception):
    """The limit of open streams is reached."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class TooManyFromAddress(TooManyListeners):
    """The limit of open streams for one address is reached."""


class StreamListener:
    """One open stream: the events that it has not sent yet."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(WAITING_EVENTS)
        self.is_dropped = False

    def put(self, event: Event) -> None:
        try:
            self._events.put_nowait(event)
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
        """The next event; None: the stream ends."""
        return await self._events.get()


class Broadcast:
    def __init__(
        self,
        snapshots: Snapshots,
        *,
        max_listeners: int,
        max_from_address: int | None = None,
        redaction: ErrorRedaction | None = None,
    ) -> None:
        self._redaction = redaction or ErrorRedaction(hides_details=False)
        self._snapshots = snapshots
        self._max_listeners = max_listeners
        self._max_from_address = max_from_address or max_listeners
        self._by_address: Counter[str] = Counter()
        self._listeners: set[StreamListener] = set()
        self._poller: asyncio.Task[None] | None = None
        self._last_overview: Event | None = None
        self._last_sent: dict[str, Any] = {}
        self._sent_at = 0.0
        self._outage: str | None = None
        self._rejections_seen: deque[str] | None = None  # None: no reading yet
        self.readings = 0

    @contextlib.contextmanager
    def listening(self, address: str = "") -> Iterator[StreamListener]:
        """Add a listener. One address cannot use up all streams."""
        if self._by_address[address] >= self._max_from_address:
            raise TooManyFromAddress(self._max_from_address)
        if len(self._listeners) >= self._max_listeners:
            raise TooManyListeners(self._max_listeners)
        self._by_address[address] += 1
        listener = StreamListener()
        self._listeners.add(listener)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        elif self._outage is not None:
            listener.put(_outage_event(self._outage))
        elif self._last_overview is not None:
            listener.put(self._last_overview)
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

    def _send(self, event: Event) -> None:
        for listener in self._listeners:
            listener.put(event)

    async def _poll(self) -> None:
        """Read and send until there is no listener. The next listener starts a new poller."""
        try:
            while self._listeners:
                pause = SHORTEST_PAUSE_SECONDS
                try:
                    self.readings += 1
                    snapshot = await self._snapshots.latest()
                except FaultlineError as error:
                    self._send_outage(_reason(self._redaction.public(error)))
                except Exception:  # listeners learn of every failure
                    _log.exception("the inspector cannot read the queue")
                    self._send_outage("the inspector failed: see its log")
                else:
                    self._send_changes(snapshot)
                    pause = max(pause, COST_SHARE * snapshot.cost_seconds)
                await asyncio.sleep(min(pause, LONGEST_PAUSE_SECONDS))
        finally:
            self._poller, self._last_overview, self._last_sent = None, None, {}
            self._outage, self._rejections_seen = None, None

    def _send_outage(self, reason: str) -> None:
        if self._outage is None:
            self._send(_outage_event(reason))
        self._outage = reason

    def _send_changes(self, snapshot: Snapshot) -> None:
        if self._outage is not None:
            self._outage = None
            self._send(event("database", {"ok": True, "reason": None}))
            self._sent_at = 0.0
        self._last_overview = event("overview", snapshot.document)
        facts = _facts(snapshot)
        if facts != self._last_sent or time.monotonic() - self._sent_at >= REPEAT_SECONDS:
            self._last_sent, self._sent_at = facts, time.monotonic()
            self._send(self._last_overview)
        self._send_rejections(snapshot)

    def _send_rejections(self, snapshot: Snapshot) -> None:
        """Send the rejections that were not sent before.

        Comparing with the highest id would miss some: a lower id may become visible later.
        """
        newest = snapshot.data.newest_rejections
        if self._rejections_seen is None:
            self._rejections_seen = deque(maxlen=REMEMBERED_REJECTIONS)
        else:
            for rejection in reversed(newest):
                if rejection.id not in self._rejections_seen:
                    self._send(event("rejection", rejection, event_id=rejection.id))
        known = set(self._rejections_seen)
        self._rejections_seen.extend(each.id for each in reversed(newest) if each.id not in known)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    """The parts of the overview whose change is sent."""
    document = snapshot.document
    rate = document["throughput"].succeeded_per_second
    own = {"now", "database", "throughput"}
    return {"rate": rate, **{name: fact for name, fact in document.items() if name not in own}}


def _reason(error: PublicError) -> str:
    return error.message if error.hint is None else f"{error.message} ({error.hint})"


def _outage_event(reason: str) -> Event:
    return event("database", {"ok": False, "reason": reason})

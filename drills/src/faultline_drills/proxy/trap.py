"""What is to happen at which message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from faultline_drills.proxy.wire import Kind, Message

Callback = Callable[[Message], None]


class Action(StrEnum):
    """Each with when the callback runs: it may kill, stop or look, and the network waits for it."""

    HOLD = "hold"  # called, then the message and all behind it wait for release() or flow()
    DROP = "drop"  # called, then the connection is closed at both ends; the message is lost
    FORWARD = "forward"  # sent on, then called, and only then does an answer pass
    SWALLOW_REPLY = (
        "swallow reply"  # no answer arrives from now on; called when the server has given it
    )
    RESET = "reset"  # sent on, called, then both ends are reset: it may or may not have been read
    CUT_CLIENT = "cut client"  # sent on, called, then the client is reset; the server is not told
    CUT_SERVER = "cut server"  # called, then the server is reset and the message lost; the client is not told


@dataclass(frozen=True, slots=True)
class Match:
    """Which message is meant: the `nth` of those that all of this is true of."""

    text: str | None = None  # in its SQL, whatever its case
    application: str | None = None
    kind: Kind | None = None
    connection: int | None = None
    where: Callable[[Message], bool] | None = None
    nth: int = 1

    def fits(self, message: Message) -> bool:
        return (
            (self.text is None or self.text.casefold() in message.sql.casefold())
            and self.application in (None, message.application)
            and self.kind in (None, message.kind)
            and self.connection in (None, message.connection)
            and (self.where is None or self.where(message))
        )


class Trap:
    """Set by `Proxy.on`; springs once."""

    def __init__(self, match: Match, action: Action, callback: Callback | None) -> None:
        self.match = match
        self.action = action
        self.message: Message | None = None
        self._callback = callback
        self._seen = 0
        self._done = threading.Event()
        self._released = asyncio.Event()

    def springs_at(self, message: Message) -> bool:
        if self.message is not None or not self.match.fits(message):
            return False
        self._seen += 1
        if self._seen < self.match.nth:
            return False
        self.message = message
        return True

    async def call(self) -> None:
        """In a thread: whoever is called may wait, and may use the proxy."""
        assert self.message is not None  # noqa: S101 - it has sprung
        try:
            if self._callback is not None:
                await asyncio.to_thread(self._callback, self.message)
        finally:
            self._done.set()

    async def wait_for_release(self) -> None:
        await self._released.wait()

    def let_go(self) -> None:
        """From the proxy's own thread; others call `Proxy.release`."""
        self._released.set()

    def wait(self, timeout_seconds: float) -> Message | None:
        """The message that it sprang at, once its callback has returned; None if none came in time."""
        return self.message if self._done.wait(timeout_seconds) else None

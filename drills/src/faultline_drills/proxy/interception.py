"""Interceptions: which client message the proxy acts on, and what it does then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from faultline_drills.proxy.wire import Message, MessageKind

Callback = Callable[[Message], None]


class Action(StrEnum):
    """What is done with the message; the proxy waits for the callback."""

    HOLD = "hold"  # callback; the message and all after it wait for release() or clear_faults()
    DROP = "drop"  # callback; the message is lost and the connection closed at both ends
    FORWARD = "forward"  # forwarded; then the callback; only then does a reply pass
    DROP_REPLY = "drop reply"  # forwarded; its reply and all later ones are lost; then the callback
    RESET = "reset"  # forwarded; callback; both ends are reset: the server may have read it or not
    CUT_CLIENT = "cut client"  # forwarded; callback; the client is reset, the server is not told
    CUT_SERVER = (
        "cut server"  # callback; the server is reset, the message lost, the client not told
    )


@dataclass(frozen=True, slots=True)
class Match:
    """Selects a message: the `nth` of those that fit every condition given."""

    text: str | None = None  # part of its SQL, in any case
    application: str | None = None
    kind: MessageKind | None = None
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


class Interception:
    """Made by `Proxy.on`; takes effect once."""

    def __init__(self, match: Match, action: Action, callback: Callback | None) -> None:
        self.match = match
        self.action = action
        self.message: Message | None = None  # the intercepted message
        self._callback = callback
        self._seen = 0
        self._done = threading.Event()
        self._released = asyncio.Event()

    def takes(self, message: Message) -> bool:
        """Whether this is the message to intercept; counts those that fit."""
        if self.message is not None or not self.match.fits(message):
            return False
        self._seen += 1
        if self._seen < self.match.nth:
            return False
        self.message = message
        return True

    async def call(self) -> None:
        """Run the callback in a thread: it may block, and may use the proxy."""
        assert self.message is not None  # noqa: S101 - a message was intercepted
        try:
            if self._callback is not None:
                await asyncio.to_thread(self._callback, self.message)
        finally:
            self._done.set()

    async def wait_for_release(self) -> None:
        await self._released.wait()

    def release(self) -> None:
        """Only in the proxy's thread; other threads call `Proxy.release`."""
        self._released.set()

    @property
    def is_done(self) -> bool:
        """Whether a message was intercepted and its callback has returned."""
        return self._done.is_set()

    def wait(self, timeout_seconds: float) -> Message | None:
        """The intercepted message, once its callback has returned; None at the timeout."""
        return self.message if self._done.wait(timeout_seconds) else None

"""Strikes a process at a point."""

from __future__ import annotations

import threading
from typing import Protocol, assert_never

from faultline_drills.proxy import Action, Interception, Match, Message, Proxy
from faultline_drills.sweep.point import SweepFault, SweepPoint

_ACTIONS = {
    SweepFault.KILL_BEFORE: Action.DROP,
    SweepFault.KILL_AFTER: Action.FORWARD,
    SweepFault.DROP_REPLY: Action.DROP_REPLY,
    SweepFault.RESET: Action.RESET,
    SweepFault.STOP: Action.HOLD,
    SweepFault.OVERLAP: Action.HOLD,
}
_START_SECONDS = 30.0


class Victim(Protocol):
    """A process that can be struck."""

    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def resume(self) -> None: ...


class PointInjector:
    """Armed before the process is started, since its first message is a point too."""

    def __init__(self, proxy: Proxy, point: SweepPoint, fault: SweepFault) -> None:
        self._proxy = proxy
        self._fault = fault
        self._victim: Victim | None = None
        self._has_victim = threading.Event()
        match = Match(where=point.fits, nth=point.occurrence)
        self._interception: Interception = proxy.on(match, _ACTIONS[fault], self._act)

    def set_victim(self, victim: Victim) -> None:
        self._victim = victim
        self._has_victim.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the point was reached and the fault caused; once it is reached, until it is caused."""
        if (
            self._interception.wait(timeout_seconds) is None
            and self._interception.message is not None
        ):
            self._interception.wait(_START_SECONDS)
        return self._interception.message is not None

    def end(self) -> None:
        """The stopped process goes on, and what it had sent arrives."""
        self._proxy.release(self._interception)
        if self._victim is not None:
            self._victim.resume()

    def _act(self, message: Message) -> None:
        if not self._has_victim.wait(_START_SECONDS) or self._victim is None:
            raise TimeoutError("a message came, but from no process that was started here")
        match self._fault:
            case SweepFault.KILL_BEFORE | SweepFault.KILL_AFTER:
                self._victim.kill()
            case SweepFault.STOP | SweepFault.OVERLAP:
                self._victim.stop()
            case SweepFault.DROP_REPLY:
                for connection in self._proxy.connections:
                    if connection.number == message.connection:
                        connection.reset()
            case SweepFault.RESET:
                pass  # the proxy does it
            case _:
                assert_never(self._fault)

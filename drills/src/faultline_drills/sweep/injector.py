"""Injects a fault into a process when it sends the message of a point."""

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
    """A process that a fault is injected into."""

    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def resume(self) -> None: ...


class PointInjector:
    """Made before the process is started, since the first message is a point too."""

    def __init__(self, proxy: Proxy, point: SweepPoint, fault: SweepFault) -> None:
        self._proxy = proxy
        self._fault = fault
        self._victim: Victim | None = None
        self._has_victim = threading.Event()
        match = Match(where=point.fits, nth=point.occurrence)
        self._interception: Interception = proxy.on(match, _ACTIONS[fault], self._inject)

    def set_victim(self, victim: Victim) -> None:
        self._victim = victim
        self._has_victim.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the point was reached in time; if so, wait for the fault as well."""
        interception = self._interception
        if interception.wait(timeout_seconds) is None and interception.message is not None:
            interception.wait(_START_SECONDS)
        return interception.message is not None

    def end(self) -> None:
        """Resume a stopped process, and deliver the message that was held."""
        self._proxy.release(self._interception)
        if self._victim is not None:
            self._victim.resume()

    def _inject(self, message: Message) -> None:
        if not self._has_victim.wait(_START_SECONDS) or self._victim is None:
            raise TimeoutError("the message was not sent by a process of this sweep")
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

"""Strikes a process at a point."""

from __future__ import annotations

import threading
from typing import Protocol, assert_never

from faultline_drills.proxy import Action, Match, Message, Proxy, Trap
from faultline_drills.sweep.point import Fault, Point

_ACTIONS = {
    Fault.KILL_BEFORE: Action.DROP,
    Fault.KILL_AFTER: Action.FORWARD,
    Fault.DROP_REPLY: Action.SWALLOW_REPLY,
    Fault.RESET: Action.RESET,
    Fault.STOP: Action.HOLD,
    Fault.OVERLAP: Action.HOLD,
}
_START_SECONDS = 30.0


class Victim(Protocol):
    """A process that can be struck."""

    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def resume(self) -> None: ...


class Strike:
    """Armed before the process is started, since its first message is a point too."""

    def __init__(self, proxy: Proxy, point: Point, fault: Fault) -> None:
        self._proxy = proxy
        self._fault = fault
        self._victim: Victim | None = None
        self._has_victim = threading.Event()
        match = Match(where=point.fits, nth=point.occurrence)
        self._trap: Trap = proxy.on(match, _ACTIONS[fault], self._act)

    def aim(self, victim: Victim) -> None:
        self._victim = victim
        self._has_victim.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the point was reached and the fault caused; once it is reached, until it is caused."""
        if self._trap.wait(timeout_seconds) is None and self._trap.message is not None:
            self._trap.wait(_START_SECONDS)
        return self._trap.message is not None

    def end(self) -> None:
        """The stopped process goes on, and what it had sent arrives."""
        self._proxy.release(self._trap)
        if self._victim is not None:
            self._victim.resume()

    def _act(self, message: Message) -> None:
        if not self._has_victim.wait(_START_SECONDS) or self._victim is None:
            raise TimeoutError("a message came, but from no process that was started here")
        match self._fault:
            case Fault.KILL_BEFORE | Fault.KILL_AFTER:
                self._victim.kill()
            case Fault.STOP | Fault.OVERLAP:
                self._victim.stop()
            case Fault.DROP_REPLY:
                for route in self._proxy.routes:
                    if route.number == message.connection:
                        route.reset()
            case Fault.RESET:
                pass  # the proxy does it
            case _:
                assert_never(self._fault)

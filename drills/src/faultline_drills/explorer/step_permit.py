"""Blocks an actor's thread before each round trip until the scheduler permits it."""

from __future__ import annotations

import threading
from enum import Enum, auto
from queue import SimpleQueue


class ActorKilled(BaseException):
    """The actor's process was killed: not even its cleanup code runs."""


class ActorEvent(Enum):
    READY = auto()  # blocked before its next round trip
    ENDED = auto()


class StepPermit:
    """One actor's permit: its thread waits here until the scheduler grants a step.

    It also carries what the two threads tell each other about the actor.
    """

    def __init__(self, name: str, events: SimpleQueue[tuple[StepPermit, ActorEvent]]) -> None:
        self.name = name
        self.is_killed = False
        self.yields_turn = False  # it has nothing to do until another actor has moved
        self.was_deadlocked = False  # PostgreSQL cancelled its statement to resolve a deadlock
        self.next_step = ""
        self.token: int | None = None  # the fencing token it acts under, for a timeline
        self.backend_pid: int | None = None  # of the round trip in progress
        self.results: list[str] = []  # since the scheduler last read them
        self._events = events
        self._granted = threading.Lock()
        self._granted.acquire()

    def wait_for_permit(self, step: str, backend_pid: int | None) -> None:
        """Called by the actor before it sends anything."""
        self.raise_if_killed()
        self.next_step = step
        self._events.put((self, ActorEvent.READY))
        self._granted.acquire()
        self.raise_if_killed()
        self.backend_pid = backend_pid

    def grant(self) -> None:
        self._granted.release()

    def report_end(self) -> None:
        self._events.put((self, ActorEvent.ENDED))

    def note(self, result: str) -> None:
        self.results.append(result)

    def raise_if_killed(self) -> None:
        if self.is_killed:
            raise ActorKilled(self.name)

"""Where an actor stands before each of its round trips until the scheduler lets it through."""

from __future__ import annotations

import threading
from enum import Enum, auto
from queue import SimpleQueue


class ActorKilled(BaseException):
    """The process that an actor plays was killed: nothing of it runs on, not even its clean-up."""


class ActorEvent(Enum):
    READY = auto()  # before its next round trip
    ENDED = auto()


class StepPermit:
    """One actor's. Its thread waits here; the scheduler's thread hears of it and opens."""

    def __init__(self, name: str, events: SimpleQueue[tuple[StepPermit, ActorEvent]]) -> None:
        self.name = name
        self.is_killed = False
        self.yields_turn = False  # it has nothing to do until somebody else has moved
        self.was_deadlocked = False  # the server chose its statement as the victim
        self.next_step = ""
        self.token: int | None = None  # under which it acts, for a timeline
        self.backend_pid: int | None = None  # of the round trip that is under way
        self.results: list[str] = []  # what it was told since the scheduler last asked
        self._events = events
        self._permit = threading.Lock()
        self._permit.acquire()

    def wait_for_permit(self, step: str, backend_pid: int | None) -> None:
        """Called by the actor, before it sends anything."""
        self.raise_if_killed()
        self.next_step = step
        self._events.put((self, ActorEvent.READY))
        self._permit.acquire()
        self.raise_if_killed()
        self.backend_pid = backend_pid

    def open(self) -> None:
        self._permit.release()

    def report_end(self) -> None:
        self._events.put((self, ActorEvent.ENDED))

    def note(self, what: str) -> None:
        self.results.append(what)

    def raise_if_killed(self) -> None:
        if self.is_killed:
            raise ActorKilled(self.name)

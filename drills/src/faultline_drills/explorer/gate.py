"""Where an actor stands before each of its round trips until the scheduler lets it through."""

from __future__ import annotations

import threading
from enum import Enum, auto
from queue import SimpleQueue


class Crashed(BaseException):
    """The process that an actor plays was killed: nothing of it runs on, not even its clean-up."""


class News(Enum):
    STANDS = auto()  # before its next round trip
    ENDED = auto()


class Gate:
    """One actor's. Its thread waits here; the scheduler's thread hears of it and opens."""

    def __init__(self, name: str, news: SimpleQueue[tuple[Gate, News]]) -> None:
        self.name = name
        self.is_doomed = False
        self.is_resting = False  # it has nothing to do until somebody else has moved
        self.was_deadlocked = False  # the server chose its statement as the victim
        self.next_step = ""
        self.token: int | None = None  # under which it acts, for a timeline
        self.backend_pid: int | None = None  # of the round trip that is under way
        self.heard: list[str] = []  # what it was told since the scheduler last asked
        self._news = news
        self._permit = threading.Lock()
        self._permit.acquire()

    def wait_for_turn(self, step: str, backend_pid: int | None) -> None:
        """Called by the actor, before it sends anything."""
        self.raise_if_killed()
        self.next_step = step
        self._news.put((self, News.STANDS))
        self._permit.acquire()
        self.raise_if_killed()
        self.backend_pid = backend_pid

    def open(self) -> None:
        self._permit.release()

    def say_ended(self) -> None:
        self._news.put((self, News.ENDED))

    def hear(self, what: str) -> None:
        self.heard.append(what)

    def raise_if_killed(self) -> None:
        if self.is_doomed:
            raise Crashed(self.name)

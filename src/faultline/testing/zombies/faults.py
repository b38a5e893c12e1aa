"""What can happen to an attempt at a point of its handler."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    CRASH = "crash"
    """The worker is gone: nothing after the point happens. Its sessions end; another one takes over."""

    PAUSE = "pause"
    """The worker stops. Its lease runs out, another one takes over and finishes, and it comes back."""

    SUPERSEDE = "supersede"
    """Another worker has taken the job over, and not finished it: this one goes on without knowing."""

    PARTITION = "partition"
    """The worker loses the database, and goes on outside of it until it is done or fences itself."""

    LOST_ANSWER = "lost_answer"
    """The database did what it was told to and the transaction is over, but the answer never arrives."""


ALL_FAULTS = tuple(Fault)

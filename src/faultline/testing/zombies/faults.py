"""The faults that can be injected at a point of a handler."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    CRASH = "crash"
    """The worker dies: nothing after the point runs, its sessions end, and another takes over."""

    PAUSE = "pause"
    """The worker stops. Its lease expires, another takes over and finishes; then it resumes."""

    SUPERSEDE = "supersede"
    """Another worker takes the job over and has not finished; this one continues, unaware."""

    PARTITION = "partition"
    """The worker loses its database connections and continues until it ends or fences itself."""

    LOST_ANSWER = "lost_answer"
    """PostgreSQL has ended the transaction, but its reply is lost."""


ALL_FAULTS = tuple(Fault)

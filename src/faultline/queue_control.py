"""Pausing and resuming a queue, as values in the style of protocol.py.

A paused queue is left alone by every claim. Jobs can still be enqueued, and what runs is finished.
"""

from __future__ import annotations

from faultline.payload import check_queue_name
from faultline.protocol import Statement


def pause(queue: str, reason: str | None = None) -> Statement[bool]:
    """Whether it ran until now."""
    return Statement(
        "SELECT faultline.pause_queue(%s, %s)",
        (check_queue_name(queue), reason),
        lambda rows: bool(rows[0][0]),
    )


def resume(queue: str) -> Statement[bool]:
    """Whether it was paused."""
    return Statement(
        "SELECT faultline.resume_queue(%s)",
        (check_queue_name(queue),),
        lambda rows: bool(rows[0][0]),
    )

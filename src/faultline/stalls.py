"""Statements about workers that stand still, and about sessions that keep a lapsed job locked."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from faultline.protocol import Statement


def report_blocked(
    worker: str,
    seconds: float | None,
    *,
    job_id: UUID | None = None,
    frame: str | None = None,
    stack: str | None = None,
) -> Statement[None]:
    """The worker's event loop has not turned for so long; None: it turns again."""
    duration = None if seconds is None else timedelta(seconds=seconds)
    return Statement(
        "SELECT faultline.report_blocked(%s, %s, %s, %s, %s)",
        (worker, duration, job_id, frame, stack),
        lambda rows: None,
    )

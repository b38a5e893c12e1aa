"""Statements about the database's clock: its time, and a clock that was set back."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from faultline.statements.statement import Statement


def clock_setback() -> Statement[float]:
    """How many seconds the newest recorded times are ahead of the database's clock."""
    return Statement(
        "SELECT extract(epoch FROM faultline.clock_setback())::float8",
        (),
        lambda rows: float(rows[0][0]),
    )


class Rescheduled(NamedTuple):
    jobs: int
    next: str | None  # JSON text: the position of the next page; None at the end


def reschedule_stranded(after: str | None) -> Statement[Rescheduled]:
    return Statement(
        "SELECT jobs, next::text FROM faultline.reschedule_stranded(%s::jsonb)",
        (after,),
        lambda rows: Rescheduled(*rows[0]),
    )


def database_time() -> Statement[datetime]:
    return Statement("SELECT clock_timestamp()", (), lambda rows: rows[0][0])

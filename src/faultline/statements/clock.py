"""The functions of waiting.sql as values: releases, deferrals, a clock set back."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from faultline.statements.statement import Statement


def clock_setback() -> Statement[float]:
    """How many seconds the newest times on record lie ahead of the database's clock."""
    return Statement(
        "SELECT extract(epoch FROM faultline.clock_setback())::float8",
        (),
        lambda rows: float(rows[0][0]),
    )


class Rescheduled(NamedTuple):
    jobs: int
    next: str | None  # JSON text: where to go on; None at the end


def reschedule_stranded(after: str | None) -> Statement[Rescheduled]:
    return Statement(
        "SELECT jobs, next::text FROM faultline.reschedule_stranded(%s::jsonb)",
        (after,),
        lambda rows: Rescheduled(*rows[0]),
    )


def database_time() -> Statement[datetime]:
    return Statement("SELECT clock_timestamp()", (), lambda rows: rows[0][0])

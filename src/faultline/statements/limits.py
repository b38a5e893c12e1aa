"""Statements about limits: declare, set, reset, repair and list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from faultline.statements.statement import Row, Statement, no_result


@dataclass(frozen=True, slots=True)
class LimitUse:
    """One limit, and how much of it is in use over all its keys."""

    name: str
    max_running: int | None
    rate_jobs: int | None
    rate_seconds: float | None
    burst: int | None
    changed_by: str  # code | operator
    is_declared: bool
    changed_at: datetime
    running: int
    waiting: int  # at least; counting stops at a bound


@dataclass(frozen=True, slots=True)
class LimitRepair:
    """What `faultline.repair_limits` did, and where the next call continues."""

    freed: int
    resumed: int
    forgotten: int
    next: dict[str, Any]  # empty: at the beginning


def declare(
    limits: Mapping[str, Mapping[str, int | float]], arguments: Sequence[Mapping[str, str | None]]
) -> Statement[list[str]]:
    return Statement(
        "SELECT * FROM faultline.declare_limits(%s::jsonb, %s::jsonb)",
        (orjson.dumps(limits).decode(), orjson.dumps(arguments).decode()),
        lambda rows: [str(name) for (name,) in rows],
    )


def set_limit(
    name: str,
    *,
    max_running: int | None = None,
    rate_jobs: int | None = None,
    rate_seconds: float | None = None,
    burst: int | None = None,
    task: str | None = None,
    argument: str | None = None,
) -> Statement[None]:
    return Statement(
        "SELECT faultline.set_limit(%s, %s, %s, %s, %s, %s, %s)",
        (name, max_running, rate_jobs, rate_seconds, burst, task, argument),
        no_result,
    )


def reset(name: str) -> Statement[str]:
    """Answers `declared` if the values of the code apply again, else `removed`."""
    return Statement("SELECT faultline.reset_limit(%s)", (name,), lambda rows: str(rows[0][0]))


def repair(max_rows: int, after: Mapping[str, Any]) -> Statement[LimitRepair]:
    """Repair one page; `after` is the `next` of the last repair."""
    return Statement(
        "SELECT freed, resumed, forgotten, next FROM faultline.repair_limits(%s, %s::jsonb)",
        (max_rows, orjson.dumps(after).decode()),
        lambda rows: LimitRepair(*rows[0]),
    )


# Whether `repair` has anything to look at.
def uses(*, count_up_to: int = 10_000) -> Statement[list[LimitUse]]:
    return Statement(
        """
        SELECT name, max_running, rate_jobs, rate_seconds, burst, changed_by, is_declared, changed_at,
               running, waiting
        FROM faultline.limit_uses(%s)
        """,
        (count_up_to,),
        _uses,
    )


def _uses(rows: list[Row]) -> list[LimitUse]:
    return [LimitUse(*row) for row in rows]


def as_facts(use: LimitUse) -> dict[str, Any]:
    """The JSON document of a limit, for the command line and the APIs."""
    return {
        "name": use.name,
        "max_running": use.max_running,
        "rate": None
        if use.rate_jobs is None
        else {"jobs": use.rate_jobs, "seconds": use.rate_seconds, "burst": use.burst},
        "changed_by": use.changed_by,
        "is_declared": use.is_declared,
        "changed_at": use.changed_at.isoformat(),
        "running": use.running,
        "waiting": use.waiting,
    }

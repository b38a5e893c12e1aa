"""A schemathesis hook for bodies that the schema allows and the API refuses.

PostgreSQL stores larger numbers than the library sends, and JSON can write an integer in several ways. A
schema cannot say "an integer of at most 64 bits" for the inside of a payload, nor "a cursor that an
earlier answer contained", nor "expires later than it is due", nor "a cron
expression or an interval", nor "names of arguments in the payload".
"""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def filter_body(context: Any, body: Any) -> bool:
    if isinstance(body, dict) and "cursor" in body:
        return False
    if isinstance(body, dict) and ("max_running" in body or "rate" in body) and body.get("key"):
        return False  # only a limit key:… has one, and the path has the name
    if isinstance(body, dict) and _is_for_schedules(context) and not _is_a_schedule(body):
        return False
    jobs = body.get("jobs") if isinstance(body, dict) else None
    if not all(
        _expires_later_than_due(job) and _has_its_unique_arguments(job)
        for job in (jobs if isinstance(jobs, list) else [body])
    ):
        return False
    return all(-(2**63) <= number < 2**64 for number in _integers(body))


def _is_for_schedules(context: Any) -> bool:
    operation = getattr(context, "operation", None)
    return operation is not None and operation.path == "/schedules"


def _is_a_schedule(body: dict[str, Any]) -> bool:
    """Whether it has an interval or a valid cron expression, in a known time zone."""
    cron, every = body.get("cron"), body.get("every_seconds")
    if (cron is None) == (every is None) or body.get("anchor") is not None:
        return False
    return cron in (None, "0 6 * * 1-5") and body.get("time_zone", "UTC") in (
        "UTC",
        "Europe/Berlin",
    )


def _expires_later_than_due(job: Any) -> bool:
    """Whether a job has at most one of the options that depend on each other."""
    if not isinstance(job, dict):
        return True
    return sum(job.get(name) is not None for name in ("run_at", "delay", "expires_in")) <= 1


def _has_its_unique_arguments(job: Any) -> bool:
    unique = job.get("unique") if isinstance(job, dict) else None
    named = unique.get("by") if isinstance(unique, dict) else None
    payload = job.get("payload") if isinstance(job, dict) else None
    return not named or (isinstance(payload, dict) and set(named) <= payload.keys())


def _integers(value: Any) -> list[int]:
    match value:
        case bool():
            return []
        case int():
            return [value]
        case dict():
            return [number for item in value.values() for number in _integers(item)]
        case list():
            return [number for item in value for number in _integers(item)]
    return []

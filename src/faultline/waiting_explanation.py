"""Explains why a due job waits for a limit: its places, or its rate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faultline.statements.waiting import COUNT_LIMIT, TakenPlace, Wait
from faultline.wording import count, duration


@dataclass(frozen=True, slots=True)
class WaitAnswer:
    answer: str
    code: str  # waits_for_place | waits_for_rate | limit_stopped | about_to_resume
    facts: dict[str, Any]
    advice: list[str]


def explain_wait(wait: Wait, now: datetime) -> WaitAnswer:
    facts = _facts(wait, now)
    before = f"; {_before(wait)}"
    if wait.max_running is not None and wait.taken >= wait.max_running > 0:
        answer = (
            f"it waits for a place: {wait.taken:,} of {wait.max_running:,} of limit {wait.limit_key}"
            f" {'is' if wait.taken == 1 else 'are'} taken by {_takers(wait, now)}{before}"
        )
        advice = [
            "nothing to do: it is claimed when a place is free and no job is before it",
            f"to allow more at once: {_command(wait, running='N')}",
        ]
        return WaitAnswer(answer, "waits_for_place", facts, advice)
    if wait.max_running == 0:
        return _stopped(wait, now, facts)
    if (wait.next_start_in_seconds or 0.0) > 0:
        answer = (
            f"it waits for its rate: the next start of limit {wait.limit_key} is in"
            f" {duration(wait.next_start_in_seconds or 0.0)}{before}"
        )
        advice = [
            "nothing to do: a worker claims it when the rate allows",
            f"to allow more in a period: {_command(wait, rate='JOBS/SECONDSs')}",
        ]
        return WaitAnswer(answer, "waits_for_rate", facts, advice)
    answer = f"it waited for limit {wait.limit_key}, which has room now{before}"
    if wait.max_running is None and wait.rate_jobs is None:
        answer = f"it waited for limit {wait.limit_key}, which does not exist any more"
    advice = ["it is due again within seconds, while a reconciler leads; every worker has one"]
    return WaitAnswer(answer, "about_to_resume", facts, advice)


def _stopped(wait: Wait, now: datetime, facts: dict[str, Any]) -> WaitAnswer:
    by = "an operator set it" if wait.changed_by == "operator" else "the code declares it"
    since = duration(_seconds(wait.changed_at or now, now))
    answer = f"it waits for limit {wait.limit_key}, which lets no job start: {by} to 0 {since} ago"
    reset = f"faultline limits reset {wait.limit_name}"
    advice = [f"to let jobs start: {_command(wait, running='N')}, or {reset}"]
    return WaitAnswer(answer, "limit_stopped", facts, advice)


def _facts(wait: Wait, now: datetime) -> dict[str, Any]:
    rate = (
        None
        if wait.rate_jobs is None
        else f"{wait.rate_jobs:,} in {wait.rate_seconds:g} s, burst {wait.burst}"
    )
    return {
        "limit": wait.limit_key,
        "waits_since": wait.waits_since.isoformat(),
        "waits_for_seconds": _seconds(wait.waits_since, now),
        "jobs_before_it": wait.ahead,
        "max_running": wait.max_running,
        "places_taken": wait.taken,
        "taken_by": [_taker(place, now) for place in wait.places] or None,
        "rate": rate,
        "next_start_in_seconds": wait.next_start_in_seconds,
    }


def _takers(wait: Wait, now: datetime) -> str:
    named = ", ".join(_taker(place, now) for place in wait.places)
    more = wait.taken - len(wait.places)
    return f"{named} and {more:,} more" if more else named


def _taker(place: TakenPlace, now: datetime) -> str:
    worker = f" on worker {place.worker}" if place.worker else ""
    return f"job {place.job_id}{worker} for {duration(_seconds(place.taken_at, now))}"


def _before(wait: Wait) -> str:
    if not wait.ahead:
        return "no job is before it"
    if wait.ahead >= COUNT_LIMIT:
        return f"more than {COUNT_LIMIT:,} jobs are before it"
    return f"{count(wait.ahead, 'job')} {'is' if wait.ahead == 1 else 'are'} before it"


def _command(wait: Wait, *, running: str | None = None, rate: str | None = None) -> str:
    """The command with all values of the limit: those not given would be removed."""
    if running is None and wait.max_running is not None:
        running = str(wait.max_running)
    if rate is None and wait.rate_jobs is not None:
        rate = f"{wait.rate_jobs}/{wait.rate_seconds:g}s"
        rate += f" --burst {wait.burst}" if wait.burst != 1 else ""
    options = f"{f' --running {running}' if running else ''}{f' --rate {rate}' if rate else ''}"
    return f"faultline limits set {wait.limit_name}{options}"


def _seconds(earlier: datetime, later: datetime) -> float:
    return round(max(0.0, (later - earlier).total_seconds()), 3)

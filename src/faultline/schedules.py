"""Schedules as code declares them: when they fire, and which job they enqueue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from faultline.enqueue_options import Seconds, seconds_of
from faultline.errors import InvalidInput
from faultline.model import JobSpec
from faultline.payload import encode_payload
from faultline.planned_times import EPOCH, Timing
from faultline.wording import with_article

MOST_MISSED = 1000
DEFAULT_MISSED_LIMIT = 100
LONGEST_EVERY_SECONDS = 366 * 86_400 * 10
LONGEST_JITTER_SECONDS = 7 * 86_400.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}\Z")


class Missed(StrEnum):
    """Which times fire if several are due, as after an outage.

    SKIP: the newest, if it is at most a minute late. ONCE: the newest, however late. ALL: each, up to a
    limit. The others are skipped.
    """

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, as `app.schedule` or a command defines it."""

    name: str
    timing: Timing
    job: JobSpec
    missed: Missed = Missed.ONCE
    missed_limit: int = DEFAULT_MISSED_LIMIT
    jitter_seconds: float = 0.0

    @property
    def definition(self) -> Mapping[str, Any]:
        """The argument of `faultline.add_schedule` and `declare_schedules`."""
        job, timing = self.job, self.timing
        overrides = {"timeout": job.timeout_seconds, "lease": job.lease_seconds}
        given = {name: value for name, value in overrides.items() if value is not None}
        fields = {
            "name": self.name,
            "cron": timing.cron,
            "every_seconds": timing.every_seconds,
            "anchor": timing.anchor.isoformat(),
            "time_zone": timing.time_zone,
            "task": job.task,
            "payload": dict(job.payload),
            "queue": job.queue,
            "priority": job.priority,
            "max_attempts": job.max_attempts,
            "expires_in_seconds": job.expires_in_seconds,
            "overrides": given or None,
            "tags": job.tags,
            "missed": self.missed.value,
            "missed_limit": self.missed_limit,
            "jitter_seconds": self.jitter_seconds,
        }
        return {name: value for name, value in fields.items() if value is not None}


def make_schedule(
    job: JobSpec,
    cron: str | None,
    *,
    every: Seconds | None = None,
    tz: str = "UTC",
    anchor: datetime | None = None,
    name: str | None = None,
    missed: str = Missed.ONCE,
    missed_limit: int = DEFAULT_MISSED_LIMIT,
    jitter: Seconds = 0,
) -> Schedule:
    """A schedule with checked values; the errors are InvalidInput."""
    return Schedule(
        check_schedule_name(job.task if name is None else name),
        _timing(cron, every, tz, anchor).check(),
        _check_job(job),
        _check_missed(missed),
        _check_limit(missed_limit),
        seconds_of("jitter", jitter, LONGEST_JITTER_SECONDS, shortest=0) or 0.0,
    )


def check_schedule_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidInput(
            f"{str(name)[:80]!r} is not a name of a schedule",
            hint="up to 200 letters, digits and _.:- , beginning with a letter, digit or _",
        )
    return name


def _timing(cron: str | None, every: Seconds | None, tz: str, anchor: datetime | None) -> Timing:
    if (cron is None) == (every is None):
        raise InvalidInput(
            "a schedule has a cron expression or every=, one of the two",
            hint='"0 6 * * *", or every=timedelta(minutes=5)',
        )
    if anchor is not None and every is None:
        raise InvalidInput("anchor is for every=; a cron expression has its own times")
    if anchor is not None and (
        not isinstance(anchor, datetime) or anchor.tzinfo is None or anchor.microsecond
    ):
        raise InvalidInput(
            "anchor must be a datetime with a time zone, in whole seconds",
            hint="datetime(2026, 1, 1, 6, tzinfo=timezone.utc)",
        )
    if cron is not None and not isinstance(cron, str):
        raise InvalidInput(f"a cron expression is a text, not {with_article(type(cron).__name__)}")
    at = EPOCH if anchor is None else anchor.astimezone(UTC)
    return Timing(None if cron is None else " ".join(cron.split()), _whole(every), at, tz)


def _whole(every: Seconds | None) -> int | None:
    seconds = seconds_of("every", every, LONGEST_EVERY_SECONDS, shortest=1)
    if seconds is None:
        return None
    if not seconds.is_integer():
        raise InvalidInput(f"every must be whole seconds, not {seconds:g}")
    return int(seconds)


def _check_job(job: JobSpec) -> JobSpec:
    for name in ("run_at", "delay_seconds", "idempotency_key"):
        if getattr(job, name) is not None:
            raise InvalidInput(
                f"the job of a schedule has no {name.removesuffix('_seconds')}",
                hint="each firing sets the time and the idempotency key of its job",
            )
    encode_payload(job.payload)
    return job


def _check_missed(missed: Any) -> Missed:
    try:
        return Missed(missed)
    except ValueError:
        raise InvalidInput(
            f"missed must be 'skip', 'once' or 'all', not {str(missed)[:80]!r}"
        ) from None


def _check_limit(limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_MISSED:
        raise InvalidInput(f"missed_limit must be 1 to {MOST_MISSED:,}, not {str(limit)[:80]}")
    return limit

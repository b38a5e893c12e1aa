"""The options of one enqueue, checked when they are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from faultline.config import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS
from faultline.errors import InvalidInput
from faultline.payload import (
    check_idempotency_key,
    check_max_attempts,
    check_priority,
    check_queue_name,
)
from faultline.unique import Unique
from faultline.user_connections import AnyConnection
from faultline.wording import with_article

Seconds = float | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """None leaves the setting of the task."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay_seconds: float | None = None
    expires_in_seconds: float | None = None
    timeout_seconds: float | None = None
    lease_seconds: float | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    unique: Unique | None = None
    tags: tuple[str, ...] | None = None
    conn: AnyConnection | None = None

    def __post_init__(self) -> None:
        if self.queue is not None:
            check_queue_name(self.queue)
        if self.priority is not None:
            check_priority(self.priority)
        if self.max_attempts is not None:
            check_max_attempts(self.max_attempts)
        if self.idempotency_key is not None:
            check_idempotency_key(self.idempotency_key)
        _check_aware(self.run_at)
        if self.run_at is not None and self.delay_seconds is not None:
            raise InvalidInput("run_at and delay exclude each other", hint="give one of them")

    def updated(self, given: dict[str, Any]) -> EnqueueOptions:
        """The same options with those of `given` that are not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def seconds_of(
    name: str, given: Seconds | None, longest: float, *, shortest: float | None = None
) -> float | None:
    """A duration in seconds; InvalidInput if it is not one, or out of range.

    Without a `shortest` one it is more than 0.
    """
    if given is None:
        return None
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidInput(
            f"{name} must be seconds or a timedelta, not {with_article(type(given).__name__)}",
            hint=f"{name}=30 or {name}=timedelta(minutes=5)",
        )
    in_range = 0 < seconds <= longest if shortest is None else shortest <= seconds <= longest
    if not in_range:  # NaN too
        least = "more than 0" if shortest is None else f"at least {shortest:g}"
        raise InvalidInput(
            f"{name} must be {least} and at most {longest:,} seconds ({longest / 86_400:,.0f} days),"
            f" not {seconds:g}"
        )
    return float(seconds)


def lease_seconds_of(name: str, given: Seconds | None) -> float | None:
    """The length of a lease in seconds; InvalidInput if it is out of range."""
    return seconds_of(name, given, LONGEST_LEASE_SECONDS, shortest=SHORTEST_LEASE_SECONDS)


def _check_aware(run_at: datetime | None) -> None:
    if run_at is None:
        return
    if not isinstance(run_at, datetime):
        raise InvalidInput(f"run_at must be a datetime, not {with_article(type(run_at).__name__)}")
    if run_at.tzinfo is None:
        raise InvalidInput("run_at needs a time zone", hint="datetime.now(timezone.utc) + …")

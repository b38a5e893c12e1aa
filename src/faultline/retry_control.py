"""Exceptions by which a handler decides when its job runs again."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import ClassVar

from faultline.config import LONGEST_RETRY_SECONDS
from faultline.errors import FaultlineError, InvalidInput

_REASON_LENGTH = 1_000


class Snooze(FaultlineError):
    """Raised by a handler to run its job again later, without using an attempt.

    Writes that the handler has committed stay, and an open transaction is rolled back. A snooze lasts a
    second at least. A job may be snoozed any number of times: see `expires_in` to bound its wait.
    """

    code: ClassVar[str] = "snoozed"

    def __init__(
        self,
        seconds: float | timedelta | None = None,
        *,
        until: datetime | None = None,
        reason: str | None = None,
    ) -> None:
        if (seconds is None) == (until is None):
            raise InvalidInput("Snooze takes either seconds or until, and one of them")
        if seconds is not None:
            seconds = _checked_seconds("Snooze", "seconds", seconds)
            when = f"for {seconds:g} s"
        else:
            when = f"until {_checked_moment(until).isoformat()}"
        self.seconds = seconds
        self.until = until
        self.reason = _checked_reason("Snooze", reason)
        super().__init__(f"snoozed {when}" + (f": {self.reason}" if self.reason else ""))


class Retry(FaultlineError):
    """Raised by a handler to fail this attempt and set the delay of the next one.

    It uses an attempt like any failure: when no attempts are left, the job fails.
    """

    code: ClassVar[str] = "retry_requested"

    def __init__(self, after: float | timedelta, *, reason: str | None = None) -> None:
        self.after = _checked_seconds("Retry", "after", after)
        self.reason = _checked_reason("Retry", reason)
        super().__init__(
            self.reason or f"the handler asked for another attempt in {self.after:g} s"
        )


def too_late(error: Snooze | Retry) -> InvalidInput:
    """The error of a handler that raises `error` after it has committed its job."""
    name = type(error).__name__
    failure = InvalidInput(
        f"the handler raised {name} after it had committed its job, which has succeeded",
        hint=f"raise {name} before job.transaction(), or inside of the block to roll it back",
    )
    return failure.with_traceback(error.__traceback__)


def _checked_seconds(name: str, argument: str, seconds: object) -> float:
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidInput(f"{name} needs {argument} as a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= LONGEST_RETRY_SECONDS:
        raise InvalidInput(
            f"{name} needs {argument} of 0 to {LONGEST_RETRY_SECONDS:,} seconds (100 years),"
            f" not {seconds:g}"
        )
    return float(seconds)


def _checked_moment(until: object) -> datetime:
    if not isinstance(until, datetime) or until.tzinfo is None:
        raise InvalidInput(
            f"Snooze needs until as a datetime with a time zone, not {until!r}",
            hint="datetime.now(UTC) + timedelta(hours=1)",
        )
    return until


def _checked_reason(name: str, reason: object) -> str | None:
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise InvalidInput(f"{name} needs reason as a str, not {reason!r}")
    # PostgreSQL stores neither NUL nor half of a surrogate pair
    text = reason[:_REASON_LENGTH].encode("utf-8", "backslashreplace").decode()
    return text.replace("\x00", "\\x00")

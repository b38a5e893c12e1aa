"""The delay between two attempts at a job."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from faultline.config import LONGEST_RETRY_SECONDS
from faultline.errors import InvalidSettings


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The wait before the next attempt: exponential, with a cap and jitter.

    With the default number of attempts the defaults outlast an outage of two hours: the waits are 3 s,
    9 s, 27 s, 81 s, 4 min, 12 min, 36 min and twice an hour, each shortened by up to 30 %.
    """

    base_seconds: float = 3.0
    factor: float = 3.0
    cap_seconds: float = 3600.0
    jitter: float = 0.3

    def __post_init__(self) -> None:
        # NaN compares as false with everything: each condition says what must hold.
        if not 0 <= self.base_seconds <= self.cap_seconds <= LONGEST_RETRY_SECONDS:
            raise InvalidSettings(
                "a retry policy needs 0 <= base_seconds <= cap_seconds, and cap_seconds of at most"
                f" {LONGEST_RETRY_SECONDS:,} (100 years)"
            )
        if not (1 <= self.factor < math.inf and 0 <= self.jitter <= 1):
            raise InvalidSettings("a retry policy needs factor >= 1 and 0 <= jitter <= 1")

    def delay_seconds(self, attempt: int) -> float:
        """The wait after `attempt` (1 for the first), never more than the cap."""
        try:
            longest = min(self.cap_seconds, self.base_seconds * self.factor ** (attempt - 1))
        except OverflowError:
            longest = self.cap_seconds
        return longest * (1 - self.jitter * random.random())  # noqa: S311 - spread, not secrecy


DEFAULT_RETRY = RetryPolicy()

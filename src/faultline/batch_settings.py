"""How a worker collects the jobs of a batch handler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from faultline.errors import InvalidInput
from faultline.model import Claim

MAX_BATCH_SIZE = 1_000
LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How a worker collects the jobs of one batch."""

    max_size: int
    max_wait_seconds: float
    arguments: Callable[..., Any] | None = None  # makes `job.args`; None: a dict

    def size_for(self, claim: Claim) -> int:
        """The largest batch that this job may be part of.

        A job that makes the handler raise fails its whole batch. So the second attempt is part of a smaller
        batch, and a later one is alone. A job whose worker was lost is alone too.
        """
        if claim.crashes > 0 or claim.attempt > 2:
            return 1
        return self.max_size if claim.attempt == 1 else max(1, self.max_size // 10)


def batch_settings(
    max_size: object, max_wait: object, arguments: Callable[..., Any] | None
) -> BatchSettings:
    if isinstance(max_size, bool) or not isinstance(max_size, int):
        raise InvalidInput(f"max_size must be a whole number, not {max_size!r}")
    if not 1 <= max_size <= MAX_BATCH_SIZE:
        raise InvalidInput(f"max_size must be 1 to {MAX_BATCH_SIZE:,}, not {max_size}")
    seconds = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidInput(f"max_wait must be seconds or a timedelta, not {max_wait!r}")
    if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
        raise InvalidInput(
            f"max_wait must be 0 to {LONGEST_WAIT_SECONDS:g} seconds, not {seconds:g}"
        )
    if arguments is not None and not callable(arguments):
        raise InvalidInput(
            f"arguments must be a class or a function, not {arguments!r}",
            hint="for example a dataclass with a field for each argument",
        )
    return BatchSettings(max_size=max_size, max_wait_seconds=float(seconds), arguments=arguments)

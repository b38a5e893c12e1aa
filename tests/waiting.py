"""The one way to wait in tests: poll until a condition holds, up to a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT_SECONDS = 45.0  # for what happens at once as a rule: the machine may be busy
POLL_SECONDS = 0.01

# Called at every poll; one that raises ends the wait. `tests.running` adds its background services.
alarms: list[Callable[[], None]] = []


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "the condition",
    *,
    limit_seconds: float = LIMIT_SECONDS,
    check: Callable[[], None] = lambda: None,
) -> T:
    """Wait until the condition holds, and return its value.

    `what` names it if it never holds; a function is called then, to show the state of things. `check` is
    called at every poll, and raises when the condition can no longer come true.
    """
    give_up_at = time.monotonic() + limit_seconds
    while not (value := condition()):
        for alarm in [check, *alarms]:
            alarm()
        if time.monotonic() > give_up_at:
            missing = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {limit_seconds:g} s: {missing}")
        time.sleep(POLL_SECONDS)
    return value

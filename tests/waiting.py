"""Waits of tests: until a condition holds, or for a time that a test is about.

A test that waits for a state calls `wait_until`. The other functions are for handlers that must last for
a time or block a thread, and for pauses in which nothing may happen.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

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
        block_thread(POLL_SECONDS)
    return value


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T]],
    what: str = "the condition",
    *,
    limit_seconds: float = LIMIT_SECONDS,
) -> T:
    """`wait_until` for coroutines; the condition may be a coroutine function."""
    give_up_at = time.monotonic() + limit_seconds
    while True:
        holds = condition()
        value: T = await holds if inspect.isawaitable(holds) else holds
        if value:
            return value
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {limit_seconds:g} s: {what}")
        await idle(POLL_SECONDS)


def block_thread(seconds: float) -> None:
    """Block the calling thread; no exception from another thread interrupts it."""
    time.sleep(seconds)


def run_until_interrupted() -> NoReturn:
    """Run Python code until another thread raises an exception in this one."""
    while True:
        block_thread(0.001)


async def idle(seconds: float) -> None:
    """Suspend the calling coroutine for this time; other coroutines run."""
    await asyncio.sleep(seconds)


async def yield_to_loop() -> None:
    """Let the event loop run what is ready, such as a new task's first step."""
    await idle(0)

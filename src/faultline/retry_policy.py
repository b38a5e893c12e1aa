"""The delay between two attempts at a job, and which errors end its attempts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from faultline.config import LONGEST_RETRY_SECONDS
from faultline.errors import InvalidSettings, Reject
from faultline.events import Event, emit
from faultline.retry_control import Retry, Snooze

_MOST_DELAYS = 1_000  # a job has at most this many attempts
_MOST_MEMBERS = 1_000  # of nested exception groups that are looked at

# Per kind of error: exponential delays, the same delay each time, or one for each attempt (the last repeats).
Delays: TypeAlias = "RetryPolicy | Seconds | Sequence[Seconds]"
Seconds: TypeAlias = float | timedelta


class RetryDecision(NamedTuple):
    """What follows a failed attempt: the delay until the next one, or none at all."""

    delay_seconds: float
    gives_up: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The wait before the next attempt: exponential, with a cap and jitter.

    With the default number of attempts the defaults outlast an outage of two hours: the waits are 3 s,
    9 s, 27 s, 81 s, 4 min, 12 min, 36 min and twice an hour, each shortened by up to 30 %.

    `on` has other delays for some classes of errors: seconds, a sequence of seconds with one item for each
    attempt, or a RetryPolicy. An error in `give_up_on` fails the job at once, with the reason gave_up. Of
    the classes in both, the first in the error's method resolution order decides, so a subclass goes before
    its base class.
    """

    base_seconds: float = 3.0
    factor: float = 3.0
    cap_seconds: float = 3600.0
    jitter: float = 0.3
    on: Mapping[type[Exception], Delays] = field(default_factory=dict, hash=False, kw_only=True)
    give_up_on: tuple[type[Exception], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        # NaN compares as false with everything: each condition says what must hold.
        if not 0 <= self.base_seconds <= self.cap_seconds <= LONGEST_RETRY_SECONDS:
            raise InvalidSettings(
                "a retry policy needs 0 <= base_seconds <= cap_seconds, and cap_seconds of at most"
                f" {LONGEST_RETRY_SECONDS:,} (100 years)"
            )
        if not (1 <= self.factor < math.inf and 0 <= self.jitter <= 1):
            raise InvalidSettings("a retry policy needs factor >= 1 and 0 <= jitter <= 1")
        object.__setattr__(self, "on", MappingProxyType(_checked_rules(self.on)))
        object.__setattr__(self, "give_up_on", _checked_classes(self.give_up_on))
        for each in self.on.keys() & set(self.give_up_on):
            raise InvalidSettings(
                f"a retry policy has {each.__name__} in on and in give_up_on",
                hint="leave one of them",
            )

    def delay_seconds(self, attempt: int) -> float:
        """The wait after `attempt` (1 for the first), never more than the cap."""
        try:
            longest = min(self.cap_seconds, self.base_seconds * self.factor ** (attempt - 1))
        except OverflowError:
            longest = self.cap_seconds
        return longest * (1 - self.jitter * random.random())  # noqa: S311 - spread, not secrecy

    def decide(self, error: BaseException, attempt: int) -> RetryDecision:
        """What follows after `attempt` ended with this error.

        Of an exception group each member decides: the job gives up if one of them says so, else the longest
        delay counts.
        """
        if isinstance(error, Retry):
            return RetryDecision(error.after)
        if not self.on and not self.give_up_on:
            return RetryDecision(self.delay_seconds(attempt))
        decisions = [self._decide_one(type(each), attempt) for each in _members(error)]
        return RetryDecision(
            max((each.delay_seconds for each in decisions), default=self.delay_seconds(attempt)),
            any(each.gives_up for each in decisions),
        )

    def _decide_one(self, error: type[BaseException], attempt: int) -> RetryDecision:
        for each in error.__mro__:
            if each in self.give_up_on:
                return RetryDecision(0.0, gives_up=True)
            if each in self.on:
                return RetryDecision(_delay_of(self.on[each], attempt))
        return RetryDecision(self.delay_seconds(attempt))


def request_of(error: Exception) -> Exception:
    """The error, or the Snooze, Retry or Reject that is alone in this group.

    A TaskGroup wraps what its tasks raise in a group."""
    only: BaseException = error
    for _ in range(_MOST_MEMBERS):
        if not isinstance(only, BaseExceptionGroup) or len(only.exceptions) != 1:
            break
        only = only.exceptions[0]
    return only if isinstance(only, Snooze | Retry | Reject) else error


def _members(error: BaseException) -> Iterator[BaseException]:
    """The errors in nested groups; of another error the error itself."""
    waiting = [error]
    for _ in range(_MOST_MEMBERS):
        if not waiting:
            return
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        else:
            yield each


def _delay_of(delays: Delays, attempt: int) -> float:
    if isinstance(delays, RetryPolicy):
        return delays.delay_seconds(attempt)
    if isinstance(delays, Sequence):
        delays = delays[min(attempt, len(delays)) - 1]
    return delays.total_seconds() if isinstance(delays, timedelta) else delays


def _checked_rules(rules: object) -> dict[type[Exception], Delays]:
    if not isinstance(rules, Mapping):
        raise InvalidSettings(
            "a retry policy needs on as a dict of delays by exception class",
            hint="on={ConnectionError: 5, RateLimited: [10, 60, 600]}",
        )
    return {_checked_class("on", each): _checked_delays(each, rules[each]) for each in rules}


def _checked_classes(classes: object) -> tuple[type[Exception], ...]:
    if isinstance(classes, type) or not isinstance(classes, tuple | list | set | frozenset):
        raise InvalidSettings(
            "a retry policy needs give_up_on as a tuple of exception classes",
            hint="give_up_on=(InvalidCard,)",
        )
    return tuple(_checked_class("give_up_on", each) for each in classes)


def _checked_class(where: str, found: object) -> type[Exception]:
    if not isinstance(found, type) or not issubclass(found, Exception):
        raise InvalidSettings(
            f"a retry policy has {found!r} in {where}, which is no subclass of Exception"
        )
    if issubclass(found, BaseExceptionGroup):
        raise InvalidSettings(
            f"a retry policy has {found.__name__} in {where}, but the members of a group decide",
            hint="name the classes of the members",
        )
    return found


def _checked_delays(error: type[Exception], delays: object) -> Delays:
    name = error.__name__
    if isinstance(delays, RetryPolicy):
        if delays.on or delays.give_up_on:
            raise InvalidSettings(f"the retry policy for {name} cannot have rules of its own")
        return delays
    if (seconds := _seconds(delays)) is not None:
        return seconds
    if (
        isinstance(delays, Sequence)
        and not isinstance(delays, str | bytes)
        and 1 <= len(delays) <= _MOST_DELAYS
        and None not in (each := [_seconds(delay) for delay in delays])
    ):
        return tuple(seconds for seconds in each if seconds is not None)
    raise InvalidSettings(
        f"a retry policy needs seconds, a sequence of seconds or a RetryPolicy for {name},"
        f" not {delays!r}",
        hint=f"each delay is 0 to {LONGEST_RETRY_SECONDS:,} s (100 years)",
    )


def _seconds(delay: object) -> float | None:
    """The delay in seconds; None if it is none, or out of range."""
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return None
    return float(delay) if 0 <= delay <= LONGEST_RETRY_SECONDS else None


DEFAULT_RETRY = RetryPolicy()


def decide_safely(
    policy: RetryPolicy, error: BaseException, attempt: int, *, is_of_handler: bool = True
) -> RetryDecision:
    """The policy's decision, or the default one's if the policy itself fails.

    Rules by exception are for errors of handlers, not for a lost lease or a process that died. A policy may
    be a class of the application. Without a decision the failure could not be recorded, and the job would
    stay `running` until its lease ends.
    """
    try:
        decision = (
            policy.decide(error, attempt)
            if is_of_handler
            else RetryDecision(policy.delay_seconds(attempt))
        )
        if not 0 <= decision.delay_seconds <= LONGEST_RETRY_SECONDS:  # NaN too
            raise ValueError(f"{decision.delay_seconds!r} is no delay in seconds")
        return RetryDecision(float(decision.delay_seconds), bool(decision.gives_up))
    except Exception as failure:
        emit(
            Event.DEGRADED,
            reason=f"{type(policy).__name__} could not decide about a retry: the default policy does",
            error=f"{type(failure).__name__}: {failure}",
        )
        return DEFAULT_RETRY.decide(error, attempt)

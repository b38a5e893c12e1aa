"""Retry policies by exception: which class decides, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faultline import (
    FaultlineError,
    InvalidInput,
    InvalidSettings,
    Reject,
    Retry,
    RetryPolicy,
    Snooze,
)
from faultline.retry_policy import RetryDecision, request_of


class Outage(Exception):
    pass


class RateLimited(Outage):
    pass


class InvalidCard(Exception):
    pass


class StolenCard(InvalidCard):
    pass


STEADY = RetryPolicy(base_seconds=2, factor=2, cap_seconds=100, jitter=0)
POLICY = RetryPolicy(
    base_seconds=1,
    jitter=0,
    on={Outage: STEADY, RateLimited: [10, timedelta(minutes=1)], StolenCard: 5},
    give_up_on=(InvalidCard,),
)


@pytest.mark.parametrize(
    ("error", "attempt", "seconds"),
    [
        (ValueError(), 2, 3.0),  # the policy's own delays
        (Outage(), 1, 2.0),
        (Outage(), 3, 8.0),
        (RateLimited(), 1, 10.0),  # goes before its base class
        (RateLimited(), 2, 60.0),
        (RateLimited(), 9, 60.0),  # the last delay repeats
        (StolenCard(), 4, 5.0),  # although its base class gives up
        (Retry(after=7), 1, 7.0),
        (Retry(after=timedelta(minutes=1)), 1, 60.0),
    ],
)
def test_the_first_class_in_the_resolution_order_decides(
    error: Exception, attempt: int, seconds: float
) -> None:
    assert POLICY.decide(error, attempt) == RetryDecision(seconds)


def test_an_error_of_a_class_to_give_up_on_ends_the_job() -> None:
    assert POLICY.decide(InvalidCard(), 1).gives_up
    assert RetryPolicy(give_up_on=[ValueError]).decide(UnicodeError(), 1).gives_up  # type: ignore[arg-type]
    assert not RetryPolicy(give_up_on=(UnicodeError,)).decide(ValueError(), 1).gives_up


def test_the_members_of_a_group_decide_together() -> None:
    nested = ExceptionGroup("outer", [Outage(), ExceptionGroup("inner", [RateLimited()])])
    assert POLICY.decide(nested, 1) == RetryDecision(10.0)  # the longest
    assert POLICY.decide(ExceptionGroup("both", [Outage(), InvalidCard()]), 1).gives_up


def test_a_request_alone_in_a_group_is_that_request() -> None:
    snooze = Snooze(seconds=3)
    assert request_of(ExceptionGroup("a", [ExceptionGroup("b", [snooze])])) is snooze
    several = ExceptionGroup("a", [snooze, ValueError()])
    assert request_of(several) is several
    other = ExceptionGroup("a", [ValueError()])
    assert request_of(other) is other
    assert isinstance(request_of(ExceptionGroup("a", [Reject("no")])), Reject)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"on": [ValueError]}, "on as a dict"),
        ({"on": {"ValueError": 1}}, "no subclass of Exception"),
        ({"on": {KeyboardInterrupt: 1}}, "no subclass of Exception"),
        ({"on": {ExceptionGroup: 1}}, "members of a group decide"),
        ({"on": {ValueError: timedelta(days=-1)}}, "needs seconds, a sequence"),
        ({"on": {ValueError: -1}}, "needs seconds, a sequence"),
        ({"on": {ValueError: math.nan}}, "needs seconds, a sequence"),
        ({"on": {ValueError: True}}, "needs seconds, a sequence"),
        ({"on": {ValueError: []}}, "needs seconds, a sequence"),
        ({"on": {ValueError: "12"}}, "needs seconds, a sequence"),
        ({"on": {ValueError: [1, math.inf]}}, "needs seconds, a sequence"),
        ({"on": {ValueError: POLICY}}, "rules of its own"),
        ({"give_up_on": ValueError}, "as a tuple"),
        ({"give_up_on": (ValueError, 3)}, "no subclass of Exception"),
        ({"on": {ValueError: 1}, "give_up_on": (ValueError,)}, "in on and in give_up_on"),
    ],
)
def test_rules_are_checked_at_definition(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as refused:
        RetryPolicy(**rules)
    assert refused.value.code == "invalid_settings"


def test_rules_cannot_be_changed_afterwards() -> None:
    rules: dict[type[Exception], Any] = {ValueError: 1}
    policy = RetryPolicy(on=rules)
    rules[ValueError] = 99
    assert policy.decide(ValueError(), 1) == RetryDecision(1.0)
    with pytest.raises(TypeError):
        policy.on[ValueError] = 2  # type: ignore[index]
    assert hash(policy) == hash(RetryPolicy(on={ValueError: 1}))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"seconds": 1, "until": datetime.now(UTC)},
        {"seconds": -1},
        {"seconds": timedelta(days=40_000)},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": True},
        {"seconds": "1"},
        {"until": datetime(2026, 1, 1)},  # noqa: DTZ001 - without a time zone
        {"until": "tomorrow"},
        {"seconds": 1, "reason": 3},
    ],
)
def test_a_snooze_checks_its_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="Snooze"):
        Snooze(**arguments)


@pytest.mark.parametrize("after", [-1, math.nan, True, None])
def test_a_retry_checks_its_delay(after: Any) -> None:
    with pytest.raises(InvalidInput, match="Retry needs after"):
        Retry(after)


def test_a_reason_can_be_stored() -> None:
    reason = Snooze(1, reason="nul \x00, half \ud800, " + "x" * 2000).reason or ""
    reason.encode()
    assert "\x00" not in reason
    assert len(reason) < 1100
    assert isinstance(Snooze(1), FaultlineError)

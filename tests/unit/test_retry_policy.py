"""Retry policies: their limits, growth and defaults."""

from __future__ import annotations

import pytest

from faultline import InvalidSettings, RetryPolicy
from faultline.events import Event
from faultline.model import DEFAULT_MAX_ATTEMPTS
from faultline.retry_policy import RetryDecision, decide_safely
from tests.running import EventTap


@pytest.mark.parametrize(
    "policy",
    [
        {"base_seconds": -1},
        {"base_seconds": 10, "cap_seconds": 5},
        {"factor": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
    ],
)
def test_a_contradictory_retry_policy_is_refused(policy: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match="a retry policy needs"):
        RetryPolicy(**policy)


def test_retries_grow_up_to_the_cap_and_jitter_only_shortens_them() -> None:
    steady = RetryPolicy(base_seconds=1, factor=2, cap_seconds=10, jitter=0)
    assert [steady.delay_seconds(attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    spread = RetryPolicy(base_seconds=4, jitter=0.5)
    delays = [spread.delay_seconds(1) for _ in range(200)]
    assert all(2 <= delay <= 4 for delay in delays)
    assert len(set(delays)) > 100


def test_the_default_retries_outlast_an_outage_of_two_hours() -> None:
    policy = RetryPolicy()
    longest = [
        min(policy.cap_seconds, policy.base_seconds * policy.factor**number)
        for number in range(DEFAULT_MAX_ATTEMPTS - 1)
    ]
    assert sum(longest) * (1 - policy.jitter) >= 2 * 3600
    assert longest[0] <= 5  # and what fails for a moment is tried again soon


class BrokenPolicy(RetryPolicy):
    """An application's policy; `delay` is what it says, or the error that it raises."""

    delay: object = None

    def decide(self, error: BaseException, attempt: int) -> RetryDecision:
        if isinstance(self.delay, Exception):
            raise self.delay
        return RetryDecision(self.delay)  # type: ignore[arg-type]

    def delay_seconds(self, attempt: int) -> float:
        raise KeyError(attempt)


@pytest.mark.parametrize("delay", [RuntimeError("no table"), None, -1, float("nan"), "5"])
def test_a_policy_that_fails_is_replaced_by_the_default_one(
    events: EventTap, delay: object
) -> None:
    policy = type("Own", (BrokenPolicy,), {"delay": delay})()
    for is_of_handler in (True, False):
        decision = decide_safely(policy, ValueError(), 1, is_of_handler=is_of_handler)
        assert 0 < decision.delay_seconds <= RetryPolicy().base_seconds
        assert decision.gives_up is False
    assert [each["reason"].split()[0] for each in events.of(Event.DEGRADED)] == ["Own", "Own"]

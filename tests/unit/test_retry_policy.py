"""Retry policies: their limits, growth and defaults."""

from __future__ import annotations

import pytest

from faultline import InvalidSettings, RetryPolicy
from faultline.model import DEFAULT_MAX_ATTEMPTS


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

"""Time spans that PostgreSQL would refuse are refused where they are written."""

from __future__ import annotations

import math
from typing import Any

import pytest

from faultline import Faultline, InvalidInput, Job, RetryPolicy
from faultline.config import LONGEST_LEASE_SECONDS, LONGEST_RETRY_SECONDS, WorkerSettings
from faultline.errors import InvalidSettings

NONSENSE = [0, -1, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize(
    "options",
    [
        *({"lease": seconds} for seconds in [*NONSENSE, LONGEST_LEASE_SECONDS + 1]),
        *({"timeout": seconds} for seconds in [*NONSENSE, LONGEST_RETRY_SECONDS + 1]),
    ],
)
def test_a_task_with_a_span_out_of_bounds_is_refused_at_its_definition(
    options: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput, match="at most"):

        @Faultline("postgresql:///nowhere").task(**options)
        def task(job: Job) -> None: ...


@pytest.mark.parametrize(
    "policy",
    [
        {"cap_seconds": 1e12},
        {"cap_seconds": math.inf},
        {"cap_seconds": math.nan},
        {"base_seconds": math.nan},
        {"factor": math.inf},
        {"factor": math.nan},
        {"jitter": math.nan},
    ],
)
def test_a_retry_policy_out_of_bounds_is_refused(policy: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match="a retry policy needs"):
        RetryPolicy(**policy)


@pytest.mark.parametrize(
    "settings",
    [
        {"lease_seconds": LONGEST_LEASE_SECONDS + 1},
        {"lease_seconds": math.inf},
        {"poll_seconds": math.inf},
        {"drain_seconds": math.nan},
    ],
)
def test_a_worker_with_a_span_out_of_bounds_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(settings))):
        WorkerSettings(**settings)  # type: ignore[arg-type]

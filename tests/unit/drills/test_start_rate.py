"""The check of a rate looks at every window."""

from __future__ import annotations

import pytest

from faultline_drills.judging.start_rate import StartRate


@pytest.mark.parametrize(
    ("starts", "holds"),
    [
        ([0, 0, 0], True),  # the burst
        ([0, 0, 0, 0], False),
        ([0, 0, 0, 0.1, 0.2], True),
        ([0, 0, 0, 0.05], False),
        ([0, 5, 5, 5, 5.05], False),  # the worst window begins late
        ([0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4], True),
        ([0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4], False),
    ],
)
def test_no_window_may_hold_more_starts_than_burst_and_rate(
    starts: list[float], holds: bool
) -> None:
    assert (StartRate(jobs_per_second=10, burst=3).exceeded(starts) is None) is holds

"""Without a fence, a retry after a timeout applies the effect twice."""

from __future__ import annotations

import pytest

from faultline_drills.subjects import Subject
from tests.failure_modes.conftest import LEASE_AND_WORK, Race


@pytest.mark.parametrize(("lease", "work"), LEASE_AND_WORK)
def test_without_the_fence_a_retry_after_a_timeout_pays_twice(
    race: Race, lease: int, work: int
) -> None:
    report = race(Subject.NAIVE, lease=lease, work=work)

    assert report.payments == 2
    assert report.ledger_count == 2
    assert (report.min_token, report.max_token) == (1, 2)
    exits = {e.worker: e.fields["reason"] for e in report.events if e.event == "worker_exit"}
    assert exits == {"A": "success", "B": "success"}  # both report success


@pytest.mark.slow
def test_without_the_fence_the_older_token_may_even_commit_first(race: Race) -> None:
    report = race(Subject.NAIVE, lease=1, work=2, wake_before_commit=True)

    assert report.payments == 2

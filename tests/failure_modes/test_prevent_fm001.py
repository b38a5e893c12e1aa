"""With the fence there is exactly one effect, whichever worker commits first."""

from __future__ import annotations

import pytest

from faultline_drills.subjects import Subject
from tests.failure_modes.conftest import LEASE_AND_WORK, Race


@pytest.mark.parametrize(("lease", "work"), LEASE_AND_WORK)
def test_the_first_commit_stands_and_the_late_one_is_refused(
    race: Race, lease: int, work: int
) -> None:
    report = race(Subject.FAULTLINE, lease=lease, work=work)

    assert report.holds, report.checks


@pytest.mark.slow
def test_a_superseded_token_may_not_commit_even_before_the_newer_one_has(race: Race) -> None:
    report = race(Subject.FAULTLINE, lease=1, work=2, wake_before_commit=True)

    assert report.holds, report.checks
    order = [(e.worker, e.event) for e in report.events]
    assert order.index(("A", "stale_write_blocked")) < order.index(("B", "commit_ok"))

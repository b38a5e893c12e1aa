"""Without a fault: one attempt, one effect, one ledger entry under token 1."""

from __future__ import annotations

import pytest

from faultline_drills.race import RaceBehaviour
from faultline_drills.subjects import Subject
from tests.failure_modes.conftest import Race


@pytest.mark.parametrize("subject", list(Subject))
def test_an_undisturbed_job_takes_effect_once(race: Race, subject: Subject) -> None:
    report = race(subject, role=RaceBehaviour.STEADY)

    assert report.state == "succeeded"
    assert report.payments == 1
    assert (report.ledger_count, report.min_token, report.max_token) == (1, 1, 1)
    assert report.rejections == 0

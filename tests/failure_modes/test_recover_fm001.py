"""After a crash before or after its commit, a job ends with one effect."""

from __future__ import annotations

from faultline_drills.race import RaceBehaviour
from faultline_drills.subjects import Subject
from tests.failure_modes.conftest import Race


def test_a_crash_after_the_commit_is_not_followed_by_a_second_effect(race: Race) -> None:
    report = race(Subject.FAULTLINE, role=RaceBehaviour.CRASHES_AFTER_COMMIT)

    assert report.state == "succeeded"
    assert report.payments == 1
    assert (report.ledger_count, report.max_token) == (1, 1)
    # the other worker noticed the loss, and found no job to claim
    events = [(e.worker, e.event) for e in report.events]
    assert ("B", "worker_lost") in events
    assert ("B", "lease_acquired") not in events


def test_a_crash_before_the_commit_leaves_nothing_and_the_job_runs_again(race: Race) -> None:
    report = race(Subject.FAULTLINE, role=RaceBehaviour.CRASHES_BEFORE_COMMIT)

    assert report.state == "succeeded"
    assert report.payments == 1
    assert (report.ledger_count, report.max_token) == (1, 2)

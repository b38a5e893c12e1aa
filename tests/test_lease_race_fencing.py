"""The deterministic race: PostgreSQL refuses a worker that outlived its lease.

A claims and opens a barrier in the database; B starts only then; A outlives its lease; B reclaims,
executes, succeeds; A wakes, is refused, and exits as stale.
"""

from __future__ import annotations

import pytest

from faultline_drills.race import RaceReport, RaceSettings, run_race
from faultline_drills.subjects import Subject, install


@pytest.fixture(
    params=[False, True], ids=["A wakes after B has committed", "A wakes while B is running"]
)
def race(request: pytest.FixtureRequest, empty_database_url: str) -> RaceReport:
    install(Subject.FAULTLINE, empty_database_url)
    return run_race(empty_database_url, RaceSettings(wake_before_commit=request.param))


def test_a_worker_that_outlived_its_lease_cannot_commit(race: RaceReport) -> None:
    count, min_tok, max_tok, state = (
        race.ledger_count,
        race.min_token,
        race.max_token,
        race.state,
    )
    assert count == 1  # exactly one ledger entry
    assert min_tok == max_tok  # no split brain
    assert min_tok is not None
    assert int(min_tok) >= 2  # a reclaim really happened
    assert state == "succeeded"  # the right terminal state

    # and the write that the late worker had made in its transaction is gone with it
    assert race.payments == 1
    exits = [(e.worker, e.fields["reason"]) for e in race.events if e.event == "worker_exit"]
    assert sorted(exits) == [("A", "stale"), ("B", "success")]
    (refusal,) = [e for e in race.events if e.event == "stale_write_blocked"]
    assert refusal.worker == "A"
    assert refusal.fields["stale_token"] == 1
    assert refusal.fields["current_token"] == 2
    assert refusal.fields["reason"] == "token_mismatch"
    assert race.rejections == 1

"""What the reconciler concludes from leases, workers and leaders that do not move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from faultline.config import RECONNECT_SECONDS
from faultline.reconciler.liveness import DeadWorkers, LeaderObserver, LeaseObserver
from faultline.statements.leadership import LeaderSighting
from faultline.statements.survey import Survey
from faultline.statements.workers import LeaseSighting

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def sighting(lease: UUID, *, seconds: float = 10, moved: int = 0) -> LeaseSighting:
    return LeaseSighting(lease, NOW + timedelta(seconds=moved), seconds)


def test_a_lease_that_has_not_moved_for_longer_than_it_lasts_is_over() -> None:
    observer, lease = LeaseObserver(), uuid4()
    assert observer.lapsed([sighting(lease)], 100) == []
    assert observer.lapsed([sighting(lease)], 110) == []
    assert observer.lapsed([sighting(lease)], 111) == []  # a second of grace
    assert observer.lapsed([sighting(lease)], 111.1) == [lease]


def test_a_lease_that_is_renewed_is_never_over() -> None:
    observer, lease = LeaseObserver(), uuid4()
    for moment in range(0, 200, 5):
        assert observer.lapsed([sighting(lease, moved=moment)], moment) == []


def test_a_lease_that_moves_backwards_has_moved() -> None:
    """The observer recovers such leases after the database's clock was set back."""
    observer, lease = LeaseObserver(), uuid4()
    assert observer.lapsed([sighting(lease, moved=3600)], 0) == []
    assert observer.lapsed([sighting(lease, moved=0)], 11.5) == []
    assert observer.lapsed([sighting(lease, moved=0)], 22) == []
    assert observer.lapsed([sighting(lease, moved=0)], 23) == [lease]


def test_a_lease_that_was_missing_from_a_check_is_timed_from_the_start() -> None:
    observer, lease = LeaseObserver(), uuid4()
    observer.lapsed([sighting(lease)], 0)
    observer.lapsed([], 5)
    assert observer.lapsed([sighting(lease)], 20) == []


def test_each_lease_is_judged_by_its_own_length() -> None:
    observer, short, long = LeaseObserver(), uuid4(), uuid4()
    both = [sighting(short, seconds=1), sighting(long, seconds=100)]
    observer.lapsed(both, 0)
    assert observer.lapsed(both, 50) == [short]


@pytest.mark.parametrize(
    ("registered", "vanished", "is_mass"),
    [(1, 1, False), (2, 2, False), (3, 3, True), (10, 5, False), (10, 6, True), (5, 3, True)],
)
def test_workers_that_vanish_are_spared_only_if_the_reconcilers_session_was_lost_as_well(
    registered: int, vanished: int, is_mass: bool
) -> None:
    names = [f"worker {number}" for number in range(vanished)]
    survey = Survey(registered, names, None)
    judge = DeadWorkers()
    assert judge.dead_workers(survey) == names
    assert judge.dead_workers(survey, seconds_since_own_loss=1) == ([] if is_mass else names)
    assert judge.spared == (set(names) if is_mass else set())
    assert judge.dead_workers(survey, seconds_since_own_loss=RECONNECT_SECONDS + 0.1) == names
    assert not judge.spared


def test_workers_that_vanished_together_are_spared_until_seen_again() -> None:
    judge = DeadWorkers()

    def dead(registered: int, vanished: list[str]) -> list[str]:
        survey = Survey(registered, vanished, None)
        return judge.dead_workers(survey, seconds_since_own_loss=1)

    assert dead(4, ["a", "b", "c"]) == []
    assert dead(4, ["b", "c"]) == []  # a is alive, or was reconciled
    assert dead(4, ["b", "d"]) == ["d"]
    assert dead(4, ["c"]) == ["c"]  # it had been back meanwhile


def test_a_leaders_silence_is_timed_while_its_pulse_is_unchanged() -> None:
    observer, sighting = LeaderObserver(), LeaderSighting(1, 7, False)
    assert [observer.unchanged_seconds(sighting, now) for now in (100, 101, 105)] == [0, 1, 5]


def test_the_silence_of_a_leader_without_a_pulse_is_timed_too() -> None:
    observer, sighting = LeaderObserver(), LeaderSighting(1, None, False)
    assert [observer.unchanged_seconds(sighting, now) for now in (100, 105)] == [0, 5]


@pytest.mark.parametrize(
    "sign_of_life",
    [LeaderSighting(1, 8, False), LeaderSighting(2, 7, False), LeaderSighting(1, 7, True), None],
    ids=["a beat", "another session", "at work", "no leader"],
)
def test_any_sign_of_life_restarts_the_timer_of_a_leaders_silence(
    sign_of_life: LeaderSighting | None,
) -> None:
    observer, sighting = LeaderObserver(), LeaderSighting(1, 7, False)
    assert observer.unchanged_seconds(sighting, 100) == 0
    assert observer.unchanged_seconds(sign_of_life, 105) is None
    assert [observer.unchanged_seconds(sighting, now) for now in (106, 108)] == [0, 2]

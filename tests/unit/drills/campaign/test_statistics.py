"""Duplicates and recovery times are computed from hand-made histories."""

from __future__ import annotations

from faultline_drills.campaign.campaign import rate_facts, time_facts
from faultline_drills.campaign.statistics import (
    crash_recoveries,
    duplicated_jobs,
    takeovers_after_expiry,
)
from faultline_drills.judging.measures import wilson_interval
from faultline_drills.recording.database_state import DatabaseState, EffectFact, Transition
from faultline_drills.recording.history import History, HistoryEntry, Phase, Verb


def effect(job: str, token: int, part: int = 1, *, is_step: bool = False) -> EffectFact:
    return EffectFact(order=1, transaction=token, job=job, token=token, part=part, is_step=is_step)


def step(order: int, token: int, at: float, expires: float | None, after: str) -> Transition:
    return Transition(order, order, "j", None, after, token, None, token, at, expires)


def test_two_parts_of_one_effect_are_no_duplicate() -> None:
    assert duplicated_jobs(DatabaseState(effects=(effect("j", 1, 1), effect("j", 1, 2)))) == set()


def test_the_same_part_twice_is_a_duplicate() -> None:
    assert duplicated_jobs(DatabaseState(effects=(effect("j", 1), effect("j", 1)))) == {"j"}


def test_parts_under_two_tokens_are_a_duplicate() -> None:
    assert duplicated_jobs(DatabaseState(effects=(effect("j", 1, 1), effect("j", 2, 2)))) == {"j"}


def test_a_repeated_fenced_step_is_no_duplicate() -> None:
    steps = effect("j", 1, 0, is_step=True), effect("j", 2, 0, is_step=True)
    assert duplicated_jobs(DatabaseState(effects=(*steps, effect("j", 2)))) == set()


def test_a_takeover_is_timed_from_the_expiry_of_the_renewed_lease() -> None:
    trail = (
        step(1, 1, 0.0, 1.0, "running"),
        step(2, 1, 0.5, 1.5, "running"),  # a heartbeat
        step(3, 1, 1.6, None, "queued"),
        step(4, 2, 1.75, 2.75, "running"),
        step(5, 2, 1.8, None, "succeeded"),
    )
    assert takeovers_after_expiry(DatabaseState(transitions=trail), {"j"}) == [0.25]
    assert takeovers_after_expiry(DatabaseState(transitions=trail), {"another"}) == []


def test_a_recovery_is_timed_from_the_death_of_the_worker_to_the_next_claim() -> None:
    history = History(
        [
            HistoryEntry(0.0, "a", Phase.INVOKE, Verb.CLAIM, 1, "j", 1),
            HistoryEntry(0.0, "a", Phase.OK, Verb.CLAIM, 1, "j", 1),
            HistoryEntry(0.0, "a", Phase.INVOKE, Verb.ATTEMPT, 2, "j", 1),
            HistoryEntry(1.0, "a", Phase.INFO, Verb.ATTEMPT, 2, "j", 1),
            HistoryEntry(1.25, "b", Phase.INVOKE, Verb.CLAIM, 3, "j", 2),
            HistoryEntry(1.25, "b", Phase.OK, Verb.CLAIM, 3, "j", 2),
        ]
    )
    assert crash_recoveries(history, {"j"}) == [0.25]
    assert crash_recoveries(history, set()) == []


def test_wilson_agrees_with_published_values() -> None:
    """For 0, 1 and 5 of 10; the normal approximation would be empty for the first."""
    for hits, low, high in ((0, 0.0, 0.2775), (1, 0.0179, 0.4042), (5, 0.2366, 0.7634)):
        found = wilson_interval(hits, 10)
        assert abs(found[0] - low) < 5e-4
        assert abs(found[1] - high) < 5e-4


def test_zero_duplicates_in_few_jobs_have_a_wide_interval() -> None:
    few, many = rate_facts(0, 20), rate_facts(0, 2000)
    assert few["rate"] == many["rate"] == 0
    assert few["wilson_95"][1] > 0.1 > 0.01 > many["wilson_95"][1]


def test_without_measured_times_there_are_no_percentiles() -> None:
    assert time_facts([]) == {"n": 0}
    assert time_facts([0.1, 0.3, 0.2]) == {"n": 3, "p50": 0.2, "p95": 0.3, "max": 0.3}

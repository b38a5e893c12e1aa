"""The rules about limits find what breaks them, for each key apart."""

from __future__ import annotations

from faultline_drills.explorer.limit_rules import (
    LimitChange,
    LimitFacts,
    no_more_run_than_the_limit,
)
from faultline_drills.recording.database_state import Transition

KEYS = {"a1": "a", "a2": "a", "b1": "b"}


def step(order: int, job: str, after: str) -> Transition:
    before = "queued" if after == "running" else "running"
    return Transition(order, order, job, before, after, 1, None, 1, 0.0, None)


def started(*jobs: str, limit: int, until: int = 100, changed: int = 0) -> list[str]:
    steps = [step(order, job, "running") for order, job in enumerate(jobs, start=1)]
    facts = LimitFacts((LimitChange(changed, limit),), until=until, keys=KEYS)
    return list(no_more_run_than_the_limit(steps, facts))


def test_each_key_has_its_own_places() -> None:
    assert started("a1", "b1", limit=1) == []
    (found,) = started("a1", "b1", "a2", limit=1)
    assert found == "job a2 started as number 2 of at most 1 of key a"


def test_a_place_is_free_when_its_job_no_longer_runs() -> None:
    facts = LimitFacts((LimitChange(0, 1),), until=100, keys=KEYS)
    steps = [step(1, "a1", "running"), step(2, "a1", "succeeded"), step(3, "a2", "running")]
    assert list(no_more_run_than_the_limit(steps, facts)) == []


def test_a_limit_concerns_later_starts_only() -> None:
    assert started("a1", "a2", limit=1, changed=3) == []
    assert started("a1", "a2", limit=0, until=0) == []

"""Every priority with due jobs is reached within a stated number of claims."""

from __future__ import annotations

import pytest

from faultline.model import Claim
from faultline.workers.priority_rotation import ROTATE_EVERY, PriorityRotation


def claims_at(*priorities: int) -> list[Claim]:
    return [Claim("j", 1, "l", "task", "q", "{}", 1, 5, 0, number, "now") for number in priorities]


def first_with_jobs(first: int, used: list[int]) -> int:
    """The priority from which a claim that begins at `first` gets all its jobs."""
    return min(used, key=lambda priority: (priority - first) % 10)


def reached(used: list[int], claims: int) -> list[int]:
    """From which priority each claim gets its jobs, if all of them are full."""
    rotation, found = PriorityRotation(), []
    for _ in range(claims):
        priority = first_with_jobs(rotation.first_priority(), used)
        rotation.record(claims_at(priority))
        found.append(priority)
    return found


@pytest.mark.parametrize("used", [[0, 9], [0, 5, 9], [3, 7], [8, 9], list(range(10))])
def test_each_priority_is_reached_by_one_of_ten_claims_for_each_priority(used: list[int]) -> None:
    window = ROTATE_EVERY * len(used)
    found = reached(used, 5 * window)
    for start in range(4 * window):
        assert set(found[start : start + window]) == set(used)


def test_nine_of_ten_claims_begin_at_the_highest_priority() -> None:
    found = reached([0, 9], 1_000)
    assert 0 < found.count(9) <= 100


def test_the_next_rotated_claim_begins_behind_the_last_priority_of_a_batch() -> None:
    rotation = PriorityRotation()
    for _ in range(ROTATE_EVERY - 1):
        rotation.record(claims_at(0, 0))
    assert rotation.first_priority() == 1
    rotation.record(claims_at(2, 4, 4))
    assert rotation.first_priority() == 0
    for _ in range(ROTATE_EVERY - 1):
        rotation.record(claims_at(0, 0))
    assert rotation.first_priority() == 5


def test_a_claim_without_jobs_does_not_count() -> None:
    rotation = PriorityRotation()
    for _ in range(100):
        rotation.record([])
    assert rotation.first_priority() == 0

"""A failing schedule is told as the shortest story that still fails."""

from __future__ import annotations

from dataclasses import dataclass

from faultline_drills.explorer.minimise import minimise
from faultline_drills.explorer.schedule import Follow, Performed, Vector
from tests.unit.drills.explorer.test_search import play

LENGTHS = {"a": 4, "b": 4, "c": 2}


@dataclass(frozen=True)
class Told:
    performed: Performed
    broken_rules: set[str]


def lost_update(vector: Vector) -> Told:
    """Breaks if b does its second step between a's second and its third."""
    performed = play(LENGTHS, Follow(vector))
    ran = performed.vector
    seconds_of_a = [turn for turn, name in enumerate(ran) if name == "a"]
    second_of_b = [turn for turn, name in enumerate(ran) if name == "b"][1]
    broken = seconds_of_a[1] < second_of_b < seconds_of_a[2]
    return Told(performed, {"lost update"} if broken else set())


def test_superfluous_preemptions_are_taken_out() -> None:
    found = lost_update(("c", "a", "b", "a", "c", "b", "a", "b", "a", "b"))
    assert found.broken_rules
    assert found.performed.preemptions > 1
    smallest = minimise(found, lost_update)
    assert smallest.broken_rules == {"lost update"}
    assert smallest.performed.preemptions == 1  # it cannot happen without one


def test_a_schedule_that_is_as_small_as_can_be_stays_as_it_is() -> None:
    found = lost_update(("a", "a", "b", "b", "b", "b", "a", "a", "c", "c"))
    assert found.performed.preemptions == 1
    assert minimise(found, lost_update).performed.preemptions == 1


def test_the_number_of_tries_is_limited() -> None:
    tried: list[Vector] = []

    def attempt(vector: Vector) -> Told:
        tried.append(vector)
        return lost_update(vector)

    found = lost_update(("c", "a", "b", "a", "c", "b", "a", "b", "a", "b"))
    minimise(found, attempt, max_tries=3)
    assert len(tried) <= 3

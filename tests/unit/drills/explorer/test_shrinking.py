"""A failing interleaving is shrunk while it still fails."""

from __future__ import annotations

from dataclasses import dataclass

from faultline_drills.explorer.interleaving import ExecutionRecord, FollowInterleaving, Interleaving
from faultline_drills.explorer.shrinking import shrink
from tests.unit.drills.explorer.test_search import simulate

LENGTHS = {"a": 4, "b": 4, "c": 2}


@dataclass(frozen=True)
class FakeExecution:
    record: ExecutionRecord
    broken_rules: set[str]


def lost_update(interleaving: Interleaving) -> FakeExecution:
    """Fails if b takes its second step between a's second and third."""
    record = simulate(LENGTHS, FollowInterleaving(interleaving))
    ran = record.interleaving
    turns_of_a = [turn for turn, name in enumerate(ran) if name == "a"]
    second_of_b = [turn for turn, name in enumerate(ran) if name == "b"][1]
    broken = turns_of_a[1] < second_of_b < turns_of_a[2]
    return FakeExecution(record, {"lost update"} if broken else set())


def test_unneeded_preemptions_are_removed() -> None:
    found = lost_update(("c", "a", "b", "a", "c", "b", "a", "b", "a", "b"))
    assert found.broken_rules
    assert found.record.preemptions > 1
    smallest = shrink(found, lost_update)
    assert smallest.broken_rules == {"lost update"}
    assert smallest.record.preemptions == 1  # it cannot happen without one


def test_an_interleaving_that_cannot_be_shrunk_stays_as_it_is() -> None:
    found = lost_update(("a", "a", "b", "b", "b", "b", "a", "a", "c", "c"))
    assert found.record.preemptions == 1
    assert shrink(found, lost_update).record.preemptions == 1


def test_the_number_of_tries_is_limited() -> None:
    tried: list[Interleaving] = []

    def attempt(interleaving: Interleaving) -> FakeExecution:
        tried.append(interleaving)
        return lost_update(interleaving)

    found = lost_update(("c", "a", "b", "a", "c", "b", "a", "b", "a", "b"))
    shrink(found, attempt, max_tries=3)
    assert len(tried) <= 3

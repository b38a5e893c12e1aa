"""The search tries each interleaving once, fewest preemptions first."""

from __future__ import annotations

from collections import Counter
from math import comb

import pytest

from faultline_drills.explorer.interleaving import (
    Decision,
    ExecutionRecord,
    FollowInterleaving,
    Interleaving,
)
from faultline_drills.explorer.scheduler import Decide
from faultline_drills.explorer.search import Frontier, RandomInterleaving

Lengths = dict[str, int]


def simulate(lengths: Lengths, decide: Decide) -> ExecutionRecord:
    """Run actors that never wait: each can move until it has no steps left."""
    left, record, last = Counter(lengths), ExecutionRecord(), None
    while runnable := tuple(name for name in lengths if left[name]):
        current = last if last in runnable else None
        last = decide(len(record.decisions), runnable, current)
        left[last] -= 1
        record.decisions.append(Decision(runnable, last, current))
    return record


def search(lengths: Lengths, *, max_preemptions: int, seed: int = 0) -> list[ExecutionRecord]:
    frontier = Frontier(max_preemptions=max_preemptions, seed=seed)
    found = []
    while (prefix := frontier.next_prefix()) is not None:
        record = simulate(lengths, FollowInterleaving(prefix))
        frontier.add_alternatives(prefix, record.decisions)
        found.append(record)
    assert frontier.complete_bound == max_preemptions
    return found


def test_without_preemptions_each_actor_runs_to_its_end() -> None:
    interleavings = {each.interleaving for each in search({"a": 2, "b": 3}, max_preemptions=0)}
    assert interleavings == {("a", "a", "b", "b", "b"), ("b", "b", "b", "a", "a")}


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (4, 4)])
def test_with_enough_preemptions_every_interleaving_is_tried_once(first: int, second: int) -> None:
    interleavings = [
        each.interleaving for each in search({"a": first, "b": second}, max_preemptions=8)
    ]
    assert len(interleavings) == len(set(interleavings)) == comb(first + second, first)


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_a_bound_excludes_exactly_the_interleavings_with_more_preemptions(bound: int) -> None:
    lengths = {"a": 3, "b": 3, "c": 2}
    everything = search(lengths, max_preemptions=20)
    wanted = {each.interleaving for each in everything if each.preemptions <= bound}
    found = [each.interleaving for each in search(lengths, max_preemptions=bound)]
    assert sorted(found) == sorted(wanted)


def test_fewer_preemptions_come_first() -> None:
    preemptions = [each.preemptions for each in search({"a": 3, "b": 4}, max_preemptions=3)]
    assert preemptions == sorted(preemptions)
    assert preemptions[-1] == 3


def test_an_interrupted_search_says_which_bound_it_completed() -> None:
    frontier = Frontier(max_preemptions=2, seed=0)
    assert frontier.complete_bound == -1
    while frontier.complete_bound < 1:
        prefix = frontier.next_prefix()
        assert prefix is not None
        frontier.add_alternatives(
            prefix, simulate({"a": 3, "b": 3}, FollowInterleaving(prefix)).decisions
        )
    assert len(frontier) > 0  # those with two preemptions are still to come


def test_the_seed_changes_the_order_and_not_the_set_of_interleavings() -> None:
    def interleavings(seed: int) -> list[Interleaving]:
        found = search({"a": 3, "b": 3, "c": 1}, max_preemptions=2, seed=seed)
        return [each.interleaving for each in found]

    assert interleavings(1) == interleavings(1)
    assert interleavings(1) != interleavings(2)
    assert set(interleavings(1)) == set(interleavings(2))


def test_a_random_interleaving_is_the_same_for_the_same_seed() -> None:
    lengths = {"a": 6, "b": 6, "c": 6}
    assert (
        simulate(lengths, RandomInterleaving(7)).interleaving
        == simulate(lengths, RandomInterleaving(7)).interleaving
    )
    assert (
        len({simulate(lengths, RandomInterleaving(seed)).interleaving for seed in range(20)}) > 10
    )


def test_following_an_actor_that_cannot_continue_is_no_preemption() -> None:
    waits = Decision(runnable=("b", "c"), chosen="b", current=None)
    moves = Decision(runnable=("a", "b"), chosen="b", current="a")
    assert not waits.preempts("b")
    assert moves.preempts("b")
    assert not moves.preempts("a")

"""What was lost with a server: exactly that is excused, counted, and must never be seen again."""

from __future__ import annotations

from dataclasses import replace

from faultline_drills.history import Entry, History, Phase, Verb
from faultline_drills.measures import longest_silence, losses
from faultline_drills.world import Abandoned, JobFact, LedgerFact, OutsideCall, World
from tests.unit.drills.told import DEAD, PAID, Told, step

GONE = "gone"
NOTHING = Abandoned(frozenset(), frozenset(), frozenset())


def lost_server(told: Told) -> World:
    """As the one that went on, and ahead of it: one more job, which it claimed and paid."""
    world = told.world
    return replace(
        world,
        jobs=(*world.jobs, JobFact(GONE, "order-3", "succeeded", 1, 5, token=1, parts=1)),
        ledger=(*world.ledger, LedgerFact(GONE, 1)),
        trail=(
            *world.trail,
            step(31, GONE, None, "queued", 0, attempts=0),
            step(32, GONE, "queued", "running", 1),
            step(33, GONE, "running", "succeeded", 1),
        ),
    )


def lose(told: Told) -> None:
    """Somebody was told of the job, and of its commit, by the server that was lost."""
    told.submit(Phase.OK, key="order-3", job=GONE)
    told.attempt("w9", GONE, 1, Phase.OK)


def excuse(told: Told, **changes: frozenset[object]) -> None:
    found = Abandoned.between(lost_server(told), told.world)
    told.rows(abandoned=[replace(found, **changes)])  # type: ignore[arg-type]


def test_what_only_the_lost_server_had_is_what_the_two_differ_by(told: Told) -> None:
    found = Abandoned.between(lost_server(told), told.world)
    assert found == Abandoned(frozenset({GONE}), frozenset({(GONE, 1)}), frozenset({(GONE, 1)}))
    assert Abandoned.between(told.world, told.world) == NOTHING
    assert Abandoned.between(told.world, lost_server(told)) == NOTHING


def test_work_that_was_acknowledged_and_is_missing_is_a_broken_promise(told: Told) -> None:
    lose(told)
    assert told.rules() == {"no_acknowledged_submit_is_lost", "reported_commits_are_in_the_ledger"}


def test_it_is_excused_where_only_the_lost_server_had_it(told: Told) -> None:
    lose(told)
    excuse(told)
    assert told.rules() == set()


def test_a_lost_job_does_not_excuse_a_lost_commit_nor_the_other_way_round(told: Told) -> None:
    lose(told)
    excuse(told, commits=frozenset())
    assert told.rules() == {"reported_commits_are_in_the_ledger"}
    excuse(told, jobs=frozenset())
    assert told.rules() == {"no_acknowledged_submit_is_lost"}


def test_a_job_that_was_lost_may_be_made_again_under_its_key_and_only_then(told: Told) -> None:
    told.submit(Phase.OK, key="order-1", job=GONE)
    assert "one_job_per_key" in told.rules()
    excuse(told)
    assert told.rules() == set()


def test_a_token_that_the_lost_server_gave_out_is_not_given_out_again(told: Told) -> None:
    told.rows(abandoned=[replace(NOTHING, claims=frozenset({(PAID, 3), (PAID, 5)}))])
    assert told.rules() == set()
    for token in (2, 1):  # both were given out over here
        told.rows(abandoned=[replace(NOTHING, claims=frozenset({(PAID, token)}))])
        assert told.rules() == {"tokens_are_given_once"}


def test_a_token_between_two_of_the_lost_servers_is_no_better(told: Told) -> None:
    told.rows(abandoned=[replace(NOTHING, claims=frozenset({(DEAD, 1), (DEAD, 3)}))])
    assert told.rules() == {"tokens_are_given_once"}


def test_the_tokens_of_two_lost_servers_do_not_make_one_span(told: Told) -> None:
    one, three = (replace(NOTHING, claims=frozenset({(PAID, token)})) for token in (0, 3))
    told.rows(abandoned=[one, three])
    assert told.rules() == set()


def test_the_outside_tells_two_holders_of_one_token_apart(told: Told) -> None:
    calls = [OutsideCall(1, PAID, 1, PAID, True, "w1"), OutsideCall(2, PAID, 1, PAID, False, "w2")]
    told.rows(outside=calls[:1])
    assert told.rules() == set()
    told.rows(outside=calls)
    assert told.rules() == {"the_outside_never_steps_back"}


def test_losses_count_what_somebody_was_told_of(told: Told) -> None:
    found = Abandoned.between(lost_server(told), told.world)
    assert losses(told.history, [found]) == {
        "lost_submits": 0,
        "lost_commits": 0,
        "lost_claims": 1,
    }
    lose(told)
    assert losses(told.history, [found, NOTHING]) == {
        "lost_submits": 1,
        "lost_commits": 1,
        "lost_claims": 1,
    }


def test_the_longest_silence_lies_between_two_commits_that_somebody_was_told_of() -> None:
    ends = [(1.0, Phase.OK), (1.5, Phase.OK), (2.0, Phase.FAIL), (4.0, Phase.OK), (9.0, Phase.INFO)]
    told = History()
    assert longest_silence(told) == 0
    entries = [
        Entry(at, "w1", phase, Verb.ATTEMPT, number, job="j", token=1)
        for number, (end, outcome) in enumerate(ends)
        for at, phase in ((end - 0.5, Phase.INVOKE), (end, outcome))
    ]
    assert longest_silence(History(entries)) == 2.5

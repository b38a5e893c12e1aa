"""Only what was lost with a server is excused; it is counted, and must not return."""

from __future__ import annotations

from dataclasses import replace

from faultline_drills.judging.measures import longest_silence, losses
from faultline_drills.recording.database_state import (
    DatabaseState,
    ExternalCall,
    JobFact,
    LedgerFact,
    LostState,
)
from faultline_drills.recording.history import History, HistoryEntry, Phase, Verb
from tests.unit.drills.recorded import DEAD, PAID, RecordedDrill, step

GONE = "gone"
NOTHING = LostState(frozenset(), frozenset(), frozenset())


def lost_server(recorded: RecordedDrill) -> DatabaseState:
    """The state of the lost server, with one more job that it claimed and paid."""
    state = recorded.state
    return replace(
        state,
        jobs=(*state.jobs, JobFact(GONE, "order-3", "succeeded", 1, 5, token=1, parts=1)),
        ledger=(*state.ledger, LedgerFact(GONE, 1)),
        transitions=(
            *state.transitions,
            step(31, GONE, None, "queued", 0, attempts=0),
            step(32, GONE, "queued", "running", 1),
            step(33, GONE, "running", "succeeded", 1),
        ),
    )


def lose(recorded: RecordedDrill) -> None:
    """The lost server had acknowledged the job and its commit."""
    recorded.submit(Phase.OK, key="order-3", job=GONE)
    recorded.attempt("w9", GONE, 1, Phase.OK)


def excuse(recorded: RecordedDrill, **changes: frozenset[object]) -> None:
    found = LostState.between(lost_server(recorded), recorded.state)
    recorded.rows(lost_states=[replace(found, **changes)])  # type: ignore[arg-type]


def test_the_lost_state_is_what_only_the_lost_server_had(recorded: RecordedDrill) -> None:
    found = LostState.between(lost_server(recorded), recorded.state)
    assert found == LostState(frozenset({GONE}), frozenset({(GONE, 1)}), frozenset({(GONE, 1)}))
    assert LostState.between(recorded.state, recorded.state) == NOTHING
    assert LostState.between(recorded.state, lost_server(recorded)) == NOTHING


def test_missing_acknowledged_work_breaks_two_rules(
    recorded: RecordedDrill,
) -> None:
    lose(recorded)
    assert recorded.rules() == {
        "no_acknowledged_submit_is_lost",
        "reported_commits_are_in_the_ledger",
    }


def test_missing_work_is_excused_if_only_the_lost_server_had_it(recorded: RecordedDrill) -> None:
    lose(recorded)
    excuse(recorded)
    assert recorded.rules() == set()


def test_a_lost_job_does_not_excuse_a_lost_commit_nor_the_other_way_round(
    recorded: RecordedDrill,
) -> None:
    lose(recorded)
    excuse(recorded, commits=frozenset())
    assert recorded.rules() == {"reported_commits_are_in_the_ledger"}
    excuse(recorded, jobs=frozenset())
    assert recorded.rules() == {"no_acknowledged_submit_is_lost"}


def test_only_a_lost_job_may_be_enqueued_again_under_its_key(
    recorded: RecordedDrill,
) -> None:
    recorded.submit(Phase.OK, key="order-1", job=GONE)
    assert "one_job_per_key" in recorded.rules()
    excuse(recorded)
    assert recorded.rules() == set()


def test_a_token_that_the_lost_server_issued_must_not_be_issued_again(
    recorded: RecordedDrill,
) -> None:
    recorded.rows(lost_states=[replace(NOTHING, claims=frozenset({(PAID, 3), (PAID, 5)}))])
    assert recorded.rules() == set()
    for token in (2, 1):  # the successor issued both
        recorded.rows(lost_states=[replace(NOTHING, claims=frozenset({(PAID, token)}))])
        assert recorded.rules() == {"tokens_are_issued_once"}


def test_a_token_between_two_of_the_lost_server_must_not_be_issued_either(
    recorded: RecordedDrill,
) -> None:
    recorded.rows(lost_states=[replace(NOTHING, claims=frozenset({(DEAD, 1), (DEAD, 3)}))])
    assert recorded.rules() == {"tokens_are_issued_once"}


def test_the_token_ranges_of_two_lost_servers_are_separate(recorded: RecordedDrill) -> None:
    one, three = (replace(NOTHING, claims=frozenset({(PAID, token)})) for token in (0, 3))
    recorded.rows(lost_states=[one, three])
    assert recorded.rules() == set()


def test_two_external_callers_under_one_token_are_a_violation(recorded: RecordedDrill) -> None:
    calls = [
        ExternalCall(1, PAID, 1, PAID, True, "w1"),
        ExternalCall(2, PAID, 1, PAID, False, "w2"),
    ]
    recorded.rows(external_calls=calls[:1])
    assert recorded.rules() == set()
    recorded.rows(external_calls=calls)
    assert recorded.rules() == {"external_tokens_never_decrease"}


def test_losses_count_acknowledged_operations(recorded: RecordedDrill) -> None:
    found = LostState.between(lost_server(recorded), recorded.state)
    assert losses(recorded.history, [found]) == {
        "lost_submits": 0,
        "lost_commits": 0,
        "lost_claims": 1,
    }
    lose(recorded)
    assert losses(recorded.history, [found, NOTHING]) == {
        "lost_submits": 1,
        "lost_commits": 1,
        "lost_claims": 1,
    }


def test_the_longest_silence_is_between_two_acknowledged_commits() -> None:
    ends = [(1.0, Phase.OK), (1.5, Phase.OK), (2.0, Phase.FAIL), (4.0, Phase.OK), (9.0, Phase.INFO)]
    recorded = History()
    assert longest_silence(recorded) == 0
    entries = [
        HistoryEntry(at, "w1", phase, Verb.ATTEMPT, number, job="j", token=1)
        for number, (end, outcome) in enumerate(ends)
        for at, phase in ((end - 0.5, Phase.INVOKE), (end, outcome))
    ]
    assert longest_silence(History(entries)) == 2.5

"""Every rule is broken by what it is there for, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from faultline_drills.judging.checker import DrillVerdict, judge
from faultline_drills.judging.rules import RULES
from faultline_drills.recording.database_state import EffectFact, JobFact, LedgerFact
from faultline_drills.recording.history import History, Phase, Verb
from tests.unit.drills.recorded import DEAD, PAID, RecordedDrill, step


def test_there_are_fourteen_rules_and_each_is_broken_below() -> None:
    assert len(RULES) == 14
    assert {rule for rule, _ in VIOLATIONS} == set(RULES)


Spoil = Callable[[RecordedDrill], None]
VIOLATIONS: list[tuple[str, Spoil]] = []


def breaks(rule: str) -> Callable[[Spoil], Spoil]:
    def register(spoil: Spoil) -> Spoil:
        VIOLATIONS.append((rule, spoil))
        return spoil

    return register


# ── what breaks each rule ────────────────────────────────────────────────────────────────────────


@breaks("no_acknowledged_submit_is_lost")
def an_acknowledged_job_does_not_exist(recorded: RecordedDrill) -> None:
    recorded.submit(Phase.OK, job="ghost")


@breaks("at_most_one_effect")
def one_row_of_an_effect_exists_twice(recorded: RecordedDrill) -> None:
    recorded.rows(effects=[*recorded.state.effects, EffectFact(6, 107, PAID, 2, part=1)])


@breaks("at_most_one_effect")
def two_attempts_of_one_job_took_effect(recorded: RecordedDrill) -> None:
    recorded.rows(effects=[*recorded.state.effects, EffectFact(3, 103, PAID, 1, part=1)])


@breaks("at_most_one_effect")
def one_job_is_in_the_ledger_twice(recorded: RecordedDrill) -> None:
    recorded.rows(ledger=[*recorded.state.ledger, LedgerFact(PAID, 1)])


@breaks("effects_carry_the_current_token")
def a_row_is_written_under_a_superseded_token(recorded: RecordedDrill) -> None:
    recorded.rows(effects=[replace(effect, token=1) for effect in recorded.state.effects])


@breaks("effects_carry_the_current_token")
def a_row_is_written_while_the_job_waits_in_the_queue(recorded: RecordedDrill) -> None:
    recorded.step(5, order=8)  # claimed only after the effect's own commit had begun
    recorded.step(7, order=9, transaction=109)


@breaks("effects_carry_the_current_token")
def a_step_is_written_after_the_takeover(recorded: RecordedDrill) -> None:
    late = EffectFact(6, 901, PAID, 1, part=0, is_step=True)
    recorded.rows(effects=[*recorded.state.effects, late])


@breaks("tokens_are_issued_once")
def two_workers_were_given_the_same_token(recorded: RecordedDrill) -> None:
    recorded.history.record("w3", Verb.CLAIM, job=PAID, token=2)


@breaks("tokens_are_issued_once")
def a_worker_reports_a_commit_under_the_token_of_another(recorded: RecordedDrill) -> None:
    recorded.attempt("w1", PAID, 2, Phase.OK)


@breaks("tokens_are_issued_once")
def a_second_claim_did_not_raise_the_token(recorded: RecordedDrill) -> None:
    recorded.step(5, token=1, lease="another")
    recorded.step(7, token=1, lease="another")


@breaks("commit_rights_do_not_overlap")
def a_token_is_issued_while_the_last_one_could_still_commit(recorded: RecordedDrill) -> None:
    recorded.rows(transitions=[each for each in recorded.state.transitions if each.order != 4])
    recorded.step(5, before="running")


@breaks("commit_rights_do_not_overlap")
def a_token_is_issued_over_a_lease_that_was_not_reconciled(recorded: RecordedDrill) -> None:
    recorded.rows(transitions=[each for each in recorded.state.transitions if each.order != 4])
    recorded.step(2, lease_expires_at=3.0)
    recorded.step(5, before="running")


@breaks("commit_rights_do_not_overlap")
def a_lease_that_had_ended_is_held_again(recorded: RecordedDrill) -> None:
    recorded.step(5, token=1, lease=f"{PAID}-1")
    recorded.step(7, token=1, lease=f"{PAID}-1")


@breaks("commit_rights_do_not_overlap")
def a_commit_is_begun_after_the_end_of_its_lease(recorded: RecordedDrill) -> None:
    recorded.step(5, lease_expires_at=6.999)


@breaks("commit_rights_do_not_overlap")
def a_commit_is_begun_at_the_very_end_of_its_lease(recorded: RecordedDrill) -> None:
    recorded.step(5, lease_expires_at=7.0)


@breaks("commit_rights_do_not_overlap")
def a_commit_after_its_lease_is_recorded_after_the_clock_was_set_forward(
    recorded: RecordedDrill,
) -> None:
    recorded.step(5, lease_expires_at=6.0)
    recorded.step(7, at=3607.0)


@breaks("terminal_states_are_final")
def a_succeeded_job_is_queued_again(recorded: RecordedDrill) -> None:
    recorded.steps(step(8, PAID, "succeeded", "queued", 2, attempts=2))


@breaks("terminal_states_are_final")
def a_succeeded_job_fails(recorded: RecordedDrill) -> None:
    recorded.steps(step(8, PAID, "succeeded", "failed", 2, attempts=2))


@breaks("terminal_states_are_final")
def a_failed_job_runs_without_a_retry(recorded: RecordedDrill) -> None:
    recorded.rows(transitions=[each for each in recorded.state.transitions if each.order < 14])
    recorded.steps(step(14, DEAD, "failed", "running", 2))


@breaks("terminal_states_are_final")
def a_failed_job_is_queued_again_with_its_attempts_spent(recorded: RecordedDrill) -> None:
    recorded.step(14, attempts=1)


@breaks("terminal_states_are_final")
def a_failed_job_is_queued_again_without_a_retry(
    recorded: RecordedDrill,
) -> None:
    recorded.rows(
        jobs=[*recorded.state.jobs, JobFact("off", None, "queued", 0, 5, token=0, parts=1)],
        transitions=[
            *recorded.state.transitions,
            step(21, "off", None, "queued", 0, attempts=0),
            step(22, "off", "queued", "failed", 0, attempts=0),
            step(23, "off", "failed", "queued", 0, attempts=0),
        ],
    )


@breaks("terminal_states_are_final")
def a_job_is_queued_twice_by_one_retry(recorded: RecordedDrill) -> None:
    recorded.retry(DEAD, Phase.OK, state="running")  # it found the job at work, and moved nothing
    recorded.retry(DEAD, Phase.FAIL)
    recorded.step(16, after="failed")
    recorded.steps(step(17, DEAD, "failed", "queued", 2, attempts=0))


@breaks("reported_commits_are_in_the_ledger")
def an_acknowledged_commit_is_not_in_the_ledger(recorded: RecordedDrill) -> None:
    recorded.rows(ledger=[LedgerFact(DEAD, 2)])


@breaks("reported_commits_are_in_the_ledger")
def the_ledger_has_an_entry_that_no_worker_committed(recorded: RecordedDrill) -> None:
    recorded.rows(ledger=[*recorded.state.ledger, LedgerFact("ghost", 7)])


@breaks("reported_commits_are_in_the_ledger")
def the_ledger_has_entries_without_any_attempt(recorded: RecordedDrill) -> None:
    recorded.history = History(
        entry for entry in recorded.history.entries if entry.verb is not Verb.ATTEMPT
    )


@breaks("failed_attempts_left_nothing")
def an_attempt_that_failed_is_in_the_ledger(recorded: RecordedDrill) -> None:
    recorded.rows(ledger=[LedgerFact(PAID, 2), LedgerFact(DEAD, 1)])


@breaks("failed_attempts_left_nothing")
def an_attempt_that_failed_left_a_row(recorded: RecordedDrill) -> None:
    recorded.rows(effects=[*recorded.state.effects, EffectFact(12, 112, DEAD, 1, part=1)])


@breaks("failed_attempts_left_nothing")
def a_submission_that_was_refused_made_a_job(recorded: RecordedDrill) -> None:
    recorded.job(DEAD, key="order-2")
    recorded.submit(Phase.FAIL, key="order-2")


@breaks("unknown_outcomes_are_all_or_nothing")
def half_of_an_effect_is_there(recorded: RecordedDrill) -> None:
    recorded.rows(effects=[each for each in recorded.state.effects if each.part != 2])


@breaks("unknown_outcomes_are_all_or_nothing")
def an_effect_is_there_without_its_ledger_entry(recorded: RecordedDrill) -> None:
    recorded.rows(effects=[*recorded.state.effects, EffectFact(3, 103, PAID, 1, part=1)])


@breaks("unknown_outcomes_are_all_or_nothing")
def a_ledger_entry_is_there_without_its_effect(recorded: RecordedDrill) -> None:
    recorded.rows(effects=[])


@breaks("every_job_ends")
def a_job_is_still_running_in_the_end(recorded: RecordedDrill) -> None:
    recorded.job(PAID, state="running")


@breaks("every_job_ends")
def a_job_has_succeeded_without_a_ledger_entry(recorded: RecordedDrill) -> None:
    recorded.rows(ledger=[LedgerFact(PAID, 2)])


@breaks("every_job_ends")
def a_job_has_failed_and_is_in_the_ledger(recorded: RecordedDrill) -> None:
    recorded.job(DEAD, state="failed")


@breaks("attempts_stay_within_their_limit")
def a_job_ran_more_often_than_it_may(recorded: RecordedDrill) -> None:
    recorded.job(PAID, max_attempts=1)


@breaks("attempts_stay_within_their_limit")
def a_claim_does_not_count_the_attempt(recorded: RecordedDrill) -> None:
    recorded.step(2, attempts=0)


@breaks("one_job_per_key")
def two_jobs_have_one_key(recorded: RecordedDrill) -> None:
    recorded.job(DEAD, key="order-1")


@breaks("one_job_per_key")
def two_producers_with_one_key_were_told_of_different_jobs(recorded: RecordedDrill) -> None:
    recorded.submit(Phase.OK, key="order-1", job=DEAD)


@breaks("external_tokens_never_decrease")
def the_outside_took_a_late_call(recorded: RecordedDrill) -> None:
    recorded.rows(
        external_calls=[replace(call, accepted=True) for call in recorded.state.external_calls]
    )


@breaks("external_tokens_never_decrease")
def an_attempt_went_outside_under_a_key_of_its_own(recorded: RecordedDrill) -> None:
    recorded.rows(
        external_calls=[
            replace(call, key=f"{call.key}-{call.token}") for call in recorded.state.external_calls
        ]
    )


@breaks("transitions_are_legal")
def a_step_does_not_begin_where_the_last_one_ended(recorded: RecordedDrill) -> None:
    recorded.step(4, before="queued")


@breaks("transitions_are_legal")
def a_job_succeeds_without_having_run(recorded: RecordedDrill) -> None:
    recorded.rows(
        transitions=[each for each in recorded.state.transitions if each.order not in (2, 4, 5)]
    )
    recorded.step(7, before="queued", token=0)


@breaks("transitions_are_legal")
def a_token_goes_down(recorded: RecordedDrill) -> None:
    recorded.steps(step(8, PAID, "succeeded", "succeeded", 1, attempts=2))


@breaks("transitions_are_legal")
def a_token_is_raised_without_a_claim(recorded: RecordedDrill) -> None:
    recorded.step(4, token=2)


@pytest.mark.parametrize(
    ("rule", "spoil"), VIOLATIONS, ids=[spoil.__name__ for _, spoil in VIOLATIONS]
)
def test_a_rule_names_what_breaks_it(recorded: RecordedDrill, rule: str, spoil: Spoil) -> None:
    assert rule not in recorded.rules()
    spoil(recorded)
    assert rule in recorded.rules()
    assert judge(recorded.history, recorded.state).verdict is DrillVerdict.INVALID


# ── what breaks none ─────────────────────────────────────────────────────────────────────────────


def test_a_commit_whose_answer_was_lost_may_be_there_or_not(recorded: RecordedDrill) -> None:
    recorded.submit(Phase.INFO, key="order-9")  # outcome unknown: there is no job
    recorded.attempt("w3", PAID, 2, Phase.INFO)  # outcome unknown: the ledger has it
    assert recorded.rules() == set()


def test_a_conflict_over_a_key_of_another_producer_is_correct(
    recorded: RecordedDrill,
) -> None:
    recorded.submit(Phase.FAIL, key="order-1")
    assert recorded.rules() == set()


def test_cancelling_a_queued_job_is_correct(recorded: RecordedDrill) -> None:
    recorded.rows(
        jobs=[*recorded.state.jobs, JobFact("off", None, "failed", 0, 5, token=0, parts=1)],
        transitions=[
            *recorded.state.transitions,
            step(21, "off", None, "queued", 0, attempts=0),
            step(22, "off", "queued", "failed", 0, attempts=0),
        ],
    )
    assert recorded.rules() == set()


def test_a_retry_of_unknown_outcome_may_have_queued_the_job(
    recorded: RecordedDrill,
) -> None:
    recorded.history = History(
        entry for entry in recorded.history.entries if entry.verb is not Verb.RETRY
    )
    assert recorded.rules() == {"terminal_states_are_final"}
    recorded.retry(DEAD, Phase.INFO)
    assert recorded.rules() == set()


def test_a_commit_that_is_slow_to_be_flushed_is_in_time(
    recorded: RecordedDrill,
) -> None:
    recorded.step(5, lease_expires_at=7.001)
    recorded.step(7, at=60.0)
    assert recorded.rules() == set()


def test_a_commit_during_which_the_clock_is_set_back_is_not_judged_by_it(
    recorded: RecordedDrill,
) -> None:
    recorded.step(5, lease_expires_at=6.0)
    recorded.step(7, at=7.0 - 3600)
    assert recorded.rules() == set()


def test_a_heartbeat_extends_a_lease(recorded: RecordedDrill) -> None:
    recorded.step(5, lease_expires_at=5.5)
    recorded.steps(
        replace(step(6, PAID, "running", "running", 2, attempts=2, at=5.4), lease_expires_at=15.4)
    )
    assert recorded.rules() == set()

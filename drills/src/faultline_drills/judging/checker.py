"""Judges a drill by its rules, and counts what each rule examined. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from faultline_drills.judging.record import DrillRecord
from faultline_drills.judging.rules import RULES
from faultline_drills.recording.database_state import DatabaseState
from faultline_drills.recording.history import History

_EVIDENCE_LIMIT = 20  # per rule
# By name in the tally: the rules that must have examined something when it is above zero.
_MUST_EXAMINE = {
    "commits": (
        "reported_commits_are_in_the_ledger",
        "commit_rights_do_not_overlap",
        "every_job_ends",
        "attempts_stay_within_their_limit",
        "transitions_are_legal",
    ),
    "takeovers": ("tokens_are_issued_once",),
    "stale_rejections": ("failed_attempts_left_nothing",),
    "retries": ("failed_attempts_left_nothing",),
    "storms": ("terminal_states_are_final",),
    "duplicates": ("one_job_per_key",),
    "external_refusals": ("external_tokens_never_decrease",),
}


class DrillVerdict(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"  # no rule was broken, but the drill did not cause what it was to show


@dataclass(frozen=True, slots=True)
class DrillFinding:
    rule: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: DrillVerdict
    findings: tuple[DrillFinding, ...]
    examined: dict[str, int] = field(default_factory=dict)  # by rule

    @property
    def holds(self) -> bool:
        return self.verdict is DrillVerdict.VALID


def judge(
    history: History,
    state: DatabaseState,
    *,
    shows: Sequence[str] = (),
    missing: Sequence[str] = (),
    broken: Sequence[str] = (),
) -> Judgement:
    """Check every rule against what was recorded.

    `shows` names what the drill must cause: the rules that this concerns must have examined something.
    `missing` says what the drill did not cause, which makes the verdict unknown. `broken` are the
    scenario's own expectations that did not hold.
    """
    record = DrillRecord(history, state)
    findings = [DrillFinding("scenario_expectation", sentence) for sentence in broken]
    examined: dict[str, int] = {}
    for name, rule in RULES.items():
        evidence: list[str] = []
        examined[name] = 0
        for result in rule(record):
            if isinstance(result, int):
                examined[name] += result
            elif len(evidence) < _EVIDENCE_LIMIT:
                evidence.append(result)
        findings += [DrillFinding(name, sentence) for sentence in evidence]
    if findings:
        return Judgement(DrillVerdict.INVALID, tuple(findings), examined)
    idle = [rule for rule in RULES if rule in _concerned_by(shows) and not examined[rule]]
    not_shown = [*missing, *(f"{rule} had nothing to examine" for rule in idle)]
    if not_shown:
        nothing = tuple(DrillFinding("nothing_was_shown", what) for what in not_shown)
        return Judgement(DrillVerdict.UNKNOWN, nothing, examined)
    return Judgement(DrillVerdict.VALID, (), examined)


def _concerned_by(shows: Sequence[str]) -> set[str]:
    return {rule for what in shows for rule in _MUST_EXAMINE.get(what, ())}

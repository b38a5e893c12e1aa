"""Judges a drill by its rules, and says how much each had to look at. Pure, and linear in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from faultline_drills.case import Case
from faultline_drills.history import History
from faultline_drills.rules import RULES
from faultline_drills.world import World

_EVIDENCE_LIMIT = 20  # per rule: enough to see that it is broken, and how
# What was brought about, and the rules that it must have given something to look at.
_MUST_LOOK = {
    "commits": (
        "reported_commits_are_in_the_ledger",
        "commit_rights_do_not_overlap",
        "everything_ends",
        "attempts_stay_within_their_limit",
        "the_trail_is_a_legal_path",
    ),
    "takeovers": ("tokens_are_given_once",),
    "stale_rejections": ("failed_attempts_left_nothing",),
    "retries": ("failed_attempts_left_nothing",),
    "storms": ("terminal_states_absorb",),
    "duplicates": ("one_job_per_key",),
    "outside_refusals": ("the_outside_never_steps_back",),
}


class Verdict(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"  # nothing is wrong, but what was to be shown did not happen


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    findings: tuple[Finding, ...]
    examined: dict[str, int] = field(default_factory=dict)  # by rule: what it had to look at

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.VALID


def judge(
    history: History,
    world: World,
    *,
    shows: Sequence[str] = (),
    missing: Sequence[str] = (),
    unmet: Sequence[str] = (),
) -> Judgement:
    """`shows` names what the drill is there to bring about: rules that this must concern have to have
    looked at something. `missing` names what it did not bring about: then nothing was shown. `unmet` is
    what its story promises beside the rules, and did not keep."""
    case = Case(history, world)
    findings = [Finding("the_story", sentence) for sentence in unmet]
    examined: dict[str, int] = {}
    for name, rule in RULES.items():
        evidence: list[str] = []
        examined[name] = 0
        for said in rule(case):
            if isinstance(said, int):
                examined[name] += said
            elif len(evidence) < _EVIDENCE_LIMIT:
                evidence.append(said)
        findings += [Finding(name, sentence) for sentence in evidence]
    if findings:
        return Judgement(Verdict.INVALID, tuple(findings), examined)
    idle = [rule for rule in RULES if rule in _concerned_by(shows) and not examined[rule]]
    unshown = [*missing, *(f"{rule} had nothing to look at" for rule in idle)]
    if unshown:
        nothing = tuple(Finding("nothing_was_shown", what) for what in unshown)
        return Judgement(Verdict.UNKNOWN, nothing, examined)
    return Judgement(Verdict.VALID, (), examined)


def _concerned_by(shows: Sequence[str]) -> set[str]:
    return {rule for what in shows for rule in _MUST_LOOK.get(what, ())}

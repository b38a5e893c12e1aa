"""Runs every scenario on Faultline, and on the control where it must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from faultline.errors import FaultlineError
from faultline_drills.drill import run_drill
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.scenario import DrillSettings, Scenario, all_scenarios
from faultline_drills.subjects import Subject

JOBS = 6
NOT_RUN = "not run"
_NOTE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    scenario: str
    title: str
    faultline: str  # a verdict, or "not run"
    naive: str | None  # None: this scenario does not depend on the fence
    note: str
    seconds: float

    @property
    def violations(self) -> list[str]:
        return [f"{self.scenario}: {self.note}"] if self.faultline == DrillVerdict.INVALID else []

    @property
    def missing(self) -> list[str]:
        """What the scenario failed to show.

        A scenario that cannot run on this machine is no reason.
        """
        reasons = []
        if self.faultline == DrillVerdict.UNKNOWN:
            reasons.append(f"{self.scenario}: {self.note}")
        if self.naive not in (None, NOT_RUN, DrillVerdict.INVALID):
            reasons.append(f"{self.scenario}: the control broke no rule")
        return reasons

    def facts(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "title": self.title,
            "faultline": self.faultline,
            "naive": self.naive,
            "note": self.note,
            "seconds": round(self.seconds, 1),
        }


def run_scenarios(
    server_url: str,
    seed: int,
    *,
    on_start: Callable[[str], None] = lambda name: None,
    on_row: Callable[[ScenarioRow], None] = lambda row: None,
) -> list[ScenarioRow]:
    """Run all scenarios; `on_start` gets each name, `on_row` each result."""
    rows = []
    for name, scenario in all_scenarios().items():
        on_start(name)
        rows.append(_run_scenario(scenario, server_url, seed))
        on_row(rows[-1])
    return rows


def count_scenarios() -> int:
    return len(all_scenarios())


def _run_scenario(scenario: Scenario, server_url: str, seed: int) -> ScenarioRow:
    if missing := scenario.missing_requirement():
        return ScenarioRow(scenario.name, scenario.title, NOT_RUN, None, missing, 0.0)
    faultline, note, seconds = _verdict(scenario, Subject.FAULTLINE, server_url, seed)
    naive = None
    if scenario.breaks_naive:
        naive, _, more = _verdict(scenario, Subject.NAIVE, server_url, seed)
        seconds += more
    return ScenarioRow(scenario.name, scenario.title, faultline, naive, note, seconds)


def _verdict(
    scenario: Scenario, subject: Subject, server_url: str, seed: int
) -> tuple[str, str, float]:
    """The verdict, the first finding or the counted events, and the duration."""
    settings = DrillSettings(seed=seed, jobs=JOBS, subject=subject)
    try:
        report = run_drill(scenario, settings, server_url=server_url)
    except (FaultlineError, psycopg.Error) as error:
        return DrillVerdict.UNKNOWN.value, _short(f"could not be completed: {error}"), 0.0
    judgement = report.judgement
    if judgement.findings:
        note = _short(f"{judgement.findings[0].rule}: {judgement.findings[0].evidence}")
    else:
        shown = [(name, report.tally.get(name, 0)) for name in scenario.shows]
        note = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in shown)
    return judgement.verdict.value, note, report.seconds


def _short(text: str) -> str:
    """One line of limited length; the drill's own report has the whole evidence."""
    line = " ".join(text.split())
    return line if len(line) <= _NOTE_LENGTH else line[: _NOTE_LENGTH - 1] + "…"

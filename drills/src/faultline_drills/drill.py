"""Runs one scenario against one subject, from an empty database to a verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faultline.embedded import temporary_server
from faultline_drills.context import DrillContext, DrillNotRun
from faultline_drills.judging.checker import Judgement, judge
from faultline_drills.judging.measures import quantile, recoveries
from faultline_drills.provenance import provenance
from faultline_drills.recording.history import History
from faultline_drills.recording.tables import install_tables
from faultline_drills.scenario import DrillSettings, Scenario
from faultline_drills.servers.scratch_database import new_database, scratch_database
from faultline_drills.subjects import install


@dataclass(frozen=True)
class DrillReport:
    scenario: str
    settings: DrillSettings
    postgres: str
    judgement: Judgement
    tally: dict[str, int]
    recovery_seconds: tuple[float, ...]
    seconds: float
    history: History
    is_replay: bool = False

    def facts(self) -> dict[str, Any]:
        """The report as JSON values; `faultline drill replay` reads the saved file."""
        recovered = self.recovery_seconds
        figures = {
            f"p{share}": round(quantile(recovered, share / 100), 3)
            for share in (50, 95, 100)
            if recovered
        }
        return {
            "kind": "drill",
            "scenario": self.scenario,
            "settings": asdict(self.settings),
            "provenance": provenance(
                f"faultline drill run {self.scenario}",
                seed=self.settings.seed,
                postgres=self.postgres,
            ).facts(),
            "verdict": self.judgement.verdict,
            "findings": [asdict(finding) for finding in self.judgement.findings],
            "examined": self.judgement.examined,
            "tally": {name: count for name, count in self.tally.items() if count},
            "recovery_seconds": figures,
            "seconds": round(self.seconds, 1),
        }

    def save(self, folder: Path) -> Path:
        """Write the report, and the history beside it; the path of the report."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.scenario}-{self.settings.subject}-{self.settings.seed}"
        stem += "-again" if self.is_replay else ""  # the file that is replayed is not overwritten
        self.history.write(folder / f"{stem}.history.jsonl")
        report = folder / f"{stem}.json"
        report.write_text(json.dumps(self.facts(), indent=2) + "\n")
        return report


def run_drill(
    scenario: Scenario,
    settings: DrillSettings,
    *,
    server_url: str | None = None,
    on_fault: Callable[[str], None] = lambda line: None,
    is_replay: bool = False,
) -> DrillReport:
    """Run the scenario on a new database, on a new server if no `server_url` is given.

    A scenario that breaks its server always gets a new one.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        server = None
        if server_url is None or scenario.own_server:
            make_server = scenario.make_server or temporary_server
            server = stack.enter_context(make_server(settings=scenario.server_settings))
            url = new_database(server.url)  # not dropped: the server may be lost before the end
        else:
            url = stack.enter_context(scratch_database(server_url))
        install(settings.subject, url)
        drill = DrillContext(url, settings, server=server, stack=stack, notify=on_fault)
        install_tables(drill.conn)
        version = str(drill.query("SHOW server_version")[0][0])
        missing = _run(scenario, drill)
        drill.history.mark_unknown()
        tally = drill.tally()
        missing += [f"{name}: none" for name in scenario.shows if not tally.get(name)]
        judgement = judge(
            drill.history,
            drill.read_state(),
            shows=scenario.shows,
            missing=missing,
            broken=drill.broken_expectations,
        )
    return DrillReport(
        scenario=scenario.name,
        is_replay=is_replay,
        settings=settings,
        postgres=version,
        judgement=judgement,
        tally=tally,
        recovery_seconds=tuple(recoveries(drill.history)),
        seconds=time.monotonic() - began,
        history=drill.history,
    )


def _run(scenario: Scenario, drill: DrillContext) -> list[str]:
    """Run the scenario and finish its jobs; the reasons why nothing was shown.

    Jobs that healthy workers do not finish afterwards break an expectation.
    """
    try:
        scenario.run(drill)
        not_shown: list[str] = []
    except DrillNotRun as problem:
        not_shown = [str(problem)]
    try:
        drill.finish_jobs()
    except DrillNotRun as problem:
        drill.expect(False, "; before that: ".join([str(problem), *not_shown]))
    return not_shown

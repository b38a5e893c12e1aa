"""The report of a soak, with its settings, findings and history."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faultline_drills.judging.checker import Judgement
from faultline_drills.provenance import provenance
from faultline_drills.recording.history import History
from faultline_drills.soak.settings import SoakSettings


@dataclass(frozen=True)
class SoakReport:
    settings: SoakSettings
    postgres: str
    judgement: Judgement
    tally: dict[str, int]
    seconds: float
    history: History

    def facts(self) -> dict[str, Any]:
        return {
            "kind": "soak",
            "settings": asdict(self.settings),
            "provenance": provenance(
                self.settings.command, seed=self.settings.seed, postgres=self.postgres
            ).facts(),
            "verdict": self.judgement.verdict,
            "findings": [asdict(finding) for finding in self.judgement.findings],
            "examined": self.judgement.examined,
            "tally": {name: count for name, count in self.tally.items() if count},
            "seconds": round(self.seconds, 1),
        }

    def save(self, folder: Path) -> Path:
        """Write the report, and the history beside it; the path of the report."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"soak-{self.settings.subject}-{self.settings.seed}"
        self.history.write(folder / f"{stem}.history.jsonl")
        report = folder / f"{stem}.json"
        report.write_text(json.dumps(self.facts(), indent=2) + "\n")
        return report

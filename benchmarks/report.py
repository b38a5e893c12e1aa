"""Writes the report of a run: performance.json, performance.md and the plots."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.plots import draw_comparison
from benchmarks.results import Results
from benchmarks.tables import as_markdown
from faultline_drills.report.plots import save


def write_report(results: Results, folder: Path, note: str) -> list[Path]:
    """Write all files; `note` is printed at the foot of the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = draw_comparison(results, folder, note)
    for section in results.sections.values():
        for stem, figure in section.figures.items():
            pictures += save(figure, folder, stem, note)
    of_comparison = [path.name for path in pictures if path.name.startswith("performance_")]
    shown = [name for name in of_comparison if name.endswith(".png")]
    facts = folder / "performance.json"
    facts.write_text(json.dumps(results.facts(), indent=1, ensure_ascii=False) + "\n")
    page = folder / "performance.md"
    page.write_text(as_markdown(results, shown))
    return [facts, page, *pictures]

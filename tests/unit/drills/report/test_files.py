"""The files of a report are complete, self-contained and made from the same data."""

from __future__ import annotations

import html.parser
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from PIL import Image

from faultline_drills.mutants.kill_matrix import as_markdown as matrix_markdown
from faultline_drills.mutants.mutation_run import MutantResult
from faultline_drills.race import RaceReport
from faultline_drills.race.race_timeline import RaceEvent
from faultline_drills.report.html_page import as_html
from faultline_drills.report.markdown import as_markdown
from faultline_drills.report.plots import draw_duplicates, draw_recoveries, save, save_as
from faultline_drills.report.race_drawing import DrawnRace, draw_still, save_animation
from faultline_drills.report.report_data import read_other_reports, report_data
from faultline_drills.report.scenario_matrix import ScenarioRow
from tests.unit.drills.report.reports import ORIGIN, both

HELD = {"exactly one payment": True}
ROW = ScenarioRow("stale_takeover", "A worker is stopped.", "valid", "invalid", "6 stops", 2.0)
MUTANTS = {"mutants": [{"name": "no_fence", "layer": "explorer", "killed": True, "how": "17"}]}


def facts(*rows: ScenarioRow, **others: Any) -> dict[str, Any]:
    return report_data(both(), list(rows) or [ROW], HELD, ORIGIN, {"mutants": MUTANTS, **others})


def drawing() -> str:
    return '<?xml version="1.0"?><!DOCTYPE svg><svg id="a"><use xlink:href="#a"/></svg>'


class References(html.parser.HTMLParser):
    """Collects everything that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "object", "embed"):
            self.found.append(tag)
        for name, value in attrs:
            points = name in ("src", "href", "xlink:href", "srcset", "data", "action")
            if points and not (value or "").startswith("#"):
                self.found.append(f"{tag} {name}={value}")


def test_the_page_refers_to_nothing_outside_itself(tmp_path: Path) -> None:
    save(draw_duplicates(both(), ORIGIN.line), tmp_path, "duplicates", ORIGIN.line)
    page = as_html(facts(), {"Duplicates": (tmp_path / "duplicates.svg").read_text()})
    references = References()
    references.feed(page)
    assert references.found == []
    assert "@import" not in page
    assert "url(http" not in page
    assert page.count("<svg") == 1


def test_two_drawings_on_a_page_share_no_element_id() -> None:
    page = as_html(facts(), {"One": drawing(), "Two": drawing()})
    assert 'id="one-a"' in page
    assert 'xlink:href="#two-a"' in page


def test_findings_are_escaped() -> None:
    row = ScenarioRow("evil", "", "invalid", None, "<script>alert(1)</script> a | b", 1.0)
    page, text = as_html(facts(row), {}), as_markdown(facts(row), [])
    assert "<script>" not in page
    assert r"a \| b" in text


@pytest.mark.parametrize(
    "fact", [*ORIGIN.facts().values(), "no_fence", "stale_takeover", "superuser"]
)
def test_html_and_markdown_contain_origin_and_results(fact: Any) -> None:
    assert str(fact) in as_html(facts(), {})
    assert str(fact) in as_markdown(facts(), [])


def test_the_data_is_json_and_says_why_the_verdict_is_not_valid() -> None:
    wrong = ScenarioRow("worker_crash", "", "invalid", None, "every_job_ends: job j", 1.0)
    data = json.loads(json.dumps(facts(wrong)))
    assert data["verdict"] == "invalid"
    assert data["why_not"] == ["worker_crash: every_job_ends: job j"]
    assert data["safe_for_controlled_release_validation"] is False


def test_a_scenario_that_the_control_passes_makes_the_report_unknown() -> None:
    missed = ScenarioRow("stale_takeover", "", "valid", "valid", "6 stops", 1.0)
    assert facts(missed)["verdict"] == "unknown"


def test_a_failed_race_makes_the_report_invalid() -> None:
    data = report_data(both(), None, {"exactly one payment": False}, ORIGIN, {})
    assert data["verdict"] == "invalid"


def test_files_of_other_drills_are_read_unless_they_are_incomplete(tmp_path: Path) -> None:
    (tmp_path / "mutants.json").write_text(json.dumps(MUTANTS))
    (tmp_path / "sweep.json").write_text('{"injected": 600, "tally": {"kills": 300}}')
    (tmp_path / "soak.json").write_text('{"minutes":')
    (tmp_path / "report.json").write_text("{}")
    found = read_other_reports(tmp_path)
    assert found.keys() == {"mutants", "sweep"}
    text = as_markdown(facts(**found), [])
    assert "| injected | 600 |" in text
    assert "| kills | 300 |" in text


def test_plots_are_drawn_without_any_measurement(tmp_path: Path) -> None:
    paths = save(draw_recoveries([], [], ORIGIN.line), tmp_path, "recovery", ORIGIN.line)
    assert [path.suffix for path in paths] == [".png", ".svg"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_every_kind_of_picture_contains_its_origin(tmp_path: Path) -> None:
    note = ORIGIN.line
    png, svg = save(draw_recoveries([], [], note), tmp_path, "recovery", note)
    moving = save_animation(DrawnRace(race()), note, tmp_path / "race.gif", glide_frames=1)
    with Image.open(png) as picture:
        assert picture.info["Description"] == note
    assert note in svg.read_text()
    with Image.open(moving) as picture:
        assert picture.info["comment"] == note.encode()


def test_the_kill_matrix_contains_its_origin() -> None:
    page = matrix_markdown([MutantResult("no_fence", "explorer", True, 1.0, "17")], ORIGIN)
    for fact in ORIGIN.facts().values():
        assert str(fact) in page


def race() -> RaceReport:
    """A race as `run_race` reports it."""
    data = [
        (0.0, "A", "lease_acquired", {"token": 1}),
        (0.1, "A", "stalled", {"signal": "SIGSTOP"}),
        (1.3, "B", "lease_acquired", {"token": 2}),
        (1.4, "B", "commit_ok", {"token": 2}),
        (1.6, "A", "woken", {"signal": "SIGCONT"}),
        (
            1.7,
            "A",
            "stale_write_blocked",
            {"stale_token": 1, "current_token": 2, "reason": "token_mismatch"},
        ),
    ]
    return RaceReport(
        job_id=uuid4(),
        events=tuple(RaceEvent(*each) for each in data),
        payments=1,
        ledger_count=1,
        min_token=2,
        max_token=2,
        state="succeeded",
        rejections=1,
        stray_lines=(),
    )


@pytest.mark.slow
def test_a_race_is_drawn_as_picture_and_animation(tmp_path: Path) -> None:
    still = tmp_path / "race.svg"
    save_as(draw_still(DrawnRace(race()), ORIGIN.line), still, ORIGIN.line)
    assert "<svg" in still.read_text()
    begin = replace(race(), events=race().events[:3])  # each moment costs two more drawings
    moving = save_animation(DrawnRace(begin), ORIGIN.line, tmp_path / "race.gif", glide_frames=2)
    assert moving.stat().st_size < 400_000
    with Image.open(moving) as picture:
        assert getattr(picture, "n_frames", 1) > len(begin.events)
        shown_ms = 0
        for frame in range(picture.n_frames):
            picture.seek(frame)
            shown_ms += picture.info["duration"]
    assert 5_000 < shown_ms < 20_000  # long enough to read

"""The dashboards are those of the code, fit on the screen, and ask questions that Prometheus understands."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from monitoring.dashboards import __main__ as program
from monitoring.dashboards.panel import COLUMNS
from tests.monitoring.shipped import GRAFANA, VARIABLES, dashboard_expressions, dashboards
from tests.monitoring.tools import promtool

DASHBOARDS = dashboards()


def test_the_files_are_what_the_command_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "GRAFANA", tmp_path)
    assert CliRunner().invoke(program.main).exit_code == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in GRAFANA.glob("*.json")}


def test_the_command_tells_a_file_that_was_changed_by_hand_and_one_that_is_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "GRAFANA", tmp_path)
    CliRunner().invoke(program.main)
    assert CliRunner().invoke(program.main, ["--check"]).exit_code == 0

    (tmp_path / "queues.json").write_text("{}")
    (tmp_path / "old.json").write_text("{}")
    checked = CliRunner().invoke(program.main, ["--check"])
    assert checked.exit_code == 1
    assert "out of date: queues.json" in checked.output
    assert "belongs to no dashboard: old.json" in checked.output

    CliRunner().invoke(program.main)
    assert CliRunner().invoke(program.main, ["--check"]).exit_code == 0
    assert not (tmp_path / "old.json").exists()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_no_panel_lies_on_another_or_beyond_the_edge(name: str) -> None:
    places = [panel["gridPos"] for panel in DASHBOARDS[name]["panels"]]
    taken = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < COLUMNS


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_says_what_it_shows(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(numbers) == len(set(numbers))
    for panel in panels:
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"]
            assert panel["targets"]


def test_a_dashboard_has_an_address_of_its_own() -> None:
    addresses = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert len(addresses) == len(set(addresses)) == 5


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_choice_is_offered_and_used(name: str) -> None:
    offered = {f"${variable['name']}" for variable in DASHBOARDS[name]["templating"]["list"]}
    asked = json.dumps([panel.get("targets") for panel in DASHBOARDS[name]["panels"]])
    used = set(re.findall(r"\$\w+", asked)) - {"$__rate_interval"}
    assert used <= set(VARIABLES)
    assert offered - {"$datasource"} == used


def test_promtool_understands_every_expression(tmp_path: Path) -> None:
    """Each as a rule of its own: that is the parser of Prometheus itself."""
    rules: list[dict[str, Any]] = [
        {"record": f"question:{number}", "expr": expression.filled_in}
        for number, expression in zip(itertools.count(), dashboard_expressions(), strict=False)
    ]
    path = tmp_path / "questions.yml"
    path.write_text(json.dumps({"groups": [{"name": "questions", "rules": rules}]}))  # is YAML too
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))

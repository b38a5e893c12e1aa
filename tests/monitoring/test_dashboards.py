"""Dashboard files match their code, have a valid layout, and use valid PromQL."""

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
from tests.monitoring.monitoring_files import GRAFANA, VARIABLES, dashboard_expressions, dashboards
from tests.monitoring.tools import promtool

DASHBOARDS = dashboards()


def test_the_dashboard_files_are_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "GRAFANA", tmp_path)
    assert CliRunner().invoke(program.main).exit_code == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in GRAFANA.glob("*.json")}


def test_the_check_reports_changed_and_leftover_files(
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
def test_no_panel_overlaps_another_or_exceeds_the_grid(name: str) -> None:
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
def test_every_panel_has_a_title_a_description_and_queries(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(numbers) == len(set(numbers))
    for panel in panels:
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"]
            assert panel["targets"]


def test_every_dashboard_has_a_unique_uid() -> None:
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert len(uids) == len(set(uids)) == 5


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_is_defined_and_used(name: str) -> None:
    offered = {f"${variable['name']}" for variable in DASHBOARDS[name]["templating"]["list"]}
    asked = json.dumps([panel.get("targets") for panel in DASHBOARDS[name]["panels"]])
    used = set(re.findall(r"\$\w+", asked)) - {"$__rate_interval"}
    assert used <= set(VARIABLES)
    assert offered - {"$datasource"} == used


def test_every_expression_is_valid_promql(tmp_path: Path) -> None:
    """Each expression becomes a rule, which promtool checks."""
    rules: list[dict[str, Any]] = [
        {"record": f"expression:{number}", "expr": expression.filled_in}
        for number, expression in zip(itertools.count(), dashboard_expressions(), strict=False)
    ]
    path = tmp_path / "expressions.yml"
    # JSON is valid YAML.
    path.write_text(json.dumps({"groups": [{"name": "expressions", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))

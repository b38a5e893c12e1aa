"""The rules are valid, their cases hold, and whoever is woken by one finds out what to do."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import yaml

from tests.monitoring.shipped import MONITORING, RULES, alerts, anchor, headings
from tests.monitoring.tools import promtool

ALERTS = {rule["alert"]: rule for rule in alerts()}


def test_the_configuration_and_its_rules_are_valid() -> None:
    said = promtool("check", "config", str(MONITORING / "prometheus.yml"))
    assert "2 rule files found" in said


@pytest.mark.parametrize("path", sorted(RULES.glob("*_test.yml")), ids=lambda path: path.stem)
def test_the_cases_of_the_rules_hold(path: Any) -> None:
    promtool("test", "rules", str(path))


def test_every_rule_file_is_named_in_the_configuration() -> None:
    named = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["rule_files"]
    there = {path for path in RULES.glob("*.yml") if not path.stem.endswith("_test")}
    assert {MONITORING / name for name in named} == there


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    files = [yaml.safe_load(path.read_text()) for path in RULES.glob("*_test.yml")]
    outcomes = defaultdict(set)
    for case in (case for file in files for case in file["tests"]):
        for question in case.get("alert_rule_test", []):
            outcomes[question["alertname"]].add(bool(question["exp_alerts"]))
    assert outcomes == {name: {True, False} for name in ALERTS}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert name in headings()
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{anchor(name)}"


def test_every_runbook_belongs_to_an_alert() -> None:
    assert {heading for heading in headings() if heading.startswith("Faultline")} == set(ALERTS)

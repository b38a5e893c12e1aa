"""The rules are valid, their promtool tests pass, and every alert has a runbook."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import yaml

from tests.monitoring.monitoring_files import MONITORING, RULES, alerts, anchor, headings
from tests.monitoring.tools import promtool

ALERTS = {rule["alert"]: rule for rule in alerts()}


def test_the_configuration_and_its_rules_are_valid() -> None:
    output = promtool("check", "config", str(MONITORING / "prometheus.yml"))
    assert "2 rule files found" in output


@pytest.mark.parametrize("path", sorted(RULES.glob("*_test.yml")), ids=lambda path: path.stem)
def test_the_promtool_tests_pass(path: Any) -> None:
    promtool("test", "rules", str(path))


def test_every_rule_file_is_named_in_the_configuration() -> None:
    named = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["rule_files"]
    there = {path for path in RULES.glob("*.yml") if not path.stem.endswith("_test")}
    assert {MONITORING / name for name in named} == there


def test_every_alert_has_a_test_that_fires_and_one_that_does_not() -> None:
    files = [yaml.safe_load(path.read_text()) for path in RULES.glob("*_test.yml")]
    outcomes = defaultdict(set)
    for case in (case for file in files for case in file["tests"]):
        for check in case.get("alert_rule_test", []):
            outcomes[check["alertname"]].add(bool(check["exp_alerts"]))
    assert outcomes == {name: {True, False} for name in ALERTS}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_severity_and_links_its_runbook(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert name in headings()
    assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{anchor(name)}"


def test_every_runbook_belongs_to_an_alert() -> None:
    assert {heading for heading in headings() if heading.startswith("Faultline")} == set(ALERTS)

"""Reads the expressions of the dashboards and rules from the files of monitoring/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "monitoring"
RULES = MONITORING / "rules"
GRAFANA = MONITORING / "grafana"
RUNBOOKS = ROOT / "docs" / "alerts.md"

# Grafana replaces these before it sends a query.
VARIABLES = {"$__rate_interval": "5m", "$queue": ".*", "$instance": ".*"}

_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")
_METRIC = re.compile(r"(?<!['\"])\b(?:[a-z_]+:)?faultline[a-z0-9_:]*")
_SELECTOR = re.compile(rf"({_METRIC.pattern})(?:\{{([^}}]*)\}})?")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_STRINGS.pattern})")
_KEPT_LABELS = re.compile(r"\bby\s*\(([^)]*)\)")
_SHOWN_LABEL = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Expression:
    """A PromQL expression, and where it is used."""

    where: str
    text: str
    legend: str = ""

    def __str__(self) -> str:
        return self.where

    @property
    def filled_in(self) -> str:
        """The expression with Grafana's variables replaced."""
        text = self.text
        for name, value in VARIABLES.items():
            text = text.replace(name, value)
        return text

    @property
    def metrics(self) -> set[str]:
        return set(_METRIC.findall(_STRINGS.sub("''", self.text)))

    @property
    def selectors(self) -> set[str]:
        """The selectors of the expression: metrics with their label matchers."""
        return {found.group() for found in _SELECTOR.finditer(self.filled_in)}

    @property
    def matchers(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield each metric, each label matched on it, and the value of exact matches."""
        for metric, matchers in _SELECTOR.findall(self.text):
            for label, operator, value in _MATCHER.findall(matchers):
                yield metric, label, value.strip("'\"") if operator in ("=", "!=") else None

    @property
    def kept_labels(self) -> set[str]:
        """The labels of the result, as named by `by` clauses."""
        return {
            label.strip() for kept in _KEPT_LABELS.findall(self.text) for label in kept.split(",")
        }

    @property
    def shown_labels(self) -> set[str]:
        return set(_SHOWN_LABEL.findall(self.legend))


# ── dashboards ───────────────────────────────────────────────────────────────────────────────────


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}


def dashboard_expressions() -> list[Expression]:
    return [
        expression
        for name, dashboard in dashboards().items()
        for expression in _expressions_of(name, dashboard)
    ]


def _expressions_of(name: str, dashboard: dict[str, Any]) -> Iterator[Expression]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            where = f"{name}: {panel['title']} {target['refId']}"
            yield Expression(where, target["expr"], target["legendFormat"])
    for annotation in dashboard["annotations"]["list"]:
        yield Expression(
            f"{name}: {annotation['name']}", annotation["expr"], annotation["textFormat"]
        )


def variable_sources() -> Iterator[tuple[str, str]]:
    """Yield the metric and the label of each variable of a dashboard."""
    for dashboard in dashboards().values():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.fullmatch(
                    r"label_values\((\w+), (\w+)\)", variable["query"]["query"]
                ).groups()  # type: ignore[union-attr]
                yield metric, label


# ── rules ────────────────────────────────────────────────────────────────────────────────────────


def rules(file_name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / file_name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return rules("alerts.yml")


def recordings() -> dict[str, Expression]:
    return {
        rule["record"]: Expression(rule["record"], rule["expr"]) for rule in rules("recording.yml")
    }


def rule_expressions() -> list[Expression]:
    expressions = [Expression(rule["alert"], rule["expr"]) for rule in alerts()]
    return [*recordings().values(), *expressions]


def all_expressions() -> list[Expression]:
    return [*rule_expressions(), *dashboard_expressions()]


# ── runbooks ─────────────────────────────────────────────────────────────────────────────────────


def headings() -> list[str]:
    return re.findall(r"^#+ (.+)$", RUNBOOKS.read_text(), flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """Return a heading's anchor as code forges generate it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")

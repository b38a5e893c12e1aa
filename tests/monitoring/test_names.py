"""Every metric and label in rules, dashboards and docs exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faultline.metrics.catalogue import CATALOGUE, Kind
from tests.monitoring.monitoring_files import (
    ROOT,
    Expression,
    all_expressions,
    recordings,
    variable_sources,
)

METRICS = {metric.name: metric for metric in CATALOGUE}
RECORDINGS = recordings()
TARGET_LABELS = {"job", "instance"}  # which Prometheus adds to every series
EXPRESSIONS = all_expressions()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

# Names in the documentation with the same prefix that are not metrics.
OTHER_NAMES = {
    # roles
    *(
        "faultline_producer",
        "faultline_worker",
        "faultline_inspector",
        "faultline_operator",
        "faultline_owner",
    ),
    *("faultline_app", "faultline_database"),  # fixtures
    *("faultline_migrate", "faultline_demo"),  # commands of Django, as faultline_worker is
    "faultline_csrf",  # a cookie
    "faultline_drills",  # a module
    # fields of log records
    *("faultline_job_id", "faultline_task", "faultline_attempt", "faultline_token"),
    *("faultline_event", "faultline_reason"),
}
_NAME = re.compile(r"\bfaultline_[a-z0-9_]+")


def exported(name: str) -> str | None:
    """Return the catalogue's metric of a series, or None."""
    if name in METRICS:
        return name
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    is_histogram = family in METRICS and METRICS[family].kind is Kind.HISTOGRAM
    return family if is_histogram else None


def labels_of(name: str) -> set[str]:
    """Return the labels that an exported or recorded series may have."""
    if name in RECORDINGS:
        return RECORDINGS[name].kept_labels
    family = exported(name)
    assert family is not None, name
    bucket = {"le"} if name.endswith("_bucket") else set()
    return {*METRICS[family].labels, *TARGET_LABELS, *bucket}


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_names_metrics_that_exist(expression: Expression) -> None:
    unknown = {name for name in expression.metrics if name not in RECORDINGS and not exported(name)}
    assert not unknown
    builtin = re.search(r"\bup\{|\bALERTS\{", expression.text)
    assert expression.metrics or builtin, "it uses no metric of Faultline"


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_uses_labels_that_its_metrics_have(expression: Expression) -> None:
    for metric, label, value in expression.matchers:
        assert label in labels_of(metric), (metric, label)
        known = METRICS[exported(metric) or ""].values if exported(metric) else {}
        if value is not None and label in known:
            assert value in known[label], (metric, label, value)
    if expression.metrics:
        available = set().union(*(labels_of(metric) for metric in expression.metrics))
        assert expression.kept_labels <= available
        assert expression.shown_labels <= available


def test_the_variables_of_the_dashboards_are_labels_of_metrics() -> None:
    for metric, label in variable_sources():
        assert label in labels_of(metric)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_documentation_names_metrics_that_exist(page: Path) -> None:
    named = set(_NAME.findall(page.read_text())) - OTHER_NAMES
    assert {name for name in named if not exported(name)} == set()


def test_every_metric_is_used_in_a_rule_or_dashboard() -> None:
    used = {exported(name) for expression in EXPRESSIONS for name in expression.metrics}
    assert set(METRICS) - used == set()

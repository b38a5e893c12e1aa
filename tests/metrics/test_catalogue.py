"""The catalogue of metrics: names, labels, and its documentation page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faultline.metrics import CATALOGUE, Kind, Metric, Part
from faultline.metrics.catalogue import (
    FAILED_REASONS,
    LOSS_CAUSES,
    QUEUE_STATES,
    STALE_REASONS,
    WORKER_STATUSES,
    Across,
)
from faultline.model import StaleReason
from faultline.statements.queues import CountedState
from faultline.statements.workers import WorkerStatus

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `(faultline_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)

# What dashboards, alerts and users rely on: a change here is a change for them.
NAMES_AND_LABELS = {
    "faultline_jobs_enqueued_total": ("queue", "outcome"),
    "faultline_jobs_claimed_total": ("queue",),
    "faultline_jobs_succeeded_total": ("queue",),
    "faultline_jobs_failed_total": ("queue", "reason"),
    "faultline_jobs_retried_total": ("queue",),
    "faultline_jobs_deferred_total": ("queue",),
    "faultline_jobs_snoozed_total": ("queue",),
    "faultline_progress_reports_total": ("outcome",),
    "faultline_stale_write_rejected_total": ("reason",),
    "faultline_execution_seconds": ("queue",),
    "faultline_batch_jobs": ("queue",),
    "faultline_end_to_end_seconds": ("queue",),
    "faultline_running_jobs": (),
    "faultline_leases_acquired_total": (),
    "faultline_leases_renewed_total": (),
    "faultline_leases_expired_total": (),
    "faultline_leases_taken_over_total": ("cause",),
    "faultline_recovery_seconds": (),
    "faultline_overlap_seconds": (),
    "faultline_heartbeat_lateness_seconds": (),
    "faultline_claim_seconds": (),
    "faultline_commit_seconds": (),
    "faultline_heartbeat_seconds": (),
    "faultline_empty_polls_total": (),
    "faultline_database_errors_total": ("kind",),
    "faultline_database_reconnects_total": (),
    "faultline_coordination_seconds_total": (),
    "faultline_worker_seconds_total": (),
    "faultline_reconciler_leading": (),
    "faultline_reconcile_seconds": (),
    "faultline_queue_jobs": ("queue", "state"),
    "faultline_queue_oldest_due_seconds": ("queue",),
    "faultline_limit_jobs": ("limit", "state"),
    "faultline_limit_idle_keys": ("limit",),
    "faultline_workers": ("status",),
    "faultline_schedule_firings_total": ("outcome",),
    "faultline_schedule_lateness_seconds": (),
    "faultline_schedules": ("state",),
    "faultline_http_requests_total": ("method", "route", "status"),
    "faultline_http_request_seconds": ("route",),
    "faultline_build_info": ("version", "python"),
}


def test_the_names_and_labels_are_exactly_these() -> None:
    assert {metric.name: metric.labels for metric in CATALOGUE} == NAMES_AND_LABELS
    assert len(CATALOGUE) == len(NAMES_AND_LABELS)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_a_metric_keeps_to_the_conventions_of_prometheus(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    if metric.kind is Kind.HISTOGRAM:
        assert metric.name.endswith(("_seconds", "_jobs"))  # the unit
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.buckets
    else:
        assert metric.buckets == ()
    assert metric.help.endswith(".")
    assert metric.parts
    assert metric.values.keys() <= set(metric.labels)


def test_leader_metrics_are_gauges_of_the_reconciler() -> None:
    of_the_leader = [metric for metric in CATALOGUE if metric.across is Across.LEADER]
    assert {metric.kind for metric in of_the_leader} == {Kind.GAUGE}
    assert {metric.parts for metric in of_the_leader} == {(Part.RECONCILER,)}


def test_the_values_of_labels_are_those_that_faultline_uses() -> None:
    assert set(STALE_REASONS) == {*StaleReason, "other"}
    assert set(WORKER_STATUSES) == set(WorkerStatus)
    assert set(QUEUE_STATES) == set(CountedState) - {CountedState.SUCCEEDED}
    assert set(LOSS_CAUSES) <= set(outcomes("attempts_log", "outcome_is_known"))
    assert {"attempts_spent", "poison", "cancelled"} <= set(FAILED_REASONS)


def outcomes(table: str, constraint: str) -> list[str]:
    """The words that the schema allows."""
    schema = Path(__file__).parents[2] / "src/faultline/sql/schema.sql"
    rule = re.search(rf"{table}.*?{constraint} CHECK \((.*?)\)\)", schema.read_text(), re.DOTALL)
    assert rule is not None
    return re.findall(r"'(\w+)'", rule[1])


def test_the_page_about_metrics_lists_the_catalogue_and_nothing_else() -> None:
    page = (DOCS / "metrics.md").read_text()
    documented = {name: (kind, labels, text) for name, kind, labels, text in ROW.findall(page)}
    meant = {each.name: (each.kind.value, labels_of(each), each.help) for each in CATALOGUE}
    assert documented == meant
    assert set(re.findall(r"faultline_\w+", page)) <= {
        f"{metric.name}{suffix}" for metric in CATALOGUE for suffix in SUFFIXES[metric.kind]
    }


SUFFIXES = {
    Kind.COUNTER: ("",),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("", "_bucket", "_count", "_sum"),
}


def labels_of(metric: Metric) -> str:
    """As the page has them: the label, and its values where they are known."""
    return ", ".join(
        f"`{label}`" + (f" ({', '.join(metric.values[label])})" if label in metric.values else "")
        for label in metric.labels
    )

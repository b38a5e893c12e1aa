"""The overview dashboard: overall health, and links to the other dashboards."""

from __future__ import annotations

from monitoring.dashboards.dashboard import Dashboard, Row
from monitoring.dashboards.panel import Query, graph, number, quantiles, table

_HEALTH = (
    number(
        "Workers alive",
        "max(faultline_workers{status='alive'}) or vector(0)",
        description="Live workers, counted by the leading reconciler; 0 also if none leads.",
        worry_below=1,
    ),
    number(
        "Reconcilers that lead",
        "sum(faultline_reconciler_leading) or vector(0)",
        description="One, except for a moment after a change. Behind a pooler every reconciler acts.",
        worry_below=1,
    ),
    number(
        "Due now",
        "sum(queue_state:faultline_queue_jobs:max{state='due'})",
        description="Jobs that could run now, in all queues.",
    ),
    number(
        "Oldest due",
        "max(queue:faultline_queue_oldest_due_seconds:max)",
        description="How long the oldest due job has been due.",
        unit="s",
        worry_at=300,
    ),
    number(
        "Stale writes refused, last hour",
        "sum(increase(faultline_stale_write_rejected_total[1h]))",
        description="Each one is a write of a worker that had lost its lease.",
        worry_at=1,
    ),
    number(
        "Dead jobs",
        "sum(queue_state:faultline_queue_jobs:max{state='failed'})",
        description="Jobs that failed for good: attempts used up, poison, cancelled.",
    ),
)

_FLOW = (
    graph(
        "Jobs per second",
        Query(
            "sum(rate(faultline_jobs_enqueued_total{outcome='queued'}[$__rate_interval]))",
            "enqueued",
        ),
        Query("sum(rate(faultline_jobs_claimed_total[$__rate_interval]))", "claimed"),
        Query("sum(rate(faultline_jobs_succeeded_total[$__rate_interval]))", "succeeded"),
        Query("sum(rate(faultline_jobs_retried_total[$__rate_interval]))", "retried"),
        Query("sum(rate(faultline_jobs_snoozed_total[$__rate_interval]))", "snoozed"),
        Query("sum(rate(faultline_jobs_failed_total[$__rate_interval]))", "dead"),
        Query("sum(rate(faultline_jobs_deferred_total[$__rate_interval]))", "unknown task"),
        description="Enqueued counts only scraped processes; your own producers are missing unless"
        " Prometheus scrapes them.",
        unit="ops",
    ),
    graph(
        "Depth by state",
        Query("sum by (state) (queue_state:faultline_queue_jobs:max)", "{{state}}"),
        description="In all queues together. Exact up to 10,000 in each queue, an estimate beyond.",
    ),
    graph(
        "From enqueue to commit",
        *quantiles("faultline_end_to_end_seconds"),
        description="From when a job was last due to its commit.",
        unit="s",
    ),
    graph(
        "Coordination overhead",
        Query("faultline:coordination_overhead:ratio_rate5m", "all workers"),
        description="The share of the workers' time that is spent waiting for the database.",
        unit="percentunit",
    ),
)

_ALERTS = (
    table(
        "Firing alerts",
        "ALERTS{alertname=~'Faultline.+', alertstate='firing'}",
        description="docs/alerts.md has a section for each.",
        columns={
            "alertname": "alert",
            "severity": "severity",
            "queue": "queue",
            "instance": "instance",
            "reason": "reason",
        },
    ),
    table(
        "Scrape targets",
        "up{job=~'faultline-.+'}",
        description="1: answered the last scrape.",
        columns={"job": "part", "instance": "instance", "Value": "up"},
    ),
)

_HTTP = (
    graph(
        "Requests per second",
        Query(
            "sum by (status) (rate(faultline_http_requests_total[$__rate_interval]))", "{{status}}"
        ),
        description="Of the HTTP API, by status.",
        unit="reqps",
        is_stacked=True,
    ),
    graph(
        "Response time, 95th percentile",
        Query(
            "histogram_quantile(0.95, sum by (le, route)"
            " (rate(faultline_http_request_seconds_bucket[$__rate_interval])))",
            "{{route}}",
        ),
        description="Of the HTTP API, by route.",
        unit="s",
    ),
)

OVERVIEW = Dashboard(
    name="overview",
    title="overview",
    description="Overall health, and where to look next.",
    rows=(
        Row("Now", _HEALTH),
        Row("Flow", _FLOW),
        Row("Alerts", _ALERTS),
        Row("HTTP API", _HTTP),
    ),
)

"""The overview: is it well, and if not, which dashboard is next."""

from __future__ import annotations

from monitoring.dashboards.board import Dashboard, Row
from monitoring.dashboards.panel import Query, graph, number, quantiles, table

_HEALTH = (
    number(
        "Workers alive",
        "max(faultline_workers{status='alive'}) or vector(0)",
        description="Registered workers that the leading reconciler has heard of. 0 also when none leads.",
        worry_below=1,
    ),
    number(
        "Reconcilers that lead",
        "sum(faultline_reconciler_leading) or vector(0)",
        description="One, but for a moment after a change. Behind a pooler every one of them acts.",
        worry_below=1,
    ),
    number(
        "Due now",
        "sum(queue_state:faultline_queue_jobs:max{state='due'})",
        description="Jobs that could run at once, in all queues.",
    ),
    number(
        "Oldest due",
        "max(queue:faultline_queue_oldest_due_seconds:max)",
        description="How long the job that has waited longest has been due.",
        unit="s",
        worry_at=300,
    ),
    number(
        "Stale writes refused, last hour",
        "sum(increase(faultline_stale_write_rejected_total[1h]))",
        description="Each is a worker that had lost its lease and was kept from writing.",
        worry_at=1,
    ),
    number(
        "Dead jobs",
        "sum(queue_state:faultline_queue_jobs:max{state='failed'})",
        description="Jobs that will not run again by themselves: attempts spent, poison, cancelled.",
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
        Query("sum(rate(faultline_jobs_failed_total[$__rate_interval]))", "dead"),
        Query("sum(rate(faultline_jobs_deferred_total[$__rate_interval]))", "unknown task"),
        description="Enqueued counts what passed through a scraped process; producers of your own"
        " that nobody scrapes are missing from it.",
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
        description="The share of the workers' time that goes into talking to the database.",
        unit="percentunit",
    ),
)

_ALERTS = (
    table(
        "Alerts that fire",
        "ALERTS{alertname=~'Faultline.+', alertstate='firing'}",
        description="Each has its page in docs/alerts.md.",
        columns={
            "alertname": "alert",
            "severity": "severity",
            "queue": "queue",
            "instance": "instance",
            "reason": "reason",
        },
    ),
    table(
        "What is scraped",
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
        "Time to answer, 95 of 100",
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
    description="Is it well, and if not, which dashboard is next.",
    rows=(
        Row("Now", _HEALTH),
        Row("Flow", _FLOW),
        Row("Alerts", _ALERTS),
        Row("HTTP API", _HTTP),
    ),
)

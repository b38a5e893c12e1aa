"""The queues dashboard: depth, waiting times and outcomes per queue."""

from __future__ import annotations

from monitoring.dashboards.dashboard import Dashboard, Row, Variable
from monitoring.dashboards.panel import Panel, Query, graph

_QUEUE = "queue=~'$queue'"
_MATCHING = f"{{{_QUEUE}}}"


def _depth(state: str, description: str) -> Panel:
    return graph(
        state.capitalize(),
        Query(f"queue_state:faultline_queue_jobs:max{{state='{state}', {_QUEUE}}}", "{{queue}}"),
        description=description,
        width=8,
    )


def _rate(title: str, series: str, description: str) -> Panel:
    return graph(
        title,
        Query(f"sum by (queue) (rate({series}[$__rate_interval]))", "{{queue}}"),
        description=description,
        unit="ops",
        width=8,
    )


_DEPTH = (
    _depth("due", "Could run at once. Exact up to 10,000, an estimate beyond."),
    _depth("waiting", "Due, but a limit is reached. They start when the limit allows it."),
    _depth("scheduled", "For later: delayed, or waiting for the next attempt."),
    _depth("running", "In the hands of a worker."),
    _depth("failed", "Will not run again by themselves."),
    graph(
        "Oldest due",
        Query(f"queue:faultline_queue_oldest_due_seconds:max{_MATCHING}", "{{queue}}"),
        description="How long the oldest due job has been due. It rises in a straight line for a"
        " queue that is paused or has no worker.",
        unit="s",
        width=8,
    ),
)

_LIMITS = (
    graph(
        "Running, by limit",
        Query("limit_state:faultline_limit_jobs:max{state='running'}", "{{limit}}"),
        description="Jobs under a limit that run, over all its keys.",
    ),
    graph(
        "Waiting, by limit",
        Query("limit_state:faultline_limit_jobs:max{state='waiting'}", "{{limit}}"),
        description="Jobs that wait because the limit is reached, over all its keys.",
    ),
)

_FLOW = (
    _rate(
        "Enqueued",
        f"faultline_jobs_enqueued_total{{outcome='queued', {_QUEUE}}}",
        "New jobs, by processes that are scraped.",
    ),
    _rate("Claimed", f"faultline_jobs_claimed_total{_MATCHING}", "Attempts begun."),
    _rate("Succeeded", f"faultline_jobs_succeeded_total{_MATCHING}", "Entered in the ledger."),
)

_FAILURES = (
    graph(
        "Retried, share of claims",
        Query(f"queue:faultline_jobs_retried:ratio_rate5m{_MATCHING}", "{{queue}}"),
        description="The share of attempts that failed and will be retried.",
        unit="percentunit",
    ),
    graph(
        "Dead, per second",
        Query(
            f"sum by (queue, reason) (rate(faultline_jobs_failed_total{_MATCHING}[$__rate_interval]))",
            "{{queue}}: {{reason}}",
        ),
        description="Jobs that failed for good, by reason; the leader counts poison and cancelled ones.",
        unit="ops",
    ),
    graph(
        "Repeated submissions",
        Query(
            "sum by (queue) (rate(faultline_jobs_enqueued_total"
            f"{{outcome='existing', {_QUEUE}}}[$__rate_interval]))",
            "{{queue}}",
        ),
        description="Enqueues whose idempotency key already had a job: the existing job was returned.",
        unit="ops",
        width=24,
    ),
)


def _latency(title: str, histogram: str, share: float, description: str) -> Panel:
    rate = f"sum by (le, queue) (rate({histogram}_bucket{_MATCHING}[$__rate_interval]))"
    return graph(
        title,
        Query(f"histogram_quantile({share}, {rate})", "{{queue}}"),
        description=description,
        unit="s",
    )


_TIME = (
    _latency(
        "End to end, median",
        "faultline_end_to_end_seconds",
        0.5,
        "From when a job was last due to its commit: half of the jobs took less.",
    ),
    _latency(
        "End to end, 99th percentile",
        "faultline_end_to_end_seconds",
        0.99,
        "From when a job was last due to its commit: one in a hundred took longer.",
    ),
    _latency(
        "Execution, median",
        "faultline_execution_seconds",
        0.5,
        "How long handlers ran: half of the attempts took less.",
    ),
    _latency(
        "Execution, 99th percentile",
        "faultline_execution_seconds",
        0.99,
        "How long handlers ran: one attempt in a hundred took longer.",
    ),
)

_SCHEDULES = (
    graph(
        "Schedules",
        Query("max by (state) (faultline_schedules)", "{{state}}"),
        description="Overdue ones should have fired a minute ago; failing ones cannot be computed;"
        " no worker's code declares undeclared ones.",
        width=8,
    ),
    graph(
        "Firings",
        Query(
            "sum by (outcome) (rate(faultline_schedule_firings_total[$__rate_interval]))",
            "{{outcome}}",
        ),
        description="Planned times that enqueued a job, and missed ones that were skipped.",
        unit="ops",
        width=8,
    ),
    graph(
        "Lateness, 99th percentile",
        Query(
            "histogram_quantile(0.99, sum by (le)"
            " (rate(faultline_schedule_lateness_seconds_bucket[$__rate_interval])))",
            "lateness",
        ),
        description="From the planned time to its firing.",
        unit="s",
        width=8,
    ),
)

QUEUES = Dashboard(
    name="queues",
    title="queues",
    description="Depth, waiting times and outcomes per queue.",
    variables=(Variable("queue", "faultline_queue_jobs"),),
    rows=(
        Row("Depth", _DEPTH),
        Row("Limits", _LIMITS),
        Row("Flow", _FLOW),
        Row("Failures", _FAILURES),
        Row("Time", _TIME),
        Row("Schedules", _SCHEDULES),
    ),
)

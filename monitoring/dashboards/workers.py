"""The workers dashboard: number, load and idle polling."""

from __future__ import annotations

from monitoring.dashboards.dashboard import Dashboard, Row, Variable
from monitoring.dashboards.panel import Query, graph, table

_MATCHING = "{instance=~'$instance'}"

_WORKERS = (
    graph(
        "Workers by status",
        Query("status:faultline_workers:max", "{{status}}"),
        description="Counted in the database by the leading reconciler, whether scraped or not.",
        is_stacked=True,
    ),
    graph(
        "Leading reconciler",
        Query("max by (instance) (faultline_reconciler_leading)", "{{instance}}"),
        description="1: this process requeues the jobs of dead workers, and counts the queues.",
    ),
)

_WORK = (
    graph(
        "Running jobs",
        Query(f"sum by (instance) (faultline_running_jobs{_MATCHING})", "{{instance}}"),
        description="Slots in use.",
        is_stacked=True,
    ),
    graph(
        "Jobs per second",
        Query(
            "sum by (instance)"
            f" (rate(faultline_jobs_succeeded_total{_MATCHING}[$__rate_interval]))",
            "{{instance}}",
        ),
        description="Committed, by process.",
        unit="ops",
        is_stacked=True,
    ),
    graph(
        "Execution, 95th percentile",
        Query(
            "histogram_quantile(0.95, sum by (le, instance)"
            f" (rate(faultline_execution_seconds_bucket{_MATCHING}[$__rate_interval])))",
            "{{instance}}",
        ),
        description="How long handlers ran.",
        unit="s",
    ),
    graph(
        "Jobs per batch, 95th percentile",
        Query(
            "histogram_quantile(0.95, sum by (le, instance)"
            f" (rate(faultline_batch_jobs_bucket{_MATCHING}[$__rate_interval])))",
            "{{instance}}",
        ),
        description="Jobs of one call of a batch handler. Near max_size: the queue is full, or a"
        " larger max_size would help.",
        unit="short",
    ),
    graph(
        "Coordination overhead",
        Query(
            f"instance:faultline_coordination_overhead:ratio_rate5m{_MATCHING}",
            "{{instance}}",
        ),
        description="The share of a worker's time that is spent waiting for the database.",
        unit="percentunit",
    ),
)

_IDLE = (
    graph(
        "Empty polls per second",
        Query(
            f"sum by (instance) (rate(faultline_empty_polls_total{_MATCHING}[$__rate_interval]))",
            "{{instance}}",
        ),
        description="An idle worker has about one per --poll-seconds. Many more: it is notified of"
        " jobs that other workers claim.",
        unit="ops",
    ),
    graph(
        "Progress reports per second",
        Query(
            f"sum by (outcome) (rate(faultline_progress_reports_total{_MATCHING}[$__rate_interval]))",
            "{{outcome}}",
        ),
        description="At most one a second for each running job. Refused: the attempt had lost its lease.",
        unit="ops",
    ),
    table(
        "Versions",
        "sum by (instance, version, python) (faultline_build_info)",
        description="Two versions at once mean a deploy in progress, or one that did not finish.",
        columns={"instance": "instance", "version": "faultline", "python": "Python"},
    ),
)

WORKERS = Dashboard(
    name="workers",
    title="workers",
    description="Number, load and idle polling.",
    variables=(Variable("instance", "faultline_running_jobs"),),
    rows=(Row("Workers", _WORKERS), Row("Work", _WORK), Row("Idle", _IDLE)),
)

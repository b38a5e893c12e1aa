"""Workers: how many, how busy, and what they spend their time on."""

from __future__ import annotations

from monitoring.dashboards.board import Dashboard, Row, Variable
from monitoring.dashboards.panel import Query, graph, table

_MATCHING = "{instance=~'$instance'}"

_CREW = (
    graph(
        "Workers by status",
        Query("status:faultline_workers:max", "{{status}}"),
        description="As the leading reconciler sees them in the database, scraped or not.",
        is_stacked=True,
    ),
    graph(
        "Who leads",
        Query("max by (instance) (faultline_reconciler_leading)", "{{instance}}"),
        description="1: this process gives back what dead workers hold, and counts the queues.",
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
        "Execution, 95 of 100",
        Query(
            "histogram_quantile(0.95, sum by (le, instance)"
            f" (rate(faultline_execution_seconds_bucket{_MATCHING}[$__rate_interval])))",
            "{{instance}}",
        ),
        description="How long handlers ran.",
        unit="s",
    ),
    graph(
        "Coordination overhead",
        Query(
            f"instance:faultline_coordination_overhead:ratio_rate5m{_MATCHING}",
            "{{instance}}",
        ),
        description="The share of a worker's time that goes into talking to the database.",
        unit="percentunit",
    ),
)

_IDLING = (
    graph(
        "Polls that found nothing, per second",
        Query(
            f"sum by (instance) (rate(faultline_empty_polls_total{_MATCHING}[$__rate_interval]))",
            "{{instance}}",
        ),
        description="An idle worker has about one for each --poll-seconds. Many more: it is woken for"
        " jobs that others take.",
        unit="ops",
    ),
    table(
        "Versions",
        "sum by (instance, version, python) (faultline_build_info)",
        description="Two versions at once are a deploy that is under way, or one that did not end.",
        columns={"instance": "instance", "version": "faultline", "python": "Python"},
    ),
)

WORKERS = Dashboard(
    name="workers",
    title="workers",
    description="How many, how busy, and what they spend their time on.",
    variables=(Variable("instance", "faultline_running_jobs"),),
    rows=(Row("Crew", _CREW), Row("Work", _WORK), Row("Idling", _IDLING)),
)

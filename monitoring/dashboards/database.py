"""The database dashboard: calls, their durations, errors and reconnects."""

from __future__ import annotations

from monitoring.dashboards.dashboard import Dashboard, Row
from monitoring.dashboards.panel import Panel, Query, graph, heatmap, quantiles


def _verb(title: str, histogram: str, description: str) -> Panel:
    return graph(title, *quantiles(histogram), description=description, unit="s")


_CALLS = (
    _verb("Claim", "faultline_claim_seconds", "One claim, of as many jobs as were wanted."),
    _verb("Commit", "faultline_commit_seconds", "One commit, of one job or of a batch."),
    _verb("Heartbeat", "faultline_heartbeat_seconds", "One renewal of all leases of a worker."),
    _verb(
        "Reconcile", "faultline_reconcile_seconds", "One look at who is dead, with what followed."
    ),
    heatmap(
        "Commit, distribution",
        "faultline_commit_seconds",
        description="A second band above the first is often the disk: a checkpoint, or slow WAL.",
    ),
    graph(
        "Calls per second",
        Query("sum(rate(faultline_claim_seconds_count[$__rate_interval]))", "claim"),
        Query("sum(rate(faultline_commit_seconds_count[$__rate_interval]))", "commit"),
        Query("sum(rate(faultline_heartbeat_seconds_count[$__rate_interval]))", "heartbeat"),
        Query("sum(rate(faultline_reconcile_seconds_count[$__rate_interval]))", "reconcile"),
        description="Statements sent, with or without a result.",
        unit="ops",
    ),
)

_ERRORS = (
    graph(
        "Errors",
        Query(
            "sum by (kind) (increase(faultline_database_errors_total[$__rate_interval]))",
            "{{kind}}",
        ),
        description="Statements that failed, except stale writes that the fence refused.",
    ),
    graph(
        "Reconnects",
        Query(
            "sum by (instance) (increase(faultline_database_reconnects_total[$__rate_interval]))",
            "{{instance}}",
        ),
        description="Lost sessions that were opened again. All processes at once: the server or the"
        " network.",
    ),
    graph(
        "Coordination overhead",
        Query("faultline:coordination_overhead:ratio_rate5m", "all workers"),
        description="The share of the workers' time that is spent waiting for the database.",
        unit="percentunit",
        width=24,
    ),
)

DATABASE = Dashboard(
    name="database",
    title="database",
    description="Calls to PostgreSQL, their durations, errors and reconnects.",
    rows=(Row("Calls", _CALLS), Row("Errors", _ERRORS)),
)

"""Database: what Faultline asks of PostgreSQL, how long that takes, and when it goes wrong."""

from __future__ import annotations

from monitoring.dashboards.board import Dashboard, Row
from monitoring.dashboards.panel import Panel, Query, graph, heatmap, quantiles


def _verb(title: str, histogram: str, description: str) -> Panel:
    return graph(title, *quantiles(histogram), description=description, unit="s")


_VERBS = (
    _verb("Claim", "faultline_claim_seconds", "One claim, of as many jobs as were wanted."),
    _verb("Commit", "faultline_commit_seconds", "One commit, of one job or of a batch."),
    _verb("Heartbeat", "faultline_heartbeat_seconds", "One renewal of all leases of a worker."),
    _verb(
        "Reconcile", "faultline_reconcile_seconds", "One look at who is dead, with what followed."
    ),
    heatmap(
        "Commit, spread",
        "faultline_commit_seconds",
        description="A second band above the first is often the disk: a checkpoint, or slow WAL.",
    ),
    graph(
        "Calls per second",
        Query("sum(rate(faultline_claim_seconds_count[$__rate_interval]))", "claim"),
        Query("sum(rate(faultline_commit_seconds_count[$__rate_interval]))", "commit"),
        Query("sum(rate(faultline_heartbeat_seconds_count[$__rate_interval]))", "heartbeat"),
        Query("sum(rate(faultline_reconcile_seconds_count[$__rate_interval]))", "reconcile"),
        description="Statements sent, whatever they found.",
        unit="ops",
    ),
)

_TROUBLE = (
    graph(
        "Errors",
        Query(
            "sum by (kind) (increase(faultline_database_errors_total[$__rate_interval]))",
            "{{kind}}",
        ),
        description="Statements that failed for the database's reasons, not for the fence's.",
    ),
    graph(
        "Reconnects",
        Query(
            "sum by (instance) (increase(faultline_database_reconnects_total[$__rate_interval]))",
            "{{instance}}",
        ),
        description="Sessions that were lost and opened again. All processes at once: the server, or"
        " the way to it.",
    ),
    graph(
        "Coordination overhead",
        Query("faultline:coordination_overhead:ratio_rate5m", "all workers"),
        description="The share of the workers' time that goes into talking to the database.",
        unit="percentunit",
        width=24,
    ),
)

DATABASE = Dashboard(
    name="database",
    title="database",
    description="What Faultline asks of PostgreSQL, how long that takes, and when it goes wrong.",
    rows=(Row("Verbs", _VERBS), Row("Trouble", _TROUBLE)),
)

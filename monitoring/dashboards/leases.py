"""The leases dashboard: lost leases, refused writes, recovery times."""

from __future__ import annotations

from monitoring.dashboards.dashboard import Dashboard, Row
from monitoring.dashboards.panel import Query, graph, heatmap, quantiles

_FENCE = (
    graph(
        "Stale writes refused",
        Query(
            "sum by (reason) (increase(faultline_stale_write_rejected_total[$__rate_interval]))",
            "{{reason}}",
        ),
        description="Writes of workers that had lost their lease.",
        is_stacked=True,
    ),
    graph(
        "Overlap of two attempts",
        *quantiles("faultline_overlap_seconds"),
        description="Refused writes: how long another attempt at the same job had been running.",
        unit="s",
    ),
)

_LEASES = (
    graph(
        "Leases per second",
        Query("sum(rate(faultline_leases_acquired_total[$__rate_interval]))", "acquired"),
        Query("sum(rate(faultline_leases_renewed_total[$__rate_interval]))", "renewed"),
        description="Every claim acquires one; every heartbeat renews those of the running jobs.",
        unit="ops",
    ),
    graph(
        "Leases lost",
        Query("sum(increase(faultline_leases_expired_total[$__rate_interval]))", "expired"),
        Query(
            "sum by (cause) (increase(faultline_leases_taken_over_total[$__rate_interval]))",
            "taken over: {{cause}}",
        ),
        description="Expired leases, counted by the leader; jobs claimed again after a lost attempt,"
        " by cause.",
    ),
)

_RECOVERY = (
    graph(
        "Recovery",
        *quantiles("faultline_recovery_seconds"),
        description="Takeovers: from the last sign of life of the former worker to the new claim.",
        unit="s",
    ),
    heatmap(
        "Recovery, distribution",
        "faultline_recovery_seconds",
        description="The distribution: two bands are two causes, a crash and a silent worker.",
    ),
)

_HEARTBEATS = (
    graph(
        "Heartbeats: duration",
        *quantiles("faultline_heartbeat_seconds"),
        description="Duration of the statement that renews all leases of a worker.",
        unit="s",
    ),
    graph(
        "Heartbeats: lateness",
        Query("max by (instance) (faultline_heartbeat_lateness_seconds)", "{{instance}}"),
        description="Delay of each process's lease renewals; it rises while renewals fail.",
        unit="s",
    ),
)

LEASES = Dashboard(
    name="leases",
    title="leases and fencing",
    description="Lost leases, refused writes, recovery times.",
    rows=(
        Row("The fence", _FENCE),
        Row("Leases", _LEASES),
        Row("Recovery", _RECOVERY),
        Row("Heartbeats", _HEARTBEATS),
    ),
)

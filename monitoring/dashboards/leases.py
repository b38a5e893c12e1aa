"""Leases and fencing: who lost a lease, who was refused, how fast the job ran elsewhere."""

from __future__ import annotations

from monitoring.dashboards.board import Dashboard, Row
from monitoring.dashboards.panel import Query, graph, heatmap, quantiles

_FENCE = (
    graph(
        "Stale writes refused",
        Query(
            "sum by (reason) (increase(faultline_stale_write_rejected_total[$__rate_interval]))",
            "{{reason}}",
        ),
        description="Workers that had lost their lease and tried to write all the same.",
        is_stacked=True,
    ),
    graph(
        "Overlap of two attempts",
        *quantiles("faultline_overlap_seconds"),
        description="Of a refused write: how long another attempt at the same job had been under way.",
        unit="s",
    ),
)

_LEASES = (
    graph(
        "Leases per second",
        Query("sum(rate(faultline_leases_acquired_total[$__rate_interval]))", "acquired"),
        Query("sum(rate(faultline_leases_renewed_total[$__rate_interval]))", "renewed"),
        description="Every claim acquires one; every heartbeat renews those of the jobs that run on.",
        unit="ops",
    ),
    graph(
        "Leases lost",
        Query("sum(increase(faultline_leases_expired_total[$__rate_interval]))", "expired"),
        Query(
            "sum by (cause) (increase(faultline_leases_taken_over_total[$__rate_interval]))",
            "taken over: {{cause}}",
        ),
        description="Leases that ran out, counted by the leader; jobs claimed again after an attempt was"
        " lost, by cause.",
    ),
)

_RECOVERY = (
    graph(
        "Recovery",
        *quantiles("faultline_recovery_seconds"),
        description="Of a job that was taken over: from its last holder's last sign of life to the new"
        " claim.",
        unit="s",
    ),
    heatmap(
        "Recovery, spread",
        "faultline_recovery_seconds",
        description="The same, as it is spread: two bands are two causes, a crash and a silence.",
    ),
)

_HEARTBEATS = (
    graph(
        "Heartbeats: time of one",
        *quantiles("faultline_heartbeat_seconds"),
        description="How long the statement took that renews all leases of a worker.",
        unit="s",
    ),
    graph(
        "Heartbeats: lateness",
        Query("max by (instance) (faultline_heartbeat_lateness_seconds)", "{{instance}}"),
        description="How much later than planned each process renewed its leases; it climbs while it cannot.",
        unit="s",
    ),
)

LEASES = Dashboard(
    name="leases",
    title="leases and fencing",
    description="Who lost a lease, who was refused, how fast the job ran elsewhere.",
    rows=(
        Row("The fence", _FENCE),
        Row("Leases", _LEASES),
        Row("Recovery", _RECOVERY),
        Row("Heartbeats", _HEARTBEATS),
    ),
)

"""Every metric as data: name, kind, labels, help text, exporting parts.

Tests compare dashboards, alerts and documentation with this list. Nothing else is exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from faultline.model import EnqueueOutcome, StaleReason

MAX_NAMES = 100  # label values for queues, for routes and for limits, in each process
OTHER = "other"  # the label value for all others


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Part(StrEnum):
    """A part of Faultline that a process can contain."""

    WORKER = "worker"
    RECONCILER = "reconciler"
    PRODUCER = "producer"  # the API, and handlers that enqueue in a worker
    API = "api"


class Across(StrEnum):
    """How the gauges of several processes behind one endpoint are merged."""

    SUM = "sum"
    MAX = "max"
    LEADER = "leader"  # only the leading reconciler's; none without a leader


_Values = Mapping[str, tuple[str, ...]]
_ANY: _Values = MappingProxyType({})


class Metric(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    # The possible values of a label, if they are known in advance.
    values: _Values = _ANY
    parts: tuple[Part, ...] = (Part.WORKER,)
    buckets: tuple[float, ...] = ()
    across: Across = Across.SUM


EVERYWHERE = tuple(Part)
DATABASE_ERRORS = (
    "unavailable",  # no session could be opened
    "connection_lost",
    "conflict",  # serialization failures and deadlocks
    "lock_timeout",
    "out_of_resources",  # connections, memory, disk
    "read_only",
    OTHER,
)
FAILED_REASONS = (
    "attempts_spent",
    "rejected",
    "gave_up",
    "poison",
    "cancelled",
    "token_spent",  # found by a claim, like unreadable
    "unreadable",
    "expired",
    OTHER,
)
LOSS_CAUSES = ("expired", "worker_lost")
QUEUE_STATES = ("due", "waiting", "scheduled", "running", "failed")
LIMIT_STATES = ("running", "waiting")
WORKER_STATUSES = ("alive", "draining", "silent", "lost")
SCHEDULE_STATES = ("active", "paused", "overdue", "failing", "undeclared")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER)
STALE_REASONS = (*(reason.value for reason in StaleReason), OTHER)

_ROUND_TRIP = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_EXECUTION = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_BATCH = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_END_TO_END = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0),
)
_RECOVERY = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_OVERLAP = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

CATALOGUE: tuple[Metric, ...] = (
    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────
    Metric(
        "faultline_jobs_enqueued_total",
        Kind.COUNTER,
        "Enqueues answered by the database: with a new job, or with an existing one of the same key.",
        ("queue", "outcome"),
        values={"outcome": tuple(outcome.value for outcome in EnqueueOutcome)},
        parts=(Part.PRODUCER,),
    ),
    Metric(
        "faultline_jobs_claimed_total",
        Kind.COUNTER,
        "Claims of jobs.",
        ("queue",),
    ),
    Metric(
        "faultline_jobs_succeeded_total",
        Kind.COUNTER,
        "Jobs that this worker has committed to the ledger.",
        ("queue",),
    ),
    Metric(
        "faultline_jobs_failed_total",
        Kind.COUNTER,
        "Jobs that failed for good; the leader counts cancelled jobs and those lost with their workers.",
        ("queue", "reason"),
        values={"reason": FAILED_REASONS},
        parts=(Part.WORKER, Part.RECONCILER),
    ),
    Metric(
        "faultline_jobs_retried_total",
        Kind.COUNTER,
        "Failed attempts after which the job was queued again.",
        ("queue",),
    ),
    Metric(
        "faultline_jobs_deferred_total",
        Kind.COUNTER,
        "Jobs deferred without using an attempt, because this worker does not know their task.",
        ("queue",),
    ),
    Metric(
        "faultline_jobs_snoozed_total",
        Kind.COUNTER,
        "Snoozes: jobs that their handlers queued again for later without using an attempt.",
        ("queue",),
    ),
    Metric(
        "faultline_progress_reports_total",
        Kind.COUNTER,
        "Reports of handlers' progress that were sent, and whether the job still had this lease.",
        ("outcome",),
        values={"outcome": ("recorded", "refused")},
    ),
    Metric(
        "faultline_stale_write_rejected_total",
        Kind.COUNTER,
        "Writes that the database refused because the worker's lease was superseded or had run out.",
        ("reason",),
        values={"reason": STALE_REASONS},
    ),
    Metric(
        "faultline_execution_seconds",
        Kind.HISTOGRAM,
        "Duration of a handler, whatever its outcome.",
        ("queue",),
        buckets=_EXECUTION,
    ),
    Metric(
        "faultline_batch_jobs",
        Kind.HISTOGRAM,
        "Jobs of one call of a batch handler.",
        ("queue",),
        buckets=_BATCH,
    ),
    Metric(
        "faultline_end_to_end_seconds",
        Kind.HISTOGRAM,
        "From when a job was last due to its commit, by the database's clock.",
        ("queue",),
        buckets=_END_TO_END,
    ),
    Metric("faultline_running_jobs", Kind.GAUGE, "Slots in use."),
    # ── leases ───────────────────────────────────────────────────────────────────────────────────
    Metric("faultline_leases_acquired_total", Kind.COUNTER, "Leases acquired by claims."),
    Metric("faultline_leases_renewed_total", Kind.COUNTER, "Renewals of leases."),
    Metric(
        "faultline_leases_expired_total",
        Kind.COUNTER,
        "Expired leases that were reconciled, by any process; counted by the leader.",
        parts=(Part.RECONCILER,),
    ),
    Metric(
        "faultline_leases_taken_over_total",
        Kind.COUNTER,
        "Claims of jobs whose last attempt was lost: its lease ran out or its worker died.",
        ("cause",),
        values={"cause": LOSS_CAUSES},
    ),
    Metric(
        "faultline_recovery_seconds",
        Kind.HISTOGRAM,
        "Takeovers: from the last sign of life of the former worker to the new claim.",
        buckets=_RECOVERY,
    ),
    Metric(
        "faultline_overlap_seconds",
        Kind.HISTOGRAM,
        "Refused writes: how long another attempt had been running, 0 if none was.",
        buckets=_OVERLAP,
    ),
    Metric(
        "faultline_heartbeat_lateness_seconds",
        Kind.GAUGE,
        "Delay of lease renewals: the maximum of a minute, growing while renewals fail.",
        across=Across.MAX,
    ),
    # ── talking to the database ──────────────────────────────────────────────────────────────────
    Metric(
        "faultline_claim_seconds",
        Kind.HISTOGRAM,
        "Round trip of a claim, of one job or of hundreds.",
        buckets=_ROUND_TRIP,
    ),
    Metric(
        "faultline_commit_seconds",
        Kind.HISTOGRAM,
        "Round trip of a commit: of a batch, or of a handler's own transaction.",
        buckets=_ROUND_TRIP,
    ),
    Metric(
        "faultline_heartbeat_seconds",
        Kind.HISTOGRAM,
        "Duration of a heartbeat, which renews all leases of a worker.",
        buckets=_ROUND_TRIP,
    ),
    Metric("faultline_empty_polls_total", Kind.COUNTER, "Claims that found no job."),
    Metric(
        "faultline_database_errors_total",
        Kind.COUNTER,
        "Database errors, except refused stale writes.",
        ("kind",),
        values={"kind": DATABASE_ERRORS},
        parts=(Part.WORKER, Part.RECONCILER),
    ),
    Metric(
        "faultline_database_reconnects_total",
        Kind.COUNTER,
        "Sessions opened to replace a lost one.",
        parts=(Part.WORKER, Part.RECONCILER),
    ),
    Metric(
        "faultline_coordination_seconds_total",
        Kind.COUNTER,
        "Time that workers waited for the answer to a claim, a commit or another outcome.",
    ),
    Metric("faultline_worker_seconds_total", Kind.COUNTER, "Time that workers have been running."),
    # ── recovery ─────────────────────────────────────────────────────────────────────────────────
    Metric(
        "faultline_reconciler_leading",
        Kind.GAUGE,
        "1 in the process of the leading reconciler, else 0.",
        parts=(Part.RECONCILER,),
        across=Across.MAX,
    ),
    Metric(
        "faultline_reconcile_seconds",
        Kind.HISTOGRAM,
        "Duration of one round of the leader, including the requeueing of jobs.",
        parts=(Part.RECONCILER,),
        buckets=_ROUND_TRIP,
    ),
    Metric(
        "faultline_queue_jobs",
        Kind.GAUGE,
        "Jobs by queue and state: exact up to 10,000, an estimate beyond. Only from the leader.",
        ("queue", "state"),
        values={"state": QUEUE_STATES},
        parts=(Part.RECONCILER,),
        across=Across.LEADER,
    ),
    Metric(
        "faultline_queue_oldest_due_seconds",
        Kind.GAUGE,
        "How long the oldest due job of a queue has been due, 0 if none is. Only from the leader.",
        ("queue",),
        parts=(Part.RECONCILER,),
        across=Across.LEADER,
    ),
    Metric(
        "faultline_limit_jobs",
        Kind.GAUGE,
        "Jobs under a limit that run, or wait for it; counting stops at 10,000. Only from the leader.",
        ("limit", "state"),
        values={"state": LIMIT_STATES},
        parts=(Part.RECONCILER,),
        across=Across.LEADER,
    ),
    Metric(
        "faultline_limit_idle_keys",
        Kind.GAUGE,
        "Keys of a limit that have room and waiting jobs, and started none for 30 s. Only from the leader.",
        ("limit",),
        parts=(Part.RECONCILER,),
        across=Across.LEADER,
    ),
    Metric(
        "faultline_workers",
        Kind.GAUGE,
        "Registered workers by status. Only from the leader.",
        ("status",),
        values={"status": WORKER_STATUSES},
        parts=(Part.RECONCILER,),
        across=Across.LEADER,
    ),
    # ── schedules ────────────────────────────────────────────────────────────────────────────────
    Metric(
        "faultline_schedule_firings_total",
        Kind.COUNTER,
        "Planned times that enqueued a job, and due times that were skipped by the schedule's policy.",
        ("outcome",),
        values={"outcome": ("fired", "skipped")},
        parts=(Part.RECONCILER,),
    ),
    Metric(
        "faultline_schedule_lateness_seconds",
        Kind.HISTOGRAM,
        "From the newest planned time to its firing, by the database's clock.",
        parts=(Part.RECONCILER,),
        buckets=_END_TO_END,
    ),
    Metric(
        "faultline_schedules",
        Kind.GAUGE,
        "Schedules by state; overdue ones should have fired a minute ago. Only from the leader.",
        ("state",),
        values={"state": SCHEDULE_STATES},
        parts=(Part.RECONCILER,),
        across=Across.LEADER,
    ),
    # ── HTTP, and what runs ──────────────────────────────────────────────────────────────────────
    Metric(
        "faultline_http_requests_total",
        Kind.COUNTER,
        "Answered requests, by route template.",
        ("method", "route", "status"),
        values={"method": METHODS},
        parts=(Part.API,),
    ),
    Metric(
        "faultline_http_request_seconds",
        Kind.HISTOGRAM,
        "Duration of a request.",
        ("route",),
        parts=(Part.API,),
        buckets=_ROUND_TRIP,
    ),
    Metric(
        "faultline_build_info",
        Kind.GAUGE,
        "Always 1; the labels are the versions of Faultline and Python.",
        ("version", "python"),
        parts=EVERYWHERE,
        across=Across.MAX,
    ),
)


def of_parts(parts: frozenset[Part]) -> frozenset[str]:
    """The names of the metrics that a process with these parts exports."""
    return frozenset(metric.name for metric in CATALOGUE if parts.intersection(metric.parts))

"""The meter that counts for Prometheus.

It buffers per-job values and counts them in batches.
"""

from __future__ import annotations

import itertools
import platform
import time
from collections import Counter as Tallying
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path

from faultline.errors import DatabaseUnavailable, FaultlineError
from faultline.metrics.catalogue import (
    DATABASE_ERRORS,
    FAILED_REASONS,
    LIMIT_STATES,
    METHODS,
    OTHER,
    SCHEDULE_STATES,
    STALE_REASONS,
    WORKER_STATUSES,
    Part,
)
from faultline.metrics.meter import DatabaseClock, Meter
from faultline.metrics.series import BoundedNames, Series, expose, registry_of
from faultline.model import Claim, EnqueueOutcome
from faultline.statements.limits import LimitUse
from faultline.statements.queues import CountedState, QueueCount

_queue_of = attrgetter("queue")
# Purposes whose calls count as coordination. Heartbeats run in a thread of their own.
_COORDINATION = frozenset({"worker", "committer", "outcomes", "resolve"})
# Scrapes are rarer than heartbeats: the worst lateness is shown for this long.
_LATENESS_SECONDS = 60.0


def _two_lists() -> tuple[list[str], list[float]]:
    return [], []


class PrometheusMeter(Meter):
    is_on = True
    clock: DatabaseClock

    def __init__(self, parts: frozenset[Part], *, files: Path | None = None) -> None:
        self.clock = DatabaseClock()
        self._queues, self._routes = BoundedNames(), BoundedNames()
        series = self._series = Series(files)
        self.registry = registry_of(series.registry.collect, parts)
        series.gauge(
            "faultline_build_info", version("faultline-queue"), platform.python_version()
        ).set(1)
        # Buffered by queue until the next `flush`.
        self._executions: defaultdict[str, list[float]] = defaultdict(list)
        self._successes: defaultdict[str, tuple[list[str], list[float]]] = defaultdict(_two_lists)
        self._flushed_at: float | None = None
        self._beat_due: float | None = None
        self._lateness: deque[tuple[float, float]] = deque(maxlen=1_000)  # time and lateness
        self._calls = 0
        self._call_since = 0.0
        self._call_seconds = 0.0
        self._limits = BoundedNames()
        self._shown_limits: set[str] = set()  # limits that have a gauge
        self._shown: set[tuple[str, str]] = set()  # queues and states that have a gauge

    # ── a worker's loop ──────────────────────────────────────────────────────────────────────────

    def expect(self, queues: Collection[str]) -> None:
        self._series.expect({self._queues(queue) for queue in queues})

    def claimed(self, claims: Sequence[Claim], seconds: float) -> None:
        series = self._series
        series.histogram("faultline_claim_seconds").observe(seconds)
        if not claims:
            series.counter("faultline_empty_polls_total").inc()
            return
        series.counter("faultline_leases_acquired_total").inc(len(claims))
        for queue, jobs in Tallying(map(_queue_of, claims)).items():
            series.counter("faultline_jobs_claimed_total", self._queues(queue)).inc(jobs)

    def executed(self, queue: str, seconds: float) -> None:
        self._executions[queue].append(seconds)

    def batch(self, queue: str, jobs: int) -> None:
        self._series.histogram("faultline_batch_jobs", self._queues(queue)).observe(jobs)

    def succeeded(self, claim: Claim) -> None:
        due, ended = self._successes[claim.queue]
        due.append(claim.due_at)
        ended.append(time.monotonic())

    def flush(self, now: float, *, running: int) -> None:
        series = self._series
        self._count_executions()
        self._count_successes()
        series.gauge("faultline_running_jobs").set(running)
        self._show_lateness(now)
        if self._calls:
            moment = time.monotonic()
            self._call_seconds += moment - self._call_since
            self._call_since = moment
        waited, self._call_seconds = self._call_seconds, 0.0
        series.counter("faultline_coordination_seconds_total").inc(waited)
        if self._flushed_at is not None:
            series.counter("faultline_worker_seconds_total").inc(now - self._flushed_at)
        self._flushed_at = now

    def _count_executions(self) -> None:
        for queue in tuple(self._executions):
            histogram = self._series.histogram("faultline_execution_seconds", self._queues(queue))
            histogram.observe_many(self._executions.pop(queue))

    def _count_successes(self) -> None:
        offset = self.clock.at(0.0)
        for queue in tuple(self._successes):
            label, (due, ended) = self._queues(queue), self._successes.pop(queue)
            self._series.counter("faultline_jobs_succeeded_total", label).inc(len(ended))
            try:
                moments = zip(ended, map(datetime.fromisoformat, due), strict=True)
                seconds = [moment + offset - at.timestamp() for moment, at in moments]
            except ValueError:
                continue  # behind a pooler the session's DateStyle may differ
            if min(seconds) < 0:  # within the error of the clock
                seconds = [max(0.0, each) for each in seconds]
            self._series.histogram("faultline_end_to_end_seconds", label).observe_many(seconds)

    def call_started(self, purpose: str) -> None:
        if purpose in _COORDINATION:
            if self._calls == 0:
                self._call_since = time.monotonic()
            self._calls += 1

    def call_ended(self, purpose: str) -> None:
        if purpose in _COORDINATION and self._calls:
            self._calls -= 1
            if self._calls == 0:
                self._call_seconds += time.monotonic() - self._call_since

    # ── how attempts and leases end ──────────────────────────────────────────────────────────────

    def committed(self, seconds: float) -> None:
        self._series.histogram("faultline_commit_seconds").observe(seconds)

    def retried(self, queue: str) -> None:
        self._series.counter("faultline_jobs_retried_total", self._queues(queue)).inc()

    def deferred(self, queue: str, jobs: int) -> None:
        self._series.counter("faultline_jobs_deferred_total", self._queues(queue)).inc(jobs)

    def snoozed(self, queue: str) -> None:
        self._series.counter("faultline_jobs_snoozed_total", self._queues(queue)).inc(1)

    def reported_progress(self, *, recorded: int, refused: int) -> None:
        name = "faultline_progress_reports_total"
        self._series.counter(name, "recorded").inc(recorded)
        self._series.counter(name, "refused").inc(refused)

    def failed(self, queue: str, reason: str | None, jobs: int = 1) -> None:
        known = reason if reason in FAILED_REASONS else OTHER
        self._series.counter("faultline_jobs_failed_total", self._queues(queue), known).inc(jobs)

    def rejected(self, reason: str, overlap_seconds: float | None) -> None:
        known = reason if reason in STALE_REASONS else OTHER
        self._series.counter("faultline_stale_write_rejected_total", known).inc()
        if overlap_seconds is not None:
            self._series.histogram("faultline_overlap_seconds").observe(overlap_seconds)

    def taken_over(self, cause: str, recovery_seconds: float) -> None:
        self._series.counter("faultline_leases_taken_over_total", cause).inc()
        self._series.histogram("faultline_recovery_seconds").observe(recovery_seconds)

    def heartbeat(self, sent_at: float, *, seconds: float, renewed: int, next_in: float) -> None:
        self._series.histogram("faultline_heartbeat_seconds").observe(seconds)
        self._series.counter("faultline_leases_renewed_total").inc(renewed)
        if self._beat_due is not None:
            self._lateness.append((sent_at, sent_at - self._beat_due))
        self._beat_due = sent_at + next_in

    def _show_lateness(self, now: float) -> None:
        if self._beat_due is None:
            return
        while self._lateness and self._lateness[0][0] < now - _LATENESS_SECONDS:
            self._lateness.popleft()
        worst = max(0.0, now - self._beat_due, *(late for _, late in tuple(self._lateness)))
        self._series.gauge("faultline_heartbeat_lateness_seconds").set(worst)

    # ── the leader ───────────────────────────────────────────────────────────────────────────────

    def leads(self, is_leading: bool) -> None:
        self._series.gauge("faultline_reconciler_leading").set(1 if is_leading else 0)

    def reconciled(self, seconds: float) -> None:
        self._series.histogram("faultline_reconcile_seconds").observe(seconds)

    def expired(self, leases: int) -> None:
        self._series.counter("faultline_leases_expired_total").inc(leases)

    def queues(self, counts: Iterable[QueueCount]) -> None:
        jobs: dict[tuple[str, str], float] = {}
        oldest: dict[str, float] = {}
        for count in counts:
            if count.standing is CountedState.SUCCEEDED:  # always an estimate
                continue
            queue, state = self._queues(count.queue), count.standing.value
            about = count.at_least if count.estimate is None else count.estimate
            jobs[queue, state] = jobs.get((queue, state), 0) + about
            if count.standing is CountedState.DUE:
                oldest[queue] = max(oldest.get(queue, 0.0), count.oldest_seconds or 0.0)
        for queue, state in self._shown - jobs.keys():  # of queues that have no jobs any more
            jobs[queue, state] = oldest[queue] = 0.0
        self._shown = set(jobs)
        for (queue, state), number in jobs.items():
            self._series.gauge("faultline_queue_jobs", queue, state).set(number)
        for queue, seconds in oldest.items():
            self._series.gauge("faultline_queue_oldest_due_seconds", queue).set(seconds)

    def limits(self, uses: Iterable[LimitUse], idle: Mapping[str, int]) -> None:
        jobs = dict.fromkeys(itertools.product(self._shown_limits, LIMIT_STATES), 0)
        keys = dict.fromkeys(self._shown_limits, 0)
        for use in uses:
            name = self._limits(use.name)
            for state, number in zip(LIMIT_STATES, (use.running, use.waiting), strict=True):
                jobs[name, state] = jobs.get((name, state), 0) + number
            keys[name] = keys.get(name, 0) + idle.get(use.name, 0)
        self._shown_limits = set(keys)  # one that was removed shows 0 from now on
        for (name, state), number in jobs.items():
            self._series.gauge("faultline_limit_jobs", name, state).set(number)
        for name, number in keys.items():
            self._series.gauge("faultline_limit_idle_keys", name).set(number)

    def workers(self, by_status: Mapping[str, int]) -> None:
        for status in WORKER_STATUSES:
            self._series.gauge("faultline_workers", status).set(by_status.get(status, 0))

    def schedule_fired(self, *, fired: int, skipped: int, late_seconds: float | None) -> None:
        self._series.counter("faultline_schedule_firings_total", "fired").inc(fired)
        self._series.counter("faultline_schedule_firings_total", "skipped").inc(skipped)
        if late_seconds is not None:
            self._series.histogram("faultline_schedule_lateness_seconds").observe(late_seconds)

    def schedules(self, by_state: Mapping[str, int]) -> None:
        for state in SCHEDULE_STATES:
            self._series.gauge("faultline_schedules", state).set(by_state.get(state, 0))

    # ── all processes ────────────────────────────────────────────────────────────────────────────

    def database_error(self, error: BaseException) -> None:
        if kind := kind_of(error):
            self._series.counter("faultline_database_errors_total", kind).inc()

    def reconnected(self) -> None:
        self._series.counter("faultline_database_reconnects_total").inc()

    def enqueued(self, queue: str, outcomes: Mapping[str, int]) -> None:
        label = self._queues(queue)
        for outcome in EnqueueOutcome:
            counter = self._series.counter("faultline_jobs_enqueued_total", label, outcome.value)
            counter.inc(outcomes.get(outcome.value, 0))

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        known, label = method if method in METHODS else OTHER, self._routes(route)
        self._series.counter("faultline_http_requests_total", known, label, str(status)).inc()
        self._series.histogram("faultline_http_request_seconds", label).observe(seconds)

    def exposition(self) -> bytes:
        return expose(self.registry)


def kind_of(error: BaseException) -> str | None:
    """The kind of a database error in the catalogue; None for other errors."""
    if isinstance(error, DatabaseUnavailable):
        return "unavailable"
    if isinstance(error, FaultlineError) or not hasattr(error, "sqlstate"):
        return None
    sqlstate: str = error.sqlstate or "08000"  # without a code, the session was lost
    by_class = {"08": "connection_lost", "57": "connection_lost", "40": "conflict"}
    by_class |= {"53": "out_of_resources"}
    by_code = {"55P03": "lock_timeout", "25006": "read_only", "57014": OTHER}
    kind = by_code.get(sqlstate) or by_class.get(sqlstate[:2], OTHER)
    assert kind in DATABASE_ERRORS  # noqa: S101 - the catalogue and this function agree
    return kind

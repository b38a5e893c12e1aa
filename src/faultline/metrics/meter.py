"""The meter that all parts of Faultline report to.

It does nothing until `switch_on`.

Look up `current` at each call: `from faultline.metrics import meter`, then `meter.current.claimed(…)`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from faultline.metrics.catalogue import Part
from faultline.model import Claim, Enqueued
from faultline.statements.statement import Statement

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from faultline.statements.limits import LimitUse
    from faultline.statements.queues import QueueCount


A = TypeVar("A", Enqueued, list[Enqueued])


class Meter:
    """The meter of a process without metrics: every method does nothing."""

    is_on = False
    clock: DatabaseClock | None = None
    registry: CollectorRegistry
    """What an endpoint serves; set if metrics are on."""

    # ── a worker's loop ──────────────────────────────────────────────────────────────────────────

    def expect(self, queues: Collection[str]) -> None:
        """Start the queues' series at 0, so that Prometheus sees the first increase."""

    def claimed(self, claims: Sequence[Claim], seconds: float) -> None: ...

    def executed(self, queue: str, seconds: float) -> None: ...

    def batch(self, queue: str, jobs: int) -> None: ...

    def succeeded(self, claim: Claim) -> None: ...

    def flush(self, now: float, *, running: int) -> None:
        """Count what was buffered.

        The worker's loop calls it each round; `now` is its monotonic clock.
        """

    def call_started(self, purpose: str) -> None: ...

    def call_ended(self, purpose: str) -> None: ...

    # ── how attempts and leases end ──────────────────────────────────────────────────────────────

    def committed(self, seconds: float) -> None: ...

    def retried(self, queue: str) -> None: ...

    def deferred(self, queue: str, jobs: int) -> None: ...

    def snoozed(self, queue: str) -> None: ...

    def reported_progress(self, *, recorded: int, refused: int) -> None: ...

    def failed(self, queue: str, reason: str | None, jobs: int = 1) -> None: ...

    def rejected(self, reason: str, overlap_seconds: float | None) -> None: ...

    def taken_over(self, cause: str, recovery_seconds: float) -> None: ...

    def heartbeat(
        self, sent_at: float, *, seconds: float, renewed: int, next_in: float
    ) -> None: ...

    # ── the leader ───────────────────────────────────────────────────────────────────────────────

    def leads(self, is_leading: bool) -> None: ...

    def reconciled(self, seconds: float) -> None: ...

    def expired(self, leases: int) -> None: ...

    def queues(self, counts: Iterable[QueueCount]) -> None: ...

    def limits(self, uses: Iterable[LimitUse], idle: Mapping[str, int]) -> None: ...

    def workers(self, by_status: Mapping[str, int]) -> None: ...

    def schedule_fired(self, *, fired: int, skipped: int, late_seconds: float | None) -> None: ...

    def schedules(self, by_state: Mapping[str, int]) -> None: ...

    # ── all processes ────────────────────────────────────────────────────────────────────────────

    def database_error(self, error: BaseException) -> None: ...

    def reconnected(self) -> None: ...

    def enqueued(self, queue: str, outcomes: Mapping[str, int]) -> None: ...

    def requested(self, method: str, route: str, status: int, seconds: float) -> None: ...

    def exposition(self) -> bytes:
        return b""


_OFF = Meter()
current: Meter = _OFF


def switch_on(*parts: Part, files: Path | None = None) -> Meter:
    """Count in this process from now on. Further calls do nothing.

    A supervised worker keeps its numbers in `files` (see `metrics.series`), others in memory. Only
    this function imports prometheus_client.
    """
    global current
    if not current.is_on:
        from faultline.metrics.prometheus import PrometheusMeter

        current = PrometheusMeter(frozenset(parts), files=files)
    return current


def switch_off() -> None:
    global current
    current = _OFF


if hasattr(os, "register_at_fork"):
    # A forked child would repeat its parent's counts, and write into its files.
    os.register_at_fork(after_in_child=switch_off)


# ── for HTTP services and producers ──────────────────────────────────────────────────────────────


class Exposition(NamedTuple):
    body: bytes
    content_type: str


def exposition() -> Exposition:
    """The response to `GET /metrics`; empty before `switch_on`."""
    return Exposition(current.exposition(), "text/plain; version=0.0.4; charset=utf-8")


def record_request(*, method: str, route: str, status: int, seconds: float) -> None:
    """`route` is the template `/jobs/{id}`, or a constant if no route matched."""
    current.requested(method, route, status, seconds)


def counted(statement: Statement[A], queue: str) -> Statement[A]:
    """The same enqueue, counted when the database answers.

    Tasks do this by themselves.
    """
    if not current.is_on:
        return statement

    def read(rows: list[tuple[Any, ...]]) -> A:
        answer: Any = statement.read(rows)  # of one enqueue, or of many
        count_enqueued(queue, [answer] if isinstance(answer, Enqueued) else answer)
        return cast(A, answer)

    return replace(statement, read=read)


def counted_by_queue(
    statement: Statement[list[Enqueued]], queues: Sequence[str]
) -> Statement[list[Enqueued]]:
    """The same for many jobs; `queues` has the queue of each."""
    if not current.is_on:
        return statement

    def read(rows: list[tuple[Any, ...]]) -> list[Enqueued]:
        answers = statement.read(rows)
        by_queue: dict[str, list[Enqueued]] = {}
        for queue, answer in zip(queues, answers, strict=True):
            by_queue.setdefault(queue, []).append(answer)
        for queue, its_answers in by_queue.items():
            count_enqueued(queue, its_answers)
        return answers

    return replace(statement, read=read)


def count_enqueued(queue: str, answers: Sequence[Enqueued]) -> None:
    """For callers that know when an enqueue was committed."""
    if current.is_on:
        current.enqueued(queue, Counter(answer.outcome.value for answer in answers))


READ_SECONDS = 10.0


_FORGET_SECONDS = 60.0


class DatabaseClock:
    """Estimates the database's clock from the monotonic clock and some readings.

    A job's due time is in database time. Comparing it with the worker's clock would measure the
    difference of the clocks. The error is at most half the round trip of the best reading in the last
    minute.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()  # a guess until the first reading
        self._round_trip = float("inf")
        self._read_at = float("-inf")  # when the current offset was read
        self._asked_at = float("-inf")

    def is_due(self) -> bool:
        return time.monotonic() >= self._asked_at + READ_SECONDS

    def learn(self, shown: datetime, *, sent_at: float) -> None:
        """Use a reading of the database's clock, requested at monotonic time `sent_at`."""
        now = self._asked_at = time.monotonic()
        round_trip = now - sent_at
        if round_trip <= self._round_trip or now - self._read_at > _FORGET_SECONDS:
            self._offset = shown.timestamp() - (sent_at + now) / 2
            self._round_trip, self._read_at = round_trip, now

    def at(self, moment: float) -> float:
        """Database time, in seconds since the epoch, at this value of time.monotonic()."""
        return moment + self._offset

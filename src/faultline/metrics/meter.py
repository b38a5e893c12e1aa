"""Who is told what happens. Nobody, until `switch_on`: then whoever counts it for Prometheus.

`current` is looked up at each call: `from faultline.metrics import meter`, then `meter.current.claimed(…)`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from faultline.metrics.catalogue import Part
from faultline.model import Claim

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from faultline.metrics.database_clock import DatabaseClock
    from faultline.statements.queues import QueueCount


class Meter:
    """Hears everything, and does nothing with it."""

    is_on = False
    clock: DatabaseClock | None = None
    registry: CollectorRegistry
    """What an endpoint serves; there is one where metrics are on."""

    # ── a worker's loop ──────────────────────────────────────────────────────────────────────────

    def expect(self, queues: Collection[str]) -> None:
        """Jobs of these queues may come: their series begin at 0, so that the first one is seen."""

    def claimed(self, claims: Sequence[Claim], seconds: float) -> None: ...

    def executed(self, queue: str, seconds: float) -> None: ...

    def succeeded(self, claim: Claim) -> None: ...

    def flush(self, now: float, *, running: int) -> None:
        """Count what has gathered; called by each round of the worker's loop, with its steady clock."""

    def talk_begins(self, purpose: str) -> None: ...

    def talk_ends(self, purpose: str) -> None: ...

    # ── how attempts and leases end ──────────────────────────────────────────────────────────────

    def committed(self, seconds: float) -> None: ...

    def retried(self, queue: str) -> None: ...

    def deferred(self, queue: str, jobs: int) -> None: ...

    def failed(self, queue: str, reason: str | None, jobs: int = 1) -> None: ...

    def rejected(self, reason: str, overlap_seconds: float | None) -> None: ...

    def taken_over(self, cause: str, recovery_seconds: float) -> None: ...

    def beat(self, sent_at: float, *, seconds: float, renewed: int, next_in: float) -> None: ...

    # ── the leader ───────────────────────────────────────────────────────────────────────────────

    def leads(self, is_leading: bool) -> None: ...

    def looked(self, seconds: float) -> None: ...

    def expired(self, leases: int) -> None: ...

    def queues(self, counts: Iterable[QueueCount]) -> None: ...

    def workers(self, by_status: Mapping[str, int]) -> None: ...

    # ── everybody ────────────────────────────────────────────────────────────────────────────────

    def database_error(self, error: BaseException) -> None: ...

    def reconnected(self) -> None: ...

    def enqueued(self, queue: str, *, queued: int, existing: int) -> None: ...

    def requested(self, method: str, route: str, status: int, seconds: float) -> None: ...

    def exposition(self) -> bytes:
        return b""


_SILENT = Meter()
current: Meter = _SILENT


def switch_on(*parts: Part, files: Path | None = None) -> Meter:
    """Count from now on, in this process; once is enough. `files` is where a supervised worker keeps its
    numbers (see `metrics.slots`); otherwise they are in memory. Only here is prometheus_client imported."""
    global current
    if not current.is_on:
        from faultline.metrics.prometheus import PrometheusMeter

        current = PrometheusMeter(frozenset(parts), files=files)
    return current


def switch_off() -> None:
    global current
    current = _SILENT


if hasattr(os, "register_at_fork"):
    # A forked child would count what its parent has counted, and write into its files.
    os.register_at_fork(after_in_child=switch_off)

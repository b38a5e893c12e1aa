"""Scores the risk that a worker writes under a lost lease, with reasons. Pure.

docs/inspector.md explains the weights and levels. The data is safe at any score, because PostgreSQL
refuses such a write. A high score means that work is wasted and that something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from faultline.inspector.worker_view import WorkerView
from faultline.statements.leases import LeaseSummary
from faultline.statements.workers import WorkerStatus

RECENT_SECONDS = 600.0  # of refused writes
LOST_RECENTLY_SECONDS = 300.0  # of lost workers
RECONCILED_SECONDS = 2.0  # a leading reconciler reconciles an expired lease well within this
LOW_SHARE = 0.5  # a healthy worker renews its lease before this
SPENT_SHARE = 0.1  # below it the worker abandons the job by itself
MANY_REFUSALS = 10

MEDIUM_SCORE = 25
HIGH_SCORE = 60
HIGHEST_SCORE = 100


class RiskLevel(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskInputs:
    active_workers: int = 0
    expired_leases: int = 0  # and not reconciled yet
    longest_expired_seconds: float = 0.0
    worst_remaining_share: float | None = None  # of any lease; None: no lease
    heartbeat_lateness_seconds: float = 0.0
    recent_rejections: int = 0
    gone_workers_with_jobs: int = 0  # silent or lost, and still holding leases
    recently_lost_workers: int = 0


@dataclass(frozen=True, slots=True)
class Reason:
    code: str
    text: str
    weight: int


@dataclass(frozen=True, slots=True)
class Risk:
    level: RiskLevel
    score: int
    reasons: list[Reason]
    inputs: RiskInputs

    def document(self) -> dict[str, Any]:
        given = self.inputs
        return {
            "stale_risk": self.level,
            "score": self.score,
            "reasons": self.reasons,
            "active_workers": given.active_workers,
            "expired_leases": given.expired_leases,
            "recent_rejections": given.recent_rejections,
            "heartbeat_lateness_seconds": given.heartbeat_lateness_seconds,
            "worst_remaining_share": given.worst_remaining_share,
            "inputs": asdict(given),
        }


def inputs(
    leases: LeaseSummary, workers: Sequence[WorkerView], recent_rejections: int
) -> RiskInputs:
    active = (WorkerStatus.ALIVE, WorkerStatus.DRAINING)
    return RiskInputs(
        active_workers=sum(worker.status in active for worker in workers),
        expired_leases=leases.expired,
        longest_expired_seconds=leases.longest_expired_seconds or 0.0,
        worst_remaining_share=leases.worst_remaining_share,
        heartbeat_lateness_seconds=leases.heartbeat_lateness_seconds,
        recent_rejections=recent_rejections,
        gone_workers_with_jobs=sum(
            worker.status not in active and worker.running > 0 for worker in workers
        ),
        recently_lost_workers=sum(
            worker.lost_seconds is not None and worker.lost_seconds < LOST_RECENTLY_SECONDS
            for worker in workers
        ),
    )


def assess(given: RiskInputs) -> Risk:
    reasons = sorted(_reasons(given), key=lambda reason: -reason.weight)
    score = min(HIGHEST_SCORE, sum(reason.weight for reason in reasons))
    return Risk(_level(score), score, reasons, given)


def _level(score: int) -> RiskLevel:
    if score >= HIGH_SCORE:
        return RiskLevel.HIGH
    return RiskLevel.MEDIUM if score >= MEDIUM_SCORE else RiskLevel.LOW


def _reasons(given: RiskInputs) -> Iterator[Reason]:
    share, expired = given.worst_remaining_share, given.expired_leases
    if expired and given.longest_expired_seconds >= RECONCILED_SECONDS:
        were = "was" if expired == 1 else "were"
        text = f"{_leases(expired)} expired and {were} not reconciled: is a reconciler running?"
        yield Reason("leases_not_taken_back", text, 60)
    elif expired:
        yield Reason("leases_expired", f"{_leases(expired)} just expired", 25)
    elif share is not None and share < SPENT_SHARE:
        yield Reason("lease_nearly_spent", f"a lease has {share:.0%} of its time left", 30)
    elif share is not None and share < LOW_SHARE:
        yield Reason("lease_running_low", f"a lease has {share:.0%} of its time left", 15)
    if given.heartbeat_lateness_seconds > 0:
        text = f"a worker's heartbeat is {given.heartbeat_lateness_seconds:.1f} s late"
        yield Reason("heartbeat_late", text, 15)
    if gone := given.gone_workers_with_jobs:
        who = "1 worker is" if gone == 1 else f"{gone:,} workers are"
        yield Reason("workers_gone_with_jobs", f"{who} gone, and still holding jobs", 30)
    if lost := given.recently_lost_workers:
        who = "1 worker was" if lost == 1 else f"{lost:,} workers were"
        text = f"{who} lost in the last {LOST_RECENTLY_SECONDS / 60:.0f} minutes"
        yield Reason("workers_lost", text, 15)
    if refused := given.recent_rejections:
        what = "1 stale write was" if refused == 1 else f"{refused:,} stale writes were"
        text = f"{what} refused in the last {RECENT_SECONDS / 60:.0f} minutes"
        yield Reason("stale_writes_refused", text, 40 if refused >= MANY_REFUSALS else 25)


def _leases(number: int) -> str:
    return "1 lease" if number == 1 else f"{number:,} leases"


def of_lease(remaining_share: float, *, owner_is_gone: bool) -> RiskLevel:
    """The risk that this lease's worker writes too late."""
    if owner_is_gone or remaining_share < SPENT_SHARE:
        return RiskLevel.HIGH
    return RiskLevel.MEDIUM if remaining_share < LOW_SHARE else RiskLevel.LOW

"""Which jobs of a campaign are struck, and by what: decided by the seed alone. Pure.

A job's fate is drawn from (seed, its number) and from nothing else, so both subjects meet the very
same faults, and a longer campaign begins with the shorter one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class FaultKind(StrEnum):
    CRASH = "crash"  # killed when the job has just begun
    PARTIAL_WRITE = "partial_write_and_crash"  # killed between the two rows of its effect
    CRASH_AT_COMMIT = "crash_at_commit"  # killed when COMMIT is done, before it could tell anybody
    STALE_TAKEOVER = "stale_lease_takeover"  # stopped past its lease, woken when the job is done
    TIMEOUT_BURST = (
        "timeout_burst"  # the lease runs out in mid-transaction, at two workers in a row
    )
    RETRY_STORM = "retry_storm"  # the job fails three times, and a crowd asks for a retry at once
    DUPLICATE_SUBMISSION = "duplicate_submission"  # a crowd submits the same job at once


KILLS = frozenset({FaultKind.CRASH, FaultKind.PARTIAL_WRITE, FaultKind.CRASH_AT_COMMIT})
STALLS = frozenset({FaultKind.STALE_TAKEOVER, FaultKind.TIMEOUT_BURST})
# After these kills the job has to be done again elsewhere.
KILLS_BEFORE_COMMIT = KILLS - {FaultKind.CRASH_AT_COMMIT}

# By fencing token: what the job's own payload makes it do to the worker that runs it.
PLANS: Mapping[FaultKind, Mapping[str, str]] = MappingProxyType(
    {
        FaultKind.CRASH: {"1": "kill@start"},
        FaultKind.PARTIAL_WRITE: {"1": "kill@half"},
        FaultKind.CRASH_AT_COMMIT: {"1": "kill@after_commit"},
        FaultKind.STALE_TAKEOVER: {"1": "stop@start"},
        FaultKind.TIMEOUT_BURST: {"1": "stop@half", "2": "stop@half"},
        FaultKind.RETRY_STORM: {"1": "raise@start", "2": "raise@half", "3": "raise@before_commit"},
        FaultKind.DUPLICATE_SUBMISSION: {},
    }
)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    number: int
    fault: FaultKind | None

    @property
    def plan(self) -> dict[str, str]:
        return {} if self.fault is None else dict(PLANS[self.fault])

    @property
    def workers_struck(self) -> int:
        """How many workers it kills or stops."""
        return sum(act.startswith(("kill", "stop")) for act in self.plan.values())


def plan_job(seed: int, number: int, fault_rate: float) -> PlannedJob:
    chance = random.Random(f"campaign {seed} job {number}")  # noqa: S311 - it must be repeatable
    is_struck = chance.random() < fault_rate
    kind = chance.choice(list(FaultKind))
    return PlannedJob(number, kind if is_struck else None)


def plan_jobs(seed: int, jobs: int, fault_rate: float) -> list[PlannedJob]:
    return [plan_job(seed, number, fault_rate) for number in range(1, jobs + 1)]


def count_by_kind(jobs: Iterable[PlannedJob]) -> Counter[FaultKind]:
    return Counter(job.fault for job in jobs if job.fault is not None)

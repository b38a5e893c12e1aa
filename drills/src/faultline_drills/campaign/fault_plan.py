"""Plans which jobs are hit by which fault, from the seed alone. Pure.

The plan of a job depends only on the seed and the job's number, so both subjects get the same faults,
and a longer campaign begins with the jobs of a shorter one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class FaultKind(StrEnum):
    CRASH = "crash"  # the worker is killed when the job has just started
    PARTIAL_WRITE = "partial_write_and_crash"  # killed between the two rows of the effect
    CRASH_AT_COMMIT = "crash_at_commit"  # killed after COMMIT, before it reports
    STALE_TAKEOVER = "stale_lease_takeover"  # stopped past its lease, resumed when the job is done
    TIMEOUT_BURST = "timeout_burst"  # the lease expires in mid-transaction, on two workers in a row
    RETRY_STORM = "retry_storm"  # the job fails three times, and clients retry it at once
    DUPLICATE_SUBMISSION = "duplicate_submission"  # clients submit the same job at once


KILLS = frozenset({FaultKind.CRASH, FaultKind.PARTIAL_WRITE, FaultKind.CRASH_AT_COMMIT})
STALLS = frozenset({FaultKind.STALE_TAKEOVER, FaultKind.TIMEOUT_BURST})
# After these kills another worker must run the job again.
KILLS_BEFORE_COMMIT = KILLS - {FaultKind.CRASH_AT_COMMIT}

# By fencing token: the action in the job's payload that hits the worker running it.
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
    def affected_workers(self) -> int:
        """The number of workers that the job kills or stops."""
        return sum(act.startswith(("kill", "stop")) for act in self.plan.values())


def plan_job(seed: int, number: int, fault_rate: float) -> PlannedJob:
    chance = random.Random(f"campaign {seed} job {number}")  # noqa: S311 - reproducible
    is_hit = chance.random() < fault_rate
    kind = chance.choice(list(FaultKind))
    return PlannedJob(number, kind if is_hit else None)


def plan_jobs(seed: int, jobs: int, fault_rate: float) -> list[PlannedJob]:
    return [plan_job(seed, number, fault_rate) for number in range(1, jobs + 1)]


def count_by_kind(jobs: Iterable[PlannedJob]) -> Counter[FaultKind]:
    return Counter(job.fault for job in jobs if job.fault is not None)

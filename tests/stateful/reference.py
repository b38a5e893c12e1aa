"""A model of the protocol that is small enough to be checked by reading. No I/O.

Time is a counter. A lease holds until a rule expires it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from uuid import UUID

DAY_OF_TODAY = 0
Lease = tuple[UUID, int, UUID]  # job, fencing token, lease id: what a worker shows


@dataclass
class Job:
    max_attempts: int
    priority: int
    due: tuple[int, int]  # day, moment: jobs of tomorrow do not become due by themselves
    state: str = "queued"
    reason: str | None = None
    attempts: int = 0
    crashes: int = 0
    token: int = 0
    lease_id: UUID | None = None
    lease_seconds: float | None = None
    owner: str | None = None
    expired_at: int | None = None
    entry: tuple[int, UUID] | None = None  # its row in the ledger
    effects: list[int] = field(default_factory=list)  # the tokens under which something was written

    def end_lease(self, state: str, reason: str | None = None) -> None:
        self.state, self.reason, self.owner, self.expired_at = state, reason, None, None


class Reference:
    def __init__(self) -> None:
        self.jobs: dict[UUID, Job] = {}
        self.keys: dict[str, tuple[UUID, object]] = {}  # the job, its task and its payload
        self._moments = itertools.count(1)

    def moment(self, day: int = DAY_OF_TODAY) -> tuple[int, int]:
        return day, next(self._moments)

    def violation(self, lease: Lease) -> str | None:
        job_id, token, lease_id = lease
        job = self.jobs[job_id]
        if (token, lease_id) != (job.token, job.lease_id):
            return "token_mismatch"
        if job.state == "succeeded":
            return "already_committed"
        if job.state != "running":
            return "not_running"
        return "lease_expired" if job.expired_at is not None else None

    def may_give_up(self, lease: Lease) -> bool:
        """Whether the lease may fail or release the job: expired is fine, superseded not."""
        return self.violation(lease) in (None, "lease_expired")

    def claim(self, worker: str, wanted: int) -> dict[UUID, Job]:
        """Claim jobs. The database draws their lease ids: the caller fills them in."""
        taken = self._take(worker, wanted)
        if len(taken) < wanted and self.reconcile(wanted - len(taken)):
            taken |= self._take(worker, wanted - len(taken))
        return taken

    def _take(self, worker: str, wanted: int) -> dict[UUID, Job]:
        today = [
            each for each in self.jobs.items()
            if each[1].state == "queued" and each[1].due[0] <= DAY_OF_TODAY
        ]  # fmt: skip
        taken = dict(sorted(today, key=lambda each: (each[1].priority, each[1].due))[:wanted])
        for job in taken.values():
            job.state, job.owner, job.lease_id = "running", worker, None
            job.attempts, job.token = job.attempts + 1, job.token + 1
        return taken

    def commit(self, lease: Lease, *, with_effect: bool = True) -> None:
        job_id, token, lease_id = lease
        job = self.jobs[job_id]
        job.state, job.expired_at, job.entry = "succeeded", None, (token, lease_id)
        job.effects += [token] if with_effect else []

    def fail(self, lease: Lease, *, day: int, reason: str | None) -> None:
        job = self.jobs[lease[0]]
        dead = reason or ("attempts_spent" if job.attempts >= job.max_attempts else None)
        job.due = job.due if dead else self.moment(day)
        job.end_lease("failed" if dead else "queued", dead)

    def renew(self, job_id: UUID, lease_seconds: float) -> None:
        self.jobs[job_id].expired_at, self.jobs[job_id].lease_seconds = None, lease_seconds

    def release(self, lease: Lease) -> None:
        job = self.jobs[lease[0]]
        job.attempts -= 1
        job.end_lease("queued")

    def snooze(self, lease: Lease, *, day: int) -> None:
        job = self.jobs[lease[0]]
        job.attempts, job.due = job.attempts - 1, self.moment(day)
        job.end_lease("queued")

    def reconcile(self, max_jobs: int, dead_workers: frozenset[str] = frozenset()) -> set[UUID]:
        running = [each for each in self.jobs.items() if each[1].state == "running"]
        expired = [each for each in running if each[1].expired_at is not None]
        taken = sorted(expired, key=lambda each: each[1].expired_at or 0)[:max_jobs]
        alive = [each for each in running if each not in taken and each[1].owner in dead_workers]
        assert len(taken) + len(alive) <= max_jobs or not alive, "which ones is not for us to say"
        for _, job in (*taken, *alive):
            job.crashes += 1
            spent = job.attempts >= job.max_attempts
            job.end_lease("failed" if spent else "queued", "poison" if spent else None)
        return {job_id for job_id, _ in (*taken, *alive)}

    def cancel(self, job_id: UUID) -> str:
        job = self.jobs[job_id]
        if job.state in ("queued", "running"):
            job.end_lease("failed", "cancelled")
        return job.state

    def retry(self, job_id: UUID) -> str:
        """Of a job that has not succeeded."""
        job = self.jobs[job_id]
        if job.state == "failed":
            job.state, job.reason, job.due = "queued", None, self.moment()
            job.attempts = job.crashes = 0
        return job.state

"""How a worker and a reconciler behave, checked before anything runs."""

from __future__ import annotations

import math
import os
import secrets
import socket
from dataclasses import dataclass, field

from faultline.bounds import LONGEST_LEASE_SECONDS
from faultline.errors import InvalidSettings

# The reconciler looks this often for workers whose sessions have ended, and tries to lead this often
# when another one does (scaled up with the number of workers).
LIVENESS_SECONDS = 0.1
LEADERSHIP_SECONDS = 0.2
LONGEST_LEADERSHIP_SECONDS = 5.0  # of more than ten workers each tries to lead less often
# A reconciler whose own session was lost gives workers that vanished meanwhile this long to connect again:
# longer than the longest pause between two of their attempts.
RECONNECT_SECONDS = 6.0
# A leader that is stopped in its tracks keeps its session, and with it the leadership, until the server
# ends a session that has been silent for this long; a living leader speaks ten times a second.
LEADER_SILENCE_SECONDS = 2.0
# The server may not do so: its timer goes by its wall clock, which somebody may have set back. A leader has a
# pulse, and when that stands still for so long that the server should have acted, another one stands in.
LEADER_PULSE_SECONDS = 0.5
STAND_IN_SECONDS = 2 * LEADER_SILENCE_SECONDS
# Shorter than this a limit would cut off a server that is merely busy, whatever the lease.
SHORTEST_ANSWER_SECONDS = 2.0
# A session that still locks a job so long after its lease ran out, and waits for its client, is ended.
HOLDER_GRACE_SECONDS = 5.0
SHORTEST_STALL_SECONDS = 1.0  # a busy machine may hold up a thread for a while
MAX_CONCURRENCY = 10_000
SHORTEST_RETENTION_DAYS = 1 / 24  # for workers that lost the answer to a commit and look it up
LONGEST_RETENTION_DAYS = 36_500


def new_worker_id() -> str:
    """Unique for this incarnation of this process: a restarted worker is another worker."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True, kw_only=True)
class Retention:
    """For how many days what has ended is kept; 0 for ever.

    The ledger has a time of its own, longer: it is the record of what took effect. An entry is never
    removed before its job, whatever is set here.
    """

    succeeded_days: float = 7.0
    failed_days: float = 30.0
    ledger_days: float = 90.0
    audit_days: float = 365.0

    def __post_init__(self) -> None:
        for name, days in vars(self).items():
            if not (days == 0 or SHORTEST_RETENTION_DAYS <= days <= LONGEST_RETENTION_DAYS):
                raise InvalidSettings(
                    f"{name} is {days:g}; it is 0, for ever, or an hour (1/24) to"
                    f" {LONGEST_RETENTION_DAYS:,} days"
                )


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 10
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 0.0  # 0: a quarter of the lease
    fence_margin_seconds: float = 0.0  # 0: a tenth of the lease
    # How long PostgreSQL may take to answer a statement of the worker's own before the session is cut.
    # 0: half of the lease, and not less than 2 s.
    answer_seconds: float = 0.0
    # An event loop that does not turn for so long is blocked; 0: a third of the lease, at least a second.
    stall_seconds: float = 0.0
    poll_seconds: float = 1.0
    # With the graces after it, below the 30 s that orchestrators commonly wait before they kill, while the
    # database answers; see docs/running.md for when it does not.
    drain_seconds: float = 20.0
    commit_batch: int = 500
    # How many short jobs may be claimed beyond the free slots; 0: each only when it can start.
    claim_ahead: int = 500
    # Off, a worker that has lost a lease carries on and meets the database's refusal. For drills:
    # it shows that safety does not rest on the worker noticing anything.
    self_fencing: bool = True
    # Leave after this many attempts; 0 for never.
    max_jobs: int = 0
    worker_id: str = field(default_factory=new_worker_id)

    def __post_init__(self) -> None:
        if not self.heartbeat_seconds:
            object.__setattr__(self, "heartbeat_seconds", self.lease_seconds / 4)
        if not self.fence_margin_seconds:
            object.__setattr__(self, "fence_margin_seconds", self.lease_seconds / 10)
        if not self.answer_seconds:
            half = max(self.lease_seconds / 2, SHORTEST_ANSWER_SECONDS)
            object.__setattr__(self, "answer_seconds", half)
        if not self.stall_seconds:
            stall = max(self.lease_seconds / 3, SHORTEST_STALL_SECONDS)
            object.__setattr__(self, "stall_seconds", stall)
        self._require(bool(self.queues), "a worker needs at least one queue")
        self._require(not isinstance(self.queues, str), "queues is a tuple of queue names")
        self._require(
            1 <= self.concurrency <= MAX_CONCURRENCY,
            f"concurrency is 1 to {MAX_CONCURRENCY:,}, not {self.concurrency}",
        )
        self._require(
            0.1 <= self.lease_seconds <= LONGEST_LEASE_SECONDS,
            f"lease_seconds is at least 0.1 and at most {LONGEST_LEASE_SECONDS:,} (7 days)",
        )
        for name in ("answer_seconds", "stall_seconds", "poll_seconds", "drain_seconds"):
            self._require(math.isfinite(getattr(self, name)), f"{name} is a finite number")
        self._require(self.fence_margin_seconds > 0, "fence_margin_seconds is not negative")
        self._require(self.answer_seconds > 0, "answer_seconds is not negative")
        self._require(
            self.stall_seconds >= SHORTEST_STALL_SECONDS,
            f"stall_seconds is at least {SHORTEST_STALL_SECONDS:g}",
        )
        self._require(self.poll_seconds > 0, "poll_seconds is more than 0")
        self._require(1 <= self.commit_batch <= 10_000, "commit_batch is 1 to 10,000")
        self._require(0 <= self.claim_ahead <= 10_000, "claim_ahead is 0 to 10,000")
        self._require(self.drain_seconds >= 0, "drain_seconds is not negative")
        self._require(self.max_jobs >= 0, "max_jobs is not negative")
        self.check_lease(self.lease_seconds, "lease_seconds")

    def check_lease(self, lease_seconds: float, what: str) -> None:
        """A lease must outlast two heartbeats, or a single late one would lose a healthy job."""
        needed = 2 * self.heartbeat_seconds + self.fence_margin_seconds
        self._require(
            self.heartbeat_seconds > 0 and lease_seconds >= needed,
            f"{what} is {lease_seconds:g}, but two heartbeats of {self.heartbeat_seconds:g} s and"
            f" the margin of {self.fence_margin_seconds:g} s need {needed:g} s",
        )

    @staticmethod
    def _require(holds: bool, otherwise: str) -> None:
        if not holds:
            raise InvalidSettings(otherwise)

    @property
    def recovery_after_crash_seconds(self) -> float:
        """Worst case until the jobs of killed processes are queued again, another worker being up.

        A new leader has to be found first (a killed worker may have led), then the deaths are seen
        at the next look. Twice, because a look may begin just before the death. It makes no difference
        how many of up to ten workers are killed at once.
        """
        return 2 * (LEADERSHIP_SECONDS + LIVENESS_SECONDS)

    @property
    def recovery_in_large_fleet_seconds(self) -> float:
        """Worst case for any number of workers: of many, each tries to lead less often."""
        return 2 * (LONGEST_LEADERSHIP_SECONDS + LIVENESS_SECONDS)

    @property
    def recovery_after_silence_seconds(self) -> float:
        """Worst case for a lost host, a cut network or a stopped process: the lease, then a look.

        One heartbeat more, for a network that loses the answers alone: what was sent still renews. And
        a lease shorter than a leader's silence may have to wait for that, if it was the leader that was lost.
        """
        silence = max(self.lease_seconds + self.heartbeat_seconds, LEADER_SILENCE_SECONDS)
        return silence + self.recovery_after_crash_seconds

    @property
    def recovery_after_stall_seconds(self) -> float:
        """Worst case until the jobs beside a handler that blocks the event loop are queued again.

        Those that were not started are released after `stall_seconds`. The leases of the others are
        no longer renewed from then on.
        """
        return self.stall_seconds * 1.2 + self.recovery_after_silence_seconds

"""Settings of workers and reconcilers, checked when they are created."""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from faultline.errors import InvalidSettings
from faultline.queue_shares import GivenShares, QueueShare, shares_of

# The database enforces these two as well; a test compares them.
SHORTEST_LEASE_SECONDS = 0.1
LONGEST_LEASE_SECONDS = 7 * 86_400  # faultline.checked_lease
LONGEST_RETRY_SECONDS = 100 * 366 * 86_400  # faultline.checked_delay
# How often the leading reconciler checks for workers whose sessions have ended.
LIVENESS_SECONDS = 0.1
# How often each other reconciler tries to become leader. With more than ten workers it tries less often.
LEADERSHIP_SECONDS = 0.2
LONGEST_LEADERSHIP_SECONDS = 5.0
# After a reconciler lost its own session, missing workers get this long to reconnect before it treats them
# as dead. A worker never waits that long between two attempts to connect.
RECONNECT_SECONDS = 6.0
# PostgreSQL ends the leader's session, and with it the leadership, after this long without a statement. A
# working leader sends ten statements a second, so only a frozen leader loses its session.
LEADER_SILENCE_SECONDS = 2.0
# That timeout uses the server's wall clock, so a clock that is set back delays it. The leader therefore
# also sends heartbeats. After ACTING_LEADER_AFTER_SECONDS without one, another reconciler acts as leader.
LEADER_HEARTBEAT_SECONDS = 0.5
ACTING_LEADER_AFTER_SECONDS = 2 * LEADER_SILENCE_SECONDS
# The shortest limit on an answer: a shorter one would close sessions of a server that is only busy.
SHORTEST_ANSWER_SECONDS = 2.0
# The reconciler ends a session that still locks a job this long after the job's lease expired, if the
# session waits for its client.
HOLDER_GRACE_SECONDS = 5.0
SHORTEST_STALL_SECONDS = 1.0  # a shorter stall may only mean that the machine is busy
MAX_CONCURRENCY = 10_000
DEFAULT_CONCURRENCY = 10
BY_SLOTS = -1  # the sum of the queues' slots if each has some, else DEFAULT_CONCURRENCY
SHORTEST_RETENTION_DAYS = 1 / 24  # a worker whose COMMIT got no answer still finds the ledger entry
LONGEST_RETENTION_DAYS = 36_500


def new_worker_id() -> str:
    """A unique id: a restarted worker gets another one."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How many days finished jobs and their records are kept; 0 keeps them for ever.

    Ledger entries are kept longer by default, because they record which jobs took effect. An entry is
    never removed before its job.
    """

    succeeded_days: float = 7.0
    failed_days: float = 30.0
    ledger_days: float = 90.0
    audit_days: float = 365.0

    def __post_init__(self) -> None:
        for name, days in vars(self).items():
            if not (days == 0 or SHORTEST_RETENTION_DAYS <= days <= LONGEST_RETENTION_DAYS):
                raise InvalidSettings(
                    f"{name} is {days:g}, but must be 0 (for ever) or between 1/24 (an hour) and"
                    f" {LONGEST_RETENTION_DAYS:,}"
                )


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How a worker runs; the options of `faultline worker` have the same names."""

    # None or empty: the queues of the application's tasks, and `default`. "*" is every queue that exists.
    # A mapping gives queues slots, or a QueueShare of slots and weight; "*" then means all other queues.
    queues: Sequence[str] | GivenShares | None = None
    # How many jobs run at once. Unless given: the sum of the queues' slots if each has some, else 10.
    concurrency: int = BY_SLOTS
    # True: every claim takes the highest priority first, so that lower ones may wait for ever.
    strict_priority: bool = False
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 0.0  # 0: a quarter of the lease
    fence_margin_seconds: float = 0.0  # 0: a tenth of the lease
    # How long the worker waits for PostgreSQL to answer before it closes the session.
    # 0: half of the lease, at least 2 s.
    answer_seconds: float = 0.0
    # An event loop without progress for this long is blocked. 0: a third of the lease, at least 1 s.
    stall_seconds: float = 0.0
    poll_seconds: float = 1.0
    # While the database answers, the worker exits within the 30 s that orchestrators usually wait before
    # they kill it. docs/running.md says how long it takes without an answer.
    drain_seconds: float = 20.0
    commit_batch: int = 500
    # How many short jobs may be claimed beyond the free slots; 0: none.
    claim_ahead: int = 500
    # False, for drills: an attempt that lost its lease runs on until PostgreSQL refuses its commit. It
    # shows that safety does not depend on the worker.
    self_fencing: bool = True
    # False, for tests: the server is known to be one whose data may be lost, so no warning says so.
    warns_of_weak_durability: bool = True
    # Stop after this many attempts; 0: no limit.
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
        self._require(
            not isinstance(self.queues, str), "queues must be a tuple of queue names, not a string"
        )
        shares = shares_of(self.queues or ())
        has_shares = not all(share.is_default for share in shares.values())
        object.__setattr__(self, "queues", shares if has_shares else tuple(shares))
        if self.concurrency == BY_SLOTS:
            slots = [share.slots or 0 for share in shares.values()]
            total = sum(slots) if slots and all(slots) else DEFAULT_CONCURRENCY
            object.__setattr__(self, "concurrency", min(total, MAX_CONCURRENCY))
        self._require(
            1 <= self.concurrency <= MAX_CONCURRENCY,
            f"concurrency must be 1 to {MAX_CONCURRENCY:,}, not {self.concurrency}",
        )
        self._require(
            SHORTEST_LEASE_SECONDS <= self.lease_seconds <= LONGEST_LEASE_SECONDS,
            f"lease_seconds must be {SHORTEST_LEASE_SECONDS:g} to {LONGEST_LEASE_SECONDS:,} (7 days),"
            f" not {self.lease_seconds:g}",
        )
        for name in ("answer_seconds", "stall_seconds", "poll_seconds", "drain_seconds"):
            self._require(math.isfinite(getattr(self, name)), f"{name} must be a finite number")
        self._require(self.fence_margin_seconds > 0, "fence_margin_seconds must not be negative")
        self._require(self.answer_seconds > 0, "answer_seconds must not be negative")
        self._require(
            self.stall_seconds >= SHORTEST_STALL_SECONDS,
            f"stall_seconds must be at least {SHORTEST_STALL_SECONDS:g}",
        )
        self._require(self.poll_seconds > 0, "poll_seconds must be more than 0")
        self._require(1 <= self.commit_batch <= 10_000, "commit_batch must be 1 to 10,000")
        self._require(0 <= self.claim_ahead <= 10_000, "claim_ahead must be 0 to 10,000")
        self._require(self.drain_seconds >= 0, "drain_seconds must not be negative")
        self._require(self.max_jobs >= 0, "max_jobs must not be negative")
        self.check_lease(self.lease_seconds, "lease_seconds")

    @property
    def queue_shares(self) -> dict[str, QueueShare]:
        """The share of each queue that was given; empty for the queues of the tasks."""
        return shares_of(self.queues or ())

    @property
    def shortest_lease_seconds(self) -> float:
        """A lease outlasts two heartbeats and the margin before its end."""
        return 2 * self.heartbeat_seconds + self.fence_margin_seconds

    def check_lease(self, lease_seconds: float, what: str) -> None:
        """Require that a lease outlasts two heartbeats, so that one may be late."""
        needed = self.shortest_lease_seconds
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
        """Longest time until the jobs of killed workers are queued again.

        One worker must be left. A killed worker may have led, so a reconciler first becomes leader, then
        it checks the workers' sessions. The factor is 2 because a check may begin just before the kill.
        The bound holds for up to ten workers, however many of them are killed at once.
        """
        return 2 * (LEADERSHIP_SECONDS + LIVENESS_SECONDS)

    @property
    def recovery_in_large_fleet_seconds(self) -> float:
        """The same for any number of workers: of many, each tries to lead less often."""
        return 2 * (LONGEST_LEADERSHIP_SECONDS + LIVENESS_SECONDS)

    @property
    def recovery_after_silence_seconds(self) -> float:
        """The same for a lost host, a cut network or a frozen process.

        The lease must run out. One heartbeat is added, because a network that loses only the answers
        still renews leases. If the leader was lost, a short lease also waits for LEADER_SILENCE_SECONDS.
        """
        silence = max(self.lease_seconds + self.heartbeat_seconds, LEADER_SILENCE_SECONDS)
        return silence + self.recovery_after_crash_seconds

    @property
    def recovery_after_stall_seconds(self) -> float:
        """The same for other jobs of a worker whose handler blocks the event loop.

        After `stall_seconds` the worker releases jobs that have not started, and no longer renews the
        leases of the others.
        """
        return self.stall_seconds * 1.2 + self.recovery_after_silence_seconds

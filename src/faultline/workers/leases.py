"""The leases that a worker holds, with deadlines by its steady clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Any

from faultline.model import Claim
from faultline.steady import steady_now

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace


WITHDRAWN = "withdrawn"
_beginning = threading.Lock()


class Lease:
    """One lease. Its deadline counts from when the claim or renewal was sent.

    PostgreSQL counts from when it ran the statement, so this deadline is never later than PostgreSQL's.
    """

    __slots__ = (
        "_is_begun",
        "began_at",
        "claim",
        "context",
        "deadline",
        "lease_seconds",
        "lost_because",
        "needs_loop",
        "on_lost",
        "shared_deadline",
        "taken_at",
        "trace",
        "was_cancelled",
    )

    def __init__(self, claim: Claim, *, sent_at: float, lease_seconds: float) -> None:
        self.claim = claim
        self.taken_at = sent_at
        self.lease_seconds = lease_seconds
        self.deadline = sent_at + lease_seconds
        self.lost_because: str | None = None
        self.on_lost: Callable[[str], None] | None = None
        self.shared_deadline: Any = (
            None  # shared memory from which a child process reads the deadline
        )
        self.trace: AttemptTrace | None = None
        self.context: Context | None = None  # of the handler, if it runs in a thread
        # True if the job can go on only while the event loop runs. A handler in a thread does not need it.
        self.needs_loop = True
        self.began_at: float | None = None  # of the handler, if job lines are on
        self.was_cancelled = False  # its handler cancelled the asyncio task that it ran in
        self._is_begun = False

    @property
    def is_lost(self) -> bool:
        return self.lost_because is not None

    def remaining_seconds(self) -> float:
        return 0.0 if self.is_lost else self.deadline - steady_now()

    def begin(self) -> bool:
        """Mark that the handler starts. False if the lease was withdrawn."""
        with _beginning:
            self._is_begun = self._is_begun or self.lost_because != WITHDRAWN
            return self._is_begun

    def withdraw(self) -> bool:
        """Prevent a handler from starting. False if one has begun. From any thread."""
        with _beginning:
            if self._is_begun:
                return False
            self.lose(WITHDRAWN)
            return True

    def renew(self, *, sent_at: float) -> None:
        self.deadline = sent_at + self.lease_seconds
        if self.shared_deadline is not None:
            self.shared_deadline.value = self.deadline

    def lose(self, cause: str) -> None:
        if self.lost_because is None:
            self.lost_because = cause
            if self.shared_deadline is not None:
                self.shared_deadline.value = 0.0
            if self.on_lost is not None:
                self.on_lost(cause)


class HeldLeases:
    """All leases of one worker.

    The event loop writes; the heartbeat and self-fencing threads read. Each operation is one step on a
    dict, which threads may share.
    """

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def __contains__(self, claim: Claim) -> bool:
        lease = self._leases.get(claim.id)
        return lease is not None and lease.claim.lease == claim.lease

    def add(self, lease: Lease) -> None:
        self._leases[lease.claim.id] = lease

    def remove(self, lease: Lease) -> None:
        if self._leases.get(lease.claim.id) is lease:
            del self._leases[lease.claim.id]

"""Commits jobs whose handlers wrote nothing, many per round trip, each fenced.

There is no timer: while PostgreSQL commits one batch, the next one fills. So a single job is committed at
once, and many jobs in large batches. A batch contains no writes of handlers. If it gets no answer, it is sent
again, and PostgreSQL reports the jobs of the first try as already committed. (A handler's own transaction
whose COMMIT gets no answer is another matter: see `unanswered_commit`.)
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NamedTuple, Protocol

from faultline.errors import FaultlineError
from faultline.metrics import meter
from faultline.model import CommitOutcome
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient, raise_if_cancelled
from faultline.statements import protocol
from faultline.statements.protocol import CommitVerdict
from faultline.steady import steady_now
from faultline.tracing import tracing
from faultline.workers.background import Wakeup
from faultline.workers.leases import Lease

_LOCKED_PAUSE_SECONDS = 0.02
# How long a commit waits for a locked row before `may_wait` is asked whether to go on, and between two such
# checks.
_LOCKED_CHECK_SECONDS = 1.0
_MAX_CHECKS_AT_ONCE = 10  # each check is a round trip that delays the next batch


class Submitter(Protocol):
    """What the committer tells about the entries that it was given."""

    def on_verdict(self, lease: Lease, verdict: CommitVerdict | Exception) -> None: ...
    async def may_wait_for_row(self, lease: Lease) -> bool:
        """Asked while the row is locked; False if it is not to be committed any more."""


class Entry(NamedTuple):
    lease: Lease
    result: str | None  # JSON text, checked
    submitter: Submitter


class Committer:
    def __init__(self, session: ReconnectingSession, *, batch_size: int, wakeup: Wakeup) -> None:
        self._session = session
        self._batch_size = batch_size
        self._wakeup = wakeup
        self._waiting: deque[Entry] = deque()
        self._check_at: dict[Lease, float] = {}  # when to check an entry whose row is locked
        self._in_flight = 0
        self._has_entries = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pending(self) -> int:
        return len(self._waiting) + self._in_flight

    def submit(self, entry: Entry) -> None:
        self._waiting.append(entry)
        self._idle.clear()
        self._has_entries.set()

    async def drained(self) -> None:
        """Wait until every submitted entry has its verdict."""
        await self._idle.wait()

    async def close(self) -> None:
        await self._session.close()

    async def run(self) -> None:
        while True:
            await self._has_entries.wait()
            self._has_entries.clear()
            while self._waiting:
                count = min(len(self._waiting), self._batch_size)
                batch = [self._waiting.popleft() for _ in range(count)]
                self._in_flight = len(batch)
                locked = await self._still_waiting(batch, await self._commit(batch))
                self._in_flight = 0
                if len(locked) < len(batch):
                    self._wakeup.set()
                if locked:
                    self._waiting.extend(locked)  # behind the entries that can be committed
                    await asyncio.sleep(_LOCKED_PAUSE_SECONDS)
            self._idle.set()

    async def _still_waiting(self, batch: list[Entry], locked: list[Entry]) -> list[Entry]:
        """The locked entries that still wait for their row."""
        now, checks, kept = steady_now(), 0, []
        for entry in locked:
            check_at = self._check_at.setdefault(entry.lease, now + _LOCKED_CHECK_SECONDS)
            if now < check_at or checks == _MAX_CHECKS_AT_ONCE:
                kept.append(entry)
                continue
            checks += 1
            del self._check_at[entry.lease]
            if await entry.submitter.may_wait_for_row(entry.lease):
                kept.append(entry)
        if self._check_at:
            for entry in batch:
                if entry not in locked:
                    self._check_at.pop(entry.lease, None)
        return kept

    async def _commit(self, batch: list[Entry]) -> list[Entry]:
        """Commit a batch, report the verdicts, return the entries whose rows are locked."""
        while True:
            began_ns = time.time_ns()
            statement = protocol.commit_many(
                [entry.lease.claim for entry in batch], [entry.result for entry in batch]
            )
            try:
                sent_at = steady_now()
                verdicts = await self._session.run(statement)
                meter.current.committed(steady_now() - sent_at)
                break
            except (DriverError, FaultlineError) as error:
                raise_if_cancelled(error)
                if is_transient(error):
                    await self._session.pause(error)
                elif len(batch) > 1:  # one entry causes the error: commit each alone
                    return [late for entry in batch for late in await self._commit([entry])]
                else:
                    batch[0].submitter.on_verdict(batch[0].lease, error)
                    return []
        if tracing.spans is not None:
            _trace(batch, verdicts, began_ns)
        locked = []
        for entry, verdict in zip(batch, verdicts, strict=True):
            if verdict.outcome is CommitOutcome.LOCKED:
                locked.append(entry)
            else:
                entry.submitter.on_verdict(entry.lease, verdict)
        return locked


def _trace(batch: list[Entry], verdicts: list[CommitVerdict], began_ns: int) -> None:
    for entry, verdict in zip(batch, verdicts, strict=True):
        if entry.lease.trace is not None and verdict.outcome is not CommitOutcome.LOCKED:
            is_stale = verdict.outcome is CommitOutcome.STALE
            reason = verdict.reason or "unknown" if is_stale else None
            entry.lease.trace.batch_committed(began_ns, len(batch), reason, verdict.current_token)

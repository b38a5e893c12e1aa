"""The verbs of retention in upkeep.sql, as values in the style of protocol.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from faultline.config import Retention
from faultline.protocol import Statement

BATCH_SIZE = 500
# After each batch, rest this many times as long as it took: three quarters of the time belong to others.
REST_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class Purged:
    """What was removed, or would have been."""

    succeeded: int = 0
    failed: int = 0
    entries: int = 0
    last_id: UUID | None = None  # where to go on; None when there is no more to look at

    def __add__(self, other: Purged) -> Purged:
        return Purged(
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.entries + other.entries,
            other.last_id,
        )

    def __bool__(self) -> bool:
        return bool(self.succeeded or self.failed or self.entries)


class Sweep:
    """One pass over everything, as statements to be run one by one, each in a transaction of its own.
    Jobs come first: an entry in the ledger outlives its job."""

    def __init__(self, retention: Retention, *, dry_run: bool = False) -> None:
        self.purged = Purged()
        self._retention = retention
        self._dry_run = dry_run
        self._after: UUID | None = None
        self._verbs = []
        if retention.succeeded_days or retention.failed_days:
            self._verbs.append(purge_jobs)
        if retention.ledger_days:
            self._verbs.append(purge_ledger)

    @property
    def next_statement(self) -> Statement[Purged] | None:
        if not self._verbs:
            return None
        verb = self._verbs[0]
        return verb(
            self._retention, batch_size=BATCH_SIZE, after=self._after, dry_run=self._dry_run
        )

    def add(self, page: Purged) -> None:
        """What the statement answered; the next one goes on from there."""
        self.purged += page
        self._after = page.last_id
        if page.last_id is None:
            del self._verbs[0]


def purge_jobs(
    retention: Retention, *, batch_size: int, after: UUID | None = None, dry_run: bool = False
) -> Statement[Purged]:
    kept = _keep(retention.succeeded_days), _keep(retention.failed_days)
    return Statement(
        "SELECT succeeded, failed, last_id FROM faultline.purge_jobs(%s, %s, %s, %s, %s)",
        (*kept, after, batch_size, dry_run),
        lambda rows: Purged(rows[0][0], rows[0][1], 0, rows[0][2]),
    )


def purge_ledger(
    retention: Retention, *, batch_size: int, after: UUID | None = None, dry_run: bool = False
) -> Statement[Purged]:
    """Entries whose job is still there are kept, however old they are."""
    return Statement(
        "SELECT entries, last_id FROM faultline.purge_ledger(%s, %s, %s, %s)",
        (_keep(retention.ledger_days), after, batch_size, dry_run),
        lambda rows: Purged(entries=rows[0][0], last_id=rows[0][1]),
    )


def _keep(days: float) -> timedelta | None:
    """For how long; None for ever."""
    return timedelta(days=days) if days else None

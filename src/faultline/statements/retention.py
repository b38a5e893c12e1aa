"""The statements of retention.sql, and the order of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID

from faultline.config import Retention
from faultline.statements.statement import Statement

BATCH_SIZE = 500
RETENTION = '{"kind": "retention"}'  # the actor of automatic purges, as retention.sql expects it
# After each batch, pause this many times as long as it took, so that other sessions get most of the time.
REST_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows were removed, or would be."""

    succeeded: int = 0
    failed: int = 0
    entries: int = 0
    last_id: UUID | int | str | None = None  # the position of the next batch; None at the end
    audit: int = 0
    unique_keys: int = 0
    firings: int = 0

    def __add__(self, other: Purged) -> Purged:
        return Purged(
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.entries + other.entries,
            other.last_id,
            self.audit + other.audit,
            self.unique_keys + other.unique_keys,
            self.firings + other.firings,
        )

    def __bool__(self) -> bool:
        jobs = self.succeeded or self.failed
        return bool(jobs or self.entries or self.audit or self.unique_keys or self.firings)


class Sweep:
    """One pass over all tables, as statements that each run in their own transaction.

    Jobs come first: a ledger entry outlives its job.
    """

    def __init__(
        self, retention: Retention, *, dry_run: bool = False, is_automatic: bool = False
    ) -> None:
        """Only a purge by an operator, not an automatic one, is recorded in the audit log."""
        self.purged = Purged()
        self._is_automatic = is_automatic
        self._retention = retention
        self._dry_run = dry_run
        self._after: Any = None
        self._verbs: list[Callable[..., Statement[Purged]]] = []
        if retention.succeeded_days or retention.failed_days:
            self._verbs.append(purge_jobs)
        if retention.ledger_days:
            self._verbs.append(purge_ledger)
        if retention.audit_days:
            self._verbs.append(purge_audit)
        self._verbs.append(purge_unique_keys)
        if retention.failed_days:
            self._verbs.append(purge_firings)

    @property
    def next_statement(self) -> Statement[Purged] | None:
        if not self._verbs:
            return None
        verb = self._verbs[0]
        statement = verb(
            self._retention, batch_size=BATCH_SIZE, after=self._after, dry_run=self._dry_run
        )
        return _automatic(statement) if self._is_automatic else statement

    def add(self, page: Purged) -> None:
        """Add the result of a statement; the next one continues from there."""
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
    """Purge old ledger entries whose job is gone."""
    return Statement(
        "SELECT entries, last_id FROM faultline.purge_ledger(%s, %s, %s, %s)",
        (_keep(retention.ledger_days), after, batch_size, dry_run),
        lambda rows: Purged(entries=rows[0][0], last_id=rows[0][1]),
    )


def purge_audit(
    retention: Retention, *, batch_size: int, after: int | None = None, dry_run: bool = False
) -> Statement[Purged]:
    return Statement(
        "SELECT entries, last_id FROM faultline.purge_audit(%s, %s, %s, %s)",
        (_keep(retention.audit_days), after, batch_size, dry_run),
        lambda rows: Purged(audit=rows[0][0], last_id=rows[0][1]),
    )


def purge_unique_keys(
    retention: Retention, *, batch_size: int, after: str | None = None, dry_run: bool = False
) -> Statement[Purged]:
    """Purge unique keys whose job is gone or no longer counts, at any age."""
    return Statement(
        "SELECT keys, last_key FROM faultline.purge_unique_keys(%s, %s, %s)",
        (after, batch_size, dry_run),
        lambda rows: Purged(unique_keys=rows[0][0], last_id=rows[0][1]),
    )


def purge_firings(
    retention: Retention, *, batch_size: int, after: str | None = None, dry_run: bool = False
) -> Statement[Purged]:
    """Purge firings of schedules that are as old as failed jobs and whose job is gone."""
    return Statement(
        "SELECT entries, next::text FROM faultline.purge_firings(%s, %s::jsonb, %s, %s)",
        (_keep(retention.failed_days), after, batch_size, dry_run),
        lambda rows: Purged(firings=rows[0][0], last_id=rows[0][1]),
    )


def _automatic(statement: Statement[Purged]) -> Statement[Purged]:
    """The same purge, marked as retention's by a setting of its transaction."""
    with_actor: LiteralString = (
        "WITH actor AS MATERIALIZED (SELECT set_config('faultline.actor', %s, true) AS name) "
    )
    call = statement.sql.replace(" FROM ", " FROM actor CROSS JOIN LATERAL ", 1)
    call = call.replace("%s)", "%s AND actor.name IS NOT NULL)", 1)
    return replace(statement, sql=with_actor + call, params=(RETENTION, *statement.params))


def _keep(days: float) -> timedelta | None:
    """The time to keep rows; None keeps them for ever."""
    return timedelta(days=days) if days else None

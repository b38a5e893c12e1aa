"""Statements about the epoch of a database's tokens. See sql/epoch.sql.

A fencing token is `epoch · 2^22 + counter`. The epoch is 0 until a database has been through a failover
or a restore, so most databases have small tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faultline.statements.statement import Statement

COUNTER_BITS = 22


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What tells one history of a database from another; None for a hidden value."""

    system_identifier: int | None
    timeline: int | None
    was_restored: bool | None
    database_oid: int | None


@dataclass(frozen=True, slots=True)
class EpochStatus:
    epoch: int
    began_at: datetime
    cause: str
    known: ServerIdentity  # when the epoch began
    here: ServerIdentity  # now
    is_standby: bool
    is_refused: bool  # claims are refused until an operator bumps the epoch
    is_due: bool  # the next claim begins a new epoch by itself


@dataclass(frozen=True, slots=True)
class Epoch:
    epoch: int
    began_at: datetime
    cause: str
    system_identifier: int | None
    timeline: int | None


def status() -> Statement[EpochStatus]:
    return Statement(
        """
        SELECT epoch, began_at, cause, pg_is_in_recovery(),
            known_system_identifier, known_timeline, known_restored_from > '-infinity', known_database_oid,
            system_identifier, timeline, restored_from > '-infinity', database_oid,
            (known_system_identifier <> system_identifier OR known_database_oid <> database_oid) IS TRUE
          OR (known_restored_from < restored_from) IS TRUE
          AND (known_timeline = timeline) IS NOT FALSE,
            (known_timeline <> timeline AND (known_system_identifier = system_identifier) IS NOT FALSE
            AND (known_database_oid = database_oid) IS NOT FALSE) IS TRUE
        FROM faultline.epoch_status()
        """,
        (),
        _read_status,
    )


def _read_status(rows: list[tuple[Any, ...]]) -> EpochStatus:
    epoch, began_at, cause, is_standby, *identities, is_refused, is_due = rows[0]
    known, here = ServerIdentity(*identities[:4]), ServerIdentity(*identities[4:])
    return EpochStatus(epoch, began_at, cause, known, here, is_standby, is_refused, is_due)


def history() -> Statement[list[Epoch]]:
    """The epochs, newest first."""
    return Statement(
        """
        SELECT epoch, began_at, cause, system_identifier, timeline FROM faultline.epochs
        ORDER BY epoch DESC LIMIT 50
        """,
        (),
        lambda rows: [Epoch(*row) for row in rows],
    )


def bump(reason: str | None) -> Statement[int]:
    """Begin a new epoch; returns its number."""
    return Statement("SELECT faultline.bump_epoch(%s)", (reason,), lambda rows: int(rows[0][0]))


def forget_database() -> Statement[None]:
    """Allow claims from copies of this database: only for templates of test databases."""
    return Statement(
        "UPDATE faultline.epochs SET database_oid = NULL RETURNING epoch", (), lambda rows: None
    )

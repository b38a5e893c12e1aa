"""Statements of the audit log of operators' actions. See sql/audit.sql."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import LiteralString, TypeVar

import orjson

from faultline.errors import DatabaseUnavailable, FaultlineError, SchemaMismatch
from faultline.statements.statement import Row, Statement

T = TypeVar("T")

LOOKED_AT = 10_000  # rows that one page examines
ACTOR_SETTING = "faultline.actor"


@dataclass(frozen=True, slots=True)
class Actor:
    """The person or service that a caller acts for, beside the session's account."""

    kind: str
    name: str
    address: str | None = None

    @property
    def setting(self) -> str:
        """The value of the transaction's setting."""
        fields = {"kind": self.kind, "name": self.name.replace("\0", "")}
        if self.address is not None:
            fields["address"] = self.address
        return orjson.dumps(fields).decode()


def acting_for(actor: Actor) -> Statement[None]:
    """Name the actor; run it in the transaction of the action, before the action."""
    return Statement(
        "SELECT set_config(%s, %s, true)", (ACTOR_SETTING, actor.setting), lambda rows: None
    )


def by(actor: Actor, statement: Statement[T]) -> Statement[T]:
    """Run a statement for this actor, in one statement and so in one transaction."""
    with_actor: LiteralString = (
        "WITH actor AS MATERIALIZED (SELECT set_config('faultline.actor', %s, true)) "
    )
    return replace(
        statement,
        sql=f"{with_actor}{statement.sql} FROM actor",
        params=(actor.setting, *statement.params),
    )


def record_refusal(
    actor: Actor | None, *, action: str, target: str | None, code: str, times: int = 1
) -> Statement[bool]:
    """Record a refused action; returns False if this minute's limit is reached.

    PostgreSQL keeps nothing of the transaction that it refused, so this is a statement of its own after
    it. Without an actor the row names the account of the session.
    """
    statement = Statement(
        "SELECT faultline.record_refusal(%s, %s, %s, %s)",
        (action, None if target is None else target.replace("\0", ""), code, times),
        lambda rows: bool(rows[0][0]),
    )
    return statement if actor is None else by(actor, statement)


def is_refusal(error: FaultlineError) -> bool:
    """Whether Faultline or PostgreSQL refused the action, so that it was not done."""
    return not isinstance(error, DatabaseUnavailable | SchemaMismatch)


@dataclass(frozen=True, slots=True)
class AuditLogEntry:
    id: str
    at: datetime
    actor_kind: str
    actor: str
    role: str | None
    address: str | None
    action: str
    object: str | None
    result: str
    code: str | None
    detail: str | None
    times: int

    def without_role(self) -> AuditLogEntry:
        actor = "a database role" if self.actor_kind == "role" else self.actor
        return replace(self, actor=actor, role=None)


@dataclass(frozen=True, slots=True)
class AuditLogPage:
    audit: list[AuditLogEntry]
    next: str | None

    def without_roles(self) -> AuditLogPage:
        """The same page without the names of database accounts."""
        return replace(self, audit=[entry.without_role() for entry in self.audit])


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """The values that entries must have; None allows any."""

    actor: str | None = None
    action: str | None = None
    object: str | None = None
    result: str | None = None
    address: str | None = None


def page(wanted: AuditFilter, *, limit: int, before: int | None = None) -> Statement[AuditLogPage]:
    """A page of entries, newest first. A filter examines a bounded number of rows."""

    def read(rows: list[Row]) -> AuditLogPage:
        seen, last = rows[0][:2]
        found = [AuditLogEntry(str(row[2]), *row[3:]) for row in rows if row[2] is not None]
        if len(found) > limit:
            return AuditLogPage(found[:limit], found[limit - 1].id)
        return AuditLogPage(found, str(last) if seen == LOOKED_AT else None)

    tests = (wanted.actor, wanted.action, wanted.object, wanted.result, wanted.address)
    return Statement(
        """
        WITH seen AS MATERIALIZED (SELECT * FROM faultline.audit_log WHERE id < %s
            ORDER BY id DESC LIMIT %s),
            chosen AS (SELECT * FROM seen WHERE (%s::text IS NULL OR actor = %s)
            AND (%s::text IS NULL OR action = %s) AND (%s::text IS NULL OR object = %s)
            AND (%s::text IS NULL OR result = %s) AND (%s::text IS NULL OR address = %s)
            ORDER BY id DESC LIMIT %s)
        SELECT (SELECT count(*) FROM seen), (SELECT min(id) FROM seen), c.id, c.at, c.actor_kind,
            c.actor, c.role, c.address, c.action, c.object, c.result, c.code, c.detail, c.times
        FROM (VALUES (1)) AS one LEFT JOIN chosen AS c ON true ORDER BY c.id DESC
        """,
        (
            2**63 - 1 if before is None else before,
            LOOKED_AT,
            *(each for test in tests for each in (test, test)),
            limit + 1,
        ),
        read,
    )

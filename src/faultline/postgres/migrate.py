"""Migrates the schema to the version of this code: forward only, all or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

import psycopg

from faultline.errors import DatabaseRefused, DatabaseUnavailable, SchemaMismatch
from faultline.postgres.reconnecting import is_worth_waiting
from faultline.postgres.sessions import Connection, connect

OWNER = "faultline_owner"
MIGRATION_LOCK = 0x6661756C74  # one migrator at a time
TRIGGERS = (
    ("jobs", "guard_insert"),
    ("jobs", "guard_update"),
    ("ledger", "enter_ledger"),
    ("ledger", "seal_ledger"),
    ("ledger", "guard_update"),
    ("ledger", "guard_delete"),
    ("ledger", "guard_truncate"),
    ("open_transactions", "refuse_unfinished"),
)
_LOCK_TRY_MILLISECONDS = 100
_REPLACED = "LOCK TABLE faultline.jobs, faultline.ledger IN SHARE ROW EXCLUSIVE MODE"
# The locks that an ALTER TABLE would take later and one by one, while a heartbeat holds workers and waits
# for jobs.
_ALTERED = "LOCK TABLE faultline.workers, faultline.jobs, faultline.ledger IN ACCESS EXCLUSIVE MODE"
# Zero, so that tokens start at 1. A restored database brings its own epoch.
_FIRST_EPOCH = """
    INSERT INTO faultline.epochs
        (epoch, system_identifier, timeline, restored_from, database_oid, cause)
    SELECT 0, system_identifier, timeline, restored_from, database_oid, 'install'
    FROM faultline.server_identity()
    WHERE NOT EXISTS (SELECT FROM faultline.epochs)
"""
# The settings that the owner has been allowed to read since the epoch began.
_WHAT_CAN_BE_SEEN_NOW = """
    UPDATE faultline.epochs AS e
    SET system_identifier = coalesce(e.system_identifier, here.system_identifier),
        timeline = coalesce(e.timeline, here.timeline),
        restored_from = coalesce(e.restored_from, here.restored_from)
    FROM faultline.server_identity() AS here
    WHERE e.epoch = (SELECT max(epoch) FROM faultline.epochs)
      AND e.server_started_at = pg_postmaster_start_time()
      AND (e.system_identifier = here.system_identifier) IS NOT FALSE
      AND (e.timeline = here.timeline) IS NOT FALSE
      AND (e.restored_from = here.restored_from) IS NOT FALSE
      AND (e.database_oid = here.database_oid) IS NOT FALSE
      AND num_nulls(e.system_identifier, e.timeline, e.restored_from)
          > num_nulls(here.system_identifier, here.timeline, here.restored_from)
"""
_MIGRATION_LOCK_HOLDER = """
    SELECT format('%%s (%%s)', a.usename, nullif(a.application_name, '')), l.pid
    FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.classid = (%s::bigint >> 32)::oid AND l.objid = (%s::bigint & 4294967295)::oid
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1
"""
_FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql\Z")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class MigrationReport:
    version: int
    applied: tuple[str, ...]
    functions_replaced: bool


@cache
def migrations() -> tuple[Migration, ...]:
    folder = resources.files("faultline.sql").joinpath("migrations")
    found = [
        Migration(int(match[1]), match[2], entry.read_text())
        for entry in folder.iterdir()
        if (match := _FILE_NAME.match(entry.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


@cache
def functions_sql() -> str:
    """Everything that is replaced at each upgrade: functions and triggers, no tables."""
    files = resources.files("faultline.sql")
    names = (
        "protocol.sql",
        "enqueue.sql",
        "unique.sql",
        "claiming.sql",
        "places.sql",
        "limits.sql",
        "limit_repair.sql",
        "limit_counts.sql",
        "snooze.sql",
        "progress.sql",
        "handler_transactions.sql",
        "batches.sql",
        "intervals.sql",
        "epoch.sql",
        "notifications.sql",
        "workers.sql",
        "recovery.sql",
        "results.sql",
        "guards.sql",
        "operating.sql",
        "audit.sql",
        "retention.sql",
        "schedules.sql",
        "counts.sql",
    )
    return "\n".join(files.joinpath(name).read_text() for name in names)


def schema_tables() -> frozenset[str]:
    """The names of the tables of this release."""
    text = resources.files("faultline.sql").joinpath("schema.sql").read_text()
    return frozenset(
        re.findall(r"^CREATE (?:UNLOGGED )?TABLE faultline\.(\w+)", text, re.MULTILINE)
    )


def roles_sql() -> str:
    return resources.files("faultline.sql").joinpath("roles.sql").read_text()


def grants_sql() -> str:
    return resources.files("faultline.sql").joinpath("grants.sql").read_text()


def latest_version() -> int:
    return migrations()[-1].version


def _fingerprint() -> str:
    return hashlib.sha256(functions_sql().encode()).hexdigest()


def migrate(
    url: str, *, roles: bool = False, lock_timeout_seconds: float = 10.0
) -> MigrationReport:
    """Apply missing migrations in one transaction, under a lock between migrators.

    A migration that is killed leaves nothing behind, and the next one starts over. With nothing to do it
    locks no table. It gives up when a table stays locked for `lock_timeout_seconds`, because every
    session that comes after it would have to wait behind it.
    """
    with connect(url, application_name="faultline migrate") as conn, conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = {int(lock_timeout_seconds * 1000)}")
        owner, account = _owner_and_account(conn)
        try:
            _lock_out_other_migrators(conn, lock_timeout_seconds)
            _require_utf8(conn)
            if roles:  # before anything is locked: changing the owner locks all tables
                conn.execute(roles_sql())
            _become_owner(conn)
            is_new = not installed_version(conn)
            report = _apply(conn, lock_timeout_seconds)
            if roles and is_new:
                conn.execute(roles_sql())
                _become_owner(conn)
            # Once there are roles, a new function must not stay open to all accounts.
            if roles or (report.functions_replaced and _has_roles(conn)):
                conn.execute(grants_sql())
            if roles or report.functions_replaced:
                conn.execute(_WHAT_CAN_BE_SEEN_NOW)
        except psycopg.errors.InsufficientPrivilege as error:
            if error.diag.message_hint:  # an error of roles.sql
                raise
            raise _missing_right(error, conn.info.dbname, owner, account) from error
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            raise DatabaseUnavailable(
                f"gave up after waiting {lock_timeout_seconds:g} s for a lock; nothing was changed",
                hint="another migration is running, or a long transaction holds a table; try again",
            ) from error
    return report


def _lock_out_other_migrators(conn: Connection, lock_timeout_seconds: float) -> None:
    """Take the migrators' lock. The error names the session that holds it."""
    try:
        with conn.transaction():
            conn.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
    except psycopg.errors.LockNotAvailable as error:
        holder = conn.execute(_MIGRATION_LOCK_HOLDER, [MIGRATION_LOCK, MIGRATION_LOCK]).fetchone()
        holder_name = "another session" if holder is None else f"the session of {holder[0]}"
        hint = "if it is a migration, wait for its end and try again"
        if holder is not None:
            hint += f"; if it is not, end it: SELECT pg_terminate_backend({holder[1]})"
        raise DatabaseUnavailable(
            f"{holder_name} has held the lock of migrations for {lock_timeout_seconds:g} s;"
            " nothing was changed",
            hint=hint,
        ) from error


def _require_utf8(conn: Connection) -> None:
    row = conn.execute("SHOW server_encoding").fetchone()
    if row is not None and row[0] != "UTF8":
        raise SchemaMismatch(
            f"the database's encoding is {row[0]}; Faultline needs UTF8",
            hint="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )


def _apply(conn: Connection, lock_timeout_seconds: float) -> MigrationReport:
    current = _require_not_newer(installed_version(conn))
    pending = [migration for migration in migrations() if migration.version > current]
    replaced = (
        bool(pending) or _installed_fingerprint(conn) != _fingerprint() or not fence_is_up(conn)
    )
    if replaced and current:
        _require_owner(conn)
        _lock_tables(conn, lock_timeout_seconds, altering=bool(pending))
    for migration in pending:
        conn.execute(migration.sql)
        conn.execute(
            "INSERT INTO faultline.migrations (version, name) VALUES (%s, %s)",
            [migration.version, migration.name],
        )
    if replaced:
        conn.execute(functions_sql())
        conn.execute(f"COMMENT ON SCHEMA faultline IS 'functions {_fingerprint()}'")
        conn.execute(_FIRST_EPOCH)
    applied = tuple(f"{migration.version:04} {migration.name}" for migration in pending)
    return MigrationReport(latest_version(), applied, replaced)


def _become_owner(conn: Connection) -> None:
    """Act as faultline_owner if the schema belongs to it."""
    if _owner_and_account(conn)[0] == OWNER:
        # An account that may not do so can still find that there is nothing to migrate.
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege), conn.transaction():
            conn.execute(f"SET LOCAL ROLE {OWNER}")


def _require_owner(conn: Connection) -> None:
    owner, account = _owner_and_account(conn)
    if owner == OWNER != account:
        raise DatabaseRefused(
            f"the schema belongs to {OWNER}, and {account} is not a member of it",
            hint=f'migrate as a member or a superuser; one of them can run: GRANT {OWNER} TO "{account}"',
        )


def _missing_right(
    error: psycopg.Error, database: str, owner: str | None, account: str
) -> DatabaseRefused:
    """The error for an account that may not migrate; a role of workers is no help."""
    if owner is None:
        hint = (
            "migrate with the account that owns the database, or let the owner or a superuser run:"
            f' GRANT CREATE ON DATABASE "{database}" TO "{account}"'
        )
    else:
        hint = f'migrate with the account that owns the schema, "{owner}", or with a superuser'
    message = error.diag.message_primary or str(error)
    return DatabaseRefused(f"PostgreSQL refused ({error.sqlstate}): {message}", hint=hint)


def _owner_and_account(conn: Connection) -> tuple[str | None, str]:
    row = conn.execute(
        """
        SELECT (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'faultline'),
            current_user
        """
    ).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return row[0], row[1]


def _lock_tables(conn: Connection, lock_timeout_seconds: float, *, altering: bool) -> None:
    """Lock all tables at once or none of them, and wait only briefly.

    Transactions of jobs lock the tables in either order: a commit begins with the ledger, a handler that
    enqueues with the jobs. A migrator that holds one table and waits for another could deadlock with
    them. And every session that comes after a waiting migrator waits too, heartbeats included.
    """
    deadline = time.monotonic() + lock_timeout_seconds
    while True:
        try:
            with conn.transaction():
                conn.execute(f"SET LOCAL lock_timeout = {_LOCK_TRY_MILLISECONDS}")
                if altering:
                    conn.execute(_ALTERED)
                else:
                    conn.execute(_REPLACED)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 - to let others pass
        else:
            conn.execute(f"SET LOCAL lock_timeout = {int(lock_timeout_seconds * 1000)}")
            return


def installed_version(conn: Connection) -> int:
    """The version of the schema in this database; 0 if there is none."""
    (table,) = conn.execute("SELECT to_regclass('faultline.migrations')").fetchone()  # type: ignore[misc]
    if table is None:
        return 0
    row = conn.execute("SELECT coalesce(max(version), 0) FROM faultline.migrations").fetchone()
    return int(row[0]) if row else 0


def fence_is_up(conn: Connection) -> bool:
    """Whether every trigger that refuses writes is present and enabled.

    A dump that was restored with errors, or by an account without rights, may lack some and still look
    complete.
    """
    row = conn.execute(
        """
        SELECT count(*) FROM pg_trigger WHERE tgenabled IN ('O', 'A') AND (tgrelid, tgname) IN
            (SELECT to_regclass('faultline.' || relation), name FROM unnest(%s::text[], %s::text[])
            AS expected (relation, name))
        """,
        [list(column) for column in zip(*TRIGGERS, strict=True)],
    ).fetchone()
    return row is not None and row[0] == len(TRIGGERS)


def _has_roles(conn: Connection) -> bool:
    row = conn.execute(
        """
        SELECT EXISTS (SELECT FROM pg_namespace, aclexplode(nspacl) AS granted
            JOIN pg_roles ON pg_roles.oid = granted.grantee
            WHERE nspname = 'faultline' AND rolname = 'faultline_worker')
        """
    ).fetchone()
    return bool(row and row[0])


def _installed_fingerprint(conn: Connection) -> str | None:
    row = conn.execute(
        "SELECT obj_description(to_regnamespace('faultline'), 'pg_namespace')"
    ).fetchone()
    return str(row[0]).removeprefix("functions ") if row and row[0] else None


def _require_not_newer(current: int) -> int:
    if current > latest_version():
        raise SchemaMismatch(
            f"the database is at schema version {current}; this Faultline knows {latest_version()}",
            hint="upgrade the faultline package; downgrading a database is not supported",
        )
    return current


def require_current_schema(conn: Connection) -> None:
    """Refuse a schema whose version is not that of this code."""
    current = _require_not_newer(installed_version(conn))
    if current < latest_version():
        found = f"is at schema version {current}" if current else "has no Faultline schema"
        raise SchemaMismatch(
            f"the database {found}; this Faultline needs version {latest_version()}",
            hint="faultline migrate",
        )


def require_fence(conn: Connection) -> None:
    """Refuse to run jobs if no trigger would refuse a stale worker."""
    require_current_schema(conn)
    if not fence_is_up(conn):
        raise SchemaMismatch(
            "triggers that refuse stale writes are missing or disabled in this database",
            hint="faultline migrate; then faultline verify",
        )


def require_schema(url: str, check: Callable[[Connection], None]) -> None:
    """Raise an error for a wrong schema, database or account.

    A server that is away is no error: the process waits for it later.
    """
    try:
        with connect(url, application_name="faultline") as conn:
            check(conn)
    except (DatabaseUnavailable, psycopg.Error) as error:
        if not is_worth_waiting(error):
            raise

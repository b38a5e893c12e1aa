"""Reads of the server: its settings, sessions, manager and roles. No writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from faultline.statements.statement import Statement

ROLES = ("faultline_producer", "faultline_worker", "faultline_inspector", "faultline_operator")


@dataclass(frozen=True, slots=True)
class ServerProperties:
    version_number: int
    version: str
    account: str
    is_superuser: bool
    is_standby: bool
    standbys: int
    sees_other_sessions: bool


def identity() -> Statement[ServerProperties]:
    return Statement(
        """
        SELECT current_setting('server_version_num')::int, current_setting('server_version'),
            current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
            pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_replication),
            pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
        """,
        (),
        lambda rows: ServerProperties(*rows[0]),
    )


def settings(names: Sequence[str]) -> Statement[dict[str, str]]:
    """The settings of a new session of this account; durations in ms.

    A setting that this server does not know is left out.
    """
    return Statement(
        "SELECT name, reset_val FROM pg_settings WHERE name = ANY (%s)",
        (list(names),),
        dict,
    )


def settings_of_other_roles(names: Sequence[str]) -> Statement[list[tuple[str, str]]]:
    """`ALTER ROLE … SET` of other accounts in this database: account and name=value."""
    return Statement(
        """
        SELECT r.rolname, entry FROM pg_db_role_setting AS s JOIN pg_roles AS r ON r.oid = s.setrole
        CROSS JOIN LATERAL unnest(s.setconfig) AS entry
        WHERE r.rolname <> current_user AND split_part(entry, '=', 1) = ANY (%s)
          AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
        ORDER BY 1, 2
        """,
        (list(names),),
        lambda rows: [(role, entry) for role, entry in rows],
    )


def own_encryption() -> Statement[str]:
    """The encryption of this session at the server; behind a pooler, the pooler's."""
    return Statement(
        "SELECT concat_ws(', ', version, cipher) FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
        (),
        lambda rows: rows[0][0] if rows and rows[0][0] else "TLS as far as the pooler",
    )


PATRONI, CLOUD_NATIVE_PG, MANAGED_SERVICE = "patroni", "cloud_native_pg", "managed_service"
# Patroni passes these on the server's command line, and its own sessions have its name. CloudNativePG and
# the managed services create roles that nothing else has.
_PATRONI_OPTIONS = ("cluster_name", "wal_log_hints", "track_commit_timestamp")
_SERVICE_ROLES = ("rds_superuser", "cloudsqlsuperuser", "azure_pg_admin")


def cluster_manager() -> Statement[str | None]:
    """The software that manages this server's cluster; None if none is found."""
    return Statement(
        """
        SELECT CASE WHEN EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'Patroni%%')
          OR (SELECT count(*) FROM pg_settings WHERE name = ANY (%s) AND source = 'command line') = %s
            THEN %s
            WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = 'streaming_replica') THEN %s
            WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = ANY (%s)) THEN %s END
        """,
        (
            list(_PATRONI_OPTIONS),
            len(_PATRONI_OPTIONS),
            PATRONI,
            CLOUD_NATIVE_PG,
            list(_SERVICE_ROLES),
            MANAGED_SERVICE,
        ),
        lambda rows: rows[0][0],
    )


def account_search_path() -> Statement[tuple[str, str]]:
    """This account and its search path, before a session sets one."""
    return Statement(
        "SELECT current_user::text, reset_val FROM pg_settings WHERE name = 'search_path'",
        (),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def other_tables(known: Sequence[str]) -> Statement[list[str]]:
    """Tables in the schema faultline other than those in `known`."""
    return Statement(
        """
        SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace('faultline')
          AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> ALL (%s)
        ORDER BY 1 LIMIT 10
        """,
        (list(known),),
        lambda rows: [row[0] for row in rows],
    )


@dataclass(frozen=True, slots=True)
class Oversized:
    """Rows larger than today's limits, among the oldest ones."""

    rows: int
    first: str | None  # a description of the first of them
    looked_at_all: bool


def may_read_texts() -> Statement[bool]:
    """Whether this account may read payloads, results and errors."""
    return Statement(
        """
        SELECT has_column_privilege('faultline.jobs', 'payload', 'SELECT')
          AND has_column_privilege('faultline.ledger', 'result', 'SELECT')
          AND has_column_privilege('faultline.attempts_log', 'error', 'SELECT')
        """,
        (),
        lambda rows: bool(rows[0][0]),
    )


def oversized(*, oldest: int) -> Statement[Oversized]:
    """Rows whose text is longer than allowed today, among the oldest of each table.

    Numbers are measured without writing them out, and values that are stored small are skipped.
    """
    return Statement(
        """
        WITH looked AS (
            SELECT p.* FROM (
                SELECT j.id::text AS id, j.payload::jsonb AS value, j.last_error AS text
                FROM faultline.jobs AS j ORDER BY j.id LIMIT %s) AS p
            UNION ALL SELECT p.* FROM (
                SELECT l.job_id::text, l.result, NULL::text
                FROM faultline.ledger AS l ORDER BY l.job_id LIMIT %s) AS p
            UNION ALL SELECT p.* FROM (
                SELECT a.job_id::text, NULL::jsonb, a.error
                FROM faultline.attempts_log AS a ORDER BY a.id LIMIT %s) AS p),
        large AS (
            SELECT id FROM looked WHERE octet_length(text) > 42000
            OR CASE WHEN pg_column_size(value) > 640 OR pg_column_compression(value) IS NOT NULL
                    THEN faultline.json_text_bound(value) > 8388608 END)
        SELECT count(*), min(id), greatest(
            (SELECT count(*) FROM (SELECT FROM faultline.jobs LIMIT %s) AS n),
            (SELECT count(*) FROM (SELECT FROM faultline.ledger LIMIT %s) AS n),
            (SELECT count(*) FROM (SELECT FROM faultline.attempts_log LIMIT %s) AS n)) <= %s
        FROM large
        """,
        (*[oldest] * 3, *[oldest + 1] * 3, oldest),
        lambda rows: Oversized(*rows[0]),
    )


def functions_fingerprint() -> Statement[str | None]:
    """The fingerprint of the functions that `migrate` installed."""
    return Statement(
        "SELECT obj_description(to_regnamespace('faultline'), 'pg_namespace')",
        (),
        lambda rows: rows[0][0],
    )


def connections() -> Statement[tuple[int, int]]:
    """How many connections are used, and how many an ordinary account may use."""
    return Statement(
        """
        SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
            current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true)::int, 0)
        """,
        (),
        lambda rows: (int(rows[0][0]), int(rows[0][1])),
    )


@dataclass(frozen=True, slots=True)
class LongTransaction:
    pid: int
    application: str
    state: str | None
    seconds: float


def long_transactions(*, older_than_seconds: float) -> Statement[list[LongTransaction]]:
    """Sessions whose snapshot or transaction id keeps vacuum from removing rows."""
    return Statement(
        """
        SELECT pid, application_name, state,
            extract(epoch FROM clock_timestamp() - xact_start)::float8 FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
          AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
          AND clock_timestamp() - xact_start > make_interval(secs => %s)
        ORDER BY xact_start LIMIT 10
        """,
        (older_than_seconds,),
        lambda rows: [LongTransaction(*row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    gid: str
    owner: str
    seconds: float


def prepared_transactions() -> Statement[list[PreparedTransaction]]:
    """Prepared transactions that lock Faultline's tables. They outlive a restart."""
    return Statement(
        """
        SELECT p.gid, p.owner, extract(epoch FROM clock_timestamp() - p.prepared)::float8
        FROM pg_prepared_xacts AS p WHERE p.database = current_database() AND EXISTS (
            SELECT FROM pg_locks AS x JOIN pg_locks AS t
            ON t.pid IS NULL AND t.virtualtransaction = x.virtualtransaction
            JOIN pg_class AS c ON c.oid = t.relation
            WHERE x.pid IS NULL AND x.transactionid = p.transaction
            AND c.relnamespace = to_regnamespace('faultline')) ORDER BY p.prepared LIMIT 10
        """,
        (),
        lambda rows: [PreparedTransaction(*row) for row in rows],
    )


@dataclass(frozen=True, slots=True)
class ExpiredLeases:
    count: int
    oldest_seconds: float | None


def expired_leases() -> Statement[ExpiredLeases]:
    return Statement(
        """
        SELECT count(*), extract(epoch FROM clock_timestamp() - min(lease_expires_at))::float8
        FROM faultline.jobs WHERE state = 'running' AND lease_expires_at <= clock_timestamp()
        """,
        (),
        lambda rows: ExpiredLeases(*rows[0]),
    )


def due_by_queue() -> Statement[dict[str, int]]:
    return Statement(
        """
        SELECT queue, count(*) FROM faultline.jobs
        WHERE state = 'queued' AND next_run_at <= clock_timestamp() GROUP BY queue ORDER BY queue
        """,
        (),
        dict,
    )


@dataclass(frozen=True, slots=True)
class SchemaOwner:
    name: str
    can_log_in: bool
    is_us: bool  # this account is the owner, or may act as it


def schema_owner() -> Statement[SchemaOwner]:
    return Statement(
        """
        SELECT r.rolname::text, r.rolcanlogin, pg_has_role(r.oid, 'MEMBER')
        FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.nspname = 'faultline'
        """,
        (),
        lambda rows: SchemaOwner(*rows[0]),
    )


def roles_in_use() -> Statement[list[str]]:
    """The roles of roles.sql that exist and have rights on this database's schema."""
    return Statement(
        """
        SELECT rolname::text FROM pg_roles WHERE rolname = ANY (%s)
          AND has_schema_privilege(oid, to_regnamespace('faultline'), 'USAGE') ORDER BY 1
        """,
        (list(ROLES),),
        lambda rows: [row[0] for row in rows],
    )

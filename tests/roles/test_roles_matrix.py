"""Every role against every function and table: what is not listed here is refused.

The lists are compared with the catalogue, so a new function or table that is not listed fails the test.
Each attempt is made by an account that logs in and has that one role.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.errors import InsufficientPrivilege

from faultline.postgres.migrate import migrate
from tests.conftest import administer, drop_database, url_of
from tests.security.accounts import account

PRODUCER, WORKER = "faultline_producer", "faultline_worker"
INSPECTOR, OPERATOR = "faultline_inspector", "faultline_operator"
ROLES = (PRODUCER, WORKER, INSPECTOR, OPERATOR)
LOOKERS = {INSPECTOR, OPERATOR}

ALLOWED: dict[str, set[str]] = {
    "enqueue": {PRODUCER, WORKER},
    "enqueue_many": {PRODUCER, WORKER},
    "enqueue_jobs": {PRODUCER, WORKER},
    "await_jobs": {PRODUCER, OPERATOR},
    "outcomes": {PRODUCER, OPERATOR},
    "claim": {WORKER},
    "leases_of": {WORKER},
    "heartbeat": {WORKER},
    "assert_fence": {WORKER},
    "open_transaction": {WORKER},
    "close_transaction": {WORKER},
    "open_batch": {WORKER},
    "close_batch": {WORKER},
    "reset_session": {WORKER},
    "commit": {WORKER},
    "commit_many": {WORKER},
    "fail": {WORKER},
    "release": {WORKER},
    "snooze": {WORKER},
    "report_progress": {WORKER},
    "release_after_outage": {WORKER},
    "defer_many": {WORKER},
    "record_rejection": {WORKER},
    "register_worker": {WORKER},
    "drain_worker": {WORKER},
    "report_blocked": {WORKER},
    "lockers_of": {WORKER, INSPECTOR, OPERATOR},
    "end_lapsed_holders": {WORKER, OPERATOR},
    "request_drain": {OPERATOR},
    "deregister_worker": {WORKER},
    "announce_idle": {WORKER},
    "withdraw_idle": {WORKER},
    "channel_of": {WORKER},
    "listen_as": {WORKER},
    "vanished_workers": {WORKER},
    "wake_for_due_jobs": {WORKER},
    "next_expiry": {WORKER},
    "bury_workers": {WORKER},
    "reconcile": {WORKER, OPERATOR},
    "fail_expired": {WORKER, OPERATOR},
    "repair_limits": {WORKER, OPERATOR},
    "declare_limits": {WORKER},
    "set_limit": {OPERATOR},
    "reset_limit": {OPERATOR},
    "clock_setback": {WORKER, OPERATOR},
    "reschedule_stranded": {WORKER, OPERATOR},
    "purge_jobs": {WORKER, OPERATOR},
    "purge_ledger": {WORKER, OPERATOR},
    "purge_audit": {WORKER, OPERATOR},
    "purge_unique_keys": {WORKER, OPERATOR},
    "purge_firings": {WORKER, OPERATOR},
    "declare_schedules": {WORKER},
    "fire_schedule": {WORKER},
    "plan_schedule": {WORKER},
    "report_schedule_error": {WORKER},
    "undeclared_schedules": {WORKER, *LOOKERS},
    "add_schedule": set(),  # an operator who may enqueue too: tests/roles/test_roles.py
    "pause_schedule": {OPERATOR},
    "resume_schedule": {OPERATOR},
    "run_schedule": {OPERATOR},
    "remove_schedule": {OPERATOR},
    "record_refusal": {PRODUCER, OPERATOR},
    "cancel": {OPERATOR},
    "retry": {OPERATOR},
    "delete": {OPERATOR},
    "edit_payload": {OPERATOR},
    "cancel_many": {OPERATOR},
    "retry_many": {OPERATOR},
    "delete_many": {OPERATOR},
    "edit_many": {OPERATOR},
    "pause_queue": {OPERATOR},
    "resume_queue": {OPERATOR},
    "create_api_key": {OPERATOR},
    "revoke_api_key": {OPERATOR},
    "touch_api_key": {PRODUCER},
    "bump_epoch": {OPERATOR},
    "epoch_status": set(ROLES),
    "json_text_bound": set(ROLES),
    "queues": {WORKER, *LOOKERS},
    "count_queued": {WORKER, *LOOKERS},
    "estimated_jobs": {WORKER, *LOOKERS},
    "parked_for": {WORKER, *LOOKERS},
    "heads_of": LOOKERS,
    "limits_in_use": {WORKER, *LOOKERS},
    "limit_uses": {WORKER, *LOOKERS},
    "idle_keys": {WORKER, *LOOKERS},
}
# Parts of the other functions, which run as the owner. No role may call them.
INTERNAL = {
    *(
        "fence_violation",
        "is_holder",
        "refuse_stale",
        "enter_ledger",
        "seal_ledger",
        "finish_jobs",
        "running_to_examine",
        "lock_own",
        "lock_job",
    ),
    *("lanes_of", "all_lanes", "recall_deferred", "select_claimable", "fail_unclaimable"),
    "report_unclaimable",
    *(
        "limited_names",
        "limits_of",
        "admit",
        "startable",
        "lock_limit_keys",
        "take_places",
        "rates_of",
        "settle_starts",
    ),
    *("room_of", "lock_first"),
    *("park", "unpark", "unpark_jobs", "wake_later", "resume_waiting", "free_places"),
    *(
        "lock_limits",
        "bind_argument",
        "drop_places",
        "change_limit",
        "apply_limit",
        "fill_limit",
        "bring_starts_forward",
        "waiting_lines",
        *(
            "free_idle_places",
            "forget_waits",
            "resume_lost",
            "parked_page",
            "parked_after",
            "is_parked",
        ),
        *("resume_lines", "forget_keys"),
    ),
    "checked_job_count",
    *("enqueued_under_keys", "insert_jobs", "start_of", "expiry_of", "tags_of"),
    *("enqueue_unique", "unique_key", "canonical_json", "check_unique", "counts_for_key"),
    *("lock_unique_keys", "lock_waiting_holders", "take_free_keys", "take_keys_again"),
    *("insert_unheld", "change_holders"),
    *("wake_at_commit", "notify_idle", "may_notify", "broadcast"),
    *("uuid7", "wake", "notify_waiters", "limit_idling", "first_id_at", "removed_before"),
    *("seconds_from_now", "checked_lease", "checked_delay"),
    *("transaction_mark", "refuse_half_way", "refuse_in_savepoint", "refuse_unfinished"),
    *("batch_id", "refuse_stale_jobs"),
    *("refuse_job_insert", "refuse_job_update", "refuse_ledger_change", "refuse_oversized_result"),
    *("write_audit", "audit_purge", "refuse_audit_change", "audit_many"),
    *("matches", "lock_jobs", "remove_jobs"),
    *("lock_schedule", "find_schedule", "enqueue_firings", "put_schedule", "refuse_firing_change"),
    *("timeline", "server_identity", "current_epoch", "examine_server", "begin_epoch"),
}

EVERYTHING = {"*"}
READABLE: dict[str, dict[str, set[str]]] = {
    "jobs": {
        WORKER: {
            *("id", "task", "queue", "priority", "state", "failed_reason", "next_run_at"),
            *("attempts", "max_attempts", "crashes", "fencing_token", "lease_id", "lease_owner"),
            *("lease_seconds", "lease_expires_at", "claimed_at", "created_at", "finished_at"),
            "expires_at",
        },
        INSPECTOR: EVERYTHING,
        OPERATOR: EVERYTHING,
    },
    "ledger": {
        WORKER: {"job_id", "fencing_token", "lease_id", "worker", "committed_at"},
        INSPECTOR: EVERYTHING,
        OPERATOR: EVERYTHING,
    },
    "attempts_log": {
        WORKER: {
            *("id", "job_id", "attempt", "fencing_token", "worker", "outcome", "claimed_at"),
            "ended_at",
        },
        INSPECTOR: EVERYTHING,
        OPERATOR: EVERYTHING,
    },
    "audit_log": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "open_transactions": {},
    "idle_workers": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "pending_wakes": {},
    "rejections": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "paused_queues": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "deferred_jobs": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "limits": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "limit_arguments": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "limit_states": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "places": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "waiting_jobs": {
        WORKER: {"job_id", "queue", "priority", "due_at"},
        INSPECTOR: EVERYTHING,
        OPERATOR: EVERYTHING,
    },
    "job_progress": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "unique_jobs": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "unique_keys": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "schedules": {
        WORKER: {
            *("name", "cron", "every_seconds", "anchor", "time_zone", "missed", "missed_limit"),
            *("declared_by", "revision", "paused_at", "decided_until", "next_fire_at"),
            *("reanchored_at", "last_error"),
        },
        INSPECTOR: EVERYTHING,
        OPERATOR: EVERYTHING,
    },
    "schedule_firings": {INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "workers": {WORKER: EVERYTHING, INSPECTOR: EVERYTHING, OPERATOR: EVERYTHING},
    "epochs": dict.fromkeys(ROLES, EVERYTHING),
    "migrations": dict.fromkeys(ROLES, EVERYTHING),
    "api_keys": {
        PRODUCER: {"id", "name", "prefix", "key_hash", "scopes", "revoked_at"},
        OPERATOR: {
            *("id", "name", "prefix", "scopes", "created_at", "last_used_at", "revoked_at"),
        },
    },
}

# Statements that bypass the fence, or make it possible to.
BREACHES = (
    "SET session_replication_role = replica",
    "SET ROLE faultline_owner",
    "GRANT faultline_owner TO CURRENT_USER",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "CREATE TABLE faultline.mine ()",
    "CREATE FUNCTION faultline.mine() RETURNS integer LANGUAGE sql RETURN 1",
    "CREATE OR REPLACE FUNCTION faultline.fence_violation(job faultline.jobs, token bigint, lease uuid)"
    " RETURNS text LANGUAGE sql AS 'SELECT NULL'",
    "DROP FUNCTION faultline.refuse_job_update() CASCADE",
    "ALTER FUNCTION faultline.enter_ledger() SECURITY INVOKER",
    "ALTER SCHEMA faultline RENAME TO elsewhere",
    "DROP SCHEMA faultline CASCADE",
    "DROP TRIGGER enter_ledger ON faultline.ledger",
    "CREATE TRIGGER mine BEFORE UPDATE ON faultline.jobs FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE mine AS ON INSERT TO faultline.ledger DO INSTEAD NOTHING",
    "ALTER DOMAIN faultline.payload DROP CONSTRAINT payload_is_an_object",
    "COMMENT ON SCHEMA faultline IS 'functions of another release'",
)


@pytest.fixture(scope="module")
def installed(server_url: str, template: str) -> Iterator[str]:
    """A database with roles, shared by these tests, which change nothing in it."""
    name = f"t_roles_{os.getpid()}_{template[-8:]}"
    administer(server_url, "CREATE DATABASE {} TEMPLATE {}", name, template)
    url = url_of(server_url, name)
    migrate(url, roles=True)
    yield url
    drop_database(server_url, name)


@pytest.fixture(scope="module")
def catalogue(installed: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(installed, autocommit=True) as conn:
        yield conn


@pytest.fixture(scope="module")
def members(installed: str) -> Iterator[dict[str, psycopg.Connection]]:
    """For each role, a session of an account that has only this role."""
    with ExitStack() as stack:
        yield {
            role: stack.enter_context(
                psycopg.connect(stack.enter_context(account(installed, role)), autocommit=True)
            )
            for role in ROLES
        }


def refusal(conn: psycopg.Connection, statement: str) -> InsufficientPrivilege | None:
    """The refusal, or None if the role is allowed to; the attempt is rolled back."""
    with conn.transaction(force_rollback=True):
        try:
            conn.execute(statement.encode())
        except InsufficientPrivilege as refused:
            return refused
        except (errors.SyntaxError, errors.UndefinedFunction, errors.UndefinedTable):
            raise  # not a refusal of rights
        except psycopg.Error:
            return None
    return None


def calls(catalogue: psycopg.Connection) -> dict[str, list[str]]:
    """Of each function by name, a call of each of its forms, with nulls."""
    rows = catalogue.execute(
        "SELECT proname, format('SELECT faultline.%I(%s)', proname, (SELECT string_agg("
        "  format('%sNULL::%s', CASE WHEN provariadic <> 0 AND place = pronargs THEN 'VARIADIC ' END,"
        "  format_type(given, NULL)), ', ' ORDER BY place)"
        "  FROM unnest(proargtypes) WITH ORDINALITY AS t (given, place)))"
        " FROM pg_proc WHERE pronamespace = 'faultline'::regnamespace"
    ).fetchall()
    return {name: [call for other, call in rows if other == name] for name, _ in rows}


def test_every_function_is_classified(catalogue: psycopg.Connection) -> None:
    assert set(calls(catalogue)) == set(ALLOWED) | INTERNAL


@pytest.mark.parametrize("role", ROLES)
def test_a_role_calls_its_own_functions_and_no_others(
    catalogue: psycopg.Connection, members: dict[str, psycopg.Connection], role: str
) -> None:
    called = {
        name
        for name, forms in calls(catalogue).items()
        if any(refusal(members[role], form) is None for form in forms)
    }

    assert called == {name for name, roles in ALLOWED.items() if role in roles}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_what_it_needs_and_nothing_else(
    catalogue: psycopg.Connection, members: dict[str, psycopg.Connection], role: str
) -> None:
    columns = catalogue.execute(
        "SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
        " WHERE c.relnamespace = 'faultline'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p', 'f')"
        " AND a.attnum > 0 AND NOT a.attisdropped"
    ).fetchall()
    assert {table for table, _ in columns} == set(READABLE)

    for table, column in columns:
        wanted = READABLE[table].get(role, set())
        may = wanted == EVERYTHING or column in wanted
        refused = refusal(members[role], f"SELECT {column} FROM faultline.{table} LIMIT 1")
        assert (refused is None) == may, f"{role} and {table}.{column}"


@pytest.mark.parametrize("role", ROLES)
def test_no_role_writes_to_a_table_or_a_sequence_or_touches_a_trigger(
    catalogue: psycopg.Connection, members: dict[str, psycopg.Connection], role: str
) -> None:
    attempts = []
    for table, column in catalogue.execute(
        "SELECT attrelid::regclass::text, max(attname) FROM pg_attribute JOIN pg_class AS c"
        " ON c.oid = attrelid WHERE relkind = 'r' AND relnamespace = 'faultline'::regnamespace"
        " AND attnum > 0 AND attidentity = '' GROUP BY 1"
    ):
        attempts += [
            f"INSERT INTO {table} DEFAULT VALUES",
            f"UPDATE {table} SET {column} = {column}",
            f"DELETE FROM {table}",
            f"TRUNCATE {table} CASCADE",
            f"COPY {table} FROM '/dev/null'",
            f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
            f"ALTER TABLE {table} DISABLE TRIGGER ALL",
            f"ALTER TABLE {table} DISABLE TRIGGER USER",
            f"ALTER TABLE {table} OWNER TO CURRENT_USER",
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"DROP TABLE {table} CASCADE",
            f"CREATE INDEX ON {table} ({column})",
            f"SELECT FROM {table} FOR UPDATE",
        ]
    for table, trigger in catalogue.execute(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger JOIN pg_class AS c ON c.oid = tgrelid"
        " WHERE relnamespace = 'faultline'::regnamespace AND NOT tgisinternal"
    ):
        attempts.append(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
    for (sequence,) in catalogue.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'S'"
        " AND relnamespace = 'faultline'::regnamespace"
    ):
        attempts += [f"SELECT nextval('{sequence}')", f"SELECT setval('{sequence}', 1)"]

    assert len(attempts) > 100
    allowed = [attempt for attempt in attempts if refusal(members[role], attempt) is None]
    assert allowed == []


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("breach", BREACHES)
def test_no_role_can_bypass_the_fence(
    members: dict[str, psycopg.Connection], role: str, breach: str
) -> None:
    assert refusal(members[role], breach) is not None


def test_nothing_in_the_schema_belongs_to_an_account_that_can_log_in(
    catalogue: psycopg.Connection,
) -> None:
    owners = catalogue.execute(
        "SELECT DISTINCT owner::regrole::text, rolcanlogin FROM ("
        " SELECT nspowner FROM pg_namespace WHERE nspname = 'faultline'"
        " UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = 'faultline'::regnamespace"
        " UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'faultline'::regnamespace"
        " UNION ALL SELECT typowner FROM pg_type WHERE typnamespace = 'faultline'::regnamespace"
        " UNION ALL SELECT stxowner FROM pg_statistic_ext"
        "  WHERE stxnamespace = 'faultline'::regnamespace) AS o (owner)"
        " JOIN pg_roles ON pg_roles.oid = owner"
    ).fetchall()

    assert owners == [("faultline_owner", False)]


def test_nothing_in_the_schema_is_open_to_everyone_but_a_function_that_reads_nothing(
    catalogue: psycopg.Connection,
) -> None:
    open_to_everyone = catalogue.execute(
        "SELECT 'function', oid::regprocedure::text"
        " FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))"
        " WHERE pronamespace = 'faultline'::regnamespace AND grantee = 0"
        " UNION ALL SELECT 'relation', oid::regclass::text FROM pg_class, aclexplode(relacl)"
        " WHERE relnamespace = 'faultline'::regnamespace AND grantee = 0"
        " UNION ALL SELECT 'column', attrelid::regclass::text FROM pg_attribute, aclexplode(attacl)"
        " WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'faultline'::regnamespace)"
        " AND grantee = 0"
        " UNION ALL SELECT 'schema', nspname FROM pg_namespace, aclexplode(nspacl)"
        " WHERE nspname = 'faultline' AND grantee = 0"
    ).fetchall()

    # A CHECK of the ledger calls it with the rights of the account that inserts.
    assert open_to_everyone == [("function", "faultline.json_text_bound(jsonb)")]


def test_every_function_that_runs_as_the_owner_has_a_search_path_of_its_own(
    catalogue: psycopg.Connection,
) -> None:
    """Else a caller's path would decide which tables and operators it means."""
    paths = catalogue.execute(
        "SELECT proname, (SELECT split_part(entry, '=', 2) FROM unnest(proconfig) AS entry"
        "  WHERE entry LIKE 'search_path=%%')"
        " FROM pg_proc WHERE pronamespace = 'faultline'::regnamespace AND prosecdef"
    ).fetchall()

    assert len(paths) >= 25
    assert {name for name, path in paths if path != "pg_catalog, pg_temp"} == set()


def test_objects_that_a_caller_creates_do_not_replace_ours(
    members: dict[str, psycopg.Connection], catalogue: psycopg.Connection
) -> None:
    producer = members[PRODUCER]
    with producer.transaction(force_rollback=True):
        producer.execute("CREATE TEMPORARY TABLE jobs (LIKE pg_class)")
        producer.execute(
            "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
            " RETURN '-infinity'::timestamptz"
        )
        producer.execute("SET LOCAL search_path = pg_temp, pg_catalog, faultline")

        row = producer.execute("SELECT job_id FROM faultline.enqueue('task')").fetchone()

        assert row is not None
        assert row[0].int >> 80 > 0  # its id begins with the real time


def test_a_new_account_can_do_nothing(installed: str, catalogue: psycopg.Connection) -> None:
    with account(installed) as url, psycopg.connect(url, autocommit=True) as conn:
        for name, forms in calls(catalogue).items():
            assert all(refusal(conn, form) is not None for form in forms), name
        for table in READABLE:
            statement = sql.SQL("SELECT FROM faultline.{}").format(sql.Identifier(table))
            assert refusal(conn, statement.as_string()) is not None, table

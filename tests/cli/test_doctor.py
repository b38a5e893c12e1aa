"""`faultline doctor` reports problems of server, schema and queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from faultline import embedded
from faultline.cli.doctor import command
from faultline.cli.doctor import queue as queue_checks
from faultline.cli.doctor.check import Check, ok
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import open_session
from faultline.statements.session_settings import Session

from .conftest import Connection, Faultline, Outcome, claim, enqueue, expire, invoke, register


def found(outcome: Outcome, name: str) -> list[dict[str, Any]]:
    return [check for check in outcome.json["checks"] if check["name"] == name]


def level(outcome: Outcome, name: str) -> str:
    [check] = found(outcome, name)
    return str(check["level"])


@pytest.fixture
def configure(conn: Connection, database_url: str) -> Callable[[str], None]:
    def set_for_the_database(setting: str) -> None:
        name = database_url.rsplit("/", 1)[1]
        conn.execute(f"ALTER DATABASE {name} SET {setting}")

    return set_for_the_database


# ── a healthy server ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def healthy_url() -> Iterator[str]:
    """A server with PostgreSQL's default settings; the shared one is not durable."""
    with embedded.temporary_server() as server:
        migrate(server.url)
        yield server.url


def test_a_healthy_server_has_no_problems_and_no_warnings(healthy_url: str) -> None:
    done = invoke(healthy_url, "doctor", "--json")
    assert [check for check in done.json["checks"] if check["level"] != "ok"] == []
    assert done.code == 0
    assert done.json["ok"] is True
    shown = invoke(healthy_url, "doctor").out
    assert shown.endswith("0 problems, 0 warnings\n")
    password = healthy_url.split(":")[2].split("@")[0]
    assert password not in shown


def test_a_missing_schema_is_a_problem_with_the_command_that_installs_it(healthy_url: str) -> None:
    with psycopg.connect(healthy_url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE bare")
    done = invoke(f"{healthy_url.rsplit('/', 1)[0]}/bare", "doctor", "--json")
    assert done.code == 1
    [schema] = found(done, "schema")
    assert (schema["level"], schema["advice"]) == ("problem", "faultline migrate")
    assert level(done, "fsync") == "ok"


# ── weak settings ────────────────────────────────────────────────────────────────────────────────


def test_a_server_without_fsync_is_a_problem(faultline: Faultline) -> None:
    done = faultline("doctor", "--json")
    assert done.code == 1
    assert level(done, "fsync") == "problem"
    assert level(done, "full_page_writes") == "problem"
    assert level(done, "synchronous_commit") == "ok"
    assert "PROBLEM" in faultline("doctor").out
    assert "CORRUPT" in faultline("doctor").out


def test_synchronous_commit_off_is_a_problem(
    faultline: Faultline, configure: Callable[[str], None]
) -> None:
    configure("synchronous_commit = off")
    assert level(faultline("doctor", "--json"), "synchronous_commit") == "problem"


@pytest.mark.parametrize(
    ("setting", "name", "expected"),
    [
        ("default_transaction_isolation = 'serializable'", "isolation", "warning"),
        ("default_transaction_read_only = on", "primary", "warning"),
        ("DateStyle = 'German'", "DateStyle", "warning"),
        ("IntervalStyle = 'iso_8601'", "IntervalStyle", "warning"),
        ("statement_timeout = '2s'", "statement_timeout", "warning"),
        ("lock_timeout = '100ms'", "lock_timeout", "warning"),
        ("idle_session_timeout = '1h'", "idle_session_timeout", "warning"),
        (
            "idle_in_transaction_session_timeout = '5s'",
            "idle_in_transaction_session_timeout",
            "warning",
        ),
    ],
)
def test_a_harmful_default_is_reported_although_our_own_sessions_override_it(
    faultline: Faultline,
    configure: Callable[[str], None],
    setting: str,
    name: str,
    expected: str,
) -> None:
    configure(setting)
    assert level(faultline("doctor", "--json"), name) == expected


def test_timeouts_that_are_long_enough_are_no_warning(
    faultline: Faultline, configure: Callable[[str], None]
) -> None:
    configure("statement_timeout = '10min'")
    assert level(faultline("doctor", "--json"), "timeouts") == "ok"


def test_a_harmful_setting_of_another_account_is_reported_with_its_name(
    faultline: Faultline, conn: Connection, database_url: str
) -> None:
    name = database_url.rsplit("/", 1)[1]
    conn.execute(f"CREATE ROLE worker_{name}")
    try:
        conn.execute(f"ALTER ROLE worker_{name} IN DATABASE {name} SET statement_timeout = '1s'")
        done = faultline("doctor", "--json")
    finally:
        conn.execute(f"DROP ROLE worker_{name}")
    findings = [check["says"] for check in found(done, "settings of a role")]
    assert f"worker_{name} has statement_timeout=1s" in findings


def test_functions_of_another_release_are_a_warning(faultline: Faultline, conn: Connection) -> None:
    conn.execute("COMMENT ON SCHEMA faultline IS 'functions of old'")
    assert level(faultline("doctor", "--json"), "functions") == "warning"


def test_a_newer_schema_is_a_problem(faultline: Faultline, conn: Connection) -> None:
    conn.execute("INSERT INTO faultline.migrations (version, name) VALUES (9999, 'future')")
    assert level(faultline("doctor", "--json"), "schema") == "problem"


# ── daily life ───────────────────────────────────────────────────────────────────────────────────


def test_workers_are_counted_and_a_queue_without_a_worker_is_named(
    faultline: Faultline, conn: Connection
) -> None:
    register(conn, "w", "mail")
    enqueue(conn, queue="mail")
    enqueue(conn, queue="reports")
    done = faultline("doctor", "--json")
    assert found(done, "workers")[0]["says"] == "1 alive"
    [unserved] = found(done, "unserved queue")
    assert "queue reports" in unserved["says"]


def test_a_silent_worker_is_a_warning(faultline: Faultline, conn: Connection) -> None:
    register(conn, "w")
    conn.execute("UPDATE faultline.workers SET last_heartbeat_at = now() - interval '1 hour'")
    [check] = found(faultline("doctor", "--json"), "workers")
    assert (check["level"], check["says"]) == ("warning", "1 silent")
    assert "w" in check["advice"]


def test_expired_leases_are_a_problem_without_live_workers_and_a_warning_otherwise(
    faultline: Faultline, conn: Connection
) -> None:
    job_id = enqueue(conn)
    claim(conn)
    expire(conn, job_id)
    assert level(faultline("doctor", "--json"), "leases") == "problem"
    register(conn, "w")
    assert level(faultline("doctor", "--json"), "leases") == "warning"


def test_an_old_transaction_that_holds_back_vacuum_is_a_warning(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.cli.doctor.server.LONG_TRANSACTION_SECONDS", 0.0)
    with conn.transaction():
        conn.execute("SELECT pg_current_xact_id()")
        done = faultline("doctor", "--json")
    findings = {check["advice"]: check["says"] for check in found(done, "long transaction")}
    assert (
        f"session {conn.info.backend_pid}"
        in findings[f"end it: SELECT pg_terminate_backend({conn.info.backend_pid})"]
    )


def test_the_clocks_are_compared_and_reported_as_irrelevant_to_correctness(
    faultline: Faultline,
) -> None:
    [check] = found(faultline("doctor", "--json"), "clock")
    assert check["level"] == "ok"
    assert "correctness does not depend on it" in check["says"]


def test_a_pooler_is_a_warning_that_names_its_cost(
    faultline: Faultline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind_a_pooler(url: str, *, application_name: str) -> tuple[Any, Session]:
        conn, _ = open_session(url, application_name=application_name)
        return conn, Session(is_standby=False, is_pooled=True, settings=None)

    monkeypatch.setattr(command, "open_session", behind_a_pooler)
    [check] = found(faultline("doctor", "--json"), "pooler")
    assert check["level"] == "warning"
    assert "only when its lease runs out" in check["says"]


def test_a_check_that_is_not_allowed_does_not_stop_the_others(
    faultline: Faultline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(conn: Connection) -> Iterator[Check]:
        conn.execute("SET ROLE pg_monitor")
        conn.execute("SELECT * FROM faultline.jobs")
        yield ok("never", "reached")

    def back(conn: Connection) -> Iterator[Check]:
        conn.execute("RESET ROLE")
        yield ok("back", "again")

    monkeypatch.setattr(command, "SERVER_CHECKS", (forbidden, back))
    done = faultline("doctor", "--json")
    [check] = found(done, "forbidden")
    assert check["level"] == "warning"
    assert "permission denied" in check["says"]
    assert level(done, "back") == "ok"


def test_an_unreachable_server_is_one_problem_that_hides_the_password() -> None:
    done = invoke("postgresql://ada:hunter2@127.0.0.1:1/db", "doctor", "--json")
    assert done.code == 1
    assert [check["name"] for check in done.json["checks"]] == ["connection"]
    assert "hunter2" not in done.out
    assert "127.0.0.1" in done.out


# ── rows that are older than the size limits ─────────────────────────────────────────────────────


def test_rows_over_todays_size_limits_are_found_at_a_bounded_cost(
    faultline: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine, payload, error = (enqueue(conn) for _ in range(3))
    [check] = found(faultline("doctor", "--json"), "stored sizes")
    assert check["level"] == "ok"
    assert check["says"] == "no row with more text than may be stored today"
    conn.execute("SET session_replication_role = replica")
    conn.execute("ALTER DOMAIN faultline.payload DROP CONSTRAINT payload_is_at_most_8_mib")
    conn.execute("ALTER TABLE faultline.jobs DROP CONSTRAINT texts_are_within_limits")
    numbers = ",".join(["1e131000"] * 9000)  # 34 kB, and 1.2 GB as text
    for job_id, column, value in (
        (payload, "payload", f'{{"a": [{numbers}]}}'),
        (error, "last_error", "x" * 50_000),
        (fine, "last_error", "x" * 10_000),
    ):
        conn.execute(f"UPDATE faultline.jobs SET {column} = %s WHERE id = %s", [value, job_id])
    [check] = found(faultline("doctor", "--json"), "stored sizes")
    assert check["level"] == "warning"
    assert check["says"].startswith("2 rows with more text than may be stored today")
    assert str(payload) in check["says"]

    monkeypatch.setattr(queue_checks, "OLDEST_ROWS", 1)
    [check] = found(faultline("doctor", "--json"), "stored sizes")
    assert check["level"] == "ok"
    assert "among the oldest 1 rows" in check["says"]

"""Sessions: which URLs are accepted, what errors say, and what a fork inherits."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from faultline import DatabaseUnavailable, InvalidInput, SchemaMismatch, StaleLease, errors
from faultline.config import WorkerSettings
from faultline.postgres.errors import (
    is_connection_lost,
    is_serialization_conflict,
    pool_errors,
    translate,
)
from faultline.postgres.sessions import connect, connect_options, open_session, run
from faultline.postgres.url import redact
from faultline.statements.statement import Statement
from tests.running import Connection, value
from tests.waiting import wait_until


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host:1/db",
        "postgres://me:hunter2@host/db?sslmode=require",
        "postgresql://:hunter2@host/db",
        "postgresql://me:hunter2%40x@host/db",
        "postgresql://me:hunter2/x@host/db",
        "postgresql://host/db?connect_timeout=1&user=me&password=hunter2",
        "postgresql://host/db?password=hunter2&user=me",
        "host=h user=me password=hunter2 dbname=db",
        "host=h password = 'hunter2 and more' dbname=db",
        "host=h password='it\\'s hunter2' dbname=db",
        "host=h password=so\\ hunter2 dbname=db",
        "host=h sslpassword=hunter2",
        'connection to "postgresql://me:hunter2@host/db" failed',
        "postgresql://me:hunter2@127.0.0.1:1,127.0.0.1:2/db",
        "postgresql://me:hunter2/db",  # the host was forgotten
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    assert "hunter2" not in redact(url)
    with pytest.raises((InvalidInput, DatabaseUnavailable)) as caught:
        connect(url.replace("host/", "127.0.0.1:1/").replace("host=h", "host=127.0.0.1 port=1"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgres://me:secret@host/db?sslmode=require", "postgresql://me@host/db"),
        ("host=h dbname=db user=me password=secret", "postgresql://me@h/db"),
        ("dbname=d", "postgresql://localhost/d"),
        ("postgresql://me@a:1,b:2/db", "postgresql://me@a:1,b:2/db"),
        ("host=a,b port=5432 dbname=db", "postgresql://a:5432,b:5432/db"),
        ("postgresql://me@10.0.0.1,10.0.0.2/db", "postgresql://me@10.0.0.1,10.0.0.2/db"),
        ("postgresql://me@a:1,b/db", "postgresql://me@a:1,b/db"),
        ("host=/var/run dbname=d", "postgresql:///var/run/d"),
    ],
)
def test_the_server_of_a_url_is_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_every_form_of_a_url_reaches_the_same_database(database_url: str) -> None:
    parts = urlsplit(database_url)
    name = parts.path.lstrip("/")
    secret = f" password={parts.password}" if parts.password else ""
    where = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    forms = [
        database_url,
        database_url.replace("postgresql://", "postgres://"),
        " ".join(f"{key}={given}" for key, given in where.items()) + f" dbname={name}{secret}",
        f"postgresql:///{name}?" + "&".join(f"{key}={given}" for key, given in where.items()),
    ]
    if parts.password:
        forms[-1] += f"&password={parts.password}"
    for form in forms:
        with connect(form) as conn:
            assert value(conn, "SELECT current_database()") == name


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/db", "postgresql://[::1/db", "host"])
def test_text_that_is_not_a_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="not a database URL"):
        connect_options(url, application_name="test")


def test_the_users_own_options_win_and_dead_peers_are_noticed() -> None:
    options = connect_options(
        "postgresql://host/db?connect_timeout=3&application_name=mine", application_name="ours"
    )
    assert (options["connect_timeout"], options["application_name"]) == ("3", "mine")
    assert options["tcp_user_timeout"] == "15000"
    assert options["autocommit"] is True


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://a:1,b:2/db",
        "host=a,b port=5432 dbname=db",
        "hostaddr=127.0.0.1,127.0.0.2 dbname=db",
    ],
)
def test_of_several_servers_a_silent_one_is_not_waited_for_as_long_as_a_lease(url: str) -> None:
    several = connect_options(url, application_name="test")
    assert several["target_session_attrs"] == "primary"
    assert 2 * int(several["connect_timeout"]) < WorkerSettings().lease_seconds / 2
    alone = connect_options("postgresql://a/db", application_name="test")
    assert int(alone["connect_timeout"]) > int(several["connect_timeout"])
    assert alone["target_session_attrs"] == "primary"  # one name may lead to several servers
    reader = connect_options("postgresql://a/db", application_name="test", needs_primary=False)
    assert "target_session_attrs" not in reader
    joint = "?" if "://" in url else " "
    given = connect_options(f"{url}{joint}connect_timeout=7", application_name="test")
    assert given["connect_timeout"] == "7"


def test_a_server_that_does_not_answer_is_skipped(database_url: str) -> None:
    parts = urlsplit(database_url)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepted by the kernel, never answered
        hosts = f"127.0.0.1:{silent.getsockname()[1]},{parts.hostname}:{parts.port}"
        account = parts.netloc.rpartition("@")[0]
        url = parts._replace(netloc=f"{account}@{hosts}").geturl()
        with connect(url) as conn:
            assert conn.info.port == parts.port
            assert value(conn, "SELECT 42") == 42


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(DatabaseUnavailable) as caught:
        connect("postgresql://me:hunter2@127.0.0.1:1/db")
    assert "postgresql://me@127.0.0.1:1/db" in str(caught.value)
    assert caught.value.hint is not None


def test_a_pool_that_gave_up_waiting_says_what_that_means() -> None:
    with (
        pytest.raises(
            DatabaseUnavailable, match="cannot connect to PostgreSQL at postgresql://me@host"
        ),
        pool_errors("postgresql://me:hunter2@host/db"),
    ):
        raise PoolTimeout("couldn't get a connection after 15.00 sec")


def test_a_session_has_our_settings_whatever_the_server_defaults_to(
    conn: Connection, database_url: str
) -> None:
    name = conn.info.dbname
    conn.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    conn.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'")
    ours, session = open_session(database_url, application_name="ours")
    with ours:
        assert session.is_pooled is False
        assert value(ours, "SHOW transaction_isolation") == "read committed"
        assert value(ours, "SHOW timezone") == "UTC"
        assert value(ours, "SHOW application_name") == "ours"


# ── errors ───────────────────────────────────────────────────────────────────────────────────────

RAISED = {
    "FL001": errors.StaleLease,
    "FL002": errors.IllegalTransition,
    "FL003": errors.TokenViolation,
    "FL004": errors.IdempotencyConflict,
    "FL005": errors.InvalidInput,
    "FL006": errors.UnknownJob,
    "FL012": errors.UnknownLimit,
    "FL007": errors.FenceNotHeld,
}


def raising(sqlstate: str, detail: str = "") -> Statement[None]:
    body = f"RAISE EXCEPTION 'refused' USING ERRCODE = '{sqlstate}', HINT = 'do this'"
    more = f", DETAIL = '{detail}'" if detail else ""
    sql = f"DO $$BEGIN {body}{more}; END$$"
    return Statement(sql, (), lambda rows: None)


@pytest.mark.parametrize("sqlstate", RAISED)
def test_each_code_of_the_protocol_is_an_exception_of_its_own(
    conn: Connection, sqlstate: str
) -> None:
    with pytest.raises(errors.FaultlineError) as caught:
        run(conn, raising(sqlstate))
    assert type(caught.value) is RAISED[sqlstate]
    assert isinstance(caught.value.__cause__, psycopg.Error)
    if sqlstate != "FL001":
        assert str(caught.value) == "refused (do this)"


def test_a_stale_lease_error_has_the_details_of_the_database(conn: Connection) -> None:
    detail = '{"reason": "token_mismatch", "job_id": "j", "stale_token": 1, "current_token": 2}'
    with pytest.raises(StaleLease) as caught:
        run(conn, raising("FL001", detail))
    error = caught.value
    assert (error.reason, error.job_id) == ("token_mismatch", "j")
    assert (error.stale_token, error.current_token) == (1, 2)


def test_a_missing_schema_is_reported_as_missing(empty_database_url: str) -> None:
    with connect(empty_database_url) as conn, pytest.raises(SchemaMismatch, match="migrate"):
        run(conn, Statement("SELECT faultline.uuid7()", (), lambda rows: None))


def test_the_users_own_errors_are_left_to_the_driver(conn: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        run(conn, Statement("SELECT FROM nowhere", (), lambda rows: None))
    assert translate(psycopg.errors.DivisionByZero()) is None


def test_lost_connections_and_conflicts_are_told_apart() -> None:
    assert is_connection_lost(psycopg.OperationalError("server closed the connection"))
    assert is_connection_lost(psycopg.errors.AdminShutdown())
    assert not is_connection_lost(psycopg.errors.SerializationFailure())
    assert not is_connection_lost(ValueError())
    assert is_serialization_conflict(psycopg.errors.SerializationFailure())
    assert is_serialization_conflict(psycopg.errors.DeadlockDetected())
    assert not is_serialization_conflict(psycopg.errors.UniqueViolation())


# ── forks ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_can_neither_use_nor_end_its_parents_sessions(database_url: str) -> None:
    ours = connect(database_url)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ours.execute("SELECT 1")
        except psycopg.Error:
            status = 0
        finally:
            ours.close()
            os._exit(status)
    _, code = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(code) == 0
    assert value(ours, "SELECT 42") == 42
    ours.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_dead_parents_sessions_alive(
    conn: Connection, database_url: str
) -> None:
    """The server notices that the parent's socket was closed without a Terminate."""
    ours = connect(database_url)
    our_end, childs_end = socket.socketpair()
    child = os.fork()
    if child == 0:
        childs_end.sendall(b"here")
        childs_end.recv(1)
        os._exit(0)
    our_end.recv(4)
    pid = ours.info.backend_pid
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, ours.fileno())
    os.close(nowhere)
    session = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    try:
        wait_until(lambda: value(conn, session, pid) == 0, "the end of the session")
    finally:
        our_end.sendall(b"x")
        os.waitpid(child, 0)
        ours.close()
        our_end.close()
        childs_end.close()

"""Errors of connections, URLs and missing rights say what to do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from faultline import Faultline as App
from faultline.config import WorkerSettings
from faultline.errors import DatabaseUnavailable, FaultlineError, InvalidInput
from faultline.postgres.connection_failures import unavailable
from faultline.postgres.sessions import connect
from faultline.postgres.url import without_driver
from faultline.workers import Worker

from .conftest import Connection, Faultline, enqueue, invoke


def changed(url: str, *, user: str | None = None, path: str | None = None) -> str:
    """The URL with another account, or another database."""
    parts = urlsplit(url)
    if user is not None:
        parts = parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}")
    if path is not None:
        parts = parts._replace(path=path)
    return parts.geturl()


@pytest.fixture
def guest(empty_database_url: str) -> Iterator[str]:
    """The name of an account that may connect, and do nothing else."""
    name = f"guest_{empty_database_url.rsplit('/', 1)[1]}"
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'guest'")
        yield name
        admin.execute(f"DROP OWNED BY {name}")
        admin.execute(f"DROP ROLE {name}")


def refusal(url: str) -> FaultlineError:
    return invoke(url, "queues").refused("database_unavailable")


def test_a_missing_database_is_named_with_the_command_that_creates_it(database_url: str) -> None:
    refused = refusal(changed(database_url, path="/nowhere"))
    url = urlsplit(database_url)
    assert 'there is no database "nowhere" on this server' in refused.message
    command = f"createdb -h 127.0.0.1 -p {url.port} -U {url.username} nowhere"
    assert refused.hint == f"create it, or correct the URL: {command}"


def test_a_wrong_password_is_reported_as_such(database_url: str, guest: str) -> None:
    refused = refusal(changed(database_url, user=f"{guest}:wrong"))
    assert f'does not accept this password for the account "{guest}"' in refused.message
    assert refused.hint == "correct the account and the password in DATABASE_URL"
    assert "wrong" not in refused.message


def test_a_missing_password_is_reported_as_such(database_url: str, guest: str) -> None:
    assert "none is given" in refusal(changed(database_url, user=guest)).message


@pytest.mark.parametrize("process", ["worker", "reconciler", "api", "inspector serve"])
@pytest.mark.parametrize("wrong", [{"path": "/nowhere"}, {"user": "nobody"}])
def test_a_process_that_can_never_connect_ends_at_its_start(
    database_url: str, process: str, wrong: dict[str, str]
) -> None:
    """Waiting would hide a mistake in the URL: the server itself is there."""
    url = changed(database_url, **wrong)
    refused = invoke(url, *process.split(), app="tests.cli.shop:app")
    assert refused.code == 1
    assert refused.refused("database_unavailable").hint


def test_a_worker_whose_server_came_up_without_the_database_ends(database_url: str) -> None:
    url = changed(database_url, path="/nowhere")
    with pytest.raises(DatabaseUnavailable, match="there is no database"):
        asyncio.run(Worker(App(url), WorkerSettings()).run())


def test_of_several_hosts_one_that_is_away_may_have_the_database(database_url: str) -> None:
    parts = urlsplit(changed(database_url, path="/nowhere"))
    both = parts._replace(netloc=f"{parts.netloc},127.0.0.1:1").geturl()
    for url, needs_correction in ((parts.geturl(), True), (both, False)):
        with pytest.raises(DatabaseUnavailable) as refused:
            connect(url)
        assert refused.value.needs_correction is needs_correction


def test_a_server_that_does_not_run_is_reported_as_such() -> None:
    refused = refusal("postgresql://127.0.0.1:1/db")
    assert "no server is running there" in refused.message
    assert str(refused.hint).startswith("start PostgreSQL, or correct host and port")


def test_a_socket_that_does_not_exist_means_that_no_server_runs() -> None:
    assert "no server is running there" in refusal("host=/nonexistent dbname=db").message


def test_an_unknown_host_is_reported_as_such() -> None:
    refused = refusal("postgresql://no-such-host.invalid/db")
    assert "the host's name cannot be resolved" in refused.message
    assert str(refused.hint).startswith("correct the host")


@pytest.mark.parametrize(
    ("message", "says", "hint"),
    [
        ('FATAL: role "ada" does not exist', 'no account "ada"', 'CREATE ROLE "ada" LOGIN'),
        ('FATAL: role "ada" is not permitted to log in', "may not log in", 'ROLE "ada" LOGIN'),
        ("FATAL: no pg_hba.conf entry for host", "no pg_hba.conf entry", "add an entry"),
        ("FATAL: sorry, too many clients already", "in use", "max_connections"),
        ("FATAL: the database system is starting up", "starting", "try again"),
        ("connection timeout expired", "does not answer", "firewall"),
        ('FATAL: permission denied for database "d"', "may not connect", "GRANT CONNECT"),
        ("server does not support SSL, but SSL was required", "TLS", "sslmode"),
        ("FATAL: eine Meldung", "FATAL: eine Meldung", "the server's log"),
    ],
)
def test_each_cause_has_its_own_hint(message: str, says: str, hint: str) -> None:
    error = unavailable("postgresql://ada:secret@host/db", message)
    assert says in error.message
    assert hint in str(error.hint)
    assert "secret" not in str(error)


def test_of_several_hosts_every_failure_is_shown() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"port 1 failed.*port 2 failed"):
        connect("postgresql://127.0.0.1:1,127.0.0.1:2/db")


def test_the_advice_of_doctor_is_not_to_run_doctor() -> None:
    for url in ("postgresql://127.0.0.1:1/db", "postgresql://no-such-host.invalid/db"):
        done = invoke(url, "doctor")
        assert done.code == 1
        assert "→" in done.out
        assert "faultline doctor" not in done.out


# ── migrate without rights ───────────────────────────────────────────────────────────────────────


def test_migrate_without_rights_names_the_grant_on_the_database(
    empty_database_url: str, guest: str
) -> None:
    name = empty_database_url.rsplit("/", 1)[1]
    refused = invoke(changed(empty_database_url, user=f"{guest}:guest"), "migrate").refused(
        "database_refused"
    )
    assert f'GRANT CREATE ON DATABASE "{name}" TO "{guest}"' in str(refused.hint)
    assert "owns the database" in str(refused.hint)
    assert "faultline_worker" not in str(refused)


def test_the_grant_that_migrate_names_is_enough(empty_database_url: str, guest: str) -> None:
    url = changed(empty_database_url, user=f"{guest}:guest")
    hint = str(invoke(url, "migrate").refused("database_refused").hint)
    [grant] = re.findall(r"GRANT .*", hint)
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute(grant)
        try:
            assert "the schema is at version" in invoke(url, "migrate").out
        finally:
            admin.execute("DROP SCHEMA IF EXISTS faultline CASCADE")


def test_migrate_by_another_account_names_the_owner_of_the_schema(
    empty_database_url: str, guest: str
) -> None:
    invoke(empty_database_url, "migrate")
    owner = urlsplit(empty_database_url).username
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute("COMMENT ON SCHEMA faultline IS 'functions of another release'")
        admin.execute(f"GRANT USAGE ON SCHEMA faultline TO {guest}")
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA faultline TO {guest}")
    refused = invoke(changed(empty_database_url, user=f"{guest}:guest"), "migrate").refused(
        "database_refused"
    )
    assert f'the account that owns the schema, "{owner}"' in str(refused.hint)


def test_migrate_with_roles_keeps_the_hint_about_roles(empty_database_url: str, guest: str) -> None:
    url = changed(empty_database_url, user=f"{guest}:guest")
    refused = invoke(url, "migrate", "--roles").refused("database_refused")
    assert "superuser" in str(refused.hint)
    assert "GRANT CREATE ON DATABASE" not in str(refused.hint)


# ── URLs ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "scheme",
    [
        "postgres",
        "postgresql+psycopg",
        "postgresql+psycopg2",
        "postgresql+asyncpg",
        "postgres+asyncpg",
        "postgresql+psycopg_async",
    ],
)
def test_urls_with_a_driver_are_accepted(database_url: str, conn: Connection, scheme: str) -> None:
    enqueue(conn)
    url = database_url.replace("postgresql://", f"{scheme}://")
    assert invoke(url, "queues").out.splitlines()[1].split()[0] == "default"
    assert invoke(url, "doctor").error is None


def test_only_the_driver_is_dropped() -> None:
    url = "postgresql+asyncpg://u:p+asyncpg://@h/d?application_name=postgresql+psycopg"
    assert without_driver(url) == url.replace("postgresql+asyncpg://u", "postgresql://u")


@pytest.mark.parametrize(
    ("url", "says", "hint"),
    [
        ("mysql://u:secret@h/d", "begins with mysql://", "postgresql://user:password@host"),
        ("sqlite+aiosqlite:///x.db", "begins with sqlite+aiosqlite://", "postgresql://"),
        ("jdbc:postgresql://h/d", "begins with jdbc:postgresql://", "postgresql://"),
        ("postgresql+asyncpg://u:secret@h/d?ssl=require", "no option 'ssl'", "sslmode=require"),
        ("postgresql://u:secret@h/d?pool_size=5", "no option 'pool_size'", "leave it out"),
        ("postgresql://u:sec@ret@h/d", "it cannot be read", "%40"),
        ("secret", "it cannot be read", "postgresql://user:password@host"),
    ],
)
def test_another_url_is_refused_with_the_right_form(url: str, says: str, hint: str) -> None:
    refused = invoke(url, "queues").refused("invalid_input")
    assert isinstance(refused, InvalidInput)
    assert says in refused.message
    assert hint in str(refused.hint)
    assert "secret" not in str(refused)
    assert "sec@ret" not in str(refused)


# ── queues ───────────────────────────────────────────────────────────────────────────────────────


def test_a_count_that_is_not_known_is_empty(faultline: Faultline, conn: Connection) -> None:
    """Succeeded jobs of a large table that was never analyzed are not counted."""
    conn.execute("ALTER TABLE faultline.jobs SET (autovacuum_enabled = off)")
    enqueue(conn)
    conn.execute(
        "SELECT faultline.enqueue_many('t', array_fill(%s::jsonb, ARRAY[2000]))",
        ['{"text": "' + "x" * 1500 + '"}'],
    )
    output = faultline("queues").out
    assert "?" not in output
    assert output.splitlines()[1].split()[0] == "default"

"""The whole product, each process under an account with only its own role."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson
import psycopg
import pytest
from psycopg import conninfo, sql
from psycopg.errors import InsufficientPrivilege

from faultline import Faultline
from faultline.errors import DatabaseRefused
from faultline.postgres.migrate import MIGRATION_LOCK, roles_sql
from faultline.postgres.sessions import run as run_statement
from faultline.statements import protocol
from tests.cli.conftest import invoke
from tests.conftest import administer, drop_database, url_of
from tests.loopback import own_address
from tests.security.accounts import EVERY_ROLE, account
from tests.security.services import APP, METRICS_PORT, Service, run, services, wait_while_running

ROLES_OF = {
    "migrator": ("faultline_owner",),
    "api": ("faultline_producer", "faultline_inspector", "faultline_operator"),
    "producer": ("faultline_producer",),
    "worker": ("faultline_worker",),
    "reconciler": ("faultline_worker",),
    "inspector": ("faultline_inspector",),
    "operator": ("faultline_operator",),
}

SESSIONS = (
    "SELECT DISTINCT application_name, usename FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'faultline %'"
)


@dataclass(frozen=True)
class Installation:
    admin: str
    urls: dict[str, str]  # by the process

    def user(self, process: str) -> str:
        return str(conninfo.conninfo_to_dict(self.urls[process])["user"])

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.admin, autocommit=True) as conn:
            return conn.execute(query.encode()).fetchall()


@pytest.fixture(scope="module")
def installation(server_url: str, run_facts: tuple[str, str]) -> Iterator[Installation]:
    """Set up as docs/security.md says, and migrated by the account for that."""
    name = f"t_accounts_{os.getpid()}_{run_facts[1]}"
    administer(server_url, "CREATE DATABASE {}", name)
    admin = url_of(server_url, name)
    with psycopg.connect(server_url) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        conn.execute(roles_sql().encode())  # here is no schema: it only makes the roles
    with ExitStack() as stack:
        stack.callback(drop_database, server_url, name)
        urls = {
            process: stack.enter_context(account(admin, *roles, name=process))
            for process, roles in ROLES_OF.items()
        }
        made = Installation(admin, urls)
        with psycopg.connect(admin, autocommit=True) as conn:
            for process, statement in (
                ("migrator", f"GRANT CREATE ON DATABASE {name} TO {{}}"),
                ("worker", "GRANT INSERT ON public.payments TO {}"),
            ):
                if process == "worker":
                    conn.execute("CREATE TABLE public.payments (invoice integer PRIMARY KEY)")
                who = sql.Identifier(made.user(process))
                conn.execute(sql.SQL(statement).format(who))
        migrated = run(["migrate", "--roles"], {"DATABASE_URL": urls["migrator"]})
        assert migrated.returncode == 0, migrated.stderr
        yield made


@pytest.fixture
def start() -> Iterator[Callable[..., Service]]:
    with services() as start_one:
        yield start_one


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=30) as opened:
        yield opened


@pytest.mark.slow
def test_jobs_succeed_with_every_process_under_its_own_account(
    installation: Installation, start: Callable[..., Service], client: httpx2.Client
) -> None:
    urls = installation.urls
    # The account of the API has every right that a key can have; an operator alone may not enqueue.
    denied = invoke(urls["operator"], "keys", "create", "ci", "-s", "enqueue")
    assert "may not make a key with the scope enqueue" in str(denied.error)
    made = invoke(urls["api"], "keys", "create", "ci", "-s", "enqueue", "-s", "read", "--json")
    client.headers["Authorization"] = f"Bearer {made.json['key']}"
    metrics = own_address()
    api = start("api", "--port", "0", DATABASE_URL=urls["api"])
    narrow = start("api", "--port", "0", DATABASE_URL=urls["producer"])
    inspector = start("inspector", "serve", "--port", "0", DATABASE_URL=urls["inspector"])
    served = ("--metrics-host", metrics, "--metrics-port", str(METRICS_PORT))
    reconciler = start("reconciler", *served, DATABASE_URL=urls["reconciler"])
    worker_words = ("--app", APP, "worker", "--no-reconciler")
    first = start(*worker_words, DATABASE_URL=urls["worker"])
    processes = (api, inspector, reconciler)

    def enqueue(**payload: Any) -> str:
        body = {"task": "shop.charge", "payload": payload, "max_attempts": 2}
        sent = client.post(f"{api.address()}/jobs", json=body)
        assert sent.status_code == 201, sent.text
        return str(sent.json()["job_id"])

    # One worker is killed in the middle of its job, inside its transaction, and another takes over.
    lost = enqueue(invoice=2, stuck_at_first=True)
    running = f"SELECT FROM faultline.jobs WHERE id = '{lost}' AND state = 'running'"
    wait_while_running(lambda: bool(installation.ask(running)), first, *processes)
    there = {("faultline api", installation.user("api"))}
    there |= {("faultline reconciler", installation.user("reconciler"))}
    wait_while_running(lambda: there <= set(installation.ask(SESSIONS)), first, *processes)
    who = installation.ask(SESSIONS)
    with suppress(ProcessLookupError):
        os.kill(first.pid, signal.SIGKILL)
    second = start(*worker_words, DATABASE_URL=urls["worker"])
    plain = enqueue(invoice=1)
    ended = (
        f"SELECT FROM faultline.ledger WHERE job_id IN ('{plain}', '{lost}') HAVING count(*) = 2"
    )
    wait_while_running(lambda: bool(installation.ask(ended)), second, *processes)

    assert installation.ask("SELECT invoice FROM public.payments ORDER BY 1") == [(1,), (2,)]
    ends = f"SELECT outcome FROM faultline.attempts_log WHERE job_id IN ('{plain}', '{lost}')"
    assert installation.ask(ends) == [("worker_lost",)]
    job = client.get(f"{api.address()}/jobs/{plain}").json()
    assert (job["state"], job["payload"]) == ("succeeded", {"invoice": 1})

    # An API under a producer's account takes jobs, and cannot show them whatever the key may.
    again = client.post(f"{narrow.address()}/jobs", json={"task": "shop.charge", "queue": "aside"})
    assert again.status_code == 201, again.text
    assert client.get(f"{narrow.address()}/ready").status_code == 200
    refused = client.get(f"{narrow.address()}/jobs/{plain}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_refused")
    assert "permission denied" not in refused.text
    seen = client.get(f"{inspector.address()}/api/jobs/{lost}").json()
    assert (seen["state"], seen["attempts"]) == ("succeeded", 2)
    page = f"http://{metrics}:{METRICS_PORT}/metrics"
    wait_while_running(lambda: "faultline_queue_jobs{" in client.get(page).text, reconciler)
    accounts = {process: installation.user(process) for process in urls}
    assert {name for _, name in who} <= set(accounts.values())
    assert accounts["worker"] in {name for _, name in who}


@pytest.mark.slow
def test_an_operators_commands_work_under_an_operators_account(installation: Installation) -> None:
    operator, inspector = installation.urls["operator"], installation.urls["inspector"]
    producer = Faultline(installation.urls["producer"])
    placed = producer.execute(
        protocol.enqueue("shop.charge", {"invoice": 9}, queue="aside", priority=5, max_attempts=1)
    )
    producer.close()
    job = str(placed.job_id)

    def answers(url: str, *words: str) -> str:
        done = invoke(url, *words)
        assert (done.code, done.error) == (0, None), (words, done)
        return done.out

    for words in (
        ("jobs", "cancel", job),
        ("jobs", "retry", job),
        ("queues", "pause", "aside"),
        ("queues", "resume", "aside"),
        ("keys", "list"),
        ("drain", "--all"),
        ("purge", "--dry-run"),
    ):
        answers(operator, *words)
    for url in (operator, inspector):
        assert job in answers(url, "jobs", "show", job)
        assert orjson.loads(answers(url, "why", job, "--json"))["code"]
        assert orjson.loads(answers(url, "verify", "--json"))["ok"]
        answers(url, "queues")
        answers(url, "epoch", "show")
        doctor = orjson.loads(invoke(url, "doctor", "--json").out)["checks"]
        unseen = [check for check in doctor if "could not be checked" in check["says"]]
        assert unseen == []


def said_by_doctor(url: str) -> dict[str, tuple[str, str]]:
    checks = orjson.loads(invoke(url, "doctor", "--json").out)["checks"]
    return {check["name"]: (check["level"], check["says"]) for check in checks}


def test_doctor_names_the_accounts_that_could_disable_the_fence(
    installation: Installation, database_url: str
) -> None:
    worker, migrator = (said_by_doctor(installation.urls[name]) for name in ("worker", "migrator"))
    assert worker["roles"][0] == migrator["roles"][0] == "ok"
    assert worker["roles"][1].endswith("the schema belongs to faultline_owner")
    assert worker["account"][1].endswith("neither a superuser nor the owner")
    assert "could disable the fence" in migrator["account"][1]
    assert worker["encryption"] == ("ok", "none, but the connection does not leave this machine")

    with psycopg.connect(database_url, autocommit=True) as conn:  # as an earlier release left it
        conn.execute(f"GRANT USAGE ON SCHEMA faultline TO {', '.join(EVERY_ROLE)}".encode())
    assert said_by_doctor(database_url)["roles"][0] == "warning"


def test_a_producer_enqueues_and_reads_nothing(installation: Installation) -> None:
    app = Faultline(installation.urls["producer"])
    placed = app.execute(
        protocol.enqueue("shop.charge", {"invoice": 8}, queue="aside", priority=5, max_attempts=1)
    )
    with pytest.raises(DatabaseRefused, match="42501"):
        app.get(placed.job_id)
    with pytest.raises(DatabaseRefused, match="42501"):
        app.cancel(placed.job_id)
    with pytest.raises(DatabaseRefused, match="42501"):
        app.queues()
    app.close()


def test_a_workers_account_reads_no_payload_but_by_claiming(installation: Installation) -> None:
    with psycopg.connect(installation.urls["worker"], autocommit=True) as conn:
        with pytest.raises(InsufficientPrivilege):
            conn.execute("SELECT payload FROM faultline.jobs")
        with pytest.raises(InsufficientPrivilege):
            conn.execute("SELECT * FROM faultline.ledger")
        run_statement(
            conn, protocol.enqueue("t", {"a": 1}, queue="own", priority=5, max_attempts=1)
        )
        [claim] = run_statement(conn, protocol.claim("w", ["own"], batch_size=1, lease_seconds=60))
        assert run_statement(conn, protocol.leases_of("w")) == [claim]

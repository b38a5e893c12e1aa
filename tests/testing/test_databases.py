"""Databases for tests are equal and independent, and dropped afterwards."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import Any

import psycopg
import pytest

from faultline import Faultline, Job
from faultline.testing import Databases, Outside, TokenRefused, temporary_database, using
from faultline.testing.databases import SERVER_VARIABLE, name_of, url_of


def exists(server_url: str, name: str) -> bool:
    with psycopg.connect(server_url) as conn:
        found = conn.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone()
    return found is not None


def names_like(server_url: str, prefix: str) -> list[str]:
    with psycopg.connect(server_url) as conn:
        found = conn.execute("SELECT datname FROM pg_database WHERE datname ^@ %s", [prefix])
        return [name for (name,) in found.fetchall()]


def jobs_in(url: str) -> int:
    with psycopg.connect(url) as conn:
        row = conn.execute("SELECT count(*) FROM faultline.jobs").fetchone()
    assert row is not None
    return int(row[0])


def make_app(url: str | None = None) -> tuple[Faultline, Any]:
    app = Faultline(url)

    @app.task(name="noop")
    def noop(job: Job) -> None:
        return None

    return app, noop


def test_each_database_has_the_schema_and_its_own_jobs(databases: Databases) -> None:
    one, other = databases.make(), databases.make()
    with psycopg.connect(one) as conn:
        conn.execute("SELECT faultline.enqueue('task')")
    assert (jobs_in(one), jobs_in(other)) == (1, 0)
    databases.drop(one)
    databases.drop(other)
    assert not exists(databases.server_url, name_of(one))


def test_no_database_is_left_on_the_given_server(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, server_url)
    prefix = f"faultline_test_{secrets.token_hex(4)}"  # other tests create databases meanwhile
    monkeypatch.setattr("faultline.testing.databases._PREFIX", prefix)
    with temporary_database() as url:
        assert jobs_in(url) == 0
        assert len(names_like(server_url, prefix)) == 2  # the database and its template
    assert names_like(server_url, prefix) == []


def test_url_of_accepts_urls_and_connection_strings() -> None:
    assert url_of("postgresql://me:x@host:1/old?sslmode=disable", "new") == (
        "postgresql://me:x@host:1/new?sslmode=disable"
    )
    assert name_of(url_of("host=there dbname=old", "new")) == "new"


def test_using_changes_the_database_of_an_application_and_restores_it(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://the.usual/place")
    app, noop = make_app()
    one, other = databases.make(), databases.make()
    with using(app, one):
        noop.enqueue()
        assert os.environ["DATABASE_URL"] == one
    with using(app, other):  # with a new pool
        noop.enqueue()
        noop.enqueue()
    assert (jobs_in(one), jobs_in(other)) == (1, 2)
    assert app.database_url == "postgresql://the.usual/place"
    databases.drop(one)
    databases.drop(other)


def test_using_overrides_the_url_of_an_application(own_url: str) -> None:
    app, noop = make_app("postgresql://production/do-not-touch")
    with using(app, own_url):
        noop.enqueue()
    assert jobs_in(own_url) == 1
    assert app.database_url == "postgresql://production/do-not-touch"


def test_pools_of_a_long_lived_event_loop_are_closed(databases: Databases) -> None:
    """Some pytest plugins use one event loop for all tests."""
    app, noop = make_app()
    one, other = databases.make(), databases.make()
    with asyncio.Runner() as runner:
        with using(app, one):
            runner.run(noop.enqueue_async())
        with using(app, other):
            runner.run(noop.enqueue_async())
    assert (jobs_in(one), jobs_in(other)) == (1, 1)
    databases.drop(one)
    databases.drop(other)


def test_an_outside_service_ignores_a_repeated_key_and_refuses_a_lower_token() -> None:
    bank = Outside("bank")
    assert bank.call("charge", key="job-1") is True
    assert bank.call("charge", key="job-1") is False
    assert bank.call("charge", key="job-2") is True
    assert (bank.effects, bank.calls) == (["charge", "charge"], 3)
    bank.reset()
    bank.call("write", token=2)
    with pytest.raises(TokenRefused, match="token 1 is lower than 2"):
        bank.call("write", token=1)
    assert bank.effects == ["write"]

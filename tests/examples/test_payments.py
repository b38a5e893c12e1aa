"""The API of the payments answers what PostgreSQL has committed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from faultline.testing import Databases

from .conftest import EXAMPLES

REFUSE_AT_COMMIT = """
    create function refuse() returns trigger language plpgsql as $$ begin raise 'refused at COMMIT'; end $$;
    create constraint trigger refuse after insert on payments deferrable initially deferred
        for each row when (new.amount > 1000) execute function refuse();
"""


@pytest.fixture
def url(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    made = databases.make()
    monkeypatch.setenv("DATABASE_URL", made)
    yield made
    databases.drop(made)


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.syspath_prepend(str(EXAMPLES / "payments"))
    api, jobs, models = map(importlib.import_module, ("api", "jobs", "models"))
    models.Base.metadata.create_all(models.engine)
    yield TestClient(api.api, raise_server_exceptions=False)
    jobs.app.close()
    models.engine.dispose()
    for name in ("api", "jobs", "models"):
        del sys.modules[name]


def counts(url: str) -> Any:
    """The payments and the jobs."""
    with psycopg.connect(url) as conn:
        query = "select (select count(*) from payments), (select count(*) from faultline.jobs)"
        return conn.execute(query).fetchone()


def test_a_payment_and_its_job_are_stored_together(client: TestClient, url: str) -> None:
    assert client.post("/payments?amount=42").status_code == 201
    assert counts(url) == (1, 1)


def test_a_commit_that_fails_is_not_answered_with_success(client: TestClient, url: str) -> None:
    with psycopg.connect(url) as conn:
        conn.execute(REFUSE_AT_COMMIT)
    assert client.post("/payments?amount=4200").status_code == 500
    assert counts(url) == (0, 0)

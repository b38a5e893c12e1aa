"""The inspector shows limits, and forwards changes of them to the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.serving.client import KEY_HEADER
from faultline.statements.keys import Scope
from tests.api.served import make_key, served
from tests.limits import steps

from .test_actions import ORIGIN, act, code_of, load_page

Connection = psycopg.Connection[Any]


@pytest.fixture
def reader(database_url: str) -> Iterator[TestClient]:
    settings = InspectorSettings(database_url=database_url)
    with TestClient(make_app(settings), base_url=ORIGIN) as client:
        yield client


@pytest.fixture
def operator(database_url: str) -> Iterator[TestClient]:
    with served(database_url) as api:
        app = make_app(InspectorSettings(database_url=database_url, api_url=api.address))
        with TestClient(app, base_url=ORIGIN) as client:
            load_page(client)
            client.headers[KEY_HEADER] = make_key(database_url, Scope.OPERATE)
            yield client


def test_limits_are_shown_with_their_keys(reader: TestClient, conn: Connection) -> None:
    steps.limit_customers(conn, 1)
    *_, waits = steps.enqueue(conn, [{"customer": 42}] * 3)
    steps.claim_all(conn)
    [listed] = reader.get("/api/limits").json()["limits"]
    assert (listed["name"], listed["running"], listed["waiting"]) == ("key:customer", 1, 2)
    details = reader.get("/api/limits/key:customer").json()
    assert details["arguments"] == [{"task": "charge", "argument": "customer", "fallback": None}]
    [key] = details["keys"]
    assert (key["limit_key"], key["running"], key["waiting"]) == ("key:customer=42", 1, 2)
    assert details["last_change"] is None  # code has declared it
    job = reader.get(f"/api/jobs/{waits}").json()
    assert (job["waits_for"], job["why"]["code"]) == ("key:customer=42", "waits_for_place")
    [queue] = reader.get("/api/queues").json()["queues"]
    assert (queue["waiting"], queue["scheduled"]) == (2, 0)
    assert code_of(reader.get("/api/limits/key:other")) == (404, "unknown_limit")


def test_an_operator_changes_and_resets_a_limit(operator: TestClient, conn: Connection) -> None:
    rate = {"jobs": 5, "seconds": 2.5, "burst": 2}
    done = act(operator, "set-limit", name="queue:mail", max_running=3, rate=rate)
    assert done.status_code == 200, done.text
    details = operator.get("/api/limits/queue:mail").json()
    assert (details["max_running"], details["rate"]) == (3, rate)
    assert details["last_change"]["actor"].startswith("test ")
    assert act(operator, "reset-limit", name="queue:mail").json()["result"] == "removed"
    assert code_of(act(operator, "reset-limit", name="queue:mail")) == (404, "unknown_limit")
    assert code_of(act(operator, "set-limit", name="queue:mail")) == (422, "invalid_input")
    assert act(operator, "set-limit", name="../keys", max_running=1).status_code in (404, 422)

"""The inspector shows schedules, and forwards actions on them to the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from starlette.testclient import TestClient

from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.serving.client import KEY_HEADER
from faultline.statements.keys import Scope
from tests.api.served import make_key, served
from tests.protocol.steps import value
from tests.schedules.steps import add, fire, make_due, set_schedule

from .test_actions import ORIGIN, act, code_of, load_page

Connection = psycopg.Connection[Any]
BERLIN = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}


@pytest.fixture
def operator(database_url: str) -> Iterator[TestClient]:
    with served(database_url) as api:
        app = make_app(InspectorSettings(database_url=database_url, api_url=api.address))
        with TestClient(app, base_url=ORIGIN) as client:
            load_page(client)
            client.headers[KEY_HEADER] = make_key(database_url, Scope.OPERATE)
            yield client


def declared_by_code(conn: Connection, name: str) -> None:
    """A schedule that a worker's code declared; the worker is gone."""
    definition = f'[{{"name": "{name}", "task": "t", "every_seconds": 3600}}]'
    conn.execute("SELECT faultline.declare_schedules('gone', %s)", [definition])


def problems(client: TestClient) -> list[dict[str, Any]]:
    overview = client.get("/api/overview").raise_for_status().json()
    found: list[dict[str, Any]] = overview["attention"]["schedules"]
    return found


def test_a_schedule_is_shown_with_its_next_times_and_firings(
    client: TestClient, conn: Connection
) -> None:
    add(conn, "minutely", payload={"amount": 2**70})
    planned = make_due(conn, "minutely")
    fired = fire(conn, planned, name="minutely")
    assert fired is not None

    [listed] = client.get("/api/schedules").raise_for_status().json()["schedules"]
    assert (listed["name"], listed["state"], listed["every_seconds"]) == ("minutely", "active", 60)
    assert datetime.fromisoformat(listed["last_planned_at"]) == planned
    assert datetime.fromisoformat(listed["next_at"]) == planned + timedelta(minutes=1)
    assert listed["next_in_seconds"] <= 60
    assert "payload" not in listed  # a number like this one would be rounded
    shown = client.get("/api/schedules/minutely").raise_for_status().json()
    assert shown["upcoming"][0] == listed["next_at"]
    assert (len(shown["upcoming"]), shown["notes"]) == (5, [])
    [firing] = shown["firings"]
    assert (firing["outcome"], firing["job_id"]) == ("fired", str(fired.job_ids[0]))


def test_planned_times_are_in_the_schedules_zone(client: TestClient, conn: Connection) -> None:
    add(conn, "zoned", **BERLIN)
    fire(conn, make_due(conn, "zoned"), name="zoned")
    shown = client.get("/api/schedules/zoned").json()
    for time in (
        *shown["upcoming"][1:],
        shown["last_planned_at"],
        shown["firings"][0]["planned_at"],
    ):
        assert time.endswith(("+01:00", "+02:00"))


def test_a_schedule_with_an_unknown_zone_is_shown(client: TestClient, conn: Connection) -> None:
    add(conn, "broken", **BERLIN)
    fire(conn, make_due(conn, "broken"), name="broken")
    set_schedule(conn, "broken", "time_zone = 'Mars/Olympus', last_error = 'unknown zone'")
    shown = client.get("/api/schedules/broken").raise_for_status().json()
    assert (shown["state"], shown["next_at"], shown["upcoming"]) == ("failing", None, [])
    assert shown["last_planned_at"].endswith("+00:00")
    assert shown["notes"] == ["its next time cannot be computed: unknown zone"]


def test_an_unknown_schedule_is_not_found(client: TestClient, conn: Connection) -> None:
    assert code_of(client.get("/api/schedules/other")) == (404, "unknown_schedule")
    assert client.get("/api/schedules/a%00b").status_code == 422


def test_the_overview_names_failing_overdue_and_undeclared_schedules(
    client: TestClient, conn: Connection
) -> None:
    for name in ("failing", "fine", "overdue", "paused"):
        add(conn, name)
    conn.execute("SELECT faultline.pause_schedule('paused')")
    set_schedule(conn, "paused", "last_error = 'paused, so of no concern'")
    set_schedule(conn, "failing", "last_error = 'unknown zone'")
    declared_by_code(conn, "undeclared")
    make_due(conn, "overdue", minutes_ago=5)
    set_schedule(conn, "fine", "next_fire_at = clock_timestamp() - interval '20 seconds'")

    found = problems(client)

    assert [(each["name"], each["state"]) for each in found] == [
        ("failing", "failing"),
        ("overdue", "overdue"),
        ("undeclared", "undeclared"),
    ]
    assert found[0]["last_error"] == "unknown zone"
    assert found[1]["late_seconds"] >= 300


def test_an_operator_pauses_resumes_and_runs_a_schedule(
    operator: TestClient, conn: Connection
) -> None:
    add(conn, "report:daily")
    done = act(operator, "pause-schedule", schedule="report:daily", reason="stock-taking")
    assert done.status_code == 200, done.text
    shown = operator.get("/api/schedules/report:daily").json()
    assert (shown["state"], shown["paused_reason"]) == ("paused", "stock-taking")
    assert act(operator, "resume-schedule", schedule="report:daily").json()["changed"] is True
    assert operator.get("/api/schedules/report:daily").json()["state"] == "active"
    job_id = act(operator, "run-schedule", schedule="report:daily").json()["job_id"]
    assert value(conn, "SELECT id::text FROM faultline.jobs") == job_id
    [firing] = operator.get("/api/schedules/report:daily").json()["firings"]
    assert firing["outcome"] == "manual"


@pytest.mark.parametrize("action", ["pause-schedule", "resume-schedule", "run-schedule"])
def test_an_action_on_an_unknown_schedule_is_refused(operator: TestClient, action: str) -> None:
    assert code_of(act(operator, action, schedule="other")) == (404, "unknown_schedule")
    assert code_of(act(operator, action, schedule="../queues/a"))[0] in (404, 422)
    assert code_of(act(operator, action, schedule="other", job_id=str(uuid4())))[0] == 422

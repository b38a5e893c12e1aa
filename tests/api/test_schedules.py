"""Schedules over HTTP: added, read, paused, resumed, run and removed."""

from __future__ import annotations

from typing import Any

import httpx2
import psycopg
import pytest

from faultline.api.schedule_schemas import ScheduleRequest
from faultline.statements.keys import Scope
from tests.api.served import Served, client_of, code_of, make_key
from tests.schedules.steps import fire, make_due

Connection = psycopg.Connection[Any]
DAILY = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin", "task": "report"}


def add(client: httpx2.Client, name: str, **fields: Any) -> httpx2.Response:
    return client.post("/schedules", json={"name": name, **(fields or DAILY)})


def test_an_added_schedule_is_listed_and_shown(client: httpx2.Client, api_conn: Connection) -> None:
    added = add(client, "shown", every_seconds=60, task="report", payload={"days": 1})
    assert added.json() == {"schedule": "shown", "outcome": "added"}
    planned = make_due(api_conn, "shown")
    answer = fire(api_conn, planned, name="shown")
    assert answer is not None

    [listed] = [
        each for each in client.get("/schedules").json()["schedules"] if each["name"] == "shown"
    ]
    assert (listed["task"], listed["payload"], listed["state"]) == ("report", {"days": 1}, "active")
    shown = client.get("/schedules/shown").json()
    assert len(shown["upcoming"]) == 5
    assert shown["notes"] == []
    [firing] = shown["firings"]
    assert (firing["outcome"], firing["job_id"]) == ("fired", str(answer.job_ids[0]))
    assert shown["last_job_id"] == firing["job_id"]


def test_the_next_times_are_in_the_schedules_zone(client: httpx2.Client) -> None:
    add(client, "zoned")
    times = client.get("/schedules/zoned").json()["upcoming"]
    assert all(
        time.endswith(("02:30:00+01:00", "02:30:00+02:00", "03:00:00+02:00")) for time in times
    )


def test_a_schedule_is_paused_run_resumed_and_removed(
    client: httpx2.Client, api_conn: Connection
) -> None:
    add(client, "worked")
    paused = client.post("/schedules/worked/pause", json={"reason": "stock-taking"})
    assert paused.json() == {"schedule": "worked", "paused": True, "changed": True}
    assert client.get("/schedules/worked").json()["paused_reason"] == "stock-taking"
    job_id = client.post("/schedules/worked/run").json()["job_id"]
    assert client.get(f"/jobs/{job_id}").json()["task"] == "report"
    resumed = client.post("/schedules/worked/resume")
    assert resumed.json() == {"schedule": "worked", "paused": False, "changed": True}
    assert client.delete("/schedules/worked").json() == {"schedule": "worked", "removed": True}
    actions = api_conn.execute(
        "SELECT action, actor_kind FROM faultline.audit_log WHERE object = 'schedule worked'"
        " ORDER BY id"
    ).fetchall()
    assert actions == [(action, "key") for action in ("add", "pause", "run", "resume", "remove")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/schedules/none"),
        ("POST", "/schedules/none/pause"),
        ("POST", "/schedules/none/resume"),
        ("POST", "/schedules/none/run"),
        ("DELETE", "/schedules/none"),
    ],
)
def test_an_unknown_schedule_is_not_found(client: httpx2.Client, method: str, path: str) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, code_of(answer)) == (404, "unknown_schedule")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cron": "x", "task": "t"}, "invalid_schedule"),
        ({"cron": "0 6 * * *", "time_zone": "Mars/Phobos", "task": "t"}, "invalid_schedule"),
        ({"task": "t"}, "invalid_input"),
        ({"every_seconds": 0, "task": "t"}, "invalid_input"),
        ({"every_seconds": 60, "anchor": "yesterday", "task": "t"}, "invalid_input"),
        ({"every_seconds": 60, "missed": "never", "task": "t"}, "invalid_input"),
        ({"every_seconds": 60}, "invalid_input"),
        ({"every_seconds": 60, "task": "t", "crom": "x"}, "invalid_input"),
    ],
)
def test_a_wrong_definition_is_refused(
    client: httpx2.Client, fields: dict[str, Any], code: str
) -> None:
    answer = add(client, "wrong", **fields)
    assert (answer.status_code, code_of(answer)) == (422, code)
    assert client.get("/schedules/wrong").status_code == 404


def test_an_existing_schedule_changes_only_with_replace(client: httpx2.Client) -> None:
    add(client, "kept")
    changed = {**DAILY, "cron": "30 3 * * *"}
    assert code_of(add(client, "kept", **changed)) == "illegal_transition"
    assert add(client, "kept", **changed, replace=True).json()["outcome"] == "changed"
    assert add(client, "kept", **changed, replace=True).json()["outcome"] == "unchanged"


def test_a_key_that_may_operate_but_not_enqueue_cannot_add_a_schedule(
    server: Served, api_url: str, client: httpx2.Client
) -> None:
    with client_of(server, make_key(api_url, Scope.OPERATE)) as operator:
        answer = add(operator, "forbidden")
    assert (answer.status_code, code_of(answer)) == (403, "forbidden")
    assert client.get("/schedules/forbidden").status_code == 404


def test_the_documented_example_is_a_schedule_that_it_takes(client: httpx2.Client) -> None:
    [example] = ScheduleRequest.model_config["json_schema_extra"]["examples"]  # type: ignore[index, call-overload]
    assert client.post("/schedules", json=example).json()["outcome"] == "added"

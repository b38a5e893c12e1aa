"""Operators list, set and reset limits; jobs that wait are shown with their limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
import pytest

from tests.api.served import client_of, code_of, make_key, served
from tests.limits import steps
from tests.protocol.steps import rows, value
from tests.waiting import wait_until

Connection = psycopg.Connection[Any]
NAME = "key:api.customer"
LIMIT = {"max_running": 1, "key": {"task": "api.charge", "argument": "customer"}}


@pytest.fixture
def limited(client: httpx2.Client) -> Iterator[dict[str, Any]]:
    found = client.put(f"/limits/{NAME}", json=LIMIT)
    assert found.status_code == 200
    yield found.json()
    client.delete(f"/limits/{NAME}")


def test_a_limit_is_set_and_listed_and_removed(client: httpx2.Client) -> None:
    rate = {"jobs": 10, "seconds": 1.5, "burst": 3}
    done = client.put("/limits/queue:api.mail", json={"max_running": 3, "rate": rate})
    assert done.status_code == 200
    assert (done.json()["max_running"], done.json()["rate"]) == (3, rate)
    assert (done.json()["changed_by"], done.json()["is_declared"]) == ("operator", False)
    by_name = {limit["name"]: limit for limit in client.get("/limits").json()["limits"]}
    assert by_name["queue:api.mail"] == done.json()
    replaced = client.put("/limits/queue:api.mail", json={"max_running": 2}).json()
    assert (replaced["max_running"], replaced["rate"]) == (2, None)
    removed = client.delete("/limits/queue:api.mail")
    assert removed.json() == {"name": "queue:api.mail", "result": "removed"}
    for answer in (client.get("/limits/queue:api.mail"), client.delete("/limits/queue:api.mail")):
        assert (answer.status_code, code_of(answer)) == (404, "unknown_limit")


def test_waiting_jobs_are_shown_with_their_limit(
    client: httpx2.Client, api_conn: Connection, limited: dict[str, Any]
) -> None:
    jobs = [
        {"task": "api.charge", "queue": "limited", "payload": {"customer": 42}} for _ in range(3)
    ]
    ids = [job["job_id"] for job in client.post("/jobs/batch", json={"jobs": jobs}).json()["jobs"]]
    steps.claim_all(api_conn, queues=["limited"])
    shown = client.get(f"/jobs/{ids[2]}").json()
    assert shown["waits_for"] == "key:api.customer=42"
    assert shown["next_run_at"] <= shown["created_at"][:4] + "-12-31T23:59:59"
    listed = client.get("/jobs", params={"queue": "limited"}).json()["jobs"]
    assert [job["waits_for"] for job in listed] == [shown["waits_for"], shown["waits_for"], None]
    details = client.get(f"/limits/{NAME}").json()
    assert (details["running"], details["waiting"]) == (1, 2)
    assert details["arguments"] == [
        {"task": "api.charge", "argument": "customer", "fallback": None}
    ]
    [key] = details["keys"]
    assert (key["limit_key"], key["running"], key["waiting"]) == ("key:api.customer=42", 1, 2)
    queues = {queue["queue"]: queue for queue in client.get("/queues").json()["queues"]}
    assert queues["limited"]["waiting"]["at_least"] == 2
    assert queues["limited"]["scheduled"]["at_least"] == 0


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("mail", {"max_running": 3}),
        ("queue:no such", {"max_running": 3}),
        ("queue:api.mail", {}),
        ("queue:api.mail", {"max_running": -1}),
        ("queue:api.mail", {"max_running": True}),
        ("queue:api.mail", {"max_running": 1.5}),
        ("queue:api.mail", {"rate": {"jobs": 0, "seconds": 1}}),
        ("queue:api.mail", {"rate": {"jobs": 1, "seconds": 0}}),
        ("queue:api.mail", {"rate": {"jobs": 1, "seconds": None}}),
        ("queue:api.mail", {"running": 3}),
        ("queue:api.mail", LIMIT),  # the limit of a queue has no key
    ],
)
def test_a_limit_that_cannot_be_stored_is_refused(
    client: httpx2.Client, name: str, body: dict[str, Any]
) -> None:
    answer = client.put(f"/limits/{name}", json=body)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert client.get("/limits/queue:api.mail").status_code == 404


def test_changes_and_refusals_are_in_the_audit_log(database_url: str, conn: Connection) -> None:
    done = (
        "SELECT actor_kind, action, result FROM faultline.audit_log"
        " WHERE object = 'limit queue:api.audited' AND result = 'done' ORDER BY id"
    )
    # Equal refusals within a minute are one row, of several objects if they differ.
    refused = (
        "SELECT count(*) FROM faultline.audit_log WHERE action = 'reset limit'"
        " AND result = 'refused' AND code = 'unknown_limit'"
    )
    # A server of its own: it records only so many kinds of refusals a minute, and other tests cause some.
    with served(database_url) as server, client_of(server, make_key(database_url)) as client:
        client.put("/limits/queue:api.audited", json={"max_running": 0})
        client.delete("/limits/queue:api.audited")
        client.delete("/limits/queue:api.audited")
        wait_until(lambda: value(conn, refused), "a recorded refusal")
    assert rows(conn, done) == [("key", "set limit", "done"), ("key", "reset limit", "done")]

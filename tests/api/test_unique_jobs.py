"""Unique jobs over HTTP: what a request may say, and what it is told."""

from __future__ import annotations

import secrets
from typing import Any

import httpx2
import psycopg
import pytest

from tests.api.served import code_of

Connection = psycopg.Connection[Any]


@pytest.fixture
def task() -> str:
    """A task of this test: the tests share a database."""
    return f"sync_{secrets.token_hex(4)}"


def job(task: str, **unique: Any) -> dict[str, Any]:
    return {"task": task, "payload": {"customer": 7}, "unique": unique}


def test_a_second_request_keeps_or_replaces_the_job_of_its_key(
    client: httpx2.Client, task: str
) -> None:
    first = client.post("/jobs", json=job(task, by=["customer"]))
    kept = client.post("/jobs", json=job(task, by=["customer"], **{"while": "queued", "for": 60}))
    replaced = client.post("/jobs", json=job(task, by=["customer"], on_conflict="replace"))
    assert [answer.status_code for answer in (first, kept, replaced)] == [201, 200, 200]
    outcomes = [answer.json()["outcome"] for answer in (first, kept, replaced)]
    assert outcomes == ["queued", "kept", "replaced"]
    assert len({answer.json()["job_id"] for answer in (first, kept, replaced)}) == 1


def test_a_batch_says_what_happened_to_each_job(client: httpx2.Client, task: str) -> None:
    wanted = [job(task), {"task": task}, job(task)]
    answer = client.post("/jobs/batch", json={"jobs": wanted}).json()
    assert [each["outcome"] for each in answer["jobs"]] == ["queued", "queued", "kept"]
    assert (answer["queued"], answer["existing"]) == (2, 1)


def test_a_job_document_has_its_unique_key(client: httpx2.Client, task: str) -> None:
    made = client.post("/jobs", json=job(task, by=["customer"])).json()["job_id"]
    plain = client.post("/jobs", json={"task": task}).json()["job_id"]
    keys = [client.get(f"/jobs/{each}").json()["unique_key"] for each in (made, plain)]
    assert keys == [f'{task} {{"customer": 7}}', None]


def test_a_retry_is_refused_while_another_job_holds_the_key(
    client: httpx2.Client, task: str
) -> None:
    first = client.post("/jobs", json=job(task)).json()["job_id"]
    client.post(f"/jobs/{first}/cancel")
    client.post("/jobs", json=job(task))
    answer = client.post(f"/jobs/{first}/retry")
    assert (answer.status_code, code_of(answer)) == (409, "unique_key_held")


@pytest.mark.parametrize(
    "unique",
    [
        {"bye": ["customer"]},
        {"by": ["custmer"]},
        {"by": "customer"},
        {"while": "always"},
        {"on_conflict": "drop"},
        {"for": 0},
        {"for": 1e9},
    ],
)
def test_a_unique_that_cannot_be_meant_is_refused(
    client: httpx2.Client, api_conn: Connection, task: str, unique: Any
) -> None:
    answer = client.post("/jobs", json=job(task, **unique))
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    made = api_conn.execute("SELECT count(*) FROM faultline.jobs WHERE task = %s", [task])
    assert made.fetchone() == (0,)

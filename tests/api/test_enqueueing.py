"""Claims about POST /jobs and POST /jobs/batch."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

import faultline
from faultline.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, JobRecord
from faultline.payload import MAX_BYTES
from faultline.postgres.sessions import run
from faultline.statements import jobs
from tests.api.served import code_of

Connection = psycopg.Connection[Any]


def stored(conn: Connection, job_id: str) -> JobRecord:
    record = run(conn, jobs.get_job(UUID(job_id)))
    assert record is not None
    return record


def count(conn: Connection) -> int:
    row = conn.execute("SELECT count(*) FROM faultline.jobs").fetchone()
    assert row is not None
    return int(row[0])


def post(client: httpx2.Client, body: str | bytes, **headers: str) -> httpx2.Response:
    """JSON as it is written here."""
    return client.post(
        "/jobs", content=body, headers={"Content-Type": "application/json", **headers}
    )


def test_a_job_is_queued_as_it_was_sent(client: httpx2.Client, api_conn: Connection) -> None:
    answer = client.post(
        "/jobs",
        json={
            "task": "send_mail",
            "payload": {"to": "zoë", "n": 2**63},
            "queue": "mail",
            "priority": 2,
            "max_attempts": 7,
            "run_at": "2030-01-31T09:00:00+01:00",
        },
    )
    assert answer.status_code == 201
    job_id = answer.json()["job_id"]
    assert answer.json() == {"job_id": job_id, "existing": False, "outcome": "queued"}
    assert answer.headers["location"] == f"/jobs/{job_id}"
    job = stored(api_conn, job_id)
    assert (job.task, job.queue, job.priority, job.max_attempts) == ("send_mail", "mail", 2, 7)
    assert job.payload == {"to": "zoë", "n": 2**63}
    assert job.next_run_at.isoformat() == "2030-01-31T08:00:00+00:00"


def test_a_number_that_is_whole_is_an_integer_however_it_is_written(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job_id = post(client, '{"task": "t", "priority": 3.0, "payload": {"n": 3.0}}').json()["job_id"]
    job = stored(api_conn, job_id)
    assert (job.priority, repr(job.payload["n"])) == (3, "3.0")


def test_omitted_fields_have_the_librarys_defaults(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job = stored(api_conn, client.post("/jobs", json={"task": "t"}).json()["job_id"])
    usual = ({}, "default", DEFAULT_PRIORITY, DEFAULT_MAX_ATTEMPTS)
    assert (job.payload, job.queue, job.priority, job.max_attempts) == usual


def test_the_same_key_is_the_same_job_and_other_work_under_it_is_a_conflict(
    client: httpx2.Client,
) -> None:
    job = {"task": "t", "payload": {"n": 1}, "idempotency_key": "same-key"}
    first, second = client.post("/jobs", json=job), client.post("/jobs", json=job)
    assert (first.status_code, second.status_code) == (201, 200)
    same = {"job_id": first.json()["job_id"], "existing": True, "outcome": "existing"}
    assert second.json() == same
    other = client.post("/jobs", json={**job, "payload": {"n": 2}})
    assert (other.status_code, code_of(other)) == (409, "idempotency_conflict")
    assert first.json()["job_id"] in other.json()["error"]["message"]


def test_the_header_is_the_same_key_as_the_one_in_the_body(client: httpx2.Client) -> None:
    job = {"task": "t", "idempotency_key": "köy"}
    first = client.post("/jobs", json=job)
    by_header = post(client, '{"task": "t"}', **{"Idempotency-Key": "köy".encode()})  # type: ignore[arg-type]
    both = post(client, json.dumps(job), **{"Idempotency-Key": "köy".encode()})  # type: ignore[arg-type]
    assert [answer.status_code for answer in (first, by_header, both)] == [201, 200, 200]
    assert len({answer.json()["job_id"] for answer in (first, by_header, both)}) == 1


def test_two_different_keys_for_one_job_are_refused(
    client: httpx2.Client, api_conn: Connection
) -> None:
    before = count(api_conn)
    body = '{"task": "t", "idempotency_key": "a"}'
    answer = post(client, body, **{"Idempotency-Key": "b"})
    assert (answer.status_code, code_of(answer)) == (409, "idempotency_keys_differ")
    assert count(api_conn) == before


def test_fifty_posts_of_one_key_at_once_make_one_job(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job = {"task": "t", "payload": {"n": 1}, "idempotency_key": "crowd"}
    with ThreadPoolExecutor(50) as crowd:
        answers = list(crowd.map(lambda _: client.post("/jobs", json=job), range(50)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * 49 + [201]
    [job_id] = {answer.json()["job_id"] for answer in answers}
    row = api_conn.execute(
        "SELECT array_agg(id::text) FROM faultline.jobs WHERE idempotency_key = 'crowd'"
    ).fetchone()
    assert row == ([job_id],)


# ── what the library would refuse, and what it would take ────────────────────────────────────────

REFUSED = [
    '{"task": "t", "payload": [1]}',
    '{"task": "t", "payload": null}',
    '{"task": "t", "payload": {"n": NaN}}',
    '{"task": "t", "payload": {"n": 1e999}}',
    '{"task": "t", "payload": {"n": 123456789012345678901234567890}}',
    '{"task": "t", "payload": {"n": "\\u0000"}}',
    '{"task": "t", "payload": {"n": "\\ud800"}}',
    '{"task": "t", "payload": {"\\u0000": 1}}',
    '{"task": "t", "payload": ' + '{"a":' * 64 + "{}" + "}" * 64 + "}",
    '{"task": "t", "payload": ' + "[" * 100_000 + "}",
    '{"task": "no such name"}',
    '{"task": ""}',
    '{"task": 5}',
    '{"payload": {}}',
    '{"task": "t", "queue": "no such/queue"}',
    '{"task": "t", "queue": null}',
    '{"task": "t", "priority": 10}',
    '{"task": "t", "priority": "5"}',
    '{"task": "t", "priority": true}',
    '{"task": "t", "priority": 5.5}',
    '{"task": "t", "max_attempts": 0}',
    '{"task": "t", "run_at": "2030-01-31T09:00:00"}',
    '{"task": "t", "run_at": "tomorrow"}',
    '{"task": "t", "run_at": 5}',
    '{"task": "t", "run_at": "9999-12-31T00:00:00Z"}',
    '{"task": "t", "idempotency_key": ""}',
    '{"task": "t", "idempotency_key": 5}',
    '{"task": "t", "idempotency_key": "' + "k" * 256 + '"}',
    '{"task": "t", "unheard_of": 1}',
    "[]",
    '"t"',
    "null",
    "{",
    '{"task": "t"} {}',
    "",
    b'{"task": "t", "payload": {"n": "\xff"}}',
    '{"task": "t"}'.encode("utf-16"),
]


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: repr(body)[:60])
def test_a_job_that_cannot_be_stored_is_refused(
    client: httpx2.Client, api_conn: Connection, body: str | bytes
) -> None:
    before = count(api_conn)
    answer = post(client, body)
    assert (answer.status_code, code_of(answer)[:8]) == (422, "invalid_")
    assert count(api_conn) == before


PAYLOADS: list[Any] = [
    {},
    {"n": 2**64 - 1},
    {"n": -(2**63)},
    {"n": 2**64},
    {"n": 1e308},
    {"n": float("inf")},
    {"n": "\x01 \U0001f600"},
    {"n": "\x00"},
    {"n": "\ud800"},
    {"": {"": []}},
    {"n": "x" * (MAX_BYTES - len('{"n":""}'))},
    {"n": "é" * ((MAX_BYTES - len('{"n":""}')) // 2)},
    {"n": "x" * (MAX_BYTES - len('{"n":""}') + 1)},
    *[json.loads('{"a":' * depth + "1" + "}" * depth) for depth in (62, 63, 64, 65)],
    *[{"a": json.loads("[" * depth + "1" + "]" * depth)} for depth in (61, 62, 63, 64)],
]


@pytest.fixture(scope="module")
def library(api_url: str) -> Iterator[faultline.Faultline]:
    app = faultline.Faultline(api_url)

    @app.task(name="anything")
    def anything(job: faultline.Job, **payload: Any) -> None: ...

    yield app
    app.close()


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: repr(payload)[:40])
def test_the_api_accepts_and_refuses_the_same_jobs_as_enqueue(
    client: httpx2.Client, api_conn: Connection, library: faultline.Faultline, payload: Any
) -> None:
    answer = post(client, json.dumps({"task": "anything", "payload": payload}))
    try:
        [enqueued] = library.find_task("anything").enqueue_many([payload])
    except faultline.PayloadTooLarge:
        assert (answer.status_code, code_of(answer)) == (413, "payload_too_large")
    except faultline.InvalidInput:
        assert (answer.status_code, code_of(answer)[:8]) == (422, "invalid_")
    else:
        assert answer.status_code == 201
        by_library = stored(api_conn, str(enqueued.job_id)).payload
        assert stored(api_conn, answer.json()["job_id"]).payload == by_library


def test_a_body_that_is_not_json_by_its_own_account_is_not_read_as_json(
    client: httpx2.Client,
) -> None:
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "application/jsonish"):
        answer = post(client, '{"task": "t"}', **{"Content-Type": media_type})
        assert (answer.status_code, code_of(answer)) == (415, "unsupported_media_type")


def test_the_job_continues_the_clients_trace(client: httpx2.Client, api_conn: Connection) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = client.post("/jobs", json={"task": "t"}, headers={"traceparent": parent})
    row = api_conn.execute(
        "SELECT trace_context FROM faultline.jobs WHERE id = %s", [answer.json()["job_id"]]
    ).fetchone()
    assert row == (parent,)


# ── batches ──────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_answered_in_its_order_whatever_is_in_it(
    client: httpx2.Client, api_conn: Connection
) -> None:
    mark = secrets.token_hex(4)
    tasks = ["b", "a", "b", "c", "a"]
    jobs = [
        {"task": task, "payload": {"n": n}, "priority": n % 2, "idempotency_key": f"{mark}-{n}"}
        for n, task in enumerate(tasks)
    ]
    first = client.post("/jobs/batch", json={"jobs": jobs})
    assert first.status_code == 201
    assert (first.json()["queued"], first.json()["existing"]) == (5, 0)
    found = [stored(api_conn, job["job_id"]) for job in first.json()["jobs"]]
    assert [(job.task, job.payload, job.priority) for job in found] == [
        (task, {"n": n}, n % 2) for n, task in enumerate(tasks)
    ]
    more = [*jobs, {"task": "a"}]
    second = client.post("/jobs/batch", json={"jobs": more})
    assert (second.status_code, second.json()["queued"], second.json()["existing"]) == (201, 1, 5)
    third = client.post("/jobs/batch", json={"jobs": jobs})
    assert (third.status_code, third.json()["queued"]) == (200, 0)
    ids = [job["job_id"] for job in first.json()["jobs"]]
    assert [job["job_id"] for job in third.json()["jobs"]] == ids


@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"task": "no such name"}, 422, "invalid_input"),
        ({"task": "t", "unheard_of": 1}, 422, "invalid_input"),
        (
            {"task": "t", "payload": {"n": 2}, "idempotency_key": "taken"},
            409,
            "idempotency_conflict",
        ),
        ({"task": "t", "payload": {"n": "x" * MAX_BYTES}}, 413, "payload_too_large"),
        (5, 422, "invalid_input"),
    ],
)
def test_a_batch_with_one_wrong_job_queues_none(
    client: httpx2.Client, api_conn: Connection, wrong: Any, status: int, code: str
) -> None:
    client.post("/jobs", json={"task": "t", "payload": {"n": 1}, "idempotency_key": "taken"})
    before = count(api_conn)
    answer = client.post("/jobs/batch", json={"jobs": [{"task": "fine"}, wrong, {"task": "fine"}]})
    assert (answer.status_code, code_of(answer)) == (status, code)
    assert status == 409 or answer.json()["error"]["message"].startswith("jobs[1]: ")
    assert count(api_conn) == before


def test_a_batch_with_an_idempotency_key_header_is_refused(client: httpx2.Client) -> None:
    answer = client.post(
        "/jobs/batch", json={"jobs": [{"task": "t"}]}, headers={"Idempotency-Key": "k"}
    )
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")


def test_batches_with_the_same_keys_in_opposite_orders_all_succeed(client: httpx2.Client) -> None:
    jobs = [
        {"task": f"t{n % 5}", "payload": {"n": n}, "idempotency_key": f"crossed-{n}"}
        for n in range(40)
    ]
    batches = [jobs, jobs[::-1]] * 4
    with ThreadPoolExecutor(len(batches)) as crowd:
        answers = list(
            crowd.map(lambda batch: client.post("/jobs/batch", json={"jobs": batch}), batches)
        )
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert sum(answer.json()["queued"] for answer in answers) == len(jobs)

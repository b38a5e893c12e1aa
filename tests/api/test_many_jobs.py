"""Acting on many jobs by filter, deleting and editing one, over HTTP."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.api.served import client_of, code_of, make_key, served
from tests.protocol.steps import rows
from tests.waiting import wait_until

Connection = psycopg.Connection[Any]
NOTHING = {
    "dry_run": False,
    "matched": 0,
    "done": 0,
    "unchanged": 0,
    "refused": 0,
    "locked": 0,
    "gone": 0,
    "refused_ids": [],
    "locked_ids": [],
    "sample": [],
    "next": None,
}


@pytest.fixture
def queue() -> str:
    """The tests share a database: each has its own queue."""
    return f"q{uuid4().hex}"


def enqueue(client: httpx2.Client, queue: str, count: int = 1, **job: Any) -> list[str]:
    jobs = [{"task": "t", "queue": queue, **job} for _ in range(count)]
    return [
        each["job_id"] for each in client.post("/jobs/batch", json={"jobs": jobs}).json()["jobs"]
    ]


def states(conn: Connection, queue: str) -> list[str]:
    query = "SELECT state FROM faultline.jobs WHERE queue = %s ORDER BY id"
    return [state for (state,) in rows(conn, query, queue)]


def claim(conn: Connection, queue: str) -> Any:
    [claimed] = run(conn, protocol.claim("w", [queue], batch_size=1, lease_seconds=60))
    return claimed


# ── many ─────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_are_cancelled_retried_and_deleted_by_filter(
    client: httpx2.Client, api_conn: Connection, queue: str
) -> None:
    ids = enqueue(client, queue, 3)
    asked = {"filter": {"queue": queue}}
    for verb, more, left in (
        ("cancel", {"reason": "a mistake"}, ["failed"] * 3),
        ("retry", {}, ["queued"] * 3),
        ("delete", {}, []),
    ):
        done, cursor = 0, None
        for _ in range(5):
            answer = client.post(f"/jobs/{verb}", json={**asked, **more, "cursor": cursor})
            assert answer.status_code == 200, answer.text
            done, cursor = done + answer.json()["done"], answer.json()["next"]
            if cursor is None:
                break
        assert (done, states(api_conn, queue)) == (3, left)
    query = "SELECT actor_kind, action, detail FROM faultline.audit_log WHERE object LIKE %s ORDER BY id"
    assert rows(api_conn, query, f"%{queue}%") == [
        ("key", "cancel", "3 done: a mistake"),
        ("key", "retry", "3 done"),
        ("key", "delete", "3 done"),
    ]
    assert client.post("/jobs/delete", json={"filter": {"ids": ids}}).json() == NOTHING


def test_a_request_changes_at_most_its_limit_and_says_where_to_continue(
    client: httpx2.Client, api_conn: Connection, queue: str
) -> None:
    enqueue(client, queue, 5)
    claim(api_conn, queue)
    cursor, pages = None, []
    for _ in range(10):
        asked = {"filter": {"queue": queue}, "limit": 2, "cursor": cursor}
        page = client.post("/jobs/cancel", json=asked).json()
        pages.append(page["done"])
        cursor = page["next"]
        if cursor is None:
            break
    assert cursor is None
    assert (sum(pages), max(pages)) == (5, 2)
    assert states(api_conn, queue) == ["failed"] * 5


def test_a_dry_run_counts_and_changes_nothing(
    client: httpx2.Client, api_conn: Connection, queue: str
) -> None:
    ids = enqueue(client, queue, 2)
    asked = {"filter": {"queue": queue, "state": "queued"}, "dry_run": True}
    assert client.post("/jobs/delete", json=asked).json() == {
        **NOTHING,
        "dry_run": True,
        "matched": 2,
        "sample": ids,
    }
    assert states(api_conn, queue) == ["queued"] * 2


def test_refused_and_locked_jobs_are_named(
    client: httpx2.Client, api_conn: Connection, queue: str
) -> None:
    ids = enqueue(client, queue, 3)
    running = claim(api_conn, queue).id
    [locked, free] = [job_id for job_id in ids if job_id != running]
    with api_conn.transaction():
        api_conn.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [locked])
        answer = client.post("/jobs/delete", json={"filter": {"ids": ids}}).json()
    assert (answer["done"], answer["refused_ids"], answer["locked_ids"]) == (1, [running], [locked])
    assert client.get(f"/jobs/{free}").status_code == 404


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"filter": {}},
        {"filter": {"queue": None}},
        {"filter": {"sate": "failed"}},
        {"filter": {"state": "dead"}},
        {"filter": {"state": "succeeded"}},
        {"filter": {"queue": "no such"}},
        {"filter": {"error": "\0"}},
        {"filter": {"error": "\ud800"}},
        {"filter": {"failed_reason": 5}},
        {"filter": {"created_after": "yesterday"}},
        {"filter": {"finished_before": "2026-01-01"}},
        {"filter": {"ids": ["x"]}},
        {"filter": {"task": "t"}, "limit": 0},
        {"filter": {"task": "t"}, "limit": 1001},
        {"filter": {"task": "t"}, "cursor": "9.x"},
        {"filter": {"task": "t"}, "cursor": "0.x"},
        {"filter": {"task": "t"}, "all": True},
    ],
)
@pytest.mark.parametrize("verb", ["retry", "cancel", "delete", "edit"])
def test_a_request_that_is_not_understood_changes_nothing(
    client: httpx2.Client, verb: str, asked: dict[str, Any]
) -> None:
    changes = {"changes": {"n": 1}} if verb == "edit" else {}
    sent = json.dumps(asked | changes)  # httpx does not send lone surrogates by itself
    answer = client.post(
        f"/jobs/{verb}", content=sent, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert code_of(answer) in ("invalid_input", "invalid_json")


def test_the_list_of_jobs_takes_the_same_filters(
    client: httpx2.Client, api_conn: Connection, queue: str
) -> None:
    [job_id] = enqueue(client, queue, max_attempts=1)
    enqueue(client, queue)
    run(api_conn, protocol.fail(claim(api_conn, queue), error="Boom: x"))
    for more, found in (
        ({"error": "Boom"}, [job_id]),
        ({"failed_reason": "attempts_spent"}, [job_id]),
        ({"failed_reason": "cancelled"}, []),
        ({"finished_after": "2026-01-01T00:00:00+00:00"}, [job_id]),
        ({"created_before": "2026-01-01T00:00:00+00:00"}, []),
    ):
        page = client.get("/jobs", params={"queue": queue, **more}).json()
        assert [job["id"] for job in page["jobs"]] == found, more


def test_jobs_are_found_and_operated_by_a_tag(client: httpx2.Client, queue: str) -> None:
    [tagged, _] = [enqueue(client, queue, tags=tags)[0] for tags in (["vip", queue], None)]
    page = client.get("/jobs", params={"tag": queue}).json()
    assert [(job["id"], job["tags"]) for job in page["jobs"]] == [(tagged, sorted([queue, "vip"]))]
    assert client.get(f"/jobs/{tagged}").json()["tags"] == sorted([queue, "vip"])
    done = client.post("/jobs/cancel", json={"filter": {"tag": queue}}).json()
    assert (done["done"], done["matched"]) == (1, 1)


def test_jobs_are_exported_in_pages_with_payload_and_result(
    client: httpx2.Client, api_conn: Connection, queue: str
) -> None:
    ids = enqueue(client, queue, 5, tags=["vip"])
    enqueue(client, queue)
    large = '{"number": 12345678901234567890.10, "text": "' + "x" * 1_000_000 + '"}'
    api_conn.execute("UPDATE faultline.jobs SET payload = %s WHERE queue = %s", [large, queue])
    oldest = claim(api_conn, queue)
    run(api_conn, protocol.commit(oldest, result='{"of": 1.10}'))
    exported: dict[str, Any] = {}
    before: dict[str, str] = {}
    pages = 0
    while True:
        answer = client.get("/jobs/export", params={"queue": queue, "tag": "vip", **before})
        page = answer.json()
        pages += 1
        assert '"number": 12345678901234567890.10' in answer.text  # a float would be rounded
        exported |= {job["id"]: job for job in page["jobs"]}
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert (list(exported), pages) == (ids[::-1], 2)
    assert exported[oldest.id]["result"] == {"of": 1.1}


@pytest.mark.parametrize("tags", ["vip", ["two words"], [1], [f"t{n}" for n in range(21)]])
def test_wrong_tags_are_refused(client: httpx2.Client, tags: Any) -> None:
    answer = client.post("/jobs", json={"task": "t", "tags": tags})
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert "tag" in answer.text


# ── edit ─────────────────────────────────────────────────────────────────────────────────────────


def test_fields_are_set_by_filter(client: httpx2.Client, api_conn: Connection, queue: str) -> None:
    ids = enqueue(client, queue, 3, payload={"n": 1, "to": "ada"})
    running = claim(api_conn, queue).id
    asked = {"filter": {"queue": queue, "state": "queued"}, "changes": {"n": 9007199254740993}}
    dry = client.post("/jobs/edit", json={**asked, "dry_run": True}).json()
    queued = [job_id for job_id in ids if job_id != running]
    assert dry == {**NOTHING, "dry_run": True, "matched": 2, "sample": queued}
    done = client.post("/jobs/edit", json=asked).json()
    assert (done["done"], done["matched"]) == (2, 2)
    query = "SELECT id::text, payload::text FROM faultline.jobs WHERE queue = %s"
    stored = dict(rows(api_conn, query, queue))
    assert stored.pop(running) == '{"n": 1, "to": "ada"}'
    assert stored == dict.fromkeys(queued, '{"n": 9007199254740993, "to": "ada"}')
    assert client.post("/jobs/edit", json=asked).json()["unchanged"] == 2
    by_ids = {"filter": {"ids": ids}, "changes": {"n": 2}}
    assert client.post("/jobs/edit", json=by_ids).json()["refused_ids"] == [running]
    query = "SELECT actor_kind, action, detail FROM faultline.audit_log WHERE object LIKE %s ORDER BY id"
    assert rows(api_conn, query, f"%{queue}%") == [
        ("key", "edit", "2 done: n"),
        ("key", "edit", "2 unchanged: n"),
    ]


@pytest.mark.parametrize("changes", [None, {}, [], {"a": "\0"}, "x"])
def test_changes_that_cannot_be_stored_are_refused(
    client: httpx2.Client, queue: str, changes: Any
) -> None:
    [job_id] = enqueue(client, queue, payload={"n": 1})
    asked = {"filter": {"queue": queue}, "changes": changes}
    answer = client.post("/jobs/edit", json=asked)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert client.post("/jobs/edit", json={"filter": {"queue": queue}}).status_code == 422
    assert client.get(f"/jobs/{job_id}").json()["payload"] == {"n": 1}


# ── one ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_is_edited_and_deleted(client: httpx2.Client, queue: str) -> None:
    [job_id] = enqueue(client, queue, payload={"n": 1}, idempotency_key=queue)
    edited = client.patch(f"/jobs/{job_id}", json={"payload": {"n": 9007199254740993}})
    assert (edited.status_code, edited.json()) == (200, {"job_id": job_id, "state": "queued"})
    assert '"n": 9007199254740993' in client.get(f"/jobs/{job_id}").text
    deleted = client.delete(f"/jobs/{job_id}")
    assert (deleted.status_code, deleted.json()) == (200, {"job_id": job_id, "state": "queued"})
    assert enqueue(client, queue, payload={"n": 2}, idempotency_key=queue) != [job_id]


def test_a_running_job_is_neither_edited_nor_deleted_and_the_refusal_is_recorded(
    database_url: str, conn: Connection, queue: str
) -> None:
    query = "SELECT action, result, code FROM faultline.audit_log WHERE object = %s ORDER BY action"
    # A database of its own: it records only so many refusals a minute, and other tests cause some.
    with served(database_url) as server, client_of(server, make_key(database_url)) as client:
        [job_id] = enqueue(client, queue)
        claim(conn, queue)
        for answer in (
            client.delete(f"/jobs/{job_id}"),
            client.patch(f"/jobs/{job_id}", json={"payload": {}}),
        ):
            assert (answer.status_code, code_of(answer)) == (409, "illegal_transition")
        wait_until(lambda: len(rows(conn, query, f"job {job_id}")) == 2, "rows of the audit log")
    assert rows(conn, query, f"job {job_id}") == [
        ("delete", "refused", "illegal_transition"),
        ("edit", "refused", "illegal_transition"),
    ]


@pytest.mark.parametrize(
    "body", [{}, {"payload": []}, {"payload": {"a": "\0"}}, {"payload": {}, "queue": "q"}]
)
def test_an_edit_that_cannot_be_stored_is_refused(
    client: httpx2.Client, queue: str, body: dict[str, Any]
) -> None:
    [job_id] = enqueue(client, queue, payload={"n": 1})
    answer = client.patch(f"/jobs/{job_id}", json=body)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert client.get(f"/jobs/{job_id}").json()["payload"] == {"n": 1}


def test_an_unknown_job_is_neither_edited_nor_deleted(client: httpx2.Client) -> None:
    for answer in (
        client.delete(f"/jobs/{uuid4()}"),
        client.patch(f"/jobs/{uuid4()}", json={"payload": {}}),
    ):
        assert (answer.status_code, code_of(answer)) == (404, "unknown_job")

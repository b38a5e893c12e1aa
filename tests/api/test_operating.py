"""Claims about cancelling and retrying jobs, and pausing and resuming queues."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx2
import psycopg

from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.api.served import code_of

Connection = psycopg.Connection[Any]


def enqueue(client: httpx2.Client, **job: Any) -> str:
    return str(client.post("/jobs", json={"task": "t", **job}).json()["job_id"])


def test_a_cancelled_job_does_not_run_and_a_retried_one_does(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job_id = enqueue(client, queue="fickle")
    cancelled = client.post(f"/jobs/{job_id}/cancel", json={"reason": "changed my mind"})
    assert (cancelled.status_code, cancelled.json()) == (200, {"job_id": job_id, "state": "failed"})
    job = client.get(f"/jobs/{job_id}").json()
    assert (job["failed_reason"], job["last_error"]) == ("cancelled", "changed my mind")
    claim = protocol.claim("w", ["fickle"], batch_size=1, lease_seconds=60)
    assert run(api_conn, claim) == []
    assert client.post(f"/jobs/{job_id}/retry").json() == {"job_id": job_id, "state": "queued"}
    [claimed] = run(api_conn, claim)
    assert claimed.id == job_id
    run(api_conn, protocol.commit(claimed))
    again = client.post(f"/jobs/{job_id}/retry")
    assert (again.status_code, code_of(again)) == (409, "illegal_transition")
    assert client.post(f"/jobs/{job_id}/cancel").json()["state"] == "succeeded"


def test_nothing_can_be_done_to_a_job_that_is_not_there(client: httpx2.Client) -> None:
    for verb in ("cancel", "retry"):
        answer = client.post(f"/jobs/{uuid4()}/{verb}")
        assert (answer.status_code, code_of(answer)) == (404, "unknown_job")


def test_a_reason_that_cannot_be_kept_is_refused(client: httpx2.Client) -> None:
    job_id = enqueue(client)
    for reason in ("\x00", 5, ["x"]):
        answer = client.post(f"/jobs/{job_id}/cancel", json={"reason": reason})
        assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert client.get(f"/jobs/{job_id}").json()["state"] == "queued"


def test_a_paused_queue_is_left_alone_until_it_is_resumed(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job_id = enqueue(client, queue="resting")
    first = client.post("/queues/resting/pause", json={"reason": "deploying"})
    assert first.json() == {"queue": "resting", "paused": True, "changed": True}
    assert client.post("/queues/resting/pause").json()["changed"] is False
    claim = protocol.claim("w", ["resting"], batch_size=1, lease_seconds=60)
    assert run(api_conn, claim) == []
    queues = {queue["queue"]: queue for queue in client.get("/queues").json()["queues"]}
    assert (queues["resting"]["paused"], queues["resting"]["paused_reason"]) == (True, "deploying")
    resumed = client.post("/queues/resting/resume")
    assert resumed.json() == {"queue": "resting", "paused": False, "changed": True}
    assert client.post("/queues/resting/resume").json()["changed"] is False
    assert [claimed.id for claimed in run(api_conn, claim)] == [job_id]


def test_a_queue_that_cannot_exist_cannot_be_paused(client: httpx2.Client) -> None:
    answer = client.post("/queues/no%20such/pause")
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")


def test_paths_and_methods_that_are_not_there_are_refused_in_the_same_shape(
    client: httpx2.Client,
) -> None:
    nowhere = client.get("/nowhere")
    assert (nowhere.status_code, code_of(nowhere)) == (404, "not_found")
    wrong = client.delete("/jobs")
    assert (wrong.status_code, code_of(wrong)) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, POST"
    assert client.delete("/jobs", headers={"Host": "["}).status_code == 405
    assert client.get("/jobs/batch").headers["allow"] == "POST"
    assert client.get("/jobs/").status_code == 404

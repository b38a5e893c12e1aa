"""Claims about an API that knows an application, and about what it counts."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from starlette.testclient import TestClient

from faultline.api import ApiSettings
from faultline.api.application import create_api
from faultline.metrics import meter
from faultline.statements.keys import Scope
from tests.api.served import Served, client_of, code_of, make_key, served


@pytest.fixture(scope="module")
def server(api_url: str) -> Iterator[Served]:
    with served(api_url, "--open-metrics", app="tests.api.shop:app") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Served, api_url: str) -> Iterator[httpx2.Client]:
    with client_of(server, make_key(api_url)) as client:
        yield client


def test_omitted_options_come_from_the_task(client: httpx2.Client) -> None:
    job_id = client.post("/jobs", json={"task": "charge", "payload": {"invoice": 7}}).json()[
        "job_id"
    ]
    job = client.get(f"/jobs/{job_id}").json()
    assert (job["queue"], job["priority"], job["max_attempts"]) == ("billing", 2, 3)
    request = {"task": "charge", "payload": {"invoice": 7}, "queue": "other", "max_attempts": 1}
    [enqueued] = client.post("/jobs/batch", json={"jobs": [request]}).json()["jobs"]
    job = client.get(f"/jobs/{enqueued['job_id']}").json()
    assert (job["queue"], job["priority"], job["max_attempts"]) == ("other", 2, 1)


def test_a_task_that_the_application_does_not_know_is_refused(client: httpx2.Client) -> None:
    answer = client.post("/jobs", json={"task": "refund"})
    assert (answer.status_code, code_of(answer)) == (422, "unknown_task")
    answer = client.post("/jobs/batch", json={"jobs": [{"task": "refund"}]})
    assert (answer.status_code, code_of(answer)) == (422, "unknown_task")


def test_arguments_that_the_handler_does_not_take_are_refused(client: httpx2.Client) -> None:
    for payload in ({}, {"invoice": 7, "unheard_of": 1}, {"invoice": "7"}):
        answer = client.post("/jobs", json={"task": "charge", "payload": payload})
        assert (answer.status_code, code_of(answer)) == (422, "invalid_input")


def test_an_edit_of_arguments_that_do_not_fit_is_refused(client: httpx2.Client) -> None:
    job = {"task": "charge", "payload": {"invoice": 7}}
    job_id = client.post("/jobs", json=job).json()["job_id"]
    for payload in ({}, {"invoice": "8"}):
        answer = client.patch(f"/jobs/{job_id}", json={"payload": payload})
        assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert client.patch(f"/jobs/{job_id}", json={"payload": {"invoice": 8}}).status_code == 200
    assert client.get(f"/jobs/{job_id}").json()["payload"] == {"invoice": 8}


def test_an_edit_of_many_changes_none_if_one_does_not_fit(client: httpx2.Client) -> None:
    jobs = [{"task": "charge", "payload": {"invoice": n}, "queue": "edited"} for n in (1, 2)]
    made = client.post("/jobs/batch", json={"jobs": jobs}).json()["jobs"]
    asked = {"filter": {"queue": "edited"}}
    for changes in ({"unheard_of": 1}, {"invoice": "8"}):
        for dry_run in (True, False):
            sent = {**asked, "changes": changes, "dry_run": dry_run}
            answer = client.post("/jobs/edit", json=sent)
            assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert client.post("/jobs/edit", json={**asked, "changes": {"invoice": 8}}).json()["done"] == 2
    found = [client.get(f"/jobs/{each['job_id']}").json()["payload"] for each in made]
    assert found == [{"invoice": 8}] * 2


def test_requests_and_jobs_are_counted_by_their_routes_and_queues(
    server: Served, client: httpx2.Client
) -> None:
    job = {"task": "charge", "payload": {"invoice": 1}, "queue": "metered", "idempotency_key": "m"}
    for _ in range(3):
        client.post("/jobs", json=job)
    client.get("/nowhere/at/all")
    client.get("/jobs/01a1de8e-68df-7076-9a2d-c2b6a3a0ec12")
    with client_of(server) as stranger:
        answer = stranger.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'faultline_jobs_enqueued_total{outcome="queued",queue="metered"} 1.0' in lines
    assert 'faultline_jobs_enqueued_total{outcome="existing",queue="metered"} 2.0' in lines
    counted = [line for line in lines if line.startswith("faultline_http_requests_total{")]
    assert any('route="/jobs/{id}"' in line and 'status="404"' in line for line in counted)
    assert any('route="unmatched"' in line and 'status="404"' in line for line in counted)
    assert not any("nowhere" in line or "01a1de8e" in line for line in counted)


def test_a_process_counts_while_it_serves_and_not_before_or_afterwards(database_url: str) -> None:
    """A program may serve the API beside other things, and a test beside other tests."""
    meter.switch_off()
    api = create_api(database_url, ApiSettings(require_keys=False))
    assert not meter.current.is_on
    with TestClient(api, base_url="http://localhost") as client:
        assert client.post("/jobs", json={"task": "charge"}).status_code == 201
        assert "faultline_jobs_enqueued_total{" in client.get("/metrics").text
    assert not meter.current.is_on


def test_an_enqueue_key_does_not_read_what_it_enqueued(server: Served, api_url: str) -> None:
    with client_of(server, make_key(api_url, Scope.ENQUEUE)) as producer:
        answer = producer.post("/jobs", json={"task": "charge", "payload": {"invoice": 9}})
        assert answer.status_code == 201
        assert producer.get(answer.headers["location"]).status_code == 403

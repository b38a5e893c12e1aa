"""Operator actions: only from our own page, with a key, and by the real API."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from starlette.testclient import TestClient

from faultline.inspector import security_middleware
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.serving.client import KEY_HEADER
from faultline.statements.keys import Scope
from tests.api.served import make_key, served
from tests.protocol import steps

Connection = psycopg.Connection[Any]
ORIGIN = "http://localhost"


@pytest.fixture
def api(database_url: str) -> Iterator[str]:
    with served(database_url) as server:
        yield server.address


@pytest.fixture
def operator(database_url: str, api: str) -> Iterator[TestClient]:
    """A client that has loaded the dashboard's page and sends an operator's key."""
    app = make_app(InspectorSettings(database_url=database_url, api_url=api))
    with TestClient(app, base_url=ORIGIN) as client:
        load_page(client)
        client.headers[KEY_HEADER] = make_key(database_url, Scope.OPERATE)
        yield client


@pytest.fixture
def page(database_url: str) -> Iterator[TestClient]:
    """The same, where what is asked never gets as far as an API: there is none."""
    settings = InspectorSettings(database_url=database_url, api_url="http://127.0.0.1:9")
    with TestClient(make_app(settings), base_url=ORIGIN) as client:
        load_page(client)
        client.headers[KEY_HEADER] = "any"
        yield client


def load_page(client: TestClient) -> None:
    client.get("/").raise_for_status()
    client.headers[security_middleware.HEADER] = client.cookies[security_middleware.COOKIE]
    client.headers["origin"] = ORIGIN
    client.headers["sec-fetch-site"] = "same-origin"


def act(client: TestClient, action: str, **body: Any) -> httpx2.Response:
    return client.post(f"/api/actions/{action}", json=body)


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_jobs_are_cancelled_and_retried_and_queues_paused_and_resumed(
    operator: TestClient, conn: Connection
) -> None:
    job_id, _ = steps.enqueue(conn, queue="mail")
    paused = "SELECT queue, reason FROM faultline.paused_queues"

    cancelled = act(operator, "cancel", job_id=str(job_id), reason="not wanted")
    assert cancelled.status_code == 200, cancelled.text
    assert steps.state(conn, job_id) == "failed"
    assert steps.job(conn, job_id)["last_error"] == "not wanted"
    assert act(operator, "retry", job_id=str(job_id)).status_code == 200
    assert steps.state(conn, job_id) == "queued"
    assert act(operator, "pause", queue="mail", reason="the provider is down").status_code == 200
    assert steps.rows(conn, paused) == [("mail", "the provider is down")]
    assert act(operator, "resume", queue="mail").status_code == 200
    assert steps.rows(conn, paused) == []


def test_a_refusal_of_the_api_is_passed_on(operator: TestClient, database_url: str) -> None:
    unknown = act(operator, "retry", job_id=str(uuid4()))
    misnamed = act(operator, "pause", queue="../keys")
    operator.headers[KEY_HEADER] = make_key(database_url, Scope.READ)
    without_scope = act(operator, "pause", queue="mail")
    operator.headers[KEY_HEADER] = "flk_00000000_" + "x" * 40
    without_key = act(operator, "pause", queue="mail")

    assert code_of(unknown) == (404, "unknown_job")
    assert misnamed.status_code in (404, 422)
    assert without_scope.status_code == 403
    assert without_key.status_code == 401


def test_a_login_of_a_proxy_in_front_does_not_get_in_the_way(
    operator: TestClient, conn: Connection
) -> None:
    operator.headers["authorization"] = "Basic cHJveHk6bG9naW4="

    assert act(operator, "pause", queue="mail").status_code == 200
    assert steps.rows(conn, "SELECT queue FROM faultline.paused_queues") == [("mail",)]


def test_a_key_is_checked_when_it_is_entered(operator: TestClient, database_url: str) -> None:
    del operator.headers["origin"]  # a browser sends none with a GET
    known = operator.get("/api/actions/key")
    operator.headers[KEY_HEADER] = make_key(database_url, Scope.READ, name="reader")
    reader = operator.get("/api/actions/key")
    operator.headers[KEY_HEADER] = "flk_00000000_" + "x" * 40
    wrong = operator.get("/api/actions/key")
    operator.headers["sec-fetch-site"] = "cross-site"
    foreign = operator.get("/api/actions/key")

    assert known.json() == {"name": "test", "scopes": ["operate"]}
    assert reader.json() == {"name": "reader", "scopes": ["read"]}
    assert code_of(wrong) == (401, "unauthenticated")
    assert code_of(foreign) == (403, "foreign_origin")


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"origin": "http://evil.example"}, (403, "foreign_origin")),
        ({"origin": "http://localhost.evil.example"}, (403, "foreign_origin")),
        ({"origin": "null"}, (403, "foreign_origin")),
        ({"origin": None}, (403, "foreign_origin")),
        ({"sec-fetch-site": "cross-site"}, (403, "foreign_origin")),
        ({"sec-fetch-site": "same-site"}, (403, "foreign_origin")),
        ({security_middleware.HEADER: None}, (403, "csrf_token")),
        ({security_middleware.HEADER: "made.up"}, (403, "csrf_token")),
        ({"origin": "http://["}, (403, "foreign_origin")),
        ({KEY_HEADER: None}, (401, "key_required")),
        ({KEY_HEADER: None, "authorization": "Basic YTpi"}, (401, "key_required")),
    ],
)
@pytest.mark.parametrize("action", ["retry", "cancel", "pause", "resume"])
def test_a_request_that_is_not_the_page_s_own_goes_nowhere(
    page: TestClient, action: str, changed: dict[str, str | None], refusal: tuple[int, str]
) -> None:
    for name, value in changed.items():
        if value is None:
            del page.headers[name]
        else:
            page.headers[name] = value
    body = {"job_id": str(uuid4())} if action in ("retry", "cancel") else {"queue": "mail"}

    assert code_of(act(page, action, **body)) == refusal


def test_a_cookie_planted_from_elsewhere_is_worth_nothing_although_it_is_echoed(
    page: TestClient,
) -> None:
    page.cookies.clear()
    page.cookies.set(security_middleware.COOKIE, "planted.token")
    page.headers[security_middleware.HEADER] = "planted.token"

    assert code_of(act(page, "resume", queue="mail")) == (403, "csrf_token")


def test_an_unreachable_api_is_a_502(page: TestClient) -> None:
    assert code_of(act(page, "resume", queue="mail")) == (502, "api_unavailable")


class Website(BaseHTTPRequestHandler):
    """Something else that listens."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<h1>Hello</h1>")

    def log_message(self, *args: Any) -> None:
        pass


def test_an_address_that_is_no_api_is_a_502(database_url: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Website) as website:
        Thread(target=website.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{website.server_port}"
        settings = InspectorSettings(database_url=database_url, api_url=address)
        with TestClient(make_app(settings), base_url=ORIGIN) as client:
            load_page(client)
            client.headers[KEY_HEADER] = "any"
            answer = act(client, "resume", queue="mail")
        website.shutdown()

    assert code_of(answer) == (502, "api_answer")


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("retry", {"job_id": "x"}),
        ("cancel", {}),
        ("pause", {"queue": ""}),
        ("resume", {"queue": "mail", "also": 1}),
        ("pause", {"queue": "mail", "reason": "x" * 1001}),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_with_a_code(
    page: TestClient, action: str, body: dict[str, Any]
) -> None:
    assert code_of(act(page, action, **body)) == (422, "invalid_input")


def test_a_body_that_names_something_twice_is_refused(page: TestClient) -> None:
    headers = {"content-type": "application/json"}
    body = b'{"queue": "mail", "queue": "other"}'
    answer = page.post("/api/actions/resume", content=body, headers=headers)
    assert code_of(answer) == (422, "duplicate_key")


def test_without_an_api_there_are_no_actions(client: TestClient) -> None:
    assert client.get("/api/about").json()["actions"] is False
    assert code_of(act(client, "resume", queue="mail")) == (404, "actions_off")


def test_with_an_api_there_are(page: TestClient) -> None:
    assert page.get("/api/about").json()["actions"] is True

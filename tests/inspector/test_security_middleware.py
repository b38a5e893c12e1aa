"""Security headers, allowed host names, and the dashboard's files."""

from __future__ import annotations

import asyncio

import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from faultline.inspector import security_middleware
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import WEB, InspectorSettings

PATHS = ["/", "/static/nothing.js", "/api/about", "/api/nowhere", "/api/jobs?limit=0"]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_keeps_a_browser_to_this_origin(client: TestClient, path: str) -> None:
    headers = client.get(path).headers

    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == ("no-store" if path.startswith("/api/") else "no-cache")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8001", 200),
        ("127.0.0.1:8001", 200),
        ("10.1.2.3", 200),
        ("[::1]:8001", 200),
        ("queue.example", 200),
        ("QUEUE.example:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
def test_only_addresses_and_names_that_were_given_are_answered_to(
    database_url: str, host: str, status: int
) -> None:
    settings = InspectorSettings(database_url=database_url, allowed_hosts=("queue.example",))
    with TestClient(make_app(settings), base_url="http://localhost") as client:
        answer = client.get("/api/about", headers={"host": host})

    assert answer.status_code == status
    if status != 200:
        assert answer.json()["error"]["code"] == "unknown_host"
        assert "content-security-policy" in answer.headers


def test_the_dashboard_is_at_the_root_and_its_files_beside_it(client: TestClient) -> None:
    page = client.get("/")

    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    script = client.get("/static/main.js")
    assert script.status_code == 200
    assert "javascript" in script.headers["content-type"]


@pytest.mark.parametrize(
    "path", ["/static/../application.py", "/static/%2e%2e/application.py", "/static//etc/passwd"]
)
def test_no_other_file_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404
    assert (WEB.parent / "application.py").is_file()


def test_the_page_sets_a_csrf_token_unless_it_has_a_valid_one(client: TestClient) -> None:
    first = client.get("/").headers["set-cookie"]
    token = client.cookies[security_middleware.COOKIE]

    assert first.startswith(f"{security_middleware.COOKIE}={token}")
    assert "samesite=strict" in first.lower()
    assert "secure" not in first.lower()
    assert "set-cookie" not in client.get("/").headers
    client.cookies.clear()
    client.cookies.set(security_middleware.COOKIE, "planted")
    assert "set-cookie" in client.get("/").headers


def test_a_large_body_is_refused_unread(client: TestClient) -> None:
    for content in (b"x" * 20_000, iter([b"x", b"of no declared length"])):
        answer = client.post("/api/actions/retry", content=content)

        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


def test_an_internal_error_has_no_traceback(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: object) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr("faultline.inspector.read_endpoints.read_reports", fail)
    app = make_app(InspectorSettings(database_url=database_url))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        answer = client.get("/api/reports")

    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text
    assert "content-security-policy" in answer.headers


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_middleware, "BODY_SECONDS", 0.05)
    sent: list[Message] = []

    async def never() -> Message:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Message) -> None:
        sent.append(message)

    async def unreached(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the application is not asked")

    headers = [(b"host", b"localhost"), (b"content-length", b"10")]
    scope = {"type": "http", "method": "POST", "path": "/api/actions/pause", "headers": headers}
    asyncio.run(security_middleware.SecurityMiddleware(unreached)(scope, never, send))

    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert b"request_timeout" in sent[1]["body"]


@pytest.mark.parametrize("is_trusted", [True, False])
def test_behind_a_trusted_tls_proxy_the_cookie_is_for_tls_alone(
    database_url: str, is_trusted: bool
) -> None:
    settings = InspectorSettings(database_url=database_url, behind_proxy=is_trusted)
    with TestClient(make_app(settings), base_url="http://localhost") as client:
        cookie = client.get("/", headers={"x-forwarded-proto": "https"}).headers["set-cookie"]

    assert ("secure" in cookie.lower()) is is_trusted

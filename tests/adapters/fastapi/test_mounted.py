"""The API and the dashboard behind the authentication of their host."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount, Router

from faultline import Faultline, InvalidInput, __version__
from faultline.adapters.fastapi import (
    Caller,
    dashboard,
    mounted_lifespan,
    producer_api,
)
from faultline.postgres.sessions import run
from faultline.statements import keys
from faultline.statements.keys import Scope
from tests.adapters.fastapi import shop
from tests.running import value

Conn = psycopg.Connection[Any]
ADA, BOB = {"cookie": "user=ada"}, {"cookie": "user=bob"}
JOB = {"task": "shop.charge", "payload": {"invoice": 1}}
FOREIGN = [
    {"sec-fetch-site": "cross-site", "origin": "http://shop.test"},
    {"sec-fetch-site": "same-site", "origin": "http://evil.shop.test"},
    {"origin": "http://evil.test"},
    {"origin": "null"},
    {"origin": "http://["},
]
OWN = [{}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}]
OWN.append({"origin": "https://shop.test"})  # a proxy ends TLS


def enqueue(client: TestClient, path: str = "/queue", **headers: str) -> str:
    found = client.post(f"{path}/jobs", json=JOB, headers={**ADA, **headers})
    assert found.status_code == 201, found.text
    return str(found.json()["job_id"])


def audit(conn: Conn) -> list[tuple[Any, ...]]:
    query = "SELECT actor_kind, actor, address, action, result FROM faultline.audit_log ORDER BY id"
    return conn.execute(query).fetchall()


# ── the API ──────────────────────────────────────────────────────────────────────────────────────


def test_a_user_of_the_host_enqueues_and_operates_without_a_key(
    client: TestClient, queue: Faultline, conn: Conn
) -> None:
    job_id = enqueue(client)
    client.post(f"/queue/jobs/{job_id}/cancel", headers=ADA).raise_for_status()
    assert queue.get(job_id).failed_reason == "cancelled"
    assert audit(conn) == [("user", "ada", "testclient", "cancel", "done")]
    assert client.get("/queue/key", headers=BOB).json() == {"name": "bob", "scopes": ["read"]}


def test_a_stranger_gets_the_hosts_own_refusal(client: TestClient) -> None:
    refused = client.post("/queue/jobs", json=JOB)
    assert (refused.status_code, refused.json()) == (401, {"detail": "log in first"})


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/queue/jobs"), ("POST", "/queue/queues/mail/pause"), ("GET", "/queue/audit")],
)
def test_a_user_without_the_scope_is_refused(
    client: TestClient, conn: Conn, method: str, path: str
) -> None:
    body = JOB if path == "/queue/jobs" else None
    refused = client.request(method, path, json=body, headers=BOB)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "forbidden"
    assert client.get("/queue/queues", headers=BOB).status_code == 200


def test_a_refused_action_is_in_the_audit_log_under_the_users_name(
    queue: Faultline, conn: Conn, effects: str
) -> None:
    host = shop.make_shop()
    host.router.lifespan_context = mounted_lifespan()
    with TestClient(host) as client:
        client.post("/queue/queues/mail/pause", headers=BOB)
    assert audit(conn) == [("user", "bob", "testclient", "pause", "refused")]


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_another_origin_cannot_use_the_users_session(
    client: TestClient, queue: Faultline, headers: dict[str, str]
) -> None:
    job_id = enqueue(client)
    refused = client.post(f"/queue/jobs/{job_id}/cancel", headers={**ADA, **headers})
    assert refused.status_code == 403
    assert queue.get(job_id).failed_reason is None


@pytest.mark.parametrize("headers", OWN)
def test_a_page_of_the_host_and_a_program_may_write(
    client: TestClient, headers: dict[str, str]
) -> None:
    enqueue(client, **headers)


def test_keys_are_asked_for_unless_the_host_decides(client: TestClient, conn: Conn) -> None:
    key = keys.new_key()
    run(conn, keys.create("billing", key, [Scope.ENQUEUE]))
    assert client.post("/keys/jobs", json=JOB, headers=ADA).status_code == 401
    enqueue(client, "/keys", authorization=f"Bearer {key.text}")


def test_a_client_cannot_name_its_caller(client: TestClient) -> None:
    named = {"faultline.caller": "ada", "x-faultline-caller": "ada"}
    assert client.get("/keys/queues", headers=named).status_code == 401
    assert client.get("/queue/queues", headers=named).status_code == 401


def test_the_description_names_the_prefix_and_no_keys(client: TestClient) -> None:
    document = client.get("/queue/openapi.json", headers=ADA).json()
    assert document["servers"] == [{"url": "/queue"}]
    assert "securitySchemes" not in document["components"]
    assert "security" not in document["paths"]["/jobs"]["post"]
    assert "flk_" not in document["info"]["description"]


def test_the_allowed_methods_are_those_of_the_path_under_the_prefix(client: TestClient) -> None:
    refused = client.delete("/queue/jobs", headers=ADA)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")


def test_a_task_that_the_application_does_not_have_is_refused(client: TestClient) -> None:
    refused = client.post("/queue/jobs", json={"task": "shop.chrage"}, headers=ADA)
    assert refused.status_code == 422


# ── the host ─────────────────────────────────────────────────────────────────────────────────────


class LoginRequired(Exception):
    """An error of the host, which answers it with a redirect."""


def test_the_hosts_handler_answers_its_own_errors(queue: Faultline) -> None:
    def caller() -> Caller:
        raise LoginRequired

    async def to_login(request: Request, error: Exception) -> RedirectResponse:
        return RedirectResponse("/login")

    host = FastAPI(lifespan=mounted_lifespan())
    host.add_exception_handler(LoginRequired, to_login)
    host.mount("/faultline", dashboard(queue, access=caller))
    with TestClient(host, follow_redirects=False) as client:
        assert client.get("/faultline/").headers["location"] == "/login"


def test_the_hosts_overrides_replace_what_the_dependency_depends_on(queue: Faultline) -> None:
    host = shop.make_shop()
    host.router.lifespan_context = mounted_lifespan()
    host.dependency_overrides[shop.signed_in] = lambda: "ada"
    with TestClient(host) as client:
        assert client.get("/queue/key").json()["name"] == "ada"


def test_the_state_of_the_hosts_request_is_its_own(queue: Faultline) -> None:
    seen: list[str] = []

    async def caller(request: Request) -> Any:
        request.state.request_id = "the host's"
        yield Caller("ada", {"read"})
        seen.append(request.state.request_id)

    host = FastAPI(lifespan=mounted_lifespan())
    host.mount("/tenants/{tenant}/queue", producer_api(queue, access=caller))
    with TestClient(host) as client:
        assert client.get("/tenants/7/queue/queues").status_code == 200
    assert seen == ["the host's"]


def test_starlette_is_a_host_too(queue: Faultline) -> None:
    mounted = dashboard(queue, access=lambda: Caller("ada", {"read"}))
    inner = Router(routes=[Mount("/faultline", mounted)])
    host = Starlette(routes=[Mount("/admin", inner)], lifespan=mounted_lifespan())
    with TestClient(host, root_path="/app") as client:
        assert client.get("/app/admin/faultline/api/about").json()["actions"] is False
        assert client.get("/app/admin/faultline/static/main.js").status_code == 200


def test_what_was_not_started_says_how(queue: Faultline) -> None:
    host = FastAPI()
    host.mount("/queue", producer_api(queue))
    with TestClient(host) as client, pytest.raises(InvalidInput, match="was not started"):
        client.get("/queue/health")


def test_one_application_may_be_mounted_twice_and_started_again(queue: Faultline) -> None:
    mounted = producer_api(queue, access=lambda: Caller("ada", {"read"}))
    host = FastAPI(lifespan=mounted_lifespan())
    host.mount("/v1", mounted)
    host.mount("/v2", mounted)
    for _ in range(2):
        with TestClient(host) as client:
            assert client.get("/v1/queues").status_code == 200
            assert client.get("/v2/queues").status_code == 200


def test_what_is_no_caller_lets_no_request_in(queue: Faultline) -> None:
    host = FastAPI(lifespan=mounted_lifespan())
    host.mount("/queue", producer_api(queue, access=lambda: True))  # type: ignore[arg-type,return-value]
    with TestClient(host) as client, pytest.raises(InvalidInput, match="access returned a bool"):
        client.get("/queue/queues")


@pytest.mark.parametrize(
    ("name", "scopes", "message"),
    [("", {"read"}, "needs a name"), ("ada", "read", "text"), ("ada", {"admin"}, "no scope")],
)
def test_a_caller_is_checked(name: str, scopes: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Caller(name, scopes)


# ── the dashboard ────────────────────────────────────────────────────────────────────────────────


def test_the_dashboard_acts_as_the_user_of_the_host(
    client: TestClient, queue: Faultline, conn: Conn
) -> None:
    job_id = enqueue(client)
    sent = {"job_id": job_id, "reason": "a mistake"}
    client.post("/faultline/api/actions/cancel", json=sent, headers=ADA).raise_for_status()
    assert queue.get(job_id).failed_reason == "cancelled"
    assert audit(conn) == [("user", "ada", "testclient", "cancel", "done")]
    assert client.get("/faultline/api/about", headers=ADA).json() == {
        "version": __version__,
        "actions": True,
        "needs_key": False,
        "acts_as": client.get("/faultline/api/about", headers=BOB).json()["acts_as"],
    }


def test_a_user_who_may_only_read_cannot_act(client: TestClient, conn: Conn) -> None:
    body = {"queue": "mail"}
    refused = client.post("/faultline/api/actions/pause", json=body, headers=BOB)
    assert (refused.status_code, audit(conn)) == (403, [])
    assert client.get("/faultline/api/about", headers=BOB).json()["actions"] is False


@pytest.mark.parametrize("headers", FOREIGN)
def test_the_dashboard_refuses_actions_from_pages_of_another_origin(
    client: TestClient, conn: Conn, headers: dict[str, str]
) -> None:
    body = {"queue": "mail"}
    path = "/faultline/api/actions/pause"
    assert client.post(path, json=body, headers={**ADA, **headers}).status_code == 403
    assert audit(conn) == []


def test_the_apis_errors_reach_the_dashboard(client: TestClient) -> None:
    sent = {"job_id": "00000000-0000-0000-0000-000000000000"}
    refused = client.post("/faultline/api/actions/retry", json=sent, headers=ADA)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_job")


def test_a_dashboard_without_actions_has_none(queue: Faultline) -> None:
    host = FastAPI(lifespan=mounted_lifespan())
    host.mount("/faultline", dashboard(queue, access=shop.caller, actions=False))
    with TestClient(host) as client:
        assert client.get("/faultline/api/about", headers=ADA).json()["actions"] is False
        path = "/faultline/api/actions/pause"
        assert client.post(path, json={"queue": "mail"}, headers=ADA).status_code == 404


def test_the_page_is_found_without_its_slash_and_sets_no_cookie(client: TestClient) -> None:
    client.cookies.set("user", "ada")
    found = client.get("/faultline")
    assert found.status_code == 200, found.text
    assert found.url.path == "/faultline/"
    assert "<title>Faultline</title>" in found.text
    assert "set-cookie" not in found.headers
    assert found.headers["cache-control"] == "no-cache"
    data = client.get("/faultline/api/overview")
    assert data.headers["cache-control"] == "no-store"


def test_a_user_without_the_scope_read_sees_nothing(queue: Faultline) -> None:
    host = FastAPI(lifespan=mounted_lifespan())
    access = lambda: Caller("ada", {"operate"})  # noqa: E731
    host.mount("/faultline", dashboard(queue, access=access))
    with TestClient(host) as client:
        for path in ("", "api/overview", "api/stream", "static/main.js"):
            assert client.get(f"/faultline/{path}").status_code == 403


def test_the_schema_stays_unread_until_a_page_is_opened(queue: Faultline, conn: Conn) -> None:
    host = FastAPI(lifespan=mounted_lifespan())
    host.mount("/faultline", dashboard(queue, access=shop.caller))
    with TestClient(host):
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        assert value(conn, sessions) == 1

"""Claims about unexpected errors, and about the cache of valid keys."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import psycopg
import pytest

from faultline.api import ApiSettings
from faultline.api.api_errors import ApiError
from faultline.api.authentication import KeyAuthenticator
from faultline.api.limit_middleware import LimitMiddleware
from faultline.api.rate_limits import WrongKeyLimiter
from faultline.postgres.sessions import run
from faultline.statements import keys
from faultline.statements.keys import Scope
from faultline.statements.statement import Statement
from tests.api.served import code_of


def test_an_unexpected_error_is_logged_and_hidden_from_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "faultline.api.limit_middleware.emit", lambda event, **fields: logged.append(fields)
    )

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("password=hunter2")

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(LimitMiddleware(broken, settings=ApiSettings()))
        async with httpx2.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.get("/")

    answer = asyncio.run(ask())
    assert (answer.status_code, code_of(answer)) == (500, "internal_error")
    assert "hunter2" not in answer.text
    [event] = logged
    assert event["error"] == "RuntimeError: password=***"
    assert "in broken" in event["traceback"]
    assert event["request"] == answer.headers["x-request-id"]


def test_a_revoked_key_works_for_the_cache_time_at_most(
    conn: psycopg.Connection[Any],
) -> None:
    now = 100.0
    looked_up: list[str] = []
    authenticator = KeyAuthenticator(cache_seconds=5, clock=lambda: now)
    key = keys.new_key()
    key_id = run(conn, keys.create("test", key, [Scope.READ]))

    async def ask(statement: Statement[Any]) -> Any:
        looked_up.append(statement.sql)
        return run(conn, statement)

    limiter = WrongKeyLimiter(1, 30, clock=lambda: now)

    def authenticate() -> int:
        found = authenticator.authenticate(key.text, ask, wrong_keys=limiter, address="127.0.0.1")
        return asyncio.run(found).id

    assert authenticate() == key_id
    queries = len(looked_up)
    run(conn, keys.revoke(key_id))
    now = 104.9
    assert authenticate() == key_id
    assert len(looked_up) == queries
    now = 105.0
    with pytest.raises(ApiError) as refused:
        authenticate()
    assert refused.value.status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "named", "hint"),
    [
        ("/jobs", {"task": "a", "prioriti": 1}, "prioriti", "did you mean priority?"),
        ("/jobs", {"task": "a", "zzz": 1}, "zzz", None),
        ("/jobs/cancel", {"filter": {"quue": "a"}}, "filter.quue", "did you mean queue?"),
        ("/jobs/batch", {"jobs": [{"task": "a", "dely": 1}]}, "dely", "did you mean delay?"),
    ],
)
def test_an_unknown_name_in_a_body_is_refused_with_the_closest(
    client: httpx2.Client, path: str, body: dict[str, object], named: str, hint: str | None
) -> None:
    error = client.post(path, json=body).json()["error"]
    assert (error["code"], error["hint"]) == ("invalid_input", hint)
    assert error["message"].endswith(f"{named!r} is not a known name")


def test_an_unknown_parameter_is_refused_with_the_closest(client: httpx2.Client) -> None:
    for query, hint in (("stat=failed", "did you mean state?"), ("zzz=1", None)):
        error = client.get(f"/jobs?{query}").json()["error"]
        assert (error["code"], error["hint"]) == ("invalid_input", hint)
        assert error["message"] == f"{query.partition('=')[0]!r} is not a known name"


def test_a_path_without_an_endpoint_says_that_the_list_needs_a_key(client: httpx2.Client) -> None:
    error = client.get("/nowhere").json()["error"]
    assert error["hint"] == "GET /openapi.json lists them, with any key"

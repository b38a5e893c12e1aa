"""An exposed inspector names no account, host, port or database in its errors."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from starlette.testclient import TestClient

from faultline.inspector import overview, responses
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline_drills.proxy import proxy_to

PATHS = ["/api/overview", "/api/leases", "/api/jobs", "/api/audit"]
Connection = psycopg.Connection[Any]


def answers(url: str, *, expose: bool) -> list[Any]:
    settings = InspectorSettings(database_url=url, expose=expose)
    with TestClient(make_app(settings), base_url="http://localhost") as client:
        return [client.get(path) for path in PATHS]


def test_the_log_has_the_reason_under_the_error_id_of_the_response(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[dict[str, Any]] = []
    monkeypatch.setattr(responses, "emit", lambda event, **fields: emitted.append(fields))
    monkeypatch.setattr(overview, "FRESH_SECONDS", 0.0)
    with proxy_to(database_url) as proxy:
        proxy.refuse_connections()
        parts = conninfo_to_dict(proxy.url)
        answered = answers(proxy.url, expose=True)
        at_home = answers(proxy.url, expose=False)

    secrets = [str(parts[name]) for name in ("user", "host", "port", "dbname")]
    for answer in answered:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_unavailable")
        assert not [secret for secret in secrets if secret in answer.text], answer.text
    error_id = answered[0].json()["error"]["hint"].rpartition(" ")[2]
    logged = {fields["error_id"]: fields["error"] for fields in emitted}
    assert str(parts["port"]) in logged[error_id]
    assert len(emitted) <= len(PATHS)
    assert str(parts["port"]) in at_home[1].text


def test_the_audit_log_names_no_role(database_url: str, conn: Connection) -> None:
    conn.execute("SELECT faultline.pause_queue('mail')")
    [*_, exposed] = answers(database_url, expose=True)
    [*_, at_home] = answers(database_url, expose=False)

    [entry] = exposed.json()["audit"]
    assert (entry["actor"], entry["role"]) == ("a database role", None)
    assert at_home.json()["audit"][0]["role"] == conn.info.user


def test_the_event_stream_names_no_host_either(database_url: str) -> None:
    from faultline.errors import DatabaseUnavailable

    answered = responses.ErrorRedaction(hides_details=True).public(
        DatabaseUnavailable("cannot reach me@db.internal:5432/prod", hint="postgresql://…")
    )
    assert "db.internal" not in f"{answered.message} {answered.hint}"

"""Claims about keys: scopes, storage and revocation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import psycopg
import pytest
from click.testing import CliRunner

from faultline.cli.context import Context
from faultline.cli.keys import keys
from faultline.errors import FaultlineError
from faultline.statements import keys as key_values
from faultline.statements.keys import Scope
from tests.api.served import Served, client_of, code_of, make_key, served

Connection = psycopg.Connection[Any]
JOB = "01a1de8e-68df-7076-9a2d-c2b6a3a0ec12"
LIMIT = "queue:q"
ENDPOINTS: list[tuple[str, str, Scope | None]] = [
    ("POST", "/jobs", Scope.ENQUEUE),
    ("POST", "/jobs/batch", Scope.ENQUEUE),
    ("GET", "/jobs", Scope.READ),
    ("GET", "/jobs/export", Scope.READ),
    ("GET", f"/jobs/{JOB}", Scope.READ),
    ("GET", "/queues", Scope.READ),
    ("GET", "/metrics", Scope.READ),
    ("POST", f"/jobs/{JOB}/cancel", Scope.OPERATE),
    ("DELETE", f"/jobs/{JOB}", Scope.OPERATE),
    ("PATCH", f"/jobs/{JOB}", Scope.OPERATE),
    ("POST", "/jobs/retry", Scope.OPERATE),
    ("POST", "/jobs/cancel", Scope.OPERATE),
    ("POST", "/jobs/delete", Scope.OPERATE),
    ("POST", "/jobs/edit", Scope.OPERATE),
    ("POST", f"/jobs/{JOB}/retry", Scope.OPERATE),
    ("POST", "/queues/q/pause", Scope.OPERATE),
    ("POST", "/queues/q/resume", Scope.OPERATE),
    ("GET", "/schedules", Scope.READ),
    ("GET", "/schedules/s", Scope.READ),
    ("POST", "/schedules", Scope.OPERATE),
    ("POST", "/schedules/s/pause", Scope.OPERATE),
    ("POST", "/schedules/s/resume", Scope.OPERATE),
    ("POST", "/schedules/s/run", Scope.OPERATE),
    ("DELETE", "/schedules/s", Scope.OPERATE),
    ("GET", "/limits", Scope.READ),
    ("GET", f"/limits/{LIMIT}", Scope.READ),
    ("PUT", f"/limits/{LIMIT}", Scope.OPERATE),
    ("DELETE", f"/limits/{LIMIT}", Scope.OPERATE),
    ("GET", "/audit", Scope.OPERATE),
    ("GET", "/key", None),
    ("GET", "/openapi.json", None),
]


def command(url: str, *words: str) -> Any:
    context = Context(app_path=None, given_url=url, log_format="json", verbose=False)
    done = CliRunner().invoke(keys, [*words, "--json"], obj=context)
    if done.exception is not None:
        raise done.exception
    return orjson.loads(done.output)


@pytest.fixture(scope="module")
def by_scope(server: Served, api_url: str) -> Iterator[dict[Scope, httpx2.Client]]:
    """A client for each scope, whose key has no other."""
    made = {scope: make_key(api_url, scope) for scope in Scope}
    with (
        client_of(server, made[Scope.ENQUEUE]) as enqueue,
        client_of(server, made[Scope.READ]) as read,
        client_of(server, made[Scope.OPERATE]) as operate,
    ):
        yield {Scope.ENQUEUE: enqueue, Scope.READ: read, Scope.OPERATE: operate}


def test_the_endpoints_of_this_test_are_all_there_are(client: httpx2.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    described = {(verb.upper(), path) for path, verbs in paths.items() for verb in verbs}
    tested = {
        (
            verb,
            path.replace(JOB, "{id}")
            .replace("/q/", "/{queue}/")
            .replace("/schedules/s", "/schedules/{schedule}")
            .replace(LIMIT, "{name}"),
        )
        for verb, path, _ in ENDPOINTS
    }
    assert described == tested | {("GET", "/health"), ("GET", "/ready")}


@pytest.mark.parametrize(("verb", "path", "needed"), ENDPOINTS)
def test_an_endpoint_opens_to_its_scope_and_to_no_other(
    by_scope: dict[Scope, httpx2.Client], verb: str, path: str, needed: Scope | None
) -> None:
    for scope, client in by_scope.items():
        answer = client.request(verb, path)
        if needed in (None, scope):
            assert answer.status_code in (200, 404, 422)
        else:
            assert (answer.status_code, code_of(answer)) == (403, "forbidden")
            assert f'scope="{needed}"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize(("verb", "path", "needed"), ENDPOINTS)
def test_without_a_key_no_endpoint_answers_and_no_body_is_read(
    server: Served, verb: str, path: str, needed: Scope | None
) -> None:
    with client_of(server) as stranger:
        answer = stranger.request(verb, path, content=b"not even JSON")
    assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_health_and_readiness_need_no_key_and_tell_no_secret(server: Served) -> None:
    with client_of(server) as stranger:
        health, ready = stranger.get("/health"), stranger.get("/ready")
    assert (health.status_code, ready.status_code) == (200, 200)
    assert health.json().keys() == {"status", "database_seconds"}
    assert ready.json() == {"status": "ready"}


def test_a_key_that_is_not_quite_right_is_no_key(server: Served, api_url: str) -> None:
    right = make_key(api_url)
    prefix = right.split("_")[1]
    wrong = [
        right[:-1] + ("A" if right[-1] != "A" else "B"),
        right.replace(prefix, "zzzzzzzz"),
        right.upper(),
        right[: len("flk_12345678_")],
        f"flk_{prefix}_" + "A" * 43,
        "flk__",
        "ключ",
    ]
    with client_of(server) as stranger:
        for header in (*(f"Bearer {key}" for key in wrong), right, f"Basic {right}", "Bearer"):
            answer = stranger.get("/queues", headers={"Authorization": header.encode()})  # type: ignore[dict-item]
            assert (answer.status_code, code_of(answer)) == (401, "unauthenticated"), header
            assert right not in answer.text
        assert stranger.get("/queues", headers={"Authorization": f"bearer  {right}"}).is_success


def test_a_key_is_kept_as_its_hash_alone(api_url: str, api_conn: Connection) -> None:
    made = command(api_url, "create", "billing", "--scope", "read", "--scope", "enqueue")
    assert made["scopes"] == ["enqueue", "read"]
    row = api_conn.execute(
        "SELECT to_jsonb(k)::text, key_hash FROM faultline.api_keys AS k WHERE id = %s",
        [made["id"]],
    ).fetchone()
    assert row is not None
    secret = made["key"].removeprefix(f"flk_{made['prefix']}_")
    assert len(secret) >= 32
    assert secret not in row[0]
    assert bytes(row[1]) == hashlib.sha256(made["key"].encode()).digest()
    listed = command(api_url, "list", "--revoked")
    assert made["id"] in [key["id"] for key in listed]
    assert secret not in str(listed)
    assert secret not in repr(key_values.new_key())


def test_no_two_keys_are_alike() -> None:
    made = {key_values.new_key().text for _ in range(200)}
    assert len(made) == 200
    assert all(key_values.prefix_of(text) is not None for text in made)


def test_a_revoked_key_opens_nothing_from_the_next_request_on(server: Served, api_url: str) -> None:
    made = command(api_url, "create", "leaked", "--scope", "read")
    with client_of(server, made["key"]) as client:
        assert client.get("/queues").is_success
        assert command(api_url, "revoke", str(made["id"])) == {
            "id": made["id"],
            "was_valid": True,
        }
        answer = client.get("/queues")
        assert (answer.status_code, code_of(answer)) == (401, "unauthenticated")
    assert made["id"] not in [key["id"] for key in command(api_url, "list")]
    assert command(api_url, "revoke", made["prefix"])["was_valid"] is False
    assert command(api_url, "revoke", made["key"])["was_valid"] is False
    with pytest.raises(FaultlineError, match="no key"):
        command(api_url, "revoke", "999999999")


def test_the_last_use_of_a_key_is_known(server: Served, api_url: str) -> None:
    made = command(api_url, "create", "used", "--scope", "read")

    def last_used() -> Any:
        [mine] = [key for key in command(api_url, "list") if key["id"] == made["id"]]
        return mine["last_used_at"]

    assert last_used() is None
    with client_of(server, made["key"]) as client:
        client.get("/queues")
    assert last_used() is not None


def test_a_key_needs_a_name_and_a_scope(api_url: str) -> None:
    for words in (
        ["", "--scope", "read"],
        ["x" * 101, "--scope", "read"],
        ["a\x00b", "-s", "read"],
    ):
        with pytest.raises(FaultlineError):
            command(api_url, "create", *words)
    with pytest.raises(SystemExit):
        command(api_url, "create", "named")
    with pytest.raises(SystemExit):
        command(api_url, "create", "named", "--scope", "everything")


# ── without keys ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def keyless(api_url: str) -> Iterator[Served]:
    with served(api_url, "--insecure-no-keys") as server:
        yield server


def test_a_server_without_keys_says_so_at_its_start_and_in_every_answer(keyless: Served) -> None:
    with client_of(keyless) as client:
        answer = client.post("/jobs", json={"task": "t"})
        assert answer.status_code == 201
        assert answer.headers["x-faultline-insecure"] == "no keys"
    keyless.wait_for("KEYS ARE OFF")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Host": "["},
    ],
)
def test_a_web_page_in_a_browser_on_this_machine_cannot_use_it(
    keyless: Served, headers: dict[str, str]
) -> None:
    with client_of(keyless) as page:
        answer = page.post("/jobs", json={"task": "t"}, headers=headers)
        assert (answer.status_code, code_of(answer)) == (403, "foreign_origin")
        assert "access-control-allow-origin" not in answer.headers


def test_without_keys_the_api_listens_on_loopback_only(api_url: str) -> None:
    from faultline.api import ApiSettings
    from faultline.errors import InvalidSettings

    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):  # noqa: S104
        with pytest.raises(InvalidSettings, match="every client"):
            ApiSettings(host=host, require_keys=False)
        ApiSettings(host=host)
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        ApiSettings(host=host, require_keys=False)

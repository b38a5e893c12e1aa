"""The audit log records every operator action; refused keys cannot fill it."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from faultline import Faultline
from faultline.api import ApiSettings
from faultline.config import Retention
from faultline.errors import IllegalTransition, InvalidInput
from faultline.postgres.sessions import run
from faultline.statements import audit, retention
from faultline.statements.audit import AuditFilter
from faultline.statements.keys import Scope
from tests.api.served import BOUND_SECONDS, Served, client_of, code_of, make_key, served
from tests.cli.conftest import invoke
from tests.protocol import steps
from tests.waiting import wait_until

Connection = psycopg.Connection[Any]
WRONG = "flk_zzzzzzzz_" + "x" * 40


def rows(conn: Connection) -> list[tuple[Any, ...]]:
    return steps.rows(
        conn,
        "SELECT actor_kind, actor, action, object, result, code FROM faultline.audit_log"
        " ORDER BY id",
    )


# ── written with the action ──────────────────────────────────────────────────────────────────────


def test_every_action_has_its_row_and_one_from_psql_is_known_by_its_role(conn: Connection) -> None:
    job_id, _ = steps.enqueue(conn)
    me = conn.info.user
    conn.execute("SELECT faultline.cancel(%s, 'by mistake')", [job_id])
    conn.execute("SELECT faultline.cancel(%s)", [job_id])
    conn.execute("SELECT faultline.retry(%s)", [job_id])
    conn.execute("SELECT faultline.pause_queue('mail'), faultline.resume_queue('mail')")
    conn.execute("SELECT faultline.resume_queue('mail')")
    key = "SELECT faultline.create_api_key('ci', 'abcdefgh', sha256('x'), '{read}')"
    key_id = steps.value(conn, key)
    conn.execute("SELECT faultline.revoke_api_key(%s)", [key_id])
    conn.execute("SELECT FROM faultline.request_drain()")
    epoch = steps.value(conn, "SELECT faultline.bump_epoch('restored')")

    job = f"job {job_id}"
    assert rows(conn) == [
        ("role", me, "cancel", job, "done", "failed"),
        ("role", me, "cancel", job, "unchanged", "failed"),
        ("role", me, "retry", job, "done", "queued"),
        ("role", me, "pause", "queue mail", "done", None),
        ("role", me, "resume", "queue mail", "done", None),
        ("role", me, "resume", "queue mail", "unchanged", None),
        ("role", me, "create key", "key flk_abcdefgh", "done", None),
        ("role", me, "revoke key", "key flk_abcdefgh", "done", None),
        ("role", me, "drain", "all workers", "unchanged", None),
        ("role", me, "bump epoch", f"epoch {epoch}", "done", None),
    ]
    assert steps.value(conn, "SELECT detail FROM faultline.audit_log ORDER BY id LIMIT 1") == (
        "by mistake"
    )


def test_an_action_that_is_rolled_back_has_no_row(conn: Connection) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute("SELECT faultline.pause_queue('mail')")
        assert len(rows(conn)) == 1
    assert rows(conn) == []


@pytest.mark.parametrize("actor", ["no JSON", '"a text"', "[1]", "{}", '{"name": {"a": 1}}'])
def test_an_actor_that_makes_no_sense_stops_no_action(conn: Connection, actor: str) -> None:
    with conn.transaction():
        conn.execute("SELECT set_config('faultline.actor', %s, true)", [actor])
        conn.execute("SELECT faultline.pause_queue('mail')")
    assert steps.value(conn, "SELECT role FROM faultline.audit_log") == conn.info.user


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE faultline.audit_log SET actor = 'another'",
        "DELETE FROM faultline.audit_log",
        "TRUNCATE faultline.audit_log",
    ],
)
def test_rows_are_neither_changed_nor_removed(conn: Connection, change: str) -> None:
    conn.execute("SELECT faultline.pause_queue('mail')")
    with steps.refused("FL002"):
        conn.execute(change.encode())
    assert len(rows(conn)) == 1


def test_retention_removes_old_rows_alone_and_does_not_record_itself(conn: Connection) -> None:
    for queue in "abc":
        conn.execute("SELECT faultline.pause_queue(%s)", [queue])
    age(conn, "a", "b")
    sweep = retention.Sweep(Retention(audit_days=1.0), is_automatic=True)
    while (statement := sweep.next_statement) is not None:
        sweep.add(run(conn, statement))
    assert sweep.purged.audit == 2
    assert [row[3] for row in rows(conn)] == ["queue c"]


def age(conn: Connection, *queues: str) -> None:
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "UPDATE faultline.audit_log SET at = at - interval '2 days' WHERE object = ANY (%s)",
            [[f"queue {queue}" for queue in queues]],
        )


def test_a_purge_by_hand_is_recorded(conn: Connection, database_url: str) -> None:
    done = steps.committed(conn)
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "UPDATE faultline.jobs SET id = faultline.uuid7(now() - interval '9 days'),"
            " finished_at = now() - interval '8 days' WHERE id = %s",
            [done.job_id],
        )
    invoke(database_url, "purge")
    assert [(row[0], row[2], row[3]) for row in rows(conn)] == [("command line", "purge", "jobs")]


# ── who reads it ─────────────────────────────────────────────────────────────────────────────────


def test_the_command_line_records_its_user_and_lists_what_was_done(
    conn: Connection, database_url: str
) -> None:
    invoke(database_url, "queues", "pause", "mail", "--reason", "down", "--force")
    invoke(database_url, "queues", "pause", "other", "--force")
    shown = invoke(database_url, "audit", "--object", "queue mail", "--json").json
    [entry] = shown["audit"]
    assert (entry["actor_kind"], entry["actor"]) == ("command line", getpass.getuser())
    assert (entry["action"], entry["result"], entry["detail"]) == ("pause", "done", "down")
    table = invoke(database_url, "audit", "--limit", "1").out
    assert "queue other" in table
    assert "faultline audit --before" in table
    assert "no such entries" in invoke(database_url, "audit", "--actor", "none").out


def test_a_page_continues_after_the_previous_one(conn: Connection) -> None:
    for number in range(5):
        conn.execute("SELECT faultline.pause_queue(%s)", [f"q{number}"])
    found: list[str | None] = []
    before: int | None = None
    for _ in range(10):
        page = run(conn, audit.page(AuditFilter(action="pause"), limit=2, before=before))
        found += [entry.object for entry in page.audit]
        if page.next is None:
            break
        before = int(page.next)
    assert found == [f"queue q{number}" for number in reversed(range(5))]


# ── the API ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def guarded(database_url: str) -> Iterator[Served]:
    """Two wrong keys, and no third for a long while."""
    options = ("--wrong-keys-per-second", "0.001", "--wrong-key-burst", "2", "--tls-proxy")
    with served(database_url, *options) as server:
        yield server


def test_actions_over_http_are_recorded_by_key_and_address(
    guarded: Served, database_url: str, conn: Connection
) -> None:
    key = make_key(database_url, Scope.OPERATE, name="oncall")
    with client_of(guarded, key) as client:
        headers = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7"}
        client.post("/queues/mail/pause", headers=headers).raise_for_status()
        page = client.get("/audit", params={"action": "pause"}).raise_for_status().json()
    [entry] = page["audit"]
    assert entry["actor"] == f"oncall ({key[:12]})"
    assert (entry["actor_kind"], entry["address"]) == ("key", "198.51.100.7")
    assert entry["role"] == conn.info.user


def wait_for(conn: Connection, code: str) -> tuple[Any, ...]:
    """The first refusal with this code, which is written beside the answer."""
    query = (
        "SELECT actor_kind, actor, address, action, times FROM faultline.audit_log"
        " WHERE result = 'refused' AND code = %s"
    )
    found: list[tuple[Any, ...]] = wait_until(
        lambda: steps.rows(conn, query, code), lambda: f"a refusal {code}: {rows(conn)}"
    )
    return found[0]


def test_refused_keys_and_scopes_are_recorded_and_guesses_are_throttled(
    guarded: Served, database_url: str, conn: Connection
) -> None:
    good = make_key(database_url, Scope.READ, name="reader")
    with client_of(guarded, WRONG) as guesser, client_of(guarded, good) as reader:
        assert reader.get("/queues").status_code == 200
        forbidden = reader.post("/queues/mail/pause")
        answers = [guesser.get("/queues") for _ in range(4)]
        # From the same address, and known to be right: it is not locked out.
        assert reader.get("/queues").status_code == 200

    assert [answer.status_code for answer in answers] == [401, 401, 429, 429]
    assert code_of(answers[3]) == "too_many_wrong_keys"
    assert int(answers[3].headers["retry-after"]) >= 1
    assert code_of(forbidden) == "forbidden"
    kind, actor, address, action, _ = wait_for(conn, "forbidden")
    assert (kind, actor) == ("key", f"reader ({good[:12]})")
    assert (address, action) == ("127.0.0.1", "pause")
    assert wait_for(conn, "unauthenticated")[:2] == ("unknown key", "flk_zzzzzzzz")
    wait_for(conn, "too_many_wrong_keys")


def test_a_caller_of_the_function_itself_cannot_fill_the_table(conn: Connection) -> None:
    call = "SELECT faultline.record_refusal('GET /', NULL, 'unauthenticated', 5)"
    recorded = [steps.value(conn, call) for _ in range(70)]
    assert recorded == [True] * 60 + [False] * 10


def test_the_limits_of_wrong_keys_are_settings() -> None:
    assert ApiSettings().wrong_keys_per_second == 1.0
    assert ApiSettings().wrong_key_burst == 30


def test_the_inspector_shows_it(conn: Connection, database_url: str) -> None:
    from starlette.testclient import TestClient

    from faultline.inspector.application import make_app
    from faultline.inspector.inspector_settings import InspectorSettings

    conn.execute("SELECT faultline.pause_queue('mail'), faultline.pause_queue('other')")
    settings = InspectorSettings(database_url=database_url)
    with TestClient(make_app(settings), base_url="http://localhost") as client:
        page = client.get("/api/audit", params={"limit": 1}).raise_for_status().json()
        rest = client.get("/api/audit", params={"before": page["next"]}).json()
        only = client.get("/api/audit", params={"object": "queue mail"}).json()

    assert [entry["object"] for entry in page["audit"]] == ["queue other"]
    assert [entry["object"] for entry in rest["audit"]] == ["queue mail"]
    assert rest["next"] is None
    assert only["audit"] == rest["audit"]
    assert page["audit"][0].keys() == {
        *("id", "at", "actor_kind", "actor", "role", "address", "action", "object"),
        *("result", "code", "detail", "times"),
    }


# ── refused actions ──────────────────────────────────────────────────────────────────────────────


def refused_rows(conn: Connection) -> list[tuple[Any, ...]]:
    return [row for row in rows(conn) if row[4] == "refused"]


def test_a_refused_action_of_the_command_line_is_recorded(
    conn: Connection, database_url: str
) -> None:
    done, missing, user = steps.committed(conn).job_id, uuid4(), getpass.getuser()
    assert invoke(database_url, "jobs", "retry", str(done)).code == 1
    assert invoke(database_url, "jobs", "cancel", str(missing)).code == 1
    for words in (
        ("queues", "pause", "no queue"),
        ("queues", "resume", "q" * 64),
        ("keys", "revoke", "flk_zzzzzzzz"),
        ("drain", "nowhere-*"),
    ):
        assert isinstance(invoke(database_url, *words).error, InvalidInput)
    refusals = [
        ("retry", f"job {done}", "illegal_transition"),
        ("cancel", f"job {missing}", "unknown_job"),
        ("pause", "queue no queue", "invalid_input"),
        ("resume", f"queue {'q' * 64}", "invalid_input"),
        ("revoke key", "key flk_zzzzzzzz", "invalid_input"),
        ("drain", "worker nowhere-*", "invalid_input"),
    ]
    assert refused_rows(conn) == [
        ("command line", user, action, target, "refused", code) for action, target, code in refusals
    ]
    assert steps.value(conn, "SELECT bool_and(role = session_user) FROM faultline.audit_log")


def test_a_refused_action_of_a_program_is_recorded_under_its_account(
    conn: Connection, database_url: str
) -> None:
    done = steps.committed(conn).job_id
    app = Faultline(database_url)

    async def refused() -> None:
        with pytest.raises(IllegalTransition):
            await app.retry_async(done)
        await app.aclose()

    with pytest.raises(IllegalTransition):
        app.retry(done)
    asyncio.run(refused())
    row = ("role", conn.info.user, "retry", f"job {done}", "refused", "illegal_transition")
    assert refused_rows(conn) == [row, row]


def test_a_refused_action_over_http_is_recorded_by_key_address_and_code(
    guarded: Served, database_url: str, conn: Connection
) -> None:
    done, missing = steps.committed(conn).job_id, uuid4()
    key = make_key(database_url, Scope.OPERATE, name="oncall")
    with client_of(guarded, key) as client:
        client.headers["Content-Type"] = "application/json"
        for path, body, status in (
            (f"/jobs/{done}/retry", None, 409),
            (f"/jobs/{missing}/cancel", None, 404),
            ("/queues/no%20queue/pause", None, 422),
            ("/queues/mail/pause", b'{"reason": 1}', 422),
            ("/queues/mail/pause", b'{"reason"', 422),
        ):
            assert client.post(path, content=body).status_code == status, path
        assert client.get("/audit", params={"limit": 0}).status_code == 422  # a look is no action
    guarded.terminate()  # it then writes what it has counted
    guarded.wait()

    name = f"oncall ({key[:12]})"
    found = steps.rows(
        conn,
        "SELECT actor_kind, actor, address, action, code, object, times FROM faultline.audit_log"
        " WHERE result = 'refused' ORDER BY action, code, id",
    )
    assert {row[:3] for row in found} == {("key", name, "127.0.0.1")}
    assert [row[3:] for row in found if row[4] != "invalid_input"] == [
        ("cancel", "unknown_job", f"job {missing}", 1),
        ("pause", "invalid_json", "queue mail", 1),
        ("retry", "illegal_transition", f"job {done}", 1),
    ]
    invalid = [row for row in found if row[4] == "invalid_input"]
    assert ({row[3] for row in invalid}, sum(row[6] for row in invalid)) == ({"pause"}, 2)


def test_without_a_key_nothing_is_recorded(guarded: Served, conn: Connection) -> None:
    """Probes and browsers come without one: that is no guess."""
    for _ in range(3):
        answer = httpx2.get(f"{guarded.address}/queues", timeout=BOUND_SECONDS, trust_env=False)
        assert answer.status_code == 401
    assert rows(conn) == []

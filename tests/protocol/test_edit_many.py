"""edit_many sets fields of jobs that do not run, and logs their old payloads."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from .steps import (
    Connect,
    Connection,
    all_at_once,
    claim,
    claim_new,
    commit,
    enqueue,
    enqueue_many,
    job,
    refused,
    rows,
    start_and_wait_until_blocked,
    value,
)

FORMER = "SELECT outcome, former_payload FROM faultline.attempts_log WHERE job_id = %s ORDER BY id"


def edit(conn: Connection, changes: Any, *job_ids: UUID, **wanted: Any) -> dict[UUID, str]:
    call = "SELECT job_id, outcome FROM faultline.edit_many(%s, %s, %s)"
    return dict(rows(conn, call, list(job_ids), Jsonb(changes), Jsonb(wanted)))


def test_given_fields_are_set_and_the_others_stay(conn: Connection) -> None:
    first, _ = enqueue(conn, payload={"n": 1, "to": "ada", "at": {"x": 1, "y": 2}})
    second, _ = enqueue(conn, payload={})
    changes = {"n": 2, "at": {"x": 3}, "cc": None}
    assert edit(conn, changes, first, second) == {first: "done", second: "done"}
    assert job(conn, first)["payload"] == {"n": 2, "to": "ada", "at": {"x": 3}, "cc": None}
    assert job(conn, second)["payload"] == changes
    assert rows(conn, FORMER, first) == [
        ("edited", {"n": 1, "to": "ada", "at": {"x": 1, "y": 2}}),
    ]
    assert rows(conn, FORMER, second) == [("edited", {})]
    assert claim(conn).job_id == first


def test_jobs_that_have_the_values_already_are_unchanged(conn: Connection) -> None:
    same, other = enqueue(conn, payload={"n": 1})[0], enqueue(conn, payload={"n": 1.0})[0]
    assert edit(conn, {"n": 1}, same, other) == {same: "unchanged", other: "done"}
    assert (rows(conn, FORMER, same), len(rows(conn, FORMER, other))) == ([], 1)


def test_a_payload_that_would_be_too_long_is_refused_and_the_other_jobs_are_edited(
    conn: Connection,
) -> None:
    full, _ = enqueue(conn, payload={"text": "x" * (8 * 1024 * 1024 - 100)})
    short, _ = enqueue(conn, payload={"n": 1})
    changes = {"more": "y" * 200}
    assert edit(conn, changes, full, short) == {full: "refused", short: "done"}
    assert value(conn, "SELECT payload ? 'more' FROM faultline.jobs WHERE id = %s", full) is False
    assert rows(conn, FORMER, full) == []


@pytest.mark.parametrize("changes", [[], {}, [{"n": 2}], "text", 7, None])
def test_changes_that_are_no_object_with_fields_are_refused(conn: Connection, changes: Any) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1})
    with refused("FL005"):
        edit(conn, changes, job_id)
    with refused("FL005"):
        conn.execute("SELECT faultline.edit_many(%s, NULL)", [[job_id]])
    assert job(conn, job_id)["payload"] == {"n": 1}


def test_the_audit_log_names_the_fields_without_their_values(conn: Connection) -> None:
    running = claim_new(conn).job_id
    ids = [enqueue(conn, payload={"card": 4242})[0] for _ in range(2)]
    edit(conn, {"pin": 9999, "card": 5555}, *ids, running)
    query = "SELECT action, object, result, detail FROM faultline.audit_log"
    assert rows(conn, query) == [("edit", "jobs", "done", "2 done, 1 refused: card, pin")]


def test_an_edit_of_one_job_waits_for_an_edit_of_many(conn: Connection, connect: Connect) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1})
    operator = connect()
    operator.execute("BEGIN")
    edit(operator, {"n": 2}, job_id)
    late = start_and_wait_until_blocked(
        conn,
        connect(),
        lambda session: value(session, "SELECT faultline.edit_payload(%s, '{\"n\": 3}')", job_id),
    )
    operator.execute("COMMIT")
    assert late.result() == "queued"
    assert rows(conn, FORMER, job_id) == [("edited", {"n": 1}), ("edited", {"n": 2})]


def test_workers_run_the_payloads_that_their_jobs_have(conn: Connection, connect: Connect) -> None:
    """A job is edited before its claim or not at all; its row keeps that payload."""
    ids = [job_id for job_id, _ in enqueue_many(conn, [{"n": 0}] * 300)]
    claimed = (
        "SELECT job_id, fencing_token, lease_id, payload"
        " FROM faultline.claim('w', '{default}', 7, '1 minute')"
    )

    def work(session: Connection) -> tuple[dict[UUID, Any], int]:
        got = {}
        while leases := rows(session, claimed):
            for job_id, token, lease_id, payload in leases:
                got[job_id] = payload
                session.execute("SELECT faultline.commit(%s, %s, %s)", [job_id, token, lease_id])
        return got, 0

    def operate(session: Connection) -> tuple[dict[UUID, Any], int]:
        done = 0
        for start in range(len(ids), 0, -20):
            found = edit(session, {"n": 1, "by": "operator"}, *ids[start - 20 : start])
            done += list(found.values()).count("done")
        return {}, done

    sessions = [connect() for _ in range(3)]
    roles = dict(zip(sessions, (work, work, operate), strict=True))
    answers = all_at_once(sessions, lambda session: roles[session](session))
    rest, _ = work(conn)  # jobs whose rows the operator held when the workers looked for more
    got = {job_id: payload for part, _ in answers for job_id, payload in part.items()} | rest
    stored = dict(rows(conn, "SELECT id, payload FROM faultline.jobs"))
    assert got == stored
    edited = [payload for payload in got.values() if payload == {"n": 1, "by": "operator"}]
    assert len(edited) == sum(done for _, done in answers)
    assert len(got) == len(ids)


def test_a_repeated_enqueue_still_finds_a_job_that_was_edited(conn: Connection) -> None:
    job_id, _ = enqueue(conn, payload={"n": 1}, idempotency_key="k")
    edit(conn, {"n": 2}, job_id)
    for number in (1, 2):
        assert enqueue(conn, payload={"n": number}, idempotency_key="k") == (job_id, True)
    commit(conn, claim(conn))
    assert edit(conn, {"n": 3}, job_id) == {job_id: "refused"}

"""app.jobs reads the jobs of a filter and acts on them; app.delete and app.edit."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from faultline import (
    ActionReport,
    Faultline,
    IllegalTransition,
    InvalidInput,
    Job,
    JobSelection,
    JobState,
    Task,
    UnknownJob,
)
from faultline import job_selection as module
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.running import Connection

COLOURS = pytest.mark.parametrize("colour", ["plain", "async"])
FUTURE = datetime.now(UTC) + timedelta(days=1)


def call(app: Faultline, colour: str, on: Any, verb: str, *arguments: Any) -> Any:
    """Call a method, or its async twin in an event loop of its own."""
    if colour == "plain":
        return getattr(on, verb)(*arguments)
    return awaited(app, lambda: getattr(on, f"{verb}_async")(*arguments))


def awaited(app: Faultline, work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        try:
            return await work()
        finally:
            await app.aclose()

    return asyncio.run(main())


@pytest.fixture
def task(app: Faultline) -> Task[..., None]:
    @app.task(name="t", max_attempts=1)
    async def handle(job: Job, n: int) -> None: ...

    return handle


def enqueued(conn: Connection, count: int, **options: Any) -> list[UUID]:
    chosen = {"queue": "default", "priority": 5, "max_attempts": 1, **options}
    payloads = [{"n": number} for number in range(count)]
    return [each.job_id for each in run(conn, protocol.enqueue_many("t", payloads, **chosen))]


def failed(conn: Connection, error: str, **options: Any) -> UUID:
    [job_id] = enqueued(conn, 1, **options)
    queue = options.get("queue", "default")
    [claim] = run(conn, protocol.claim("w", [queue], batch_size=1, lease_seconds=60))
    assert claim.job_id == job_id
    run(conn, protocol.fail(claim, error=error))
    return job_id


# ── select ───────────────────────────────────────────────────────────────────────────────────────


def test_a_selection_reads_nothing_before_it_is_used() -> None:
    selection = Faultline("postgresql://127.0.0.1:1/never").jobs(state="failed", queue="mail")
    assert isinstance(selection, JobSelection)
    assert repr(selection) == '<JobSelection {"state":"failed","queue":"mail"}>'


def test_every_filter_selects(app: Faultline, conn: Connection, task: Task[..., None]) -> None:
    declined = failed(conn, "CardDeclined: no", queue="billing")
    slow = failed(conn, "TimeoutError: 3 s")
    [waiting] = enqueued(conn, 1)

    def ids(**wanted: Any) -> set[UUID]:
        return {job.id for job in app.jobs(**wanted)}

    assert ids() == {declined, slow, waiting}
    assert ids(state="queued") == ids(state=JobState.QUEUED) == {waiting}
    assert ids(error="CardDeclined") == {declined}
    assert ids(error=TimeoutError) == {slow}
    assert ids(failed_reason="attempts_spent") == {declined, slow}
    assert ids(task=task) == ids(task="t") == ids()
    assert ids(queue="billing") == {declined}
    assert ids(ids=[str(slow), waiting], state="failed") == {slow}
    assert ids(ids=[]) == set()
    assert ids(created_before=FUTURE) == ids(created_after=FUTURE - timedelta(days=2)) == ids()
    assert ids(created_after=FUTURE) == set()
    assert ids(finished_before=FUTURE) == {declined, slow}
    assert ids(state="failed", finished_after=FUTURE) == set()
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert ids(created_after=first, created_before=last) == ids()
    assert ids(state="failed", finished_after=first, finished_before=last) == {declined, slow}


@pytest.mark.parametrize(
    "wanted",
    [
        {"state": "dead"},
        {"queue": "no such"},
        {"task": ""},
        {"tag": "two words"},
        {"tag": ["vip"]},
        {"error": "\0"},
        {"error": 5},
        {"failed_reason": ["x"]},
        {"created_after": datetime(2026, 1, 1)},  # noqa: DTZ001 - without a zone on purpose
        {"finished_before": "yesterday"},
        {"finished_before": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
        {"ids": "x"},
        {"ids": ["x"]},
        {"ids": [None]},
        {"ids": [uuid4()] * 10_001},
        {"sate": "failed"},
    ],
)
def test_a_wrong_filter_is_refused(app: Faultline, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        app.jobs(**wanted)


# ── read ─────────────────────────────────────────────────────────────────────────────────────────


@COLOURS
def test_pages_are_read_until_the_end(
    app: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    monkeypatch.setattr(module, "READ_PAGE", 3)
    monkeypatch.setattr(module, "COUNT_PAGE", 4)
    expected = enqueued(conn, 10)
    selection = app.jobs(queue="default", state="queued")
    assert call(app, colour, selection, "count") == 10

    async def read() -> list[Any]:
        return [job async for job in selection]

    found = list(selection) if colour == "plain" else awaited(app, read)
    assert [job.id for job in found] == expected
    assert [job.payload["n"] for job in found] == list(range(10))


@COLOURS
def test_an_export_has_exact_numbers(
    app: Faultline, conn: Connection, tmp_path: Path, colour: str
) -> None:
    conn.execute("SELECT faultline.enqueue('t', '{\"n\": 123456789012345678901234567890}')")
    conn.execute("SELECT faultline.enqueue('t', '{\"n\": 0.1000000000000000055}')")
    path, memory = tmp_path / "jobs.jsonl", io.BytesIO()
    assert call(app, colour, app.jobs(), "export", path) == 2
    assert call(app, colour, app.jobs(), "export", memory) == 2
    assert path.read_bytes() == memory.getvalue()
    second, first = path.read_text().splitlines()
    assert json.loads(first)["payload"] == {"n": 123456789012345678901234567890}
    assert '"payload":{"n": 0.1000000000000000055}' in second
    assert orjson.loads(first)["state"] == "queued"


# ── act ──────────────────────────────────────────────────────────────────────────────────────────


@COLOURS
def test_jobs_are_cancelled_retried_and_deleted_by_filter(
    app: Faultline, conn: Connection, colour: str
) -> None:
    ids = enqueued(conn, 5)
    [other] = enqueued(conn, 1, queue="other")
    selection = app.jobs(queue="default")
    assert call(app, colour, selection, "cancel", "a mistake") == ActionReport(done=5, matched=5)
    assert app.get(ids[0]).last_error == "a mistake"
    assert call(app, colour, selection, "retry") == ActionReport(done=5, matched=5)
    assert call(app, colour, app.jobs(ids=ids[:2]), "delete") == ActionReport(done=2, matched=2)
    assert call(app, colour, selection, "delete") == ActionReport(done=3, matched=3)
    assert [job.id for job in app.jobs()] == [other]
    query = "SELECT action, detail FROM faultline.audit_log ORDER BY id"
    assert conn.execute(query).fetchall() == [
        ("cancel", "5 done: a mistake"),
        ("retry", "5 done"),
        ("delete", "2 done"),
        ("delete", "3 done"),
    ]


def test_jobs_that_an_action_cannot_change_are_named(app: Faultline, conn: Connection) -> None:
    [running, queued] = enqueued(conn, 2)
    run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=60))
    report = app.jobs(ids=[running, queued, uuid4()]).delete()
    assert report == ActionReport(done=1, refused=1, refused_ids=(running,), matched=2)


@pytest.mark.parametrize("verb", ["retry", "cancel", "delete", "edit"])
def test_an_action_without_a_filter_is_refused(app: Faultline, conn: Connection, verb: str) -> None:
    enqueued(conn, 1)
    with pytest.raises(InvalidInput, match="a filter is missing"):
        getattr(app.jobs(), verb)(**({"n": 1} if verb == "edit" else {}))
    assert app.jobs(state="queued").count() == 1


@pytest.mark.parametrize(
    ("verb", "state"), [("retry", "queued"), ("cancel", "failed"), ("delete", "running")]
)
def test_an_action_is_refused_for_a_state_that_it_never_changes(
    app: Faultline, verb: str, state: str
) -> None:
    with pytest.raises(InvalidInput, match=f"not {state} ones"):
        getattr(app.jobs(state=state), verb)()


def test_a_refused_action_is_written_to_the_audit_log(app: Faultline, conn: Connection) -> None:
    enqueued(conn, 1)
    conn.execute(
        "CREATE OR REPLACE FUNCTION faultline.delete_many(job_ids uuid[], wanted jsonb DEFAULT '{}')"
        " RETURNS TABLE (job_id uuid, outcome text, state text) LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'no' USING ERRCODE = 'FL002'; END $$"
    )
    with pytest.raises(IllegalTransition):
        app.jobs(queue="default").delete()
    query = "SELECT action, object, result, code FROM faultline.audit_log"
    assert conn.execute(query).fetchall() == [("delete", "jobs", "refused", "illegal_transition")]


# ── one job ──────────────────────────────────────────────────────────────────────────────────────


@COLOURS
def test_one_job_is_edited_and_deleted(app: Faultline, conn: Connection, colour: str) -> None:
    [job_id] = enqueued(conn, 1)
    assert call(app, colour, app, "edit", job_id, {"n": 7}) is JobState.QUEUED
    assert app.get(job_id).payload == {"n": 7}
    assert call(app, colour, app, "delete", str(job_id)) is JobState.QUEUED
    for verb in (["delete", job_id], ["edit", job_id, {}], ["get", job_id]):
        with pytest.raises(UnknownJob):
            call(app, colour, app, *verb)


@COLOURS
def test_an_edit_is_checked_against_the_task_unless_it_is_forced(
    app: Faultline, colour: str
) -> None:
    @app.task(name="t")
    def counted(job: Job, n: int) -> None: ...

    job_id = counted.enqueue(n=1).job_id
    for payload in ({"n": "2"}, {"m": 2}):
        with pytest.raises(InvalidInput, match="does not fit t"):
            call(app, colour, app, "edit", job_id, payload)
    assert app.get(job_id).payload == {"n": 1}
    call(app, colour, app, "edit", job_id, {"n": 2})
    app.edit(job_id, {"m": 2}, force=True)
    assert app.get(job_id).payload == {"m": 2}


def test_a_running_job_is_neither_edited_nor_deleted(app: Faultline, conn: Connection) -> None:
    [job_id] = enqueued(conn, 1)
    run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=60))
    with pytest.raises(IllegalTransition):
        app.delete(job_id)
    with pytest.raises(IllegalTransition):
        app.edit(job_id, {"n": 1})
    with pytest.raises(InvalidInput):
        app.edit(job_id, {"n": float("nan")})
    query = "SELECT action, result, code FROM faultline.audit_log ORDER BY id"
    assert conn.execute(query).fetchall() == [
        ("delete", "refused", "illegal_transition"),
        ("edit", "refused", "illegal_transition"),
    ]


@pytest.mark.parametrize("colour", ["plain", "async"])
@pytest.mark.parametrize(("verb", "matched"), [("retry", 1), ("cancel", 3), ("delete", 4)])
def test_a_dry_run_counts_what_the_action_would_try_and_changes_nothing(
    app: Faultline, conn: Connection, colour: str, verb: str, matched: int
) -> None:
    failed(conn, "CardDeclined: no")
    enqueued(conn, 3)
    before = [(job.id, job.state) for job in app.jobs(queue="default")]
    selection = app.jobs(queue="default")
    if colour == "plain":
        report = getattr(selection, verb)(dry_run=True)
    else:
        report = awaited(app, lambda: getattr(selection, f"{verb}_async")(dry_run=True))
    assert report == ActionReport(matched=matched)
    assert [(job.id, job.state) for job in app.jobs(queue="default")] == before

"""app.jobs(…).edit sets fields of many payloads, checked by the tasks."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from faultline import (
    ActionReport,
    Faultline,
    InvalidInput,
    Job,
    JobSelection,
    job_edits,
    job_selection,
)
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.running import Connection

COLOURS = pytest.mark.parametrize("colour", ["plain", "async"])


def edit(colour: str, selection: JobSelection, *given: Any, **fields: Any) -> ActionReport:
    """Call the method, or its async twin in an event loop of its own."""
    if colour == "plain":
        return selection.edit(*given, **fields)

    async def main() -> ActionReport:
        try:
            return await selection.edit_async(*given, **fields)
        finally:
            await selection._app.aclose()

    return asyncio.run(main())


def enqueued(conn: Connection, count: int, task: str = "t", **fields: Any) -> list[UUID]:
    payloads = [{"n": number, **fields} for number in range(count)]
    options: dict[str, Any] = {"queue": "default", "priority": 5, "max_attempts": 1}
    return [each.job_id for each in run(conn, protocol.enqueue_many(task, payloads, **options))]


def payloads(app: Faultline) -> list[Any]:
    return [job.payload for job in app.jobs(queue="default")]


@COLOURS
def test_fields_of_all_matching_jobs_are_set_page_by_page(
    app: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    monkeypatch.setattr(job_selection, "PAGE_SIZE", 2)
    enqueued(conn, 5)
    [other] = enqueued(conn, 1, task="other")
    report = edit(colour, app.jobs(task="t"), to="ada", at={"x": 1})
    assert report == ActionReport(done=5, matched=5)
    assert app.get(other).payload == {"n": 0}
    assert sorted(map(str, payloads(app))) == sorted(
        map(str, [*({"n": n, "at": {"x": 1}, "to": "ada"} for n in range(5)), {"n": 0}])
    )
    query = "SELECT action, detail FROM faultline.audit_log ORDER BY id"
    assert conn.execute(query).fetchall() == [
        ("edit", "2 done: at, to"),
        ("edit", "2 done: at, to"),
        ("edit", "1 done: at, to"),
    ]


def test_a_mapping_sets_fields_that_are_named_like_options(
    app: Faultline, conn: Connection
) -> None:
    [job_id] = enqueued(conn, 1)
    report = app.jobs(ids=[job_id]).edit({"force": 1, "self": 2, "a field": 3}, dry_run=False)
    assert report == ActionReport(done=1, matched=1)
    assert app.get(job_id).payload == {"n": 0, "force": 1, "self": 2, "a field": 3}


@COLOURS
def test_no_job_is_edited_if_one_payload_would_not_fit_its_task(
    app: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    monkeypatch.setattr(job_selection, "PAGE_SIZE", 1)
    monkeypatch.setattr(job_edits, "CHECKED_AT_ONCE", 2)

    @app.task(name="t")
    def counted(job: Job, n: int, to: str = "") -> None: ...

    enqueued(conn, 3, task="unknown")
    ids = enqueued(conn, 3)
    [broken] = enqueued(conn, 1, extra=1)
    before = payloads(app)
    for fields, says in (
        ({"n": "2"}, "does not fit t: n: expected int, got a string"),
        ({"m": 2}, "does not fit t: it has no argument 'm'"),
        ({"to": "ada"}, f"job {broken}: the payload does not fit t: it has no argument 'extra'"),
    ):
        for dry_run in (True, False):
            with pytest.raises(InvalidInput, match=says):
                edit(colour, app.jobs(queue="default"), dry_run=dry_run, **fields)
        assert payloads(app) == before
    assert edit(colour, app.jobs(ids=ids), to="ada") == ActionReport(done=3, matched=3)
    forced = edit(colour, app.jobs(queue="default"), m=2, force=True)
    assert forced == ActionReport(done=7, matched=7)
    assert app.get(ids[1]).payload == {"n": 1, "to": "ada", "m": 2}


@COLOURS
def test_a_dry_run_counts_and_changes_nothing(
    app: Faultline, conn: Connection, colour: str
) -> None:
    enqueued(conn, 4)
    run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=60))
    before = payloads(app)
    report = edit(colour, app.jobs(queue="default"), n=9, dry_run=True)
    assert report == ActionReport(matched=3)
    assert payloads(app) == before


@pytest.mark.parametrize("fields", [{}, [1], "n", {"n": float("nan")}, {"n": {1}}, {"n": "\0"}])
def test_fields_that_cannot_be_stored_are_refused(
    app: Faultline, conn: Connection, fields: Any
) -> None:
    [job_id] = enqueued(conn, 1)
    with pytest.raises(InvalidInput):
        app.jobs(ids=[job_id]).edit(fields)
    assert app.get(job_id).payload == {"n": 0}


def test_running_jobs_are_refused_and_named(app: Faultline, conn: Connection) -> None:
    [running, _queued] = enqueued(conn, 2)
    run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=60))
    report = app.jobs(ids=[running, _queued]).edit(n=7)
    assert report == ActionReport(done=1, refused=1, refused_ids=(running,), matched=2)
    with pytest.raises(InvalidInput, match="not running ones"):
        app.jobs(state="running").edit(n=7)

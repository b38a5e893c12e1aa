"""app.get, app.cancel and app.retry, and where the application finds its database."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import UUID, uuid4

import pytest

from faultline import (
    Faultline,
    IllegalTransition,
    InvalidInput,
    Job,
    JobState,
    SchemaMismatch,
    UnknownJob,
)
from tests.running import Connection, value, work_off

MALFORMED = ["", "x", "01890000-0000-7000-8000-00000000000", "'; DROP TABLE faultline.jobs", "\x00"]
VERBS = ["get", "cancel", "retry"]


def call(app: Faultline, verb: str, job_id: Any, colour: str) -> Any:
    if colour == "plain":
        return getattr(app, verb)(job_id)

    async def main() -> Any:
        try:
            return await getattr(app, f"{verb}_async")(job_id)
        finally:
            await app.aclose()

    return asyncio.run(main())


@pytest.fixture
def job_id(app: Faultline) -> UUID:
    @app.task(name="t", max_attempts=1)
    async def fail_if(job: Job, fails: bool = False) -> None:
        if fails:
            raise ValueError

    return fail_if.enqueue(fails=True).job_id


@pytest.mark.parametrize("colour", ["plain", "async"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_id_that_no_job_has_is_unknown(app: Faultline, verb: str, colour: str) -> None:
    with pytest.raises(UnknownJob, match="there is no job") as caught:
        call(app, verb, uuid4(), colour)
    assert caught.value.code == "unknown_job"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("malformed", [*MALFORMED, None])
def test_an_invalid_id_is_refused(app: Faultline, verb: str, malformed: Any) -> None:
    with pytest.raises(InvalidInput, match="is not a job id") as refused:
        call(app, verb, malformed, "plain")
    assert "the UUID that enqueue returned" in str(refused.value.hint)


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_an_id_may_be_text(app: Faultline, job_id: UUID, colour: str) -> None:
    assert call(app, "get", str(job_id), colour).id == job_id


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_cancelled_job_does_not_run_until_it_is_retried(
    app: Faultline, job_id: UUID, colour: str
) -> None:
    assert call(app, "cancel", job_id, colour) is JobState.FAILED
    record = app.get(job_id)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "cancelled")
    assert call(app, "cancel", job_id, colour) is JobState.FAILED  # and again
    assert call(app, "retry", job_id, colour) is JobState.QUEUED
    assert call(app, "retry", job_id, colour) is JobState.QUEUED
    assert work_off(app, job_id).failed_reason == "attempts_spent"


def test_a_job_that_succeeded_is_neither_cancelled_nor_retried(app: Faultline) -> None:
    @app.task()
    async def fine(job: Job) -> None: ...

    job_id = fine.enqueue().job_id
    work_off(app, job_id)
    assert app.cancel(job_id) is JobState.SUCCEEDED
    with pytest.raises(IllegalTransition, match="has succeeded"):
        app.retry(job_id)


def test_a_missing_schema_is_an_error_with_its_remedy(empty_database_url: str) -> None:
    application = Faultline(empty_database_url)
    try:
        with pytest.raises(SchemaMismatch, match="faultline migrate"):
            application.get(uuid4())
    finally:
        application.close()


def test_the_url_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    assert Faultline().database_url == database_url
    assert Faultline("postgresql://elsewhere").database_url == "postgresql://elsewhere"


def test_an_application_can_be_used_again_after_it_was_closed(app: Faultline) -> None:
    app.task(name="t")(lambda job: None)
    first = app.find_task("t").enqueue()
    app.close()
    app.close()
    assert app.get(first.job_id).id == first.job_id


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_can_enqueue_and_leaves_the_parents_sessions_alone(
    app: Faultline, conn: Connection
) -> None:
    app.task(name="t")(lambda job: None)
    app.find_task("t").enqueue()  # the parent has a session by now
    child = os.fork()
    if child == 0:
        status = 1
        try:
            app.find_task("t").enqueue()
            status = 0
        finally:
            os._exit(status)
    _, code = os.waitpid(child, 0)
    app.find_task("t").enqueue()
    assert (
        os.waitstatus_to_exitcode(code),
        value(conn, "SELECT count(*) FROM faultline.jobs"),
    ) == (0, 3)

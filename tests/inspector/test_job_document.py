"""The document of one job: exact numbers, why it is not running; and searches."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from faultline.inspector import documents
from faultline.inspector.application import make_app
from faultline.inspector.documents import SearchPage
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.inspector.reader import Reader
from faultline.statements import job_pages
from faultline.statements.job_filter import JobFilter
from tests.protocol import steps

Connection = psycopg.Connection[Any]

EXACT = '{"n": 123456789012345678901234567890, "f": 0.1000000000000000055, "i": 9007199254740993}'


def test_numbers_pass_through_exactly_as_json_and_as_text(
    client: TestClient, conn: Connection
) -> None:
    job_id = steps.value(conn, "SELECT job_id FROM faultline.enqueue('t', %s::jsonb)", EXACT)
    lease = steps.claim(conn)
    conn.execute("SELECT faultline.commit(%s, %s, %s, '[1e25, 9007199254740993]')", lease)

    answer = client.get(f"/api/jobs/{job_id}").raise_for_status()

    job = answer.json()
    for number in ("123456789012345678901234567890", "0.1000000000000000055", "9007199254740993"):
        assert number in job["payload_text"]
        assert f": {number}" in answer.text  # in `payload`, where it is no string
    assert job["result_text"] == "[10000000000000000000000000, 9007199254740993]"
    assert job["result"][1] == 9007199254740993


def test_a_number_beyond_any_float_does_not_break_the_page(
    client: TestClient, conn: Connection
) -> None:
    job_id = steps.value(conn, "SELECT job_id FROM faultline.enqueue('t', '{\"n\": 1e400}')")

    job = client.get(f"/api/jobs/{job_id}").raise_for_status().json()

    assert job["payload_text"] == '{"n": 1' + "0" * 400 + "}"


def test_the_document_says_why_the_job_is_not_running(client: TestClient, conn: Connection) -> None:
    job_id, _ = steps.enqueue(conn, queue="biling")

    why = client.get(f"/api/jobs/{job_id}").raise_for_status().json()["why"]

    assert why["code"] == "no_worker"
    assert "no live worker claims from queue biling" in why["answer"]
    assert why["facts"]["queue"] == "biling"
    assert why["advice"] == ["start one: faultline worker --app MODULE:NAME --queues biling"]


def test_the_document_names_every_session_that_shares_the_lock(
    client: TestClient, conn: Connection, database_url: str
) -> None:
    job_id, _ = steps.enqueue(conn)
    with psycopg.connect(database_url) as one, psycopg.connect(database_url) as other:
        for holder in (one, other):
            holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR KEY SHARE", [job_id])
        why = client.get(f"/api/jobs/{job_id}").raise_for_status().json()["why"]

    assert why["code"] == "locked"
    assert len(why["facts"]["locked_by"]) == 2


@pytest.mark.parametrize("expose", [False, True])
def test_a_locked_job_names_the_account_only_at_home(
    database_url: str, conn: Connection, expose: bool
) -> None:
    job_id, _ = steps.enqueue(conn)
    settings = InspectorSettings(database_url=database_url, expose=expose)
    with (
        psycopg.connect(database_url) as holder,
        TestClient(make_app(settings), base_url="http://localhost") as client,
    ):
        holder.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [job_id])
        account = holder.info.user
        why = client.get(f"/api/jobs/{job_id}").raise_for_status().json()["why"]

    assert why["code"] == "locked"
    assert (f" of {account}" in why["answer"]) is not expose
    assert ("FOR UPDATE" in why["answer"]) is not expose


def searched(url: str, wanted: JobFilter, **options: Any) -> SearchPage:
    async def read() -> SearchPage:
        reader = Reader(url)
        try:
            async with reader.transaction() as tx:
                return await documents.search(tx, wanted, **options)
        finally:
            await reader.close()

    return asyncio.run(read())


@pytest.fixture
def rare(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> str:
    """The oldest of 40 jobs; one statement examines four."""
    monkeypatch.setattr(job_pages.page, "__kwdefaults__", {"after": None, "max_examined": 4})
    monkeypatch.setattr(documents, "SEARCH_STEP_JOBS", 4)
    job_id, _ = steps.enqueue(conn, "rare")
    steps.enqueue_many(conn, [{}] * 39)
    return str(job_id)


def test_a_rare_task_is_found_in_one_request(client: TestClient, rare: str) -> None:
    page = client.get("/api/jobs", params={"task": "rare", "limit": 1}).raise_for_status().json()

    assert [job["id"] for job in page["jobs"]] == [rare]
    assert page["searched"] == 40


def test_a_search_that_runs_out_of_time_says_where_to_continue(
    database_url: str, rare: str
) -> None:
    first = searched(database_url, JobFilter(task="rare"), limit=1, seconds=0.0)

    assert (first.jobs, first.searched) == ([], 4)
    assert first.searched_until is not None
    rest = searched(database_url, JobFilter(task="rare"), limit=1, after=first.next, seconds=60.0)
    assert [str(job.id) for job in rest.jobs] == [rare]


def test_a_search_to_the_end_has_no_next(client: TestClient, rare: str) -> None:
    page = client.get("/api/jobs", params={"task": "none"}).raise_for_status().json()

    assert (page["jobs"], page["searched_until"]) == ([], None)
    assert page["next"] is None

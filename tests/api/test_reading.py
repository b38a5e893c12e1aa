"""Claims about GET /jobs/{id}, GET /jobs and GET /queues."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from faultline.postgres.sessions import run
from faultline.statements import jobs, protocol
from faultline.statements.job_filter import JobFilter
from faultline.statements.progress import ProgressReport, report_progress
from tests.api.served import Served, client_of, code_of, make_key, served
from tests.waiting import wait_until

Connection = psycopg.Connection[Any]


def enqueue(conn: Connection, n: int, **options: Any) -> str:
    chosen = {"queue": "default", "priority": 5, "max_attempts": 5, **options}
    return str(run(conn, protocol.enqueue("t", {"n": n}, **chosen)).job_id)


def finish(conn: Connection, queue: str) -> None:
    [claim] = run(conn, protocol.claim("w", [queue], batch_size=1, lease_seconds=60))
    run(conn, protocol.commit(claim, result='{"pi": 3.14}'))


def test_a_job_is_returned_as_the_database_has_it(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job_id = enqueue(api_conn, 1, queue="told", idempotency_key="told")
    waiting = client.get(f"/jobs/{job_id}").json()
    assert waiting["id"] == job_id
    assert (waiting["state"], waiting["attempts"], waiting["result"]) == ("queued", 0, None)
    assert (waiting["payload"], waiting["idempotency_key"]) == ({"n": 1}, "told")
    assert waiting["created_at"].endswith("+00:00")
    finish(api_conn, "told")
    done = client.get(f"/jobs/{job_id}").json()
    assert (done["state"], done["fencing_token"], done["result"]) == ("succeeded", 1, {"pi": 3.14})


def test_a_job_has_the_progress_that_its_handler_reported(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job_id = enqueue(api_conn, 1, queue="exporting")
    assert client.get(f"/jobs/{job_id}").json()["progress"] is None
    [claim] = run(api_conn, protocol.claim("w", ["exporting"], batch_size=1, lease_seconds=60))
    run(api_conn, report_progress([ProgressReport(claim, 0.5, "half")]))
    progress = client.get(f"/jobs/{job_id}").json()["progress"]
    assert (progress["fraction"], progress["message"]) == (0.5, "half")
    assert progress["reported_at"].endswith("+00:00")
    run(api_conn, protocol.commit(claim))
    assert client.get(f"/jobs/{job_id}").json()["progress"] is None


def test_a_payload_that_python_would_round_is_returned_exactly(
    client: httpx2.Client, api_conn: Connection
) -> None:
    """Any SQL client can enqueue more than our own library would take."""
    exact = "123456789012345678901234567890.123456789012345678901234567890"
    row = api_conn.execute(
        f"SELECT job_id FROM faultline.enqueue('t', '{{\"n\": {exact}}}'::jsonb)"
    ).fetchone()
    assert row is not None
    answer = client.get(f"/jobs/{row[0]}")
    assert answer.status_code == 200
    assert f'"n": {exact}' in answer.text


def test_a_job_that_is_not_there_is_not_found(client: httpx2.Client) -> None:
    answer = client.get(f"/jobs/{uuid4()}")
    assert (answer.status_code, code_of(answer)) == (404, "unknown_job")
    answer = client.get("/jobs/nonsense")
    assert (answer.status_code, code_of(answer)) == (404, "not_found")


# ── pages ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_conn(small_url: str) -> Iterator[Connection]:
    with psycopg.connect(small_url, autocommit=True) as conn:
        yield conn


def pages(client: httpx2.Client, **wanted: Any) -> list[list[str]]:
    found: list[list[str]] = []
    before = None
    for _ in range(1000):
        asked = {**wanted, **({"before": before} if before else {})}
        page = client.get("/jobs", params=asked).json()
        found.append([job["id"] for job in page["jobs"]])
        before = page["next"]
        if before is None:
            return found
    raise AssertionError("the pages do not end")


def test_pages_hold_every_job_once_newest_first(
    guest: httpx2.Client, small_conn: Connection
) -> None:
    mine = [enqueue(small_conn, n) for n in range(25)]
    found = [job_id for page in pages(guest, limit=5) for job_id in page]
    assert found == sorted(found, reverse=True)
    assert len(found) == len(set(found))
    assert set(mine) <= set(found)
    assert max(len(page) for page in pages(guest, limit=5)) == 5


def test_a_filtered_page_examines_a_bounded_number_of_jobs(
    guest: httpx2.Client, small_conn: Connection
) -> None:
    rare = [enqueue(small_conn, n, queue="rare") for n in range(2)]
    for n in range(25):
        enqueue(small_conn, n, queue="common")
    first = guest.get("/jobs", params={"queue": "rare"}).json()
    assert first["jobs"] == []
    assert first["next"] is not None
    found = pages(guest, queue="rare")
    assert [job_id for page in found for job_id in page] == rare[::-1]
    both = pages(guest, queue="rare", state="queued", task="t", limit=1)
    assert [job_id for page in both for job_id in page] == rare[::-1]
    assert [page for page in pages(guest, queue="rare", state="running") if page] == []


def test_a_deep_page_is_found_by_its_index_and_not_by_walking_there(
    conn: Connection,
) -> None:
    conn.execute(
        "INSERT INTO faultline.jobs (task, queue) SELECT 't', 'deep' FROM generate_series(1, 5000)"
    )
    conn.execute("ANALYZE faultline.jobs")
    row = conn.execute("SELECT id FROM faultline.jobs ORDER BY id OFFSET 500 LIMIT 1").fetchone()
    assert row is not None
    wanted = jobs.job_json_page(JobFilter(queue="deep"), limit=50, scan=100, before=row[0])
    plan = conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {wanted.sql}", wanted.params).fetchone()
    assert plan is not None
    nodes = list(nodes_of(plan[0][0]["Plan"]))
    on_jobs = [node for node in nodes if node.get("Relation Name") == "jobs"]
    assert on_jobs
    assert all("Index" in node["Node Type"] for node in on_jobs)
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in on_jobs) <= 100 + 50
    assert all(node.get("Rows Removed by Filter", 0) == 0 for node in on_jobs)


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes_of(inner)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=x",
        "state=unheard",
        "before=x",
        "queue=no%20such",
        "task=",
        "task=%00",
        "unheard_of=1",
    ],
)
def test_an_invalid_page_query_is_refused(client: httpx2.Client, query: str) -> None:
    answer = client.get(f"/jobs?{query}")
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")


# ── queues ───────────────────────────────────────────────────────────────────────────────────────


def test_queues_are_counted_and_paused_ones_are_there_even_when_empty(
    client: httpx2.Client, api_conn: Connection
) -> None:
    enqueue(api_conn, 1, queue="counted")
    api_conn.execute("SELECT faultline.pause_queue('silent', 'no reason')")
    queues = {queue["queue"]: queue for queue in client.get("/queues").json()["queues"]}
    counted, silent = queues["counted"], queues["silent"]
    assert (counted["paused"], counted["due"]["at_least"], counted["due"]["is_exact"]) == (
        *(False, 1),
        True,
    )
    assert counted["due"]["oldest_seconds"] >= 0
    assert (silent["paused"], silent["paused_reason"]) == (True, "no reason")
    assert silent["due"]["at_least"] == 0


def test_responses_must_not_be_cached(client: httpx2.Client) -> None:
    answer = client.get("/queues")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"] != client.get("/queues").headers["x-request-id"]
    assert "server" not in answer.headers


def test_a_request_that_waits_too_long_is_answered_with_the_job_as_it_is(
    client: httpx2.Client, api_conn: Connection
) -> None:
    job_id = enqueue(api_conn, 1, queue="slow")
    assert client.get(f"/jobs/{job_id}", params={"wait": 30}).json()["state"] == "queued"


@pytest.mark.parametrize("wait", ["-1", "31", "nan", "soon"])
def test_a_wait_that_is_out_of_range_is_refused(client: httpx2.Client, wait: str) -> None:
    answer = client.get(f"/jobs/{uuid4()}", params={"wait": wait})
    assert answer.status_code == 422


@pytest.fixture
def own(api_url: str) -> Iterator[tuple[Served, httpx2.Client, Connection]]:
    """A server of the test's own, which waits as long as it is asked to."""
    with (
        served(api_url, "--concurrent-requests", "2") as server,
        client_of(server, make_key(api_url)) as client,
        psycopg.connect(api_url, autocommit=True) as conn,
    ):
        yield server, client, conn


def waiting_request(
    thread: ThreadPoolExecutor, client: httpx2.Client, conn: Connection, job_id: str
) -> Future[httpx2.Response]:
    """Send a request that waits; returns when the server has marked the job."""
    sent = thread.submit(client.get, f"/jobs/{job_id}", params={"wait": 30}, timeout=60)
    marked = "SELECT awaited FROM faultline.jobs WHERE id = %s"
    wait_until(lambda: conn.execute(marked, [job_id]).fetchone() == (True,), "the mark")
    return sent


def test_waiting_requests_are_answered_at_the_end_and_leave_slots_to_others(
    own: tuple[Served, httpx2.Client, Connection],
) -> None:
    _, client, conn = own
    job_id = enqueue(conn, 1, queue="awaited")
    with ThreadPoolExecutor(1) as thread:
        first = waiting_request(thread, client, conn, job_id)
        second = client.get(f"/jobs/{job_id}", params={"wait": 30}, timeout=60)
        assert second.json()["state"] == "queued"
        finish(conn, "awaited")
        done = first.result().json()
    assert (done["state"], done["result"]) == ("succeeded", {"pi": 3.14})
    assert client.get(f"/jobs/{job_id}", params={"wait": 30}).json() == done


def test_a_server_that_stops_answers_requests_that_wait(
    own: tuple[Served, httpx2.Client, Connection],
) -> None:
    server, client, conn = own
    job_id = enqueue(conn, 1, queue="leaving")
    with ThreadPoolExecutor(1) as thread:
        waiting = waiting_request(thread, client, conn, job_id)
        server.terminate()
        assert waiting.result().json()["state"] == "queued"
    assert server.wait() == 0

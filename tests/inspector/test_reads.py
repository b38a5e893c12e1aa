"""What the endpoints answer, each on a real database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from starlette.testclient import TestClient

from faultline.inspector import overview
from faultline.model import JobState
from faultline.postgres.sessions import run
from faultline.statements import job_pages
from faultline.statements.job_filter import JobFilter
from tests.inspector import stories
from tests.protocol import steps
from tests.waiting import wait_until

Connection = psycopg.Connection[Any]
Connect = Callable[[], Connection]


def ids(document: dict[str, Any]) -> list[str]:
    return [job["id"] for job in document["jobs"]]


def walk(client: TestClient, path: str, rows: str, key: str, **query: Any) -> list[str]:
    """The keys of all rows of all pages, each page with the cursor of the one before."""
    found: list[str] = []
    turning = "before" if path.endswith("rejections") else "after"
    for _ in range(50):
        page = client.get(path, params=query).raise_for_status().json()
        found += [row[key] for row in page[rows]]
        if page["next"] is None:
            return found
        query[turning] = page["next"]
    raise AssertionError(f"{path} has no end")


# ── overview ─────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_database_has_an_overview(client: TestClient) -> None:
    overview = client.get("/api/overview").raise_for_status().json()

    assert overview["database"]["ok"] is True
    assert overview["database"]["latency_ms"] > 0
    totals = {"due": 0, "waiting": 0, "scheduled": 0, "running": 0, "failed": 0, "is_exact": True}
    assert overview["totals"] == totals
    assert overview["throughput"] == {"succeeded_per_second": None, "window_seconds": 0.0}
    assert overview["oldest_due_seconds"] is None
    assert overview["workers"] == {"alive": 0, "draining": 0, "silent": 0, "lost": 0}
    assert overview["risk"]["stale_risk"] == "low"
    assert overview["rejections_last_hour"] == 0
    assert datetime.fromisoformat(overview["now"]).utcoffset() is not None


def test_the_overview_counts_jobs_workers_and_refusals(
    client: TestClient, conn: Connection
) -> None:
    stories.run_takeover(conn)
    stories.register(conn, "second")
    steps.claim_new(conn, worker="second")
    waiting, _ = steps.enqueue(conn)
    steps.make_due(conn, waiting, "1 hour")
    steps.enqueue(conn, run_at="tomorrow")

    overview = client.get("/api/overview").raise_for_status().json()

    assert overview["totals"] == {
        "due": 1,
        "waiting": 0,
        "scheduled": 1,
        "running": 1,
        "failed": 0,
        "is_exact": True,
    }
    assert overview["oldest_due_seconds"] >= 3600
    assert overview["workers"]["alive"] == 1
    assert overview["rejections_last_hour"] == 1
    assert overview["risk"]["reasons"][0]["code"] == "stale_writes_refused"
    assert overview["latency"]["jobs"] == 1


def test_risk_equals_the_risk_in_the_overview(
    client: TestClient, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "FRESH_SECONDS", 600.0)  # one look is enough for both
    held = steps.claim_new(conn)
    steps.set_job(conn, held.job_id, "lease_expires_at = clock_timestamp() - interval '1 minute'")

    risk = client.get("/api/risk").raise_for_status().json()

    assert risk["stale_risk"] == "high"
    assert risk["expired_leases"] == 1
    assert risk["worst_remaining_share"] == 0
    assert risk["inputs"]["longest_expired_seconds"] >= 60
    assert risk == client.get("/api/overview").json()["risk"]  # of the same look


# ── leases and workers ───────────────────────────────────────────────────────────────────────────


def test_leases_come_in_the_order_in_which_they_run_out(
    client: TestClient, conn: Connection
) -> None:
    leases = steps.claim_new_batch(conn, 5)
    for place, lease in enumerate(leases):
        left = f"interval '{10 - place} seconds'"
        steps.set_job(conn, lease.job_id, f"lease_expires_at = clock_timestamp() + {left}")

    found = walk(client, "/api/leases", "leases", "job_id", limit=2)

    assert found == [str(lease.job_id) for lease in reversed(leases)]


def test_leases_that_run_out_at_the_same_instant_are_all_found(
    client: TestClient, conn: Connection
) -> None:
    leases = steps.claim_new_batch(conn, 7)
    for lease in leases:
        steps.set_job(conn, lease.job_id, "lease_expires_at = '2100-01-01'")

    found = walk(client, "/api/leases", "leases", "job_id", limit=3)

    assert found == sorted(str(lease.job_id) for lease in leases)


def test_a_lease_has_its_remaining_time_and_risk(client: TestClient, conn: Connection) -> None:
    fresh, halfway, over = steps.claim_new_batch(conn, 3)
    for lease, left in ((halfway, 20), (over, -5)):
        span = f"interval '{left} seconds'"
        steps.set_job(conn, lease.job_id, f"lease_expires_at = clock_timestamp() + {span}")

    found = client.get("/api/leases").raise_for_status().json()["leases"]
    by_id = {row["job_id"]: row for row in found}

    assert [by_id[str(lease.job_id)]["risk"] for lease in (fresh, halfway, over)] == [
        *("low", "medium", "high")
    ]
    row = by_id[str(halfway.job_id)]
    assert row["lease_seconds"] == 60
    assert 0 < row["remaining_seconds"] <= 20
    assert row["remaining_share"] == pytest.approx(row["remaining_seconds"] / 60)
    assert (row["owner"], row["token"], row["task"]) == ("first", 1, "send_mail")
    assert by_id[str(over.job_id)]["remaining_share"] == 0
    assert by_id[str(over.job_id)]["remaining_seconds"] < 0


def test_a_lease_of_a_worker_that_is_gone_is_at_risk_however_long_it_lasts(
    client: TestClient, conn: Connection, connect: Connect
) -> None:
    crew = connect()
    stories.register(crew, "first")
    steps.claim_new(conn, worker="first")
    crew.close()
    wait_until_lost(client, "first")

    [lease] = client.get("/api/leases").json()["leases"]

    assert lease["risk"] == "high"


def wait_until_lost(client: TestClient, worker: str) -> None:
    """A session that was closed is over when the server has noticed."""

    def is_lost() -> bool:
        found = {each["id"]: each for each in client.get("/api/workers").json()["workers"]}
        return bool(found[worker]["status"] == "lost")

    wait_until(is_lost, f"the loss of {worker}")


def test_workers_are_shown_with_their_status(
    client: TestClient, conn: Connection, connect: Connect
) -> None:
    for worker in ("alive", "draining", "silent"):
        stories.register(conn, worker, "default", "mail", pid=7)
    conn.execute("SELECT faultline.drain_worker('draining')")
    conn.execute(
        "UPDATE faultline.workers SET last_heartbeat_at = clock_timestamp() - interval '1 hour'"
        " WHERE id = 'silent'"
    )
    steps.claim_new(conn, worker="alive")

    workers = client.get("/api/workers").raise_for_status().json()["workers"]

    assert {each["id"]: each["status"] for each in workers} == {
        worker: worker for worker in ("alive", "draining", "silent")
    }
    alive = workers[0]
    assert (alive["host"], alive["pid"], alive["queues"]) == ("host", 7, ["default", "mail"])
    assert (alive["running"], alive["holds_locks"]) == (1, True)
    assert alive["silent_seconds"] >= 0
    assert datetime.fromisoformat(alive["started_at"]).utcoffset() is not None


def test_a_heartbeat_is_late_once_half_of_the_shortest_lease_has_gone_by(
    client: TestClient, conn: Connection
) -> None:
    stories.register(conn, "first")
    steps.claim_new(conn, worker="first")  # for a minute
    conn.execute(
        "UPDATE faultline.workers SET last_heartbeat_at = clock_timestamp() - interval '40 seconds'"
    )

    risk = client.get("/api/risk").json()

    assert 10 <= risk["heartbeat_lateness_seconds"] < 40
    assert "heartbeat_late" in [reason["code"] for reason in risk["reasons"]]


# ── queues and refusals ──────────────────────────────────────────────────────────────────────────


def test_queues_are_counted_and_paused_ones_marked(client: TestClient, conn: Connection) -> None:
    steps.enqueue(conn, queue="mail")
    conn.execute("SELECT faultline.pause_queue('mail', 'the provider is down')")
    conn.execute("SELECT faultline.pause_queue('unused', NULL)")

    queues = client.get("/api/queues").raise_for_status().json()["queues"]

    mail, unused = queues
    assert (mail["queue"], mail["due"], mail["paused"]) == ("mail", 1, True)
    assert mail["paused_reason"] == "the provider is down"
    assert (mail["scheduled"], mail["running"], mail["failed"]) == (0, 0, 0)
    assert mail["is_exact"] is True
    assert mail["oldest_due_seconds"] >= 0
    assert (unused["queue"], unused["paused"], unused["due"]) == ("unused", True, 0)


def test_refusals_are_shown_newest_first_with_the_overlap(
    client: TestClient, conn: Connection
) -> None:
    takeovers = [stories.run_takeover(conn) for _ in range(3)]

    page = client.get("/api/rejections", params={"limit": 1}).raise_for_status().json()
    found = walk(client, "/api/rejections", "rejections", "job_id", limit=1)

    assert found == [str(story.job_id) for story in reversed(takeovers)]
    [newest] = page["rejections"]
    assert isinstance(newest["id"], str)
    assert (newest["task"], newest["queue"], newest["worker"]) == ("send_mail", "default", "first")
    assert (newest["stale_token"], newest["current_token"]) == (1, 2)
    assert newest["reason"] == "token_mismatch"
    assert newest["overlap_seconds"] > 0


def test_a_refusal_outlives_its_job(client: TestClient, conn: Connection) -> None:
    story = stories.run_takeover(conn)
    conn.execute("DELETE FROM faultline.jobs WHERE id = %s", [story.job_id])

    [refusal] = client.get("/api/rejections").raise_for_status().json()["rejections"]

    assert (refusal["job_id"], refusal["task"]) == (str(story.job_id), None)


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────


def failed(conn: Connection, **options: Any) -> UUID:
    lease = steps.claim_new(conn, **options)
    conn.execute("SELECT faultline.fail(%s, %s, %s, 'boom', '0', 'rejected')", lease)
    return lease.job_id


@pytest.fixture
def every_state(conn: Connection) -> dict[str, list[str]]:
    """Three jobs in each state, by state, oldest first."""
    jobs: dict[str, list[UUID]] = {"failed": [failed(conn) for _ in range(3)]}
    done = [steps.claim_new(conn) for _ in range(3)]
    for lease in done:
        steps.commit(conn, lease)
    jobs["succeeded"] = [lease.job_id for lease in done]
    jobs["running"] = [steps.claim_new(conn).job_id for _ in range(3)]
    jobs["queued"] = [steps.enqueue(conn)[0] for _ in range(3)]
    return {state: [str(job_id) for job_id in some] for state, some in jobs.items()}


def test_without_a_filter_the_newest_jobs_come_first(
    client: TestClient, every_state: dict[str, list[str]]
) -> None:
    everything = [job_id for some in every_state.values() for job_id in some]

    found = walk(client, "/api/jobs", "jobs", "id", limit=5)

    assert found == list(reversed(everything))


@pytest.mark.parametrize("queue", [None, "default"])
@pytest.mark.parametrize("state", ["queued", "running", "succeeded", "failed"])
def test_jobs_of_one_state_are_found_page_by_page(
    client: TestClient, every_state: dict[str, list[str]], state: str, queue: str | None
) -> None:
    query = {"state": state, "limit": 2} | ({"queue": queue} if queue else {})
    in_order = state in ("queued", "running")  # as they are claimed, and as their leases end

    found = walk(client, "/api/jobs", "jobs", "id", **query)

    expected = every_state[state]
    assert found == (expected if in_order else list(reversed(expected)))


def test_failures_of_several_queues_are_merged_newest_first(
    client: TestClient, conn: Connection
) -> None:
    made = []
    for queue in ("b", "a", "c", "a", "b"):
        job_id, _ = steps.enqueue(conn, queue=queue)
        [lease] = steps.claim_batch(conn, 1, queues=[queue])
        conn.execute("SELECT faultline.fail(%s, %s, %s, 'boom', '0', 'rejected')", lease)
        made.append(str(job_id))

    found = walk(client, "/api/jobs", "jobs", "id", state="failed", limit=2)

    assert found == list(reversed(made))


def test_jobs_are_found_by_task_queue_and_key(client: TestClient, conn: Connection) -> None:
    wanted, _ = steps.enqueue(conn, "bill", queue="money", idempotency_key="invoice-42")
    steps.enqueue(conn, "bill", queue="other")
    steps.enqueue(conn, "ship", queue="money")

    by_task = client.get("/api/jobs", params={"task": "bill", "queue": "money"}).json()
    queued = client.get("/api/jobs", params={"task": "bill", "queue": "money", "state": "queued"})
    by_key = client.get("/api/jobs", params={"key": "invoice-42"}).json()
    nothing = client.get("/api/jobs", params={"key": "invoice-43"}).json()

    assert ids(by_task) == ids(queued.json()) == ids(by_key) == [str(wanted)]
    assert ids(nothing) == []


@pytest.mark.parametrize("state", [None, *JobState])
def test_a_rare_task_is_found_over_pages_that_examine_few_jobs(
    conn: Connection, state: JobState | None
) -> None:
    """A page may be empty, and still say where to go on."""
    rare = []
    for place in range(20):
        job_id, _ = steps.enqueue(conn, "rare" if place in (0, 1, 13) else "common")
        rare += [job_id] if place in (0, 1, 13) else []
        if state not in (None, JobState.QUEUED):
            bring_to(conn, steps.claim(conn), state)
    wanted = JobFilter(state, task="rare")
    pages = [run(conn, job_pages.page(wanted, limit=2, max_examined=3))]
    while pages[-1].next is not None:
        following = job_pages.page(wanted, limit=2, max_examined=3, after=pages[-1].next)
        pages.append(run(conn, following))

    found = [job.id for page in pages for job in page.jobs]
    assert found == (rare if state in ("queued", "running") else list(reversed(rare)))
    assert [] in [page.jobs for page in pages]
    assert len(pages) >= 20 / 3


def bring_to(conn: Connection, lease: steps.Lease, state: JobState | None) -> None:
    if state is JobState.SUCCEEDED:
        steps.commit(conn, lease)
    elif state is JobState.FAILED:
        conn.execute("SELECT faultline.fail(%s, %s, %s, 'boom', '0', 'rejected')", lease)


def test_a_job_is_shown_with_its_payload_and_its_lease(
    client: TestClient, conn: Connection
) -> None:
    payload = {"html": "<script>alert(1)</script>", "n": [1, 2.5, None]}
    lease = steps.claim_new(conn, payload=payload, idempotency_key="k")

    job = client.get(f"/api/jobs/{lease.job_id}").raise_for_status().json()

    assert job["payload"] == payload
    assert (job["idempotency_key"], job["state"], job["token"]) == ("k", "running", 1)
    assert (job["lease_owner"], job["lease_seconds"]) == ("first", 60)
    assert job["result"] is None
    assert "lease_id" not in job  # with the token it is the right to commit


def test_a_payload_too_large_for_a_page_is_left_out_with_its_size(
    client: TestClient, conn: Connection
) -> None:
    job_id, _ = steps.enqueue(conn, payload={"text": "x" * 300_000})

    job = client.get(f"/api/jobs/{job_id}").raise_for_status().json()

    assert job["payload"] is None
    assert job["payload_bytes"] > 300_000


# ── refused requests ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/api/jobs/{}", "/api/jobs/{}/timeline"])
def test_an_unknown_job_is_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path.format(uuid4()))

    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_job"


def test_the_error_for_a_purged_job_says_that_it_took_effect(
    client: TestClient, conn: Connection
) -> None:
    lease = steps.claim_new(conn)
    steps.commit(conn, lease)
    conn.execute("DELETE FROM faultline.jobs WHERE id = %s", [lease.job_id])

    answer = client.get(f"/api/jobs/{lease.job_id}/timeline")

    assert answer.status_code == 404
    assert "took effect" in answer.json()["error"]["hint"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/jobs/not-an-id",
        "/api/jobs?limit=0",
        "/api/jobs?limit=1001",
        "/api/jobs?state=lost",
        "/api/jobs?task=%00",
        "/api/jobs?after=bm90IGEgY3Vyc29y",
        "/api/jobs?after=%F0%9F%92%A5",
        "/api/leases?after=WyJsZWFzZXMiLDEsMl0",
        "/api/leases?limit=x",
        "/api/rejections?before=-1",
        "/api/rejections?before=99999999999999999999",
    ],
)
def test_an_invalid_query_is_refused_with_a_code(client: TestClient, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_input"


def test_the_cursor_of_another_list_is_refused(
    client: TestClient, every_state: dict[str, list[str]]
) -> None:
    of_running = client.get("/api/jobs", params={"state": "running", "limit": 1}).json()["next"]

    answer = client.get("/api/jobs", params={"state": "queued", "after": of_running})

    assert answer.status_code == 422


def test_unknown_paths_and_methods_have_answers_in_json(client: TestClient) -> None:
    nowhere, wrong = (
        client.get("/api/nowhere"),
        client.delete("/api/jobs"),
    )

    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")

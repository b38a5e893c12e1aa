"""Every part of Faultline works behind PgBouncer in both modes."""

from __future__ import annotations

from typing import Any

import psycopg
from starlette.testclient import TestClient

from faultline import Faultline, Job, JobState
from faultline.api.application import create_api
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.reconciler import Reconciler
from faultline.statements.workers import LOCK_CLASS
from faultline_drills.servers.pooler import Pooler
from tests.api.served import make_key
from tests.cli.conftest import invoke
from tests.running import EventTap, background, ended, working
from tests.waiting import wait_until

Connection = psycopg.Connection[Any]
SESSION_LOCKS = (
    f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = {LOCK_CLASS}"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def test_a_worker_runs_jobs_and_logs_what_it_cannot_use(
    pooled_app: Faultline, pooled_url: str, conn: Connection, events: EventTap, pooler: Pooler
) -> None:
    conn.execute("CREATE TABLE effects (job_id uuid)")

    @pooled_app.task()
    async def note(job: Job) -> None:
        async with job.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES (%s)", [job.id])

    @pooled_app.task()
    def plain(job: Job) -> None:
        with job.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES (%s)", [job.id])

    @pooled_app.task()
    async def nothing(job: Job) -> None: ...

    jobs = [task.enqueue().job_id for task in (note, plain, nothing)]
    with working(pooled_app, companions=[Reconciler(pooled_url).run]):
        for job_id in jobs:
            assert ended(pooled_app, job_id).state is JobState.SUCCEEDED
        assert conn.execute("SELECT holds_locks FROM faultline.workers").fetchall() == [(False,)]
        assert conn.execute(SESSION_LOCKS).fetchone() == (0,)
        for loss in ("LISTEN", "lease", "reconciler"):
            wait_until(lambda loss=loss: loss in reasons(events), f"the event {loss!r}")  # type: ignore[misc]
        wait_until(lambda: not clients(pooler, conn, "faultline listener"), "the end of listening")
    assert conn.execute("SELECT count(*) FROM effects").fetchone() == (2,)
    [started] = events.of("worker_started")
    assert started["recovery_after_crash_seconds"] == started["recovery_after_silence_seconds"]


def reasons(events: EventTap) -> str:
    return " / ".join(event["reason"] for event in events.of("degraded"))


def clients(pooler: Pooler, conn: Connection, name: str) -> list[Any]:
    shown = pooler.tell("SHOW CLIENTS")
    ours = [each for each in shown if each["database"] == conn.info.dbname]
    return [each for each in ours if each["application_name"] == name]


def test_reconcilers_requeue_expired_leases_without_a_leader(
    pooled_url: str, conn: Connection, events: EventTap
) -> None:
    reconcilers = Reconciler(pooled_url), Reconciler(pooled_url)
    with background(reconcilers[0].run), background(reconcilers[1].run):
        wait_until(lambda: len(events.of("degraded")) == 2, "an event of each")
        conn.execute("SELECT faultline.enqueue('t', '{}')")
        conn.execute("SELECT FROM faultline.claim('gone', ARRAY['default'], 1, '100 milliseconds')")
        state = "SELECT state FROM faultline.jobs"
        wait_until(lambda: conn.execute(state).fetchone() == ("queued",), "the requeueing")
        wait_until(lambda: events.of("lease_reaped"), "its event")
        assert conn.execute(SESSION_LOCKS).fetchone() == (0,)
    assert len(events.of("lease_reaped")) == 1
    assert events.of("reconciler_leading") == []


def test_the_api_enqueues_and_reads_jobs(pooled_url: str, database_url: str) -> None:
    key = {"Authorization": f"Bearer {make_key(database_url)}"}
    with TestClient(create_api(pooled_url), base_url="http://localhost", headers=key) as client:
        for _ in range(8):
            made = client.post("/jobs", json={"task": "send", "payload": {}})
            assert made.status_code == 201, made.text
        job = made.json()["job_id"]
        assert client.get(f"/jobs/{job}").json()["state"] == "queued"
        assert client.get("/ready").status_code == 200


def test_the_inspector_reads(pooled_url: str, conn: Connection) -> None:
    conn.execute("SELECT faultline.enqueue('t', '{}')")
    app = make_app(InspectorSettings(database_url=pooled_url))
    with TestClient(app, base_url="http://localhost") as client:
        for path in ("overview", "jobs", "queues", "workers", "rejections"):
            answer = client.get(f"/api/{path}")
            assert answer.status_code == 200, (path, answer.text)
    assert conn.execute("SHOW default_transaction_read_only").fetchone() == ("off",)


def test_commands_work_and_doctor_warns_of_the_pooler(pooled_url: str, conn: Connection) -> None:
    assert "nothing to do" in invoke(pooled_url, "migrate").out
    assert invoke(pooled_url, "migrate", "--roles").code == 0
    made = invoke(pooled_url, "enqueue", "t", "{}")
    assert made.code == 0
    assert invoke(pooled_url, "why", made.out.strip(), "--json").json["code"] == "no_worker"
    assert invoke(pooled_url, "verify").code == 0
    report = invoke(pooled_url, "doctor", "--json").json
    [check] = [each for each in report["checks"] if each["name"] == "pooler"]
    assert check["level"] == "warning"
    assert "only when its lease runs out" in check["says"]


def test_migrate_works_behind_a_pooler(pooler: Pooler, empty_database_url: str) -> None:
    url = pooler.url(empty_database_url)
    assert "applied 0001" in invoke(url, "migrate").out
    assert invoke(url, "verify").code == 0


def test_a_worker_without_notifications_drains_at_its_next_heartbeat(
    pooled_app: Faultline, pooled_url: str, conn: Connection
) -> None:
    with working(pooled_app, lease_seconds=1) as running:
        registered = "SELECT count(*) FROM faultline.workers"
        wait_until(lambda: conn.execute(registered).fetchone() == (1,), "its registration")
        assert invoke(pooled_url, "drain", "--all", "--wait").code == 0
        wait_until(lambda: not running.is_alive, "its end")

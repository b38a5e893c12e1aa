"""The events that jobs, workers and reconcilers log, in their order."""

from __future__ import annotations

from faultline import Faultline, Job, RetryPolicy
from faultline.config import LIVENESS_SECONDS, LONGEST_LEADERSHIP_SECONDS
from faultline.reconciler import Reconciler
from tests.running import (
    Connection,
    EventTap,
    background,
    ended,
    expire,
    rejections,
    take_over,
    value,
    working,
)
from tests.waiting import wait_until

OF_AN_ATTEMPT = {"event", "job_id", "token", "worker", "at"}


# ── the life of a job, in events ─────────────────────────────────────────────────────────────


def test_a_successful_job_logs_its_four_events(app: Faultline, events: EventTap) -> None:
    @app.task(name="fine")
    async def fine(job: Job) -> None: ...

    job_id = fine.enqueue().job_id
    with working(app, worker_id="me"):
        wait_until(lambda: events.of("worker_exit"))
    logged = [line for line in events.all() if line.get("job_id") == str(job_id)]
    of_job = [line for line in logged if line["event"] != "lease_renewed"]  # at any moment
    story = ["lease_acquired", "execution_started", "commit_ok", "worker_exit"]
    assert [line["event"] for line in of_job] == story
    assert all(line.keys() >= OF_AN_ATTEMPT for line in of_job)
    assert {(line["worker"], line["token"]) for line in of_job} == {("me", 1)}
    assert of_job[-1]["reason"] == "success"
    assert events.lines()[0].startswith('{"event":"worker_started","worker":"me"')
    assert events.all()[-1]["event"] == "worker_stopped"


def test_a_starting_worker_logs_its_recovery_time(app: Faultline, events: EventTap) -> None:
    with working(app, lease_seconds=4, queues=("red",), concurrency=3):
        [line] = wait_until(lambda: events.of("worker_started"))
    assert (line["queues"], line["concurrency"], line["lease_seconds"]) == (["red"], 3, 4)
    assert line["recovery_after_crash_seconds"] < line["recovery_after_silence_seconds"]
    assert line["recovery_in_large_fleet_seconds"] == 2 * (
        LONGEST_LEADERSHIP_SECONDS + LIVENESS_SECONDS
    )


def test_a_job_that_fails_is_scheduled_again_and_then_dead(
    app: Faultline, events: EventTap
) -> None:
    @app.task(max_attempts=2, retry=RetryPolicy(base_seconds=0, cap_seconds=0))
    async def hopeless(job: Job) -> None:
        raise ValueError("no")

    with working(app):
        ended(app, hopeless.enqueue().job_id)
        wait_until(lambda: len(events.of("worker_exit")) == 2)
    [retry], [dead] = events.of("job_retry_scheduled"), events.of("job_dead")
    assert (retry["error"], retry["retry_in_seconds"]) == ("ValueError: no", 0)
    assert (dead["error"], dead["reason"]) == ("ValueError: no", "attempts_spent")
    assert [line["reason"] for line in events.of("worker_exit")] == ["failed", "failed"]


def test_a_renewed_lease_is_logged(app: Faultline, events: EventTap) -> None:
    @app.task()
    def slow(job: Job) -> None:
        wait_until(lambda: events.of("lease_renewed"))

    with working(app, heartbeat_seconds=0.1, worker_id="me"):
        job_id = slow.enqueue().job_id
        ended(app, job_id)
    line = events.of("lease_renewed")[0]
    assert (line["job_id"], line["token"], line["worker"]) == (str(job_id), 1, "me")


def test_a_blocked_stale_write_is_logged(
    app: Faultline, conn: Connection, events: EventTap
) -> None:
    @app.task()
    async def stale(job: Job) -> None:
        take_over(conn, job.id)
        async with job.transaction():
            pass

    job_id = stale.enqueue().job_id
    with working(app, self_fencing=False, worker_id="me"):
        [line] = wait_until(lambda: events.of("stale_write_blocked"))
    assert (line["job_id"], line["worker"], line["reason"]) == (
        str(job_id),
        "me",
        "token_mismatch",
    )
    assert (line["stale_token"], line["current_token"]) == (1, 2)
    assert line["overlap_seconds"] >= 0
    assert rejections(conn, job_id) == [(1, 2, "token_mismatch")]


def test_a_lost_worker_and_what_it_held_are_named(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    conn.execute("SELECT faultline.register_worker('gone', 'host', 1, '{default}', true)")
    conn.execute("SELECT pg_advisory_unlock_all()")
    job_id = value(conn, "SELECT job_id FROM faultline.enqueue('t')")
    conn.execute("SELECT faultline.claim('gone', '{default}', 1, '1 hour')")
    with background(Reconciler(database_url).run):
        [requeued] = wait_until(lambda: events.of("lease_reaped"))
        [lost] = events.of("worker_lost")
    assert lost["worker"] == "gone"
    assert (requeued["job_id"], requeued["lost_worker"], requeued["cause"]) == (
        str(job_id),
        "gone",
        "worker_lost",
    )


def test_a_job_without_attempts_left_is_dead_of_poison(
    conn: Connection, database_url: str, events: EventTap
) -> None:
    job_id = value(conn, "SELECT job_id FROM faultline.enqueue('t', max_attempts => 1)")
    conn.execute("SELECT faultline.claim('gone', '{default}', 1, '1 hour')")
    expire(conn, job_id)
    with background(Reconciler(database_url).run):
        [dead] = wait_until(lambda: events.of("job_dead"))
    assert (dead["job_id"], dead["reason"]) == (str(job_id), "poison")

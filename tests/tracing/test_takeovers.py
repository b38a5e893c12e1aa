"""The trace of a takeover: the lost worker and token, and the new worker."""

from __future__ import annotations

from faultline import Faultline, Job, RetryPolicy
from faultline.reconciler import Reconciler
from tests.running import Connection, background, expire, value, work_off
from tests.tracing.recorded import Recorded, attributes, event, links, parent_id, span_id
from tests.waiting import wait_until

SOON = RetryPolicy(base_seconds=0.01, cap_seconds=0.01)
CLAIM = "SELECT job_id FROM faultline.claim('lost-worker', '{default}', 1, '1 hour')"


def test_the_attempt_that_takes_over_names_the_lost_worker(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    job_id = nothing.enqueue().job_id
    assert value(conn, CLAIM) == job_id
    expire(conn, job_id)
    work_off(app, job_id)

    execute = recorded.one("execute default")
    assert attributes(execute)["faultline.takeover"] is True
    assert attributes(execute)["faultline.token"] == 2
    assert event(execute, "takeover") == {
        "faultline.lost_token": 1,
        "faultline.lost_worker": "lost-worker",
        "faultline.cause": "expired",
    }
    assert parent_id(execute) is None  # it is the second attempt
    assert links(execute)["enqueue"] == span_id(recorded.one("enqueue default"))


def test_a_retry_after_a_takeover_is_not_one_itself(
    app: Faultline, recorded: Recorded, conn: Connection
) -> None:
    @app.task(retry=SOON)
    async def fails_once(job: Job) -> None:
        if job.attempt == 2:
            raise LookupError

    job_id = fails_once.enqueue().job_id
    assert value(conn, CLAIM) == job_id
    expire(conn, job_id)
    work_off(app, job_id)

    taken_over, retried = recorded.wait_for("execute default", 2)
    assert attributes(taken_over)["faultline.takeover"] is True
    assert "faultline.takeover" not in attributes(retried)


def test_the_reconcile_span_lists_the_reconciled_leases(
    app: Faultline, recorded: Recorded, conn: Connection, database_url: str
) -> None:
    @app.task()
    async def nothing(job: Job) -> None:
        return None

    job_id = nothing.enqueue().job_id
    assert value(conn, CLAIM) == job_id
    with background(Reconciler(database_url).run):
        expire(conn, job_id)
        wait_until(lambda: app.get(job_id).state == "queued", "the job's return")
        taken = recorded.one("reconcile")
    assert attributes(taken)["messaging.batch.message_count"] == 1
    assert event(taken, "lease_reaped") == {
        "faultline.job_id": str(job_id),
        "faultline.lost_token": 1,
        "faultline.lost_worker": "lost-worker",
        "faultline.cause": "expired",
        "faultline.state": "queued",
    }

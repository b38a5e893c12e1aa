"""Options of single jobs at work: expiry, timeout and lease."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from faultline import Faultline, Job, JobState
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from tests.running import Connection, EventTap, work_off
from tests.waiting import wait_until


def expire(conn: Connection, job_id: Any) -> None:
    """Let the time of its expiry pass."""
    conn.execute(
        "UPDATE faultline.jobs SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s",
        [job_id],
    )


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def charge(app: Faultline, ran: list[int]) -> Any:
    @app.task(name="charge")
    def charge(job: Job, invoice: int) -> None:
        ran.append(invoice)

    return charge


def test_a_worker_does_not_start_an_expired_job(
    app: Faultline, charge: Any, conn: Connection, ran: list[int]
) -> None:
    late = charge.options(expires_in=60).enqueue(invoice=1).job_id
    in_time = charge.options(expires_in=60).enqueue(invoice=2).job_id
    without_limit = charge.enqueue(invoice=3).job_id
    expire(conn, late)
    assert work_off(app, without_limit).state is JobState.SUCCEEDED
    assert app.get(in_time).state is JobState.SUCCEEDED
    record = app.get(late)
    assert (record.state, record.failed_reason) == (JobState.FAILED, "expired")
    assert record.last_error == "it had not started when it expired"
    assert (record.attempts, sorted(ran)) == (0, [2, 3])


def test_a_worker_logs_a_job_that_its_claim_found_expired(
    app: Faultline, charge: Any, conn: Connection, events: EventTap
) -> None:
    late = charge.options(expires_in=60).enqueue(invoice=1).job_id
    expire(conn, late)
    name = conn.info.dbname
    conn.execute(f'ALTER DATABASE "{name}" SET client_min_messages = error')
    work_off(app, charge.enqueue(invoice=2).job_id)
    [dead] = events.of("job_dead")
    assert (dead["job_id"], dead["task"], dead["reason"]) == (str(late), "charge", "expired")
    assert (dead["token"], dead["attempt"]) == (0, 0)


def test_a_claim_of_expired_jobs_alone_finds_the_next_due_one(
    charge: Any, conn: Connection
) -> None:
    for number in range(3):
        expire(conn, charge.options(expires_in=60, priority=0).enqueue(invoice=number).job_id)
    due = charge.enqueue(invoice=9).job_id
    claims = run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=15))
    assert [claim.job_id for claim in claims] == [due]


def test_a_job_that_has_started_once_does_not_expire(
    charge: Any, conn: Connection, app: Faultline
) -> None:
    job_id = charge.options(expires_in=60).enqueue(invoice=1).job_id
    [claim] = run(conn, protocol.claim("w", ["default"], batch_size=1, lease_seconds=15))
    run(conn, protocol.fail(claim, error="broken", retry_seconds=0))
    expire(conn, job_id)
    assert run(conn, protocol.fail_expired(max_jobs=10)) == []
    assert work_off(app, job_id).state is JobState.SUCCEEDED


def test_the_reconciler_fails_expired_jobs_of_queues_without_workers(
    app: Faultline, charge: Any, conn: Connection
) -> None:
    unserved = charge.options(queue="unserved", expires_in=60).enqueue(invoice=1).job_id
    waiting = charge.options(queue="unserved", expires_in=60).enqueue(invoice=2).job_id
    expire(conn, unserved)
    assert run(conn, protocol.fail_expired(max_jobs=10)) == [unserved]
    assert app.get(unserved).failed_reason == "expired"
    assert app.get(waiting).state is JobState.QUEUED


def test_a_retried_job_does_not_expire_again(app: Faultline, charge: Any, conn: Connection) -> None:
    job_id = charge.options(expires_in=60).enqueue(invoice=1).job_id
    expire(conn, job_id)
    run(conn, protocol.fail_expired(max_jobs=10))
    app.retry(job_id)
    assert work_off(app, job_id).state is JobState.SUCCEEDED


def test_a_job_that_a_claim_holds_is_not_failed_as_expired(
    charge: Any, conn: Connection, connect: Any
) -> None:
    job_id = charge.options(expires_in=60).enqueue(invoice=1).job_id
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM faultline.jobs WHERE id = %s FOR UPDATE", [job_id])
        assert run(conn, protocol.fail_expired(max_jobs=10)) == []


def test_a_job_may_have_its_own_timeout(app: Faultline) -> None:
    @app.task(name="hang", max_attempts=1, timeout=600)
    def hang(job: Job) -> None:
        threading.Event().wait(60)

    record = work_off(app, hang.options(timeout=0.05).enqueue().job_id)
    assert record.failed_reason == "attempts_spent"
    assert record.last_error is not None
    assert "ran longer than 0.05 s" in record.last_error


@pytest.mark.parametrize(("lease", "expected"), [(120, 120), (1, 9)])
def test_a_job_may_have_its_own_lease_if_heartbeats_can_keep_it(
    app: Faultline, conn: Connection, lease: float, expected: float
) -> None:
    seen: list[float] = []

    @app.task(name="look")
    def look(job: Job) -> None:
        def lease_seconds() -> Any:
            query = "SELECT lease_seconds FROM faultline.jobs WHERE id = %s"
            return conn.execute(query, [job.id]).fetchone()[0]  # type: ignore[index]

        wait_until(lambda: lease_seconds() == expected, "the lease is the job's own")
        seen.append(lease_seconds())

    assert work_off(app, look.options(lease=lease).enqueue().job_id).state is JobState.SUCCEEDED
    assert seen == [expected]


WRONG = {
    "no task": '[{"payload": {}}]',
    "an unknown option": '[{"task": "t", "colour": 1}]',
    "both times": '[{"task": "t", "delay": 1, "run_at": "2030-01-01T00:00:00Z"}]',
    "expired when due": '[{"task": "t", "run_at": "2999-01-01T00:00:00Z", "expires_in": 60}]',
    "not an object": "[5]",
    "no payload": '[{"task": "t", "payload": null}]',
    "a list as payload": '[{"task": "t", "payload": []}]',
    "a truth value as timeout": '[{"task": "t", "timeout": true}]',
    "no time at all": '[{"task": "t", "timeout": 0}]',
    "a text as lease": '[{"task": "t", "lease": "60"}]',
    "too short a lease": '[{"task": "t", "lease": 0.09}]',
    "no number as delay": '[{"task": "t", "delay": "NaN"}]',
    "too long a delay": '[{"task": "t", "delay": 1e300}]',
    "a delay in the past": '[{"task": "t", "delay": -5}]',
    "expired already": '[{"task": "t", "expires_in": -1, "run_at": "2000-01-01T00:00:00Z"}]',
    "no start": '[{"task": "t", "run_at": "infinity"}]',
    "a start before all times": '[{"task": "t", "run_at": "-infinity"}]',
    "no such day": '[{"task": "t", "run_at": "2030-02-31T00:00:00Z"}]',
    "no date": '[{"task": "t", "run_at": "soon"}]',
    "no such time zone": '[{"task": "t", "run_at": "2030-01-31 00:00:00 Europe/Nowhere"}]',
    "a number as date": '[{"task": "t", "run_at": 2030}]',
    "half a priority": '[{"task": "t", "priority": 2.5}]',
    "a high priority": '[{"task": "t", "priority": 10}]',
    "a text as priority": '[{"task": "t", "priority": "1"}]',
    "no attempt": '[{"task": "t", "max_attempts": 0}]',
    "a huge number of attempts": '[{"task": "t", "max_attempts": 1e100000}]',
}


@pytest.mark.parametrize("jobs", WRONG.values(), ids=WRONG.keys())
def test_sql_refuses_jobs_that_make_no_sense(conn: Connection, jobs: str) -> None:
    with pytest.raises(Exception, match="job 1:") as caught:
        conn.execute(
            'SELECT * FROM faultline.enqueue_jobs(\'[{"task": "t"}]\'::jsonb || %s::jsonb)', [jobs]
        )
    assert caught.value.sqlstate == "FL005"  # type: ignore[attr-defined]
    assert conn.execute("SELECT count(*) FROM faultline.jobs").fetchone() == (0,)


@pytest.mark.parametrize("jobs", ["{}", "null", "5", '"t"', None])
def test_sql_refuses_jobs_that_are_no_array(conn: Connection, jobs: str | None) -> None:
    with pytest.raises(Exception, match="the jobs are not an array") as caught:
        conn.execute("SELECT * FROM faultline.enqueue_jobs(%s::jsonb)", [jobs])
    assert caught.value.sqlstate == "FL005"  # type: ignore[attr-defined]


def test_an_option_that_is_null_is_absent(conn: Connection) -> None:
    names = ("queue", "priority", "max_attempts", "expires_in", "timeout", "lease")
    jobs = [
        {"task": "t", "run_at": None, "delay": 1, "idempotency_key": None}
        | dict.fromkeys(names, None),
        {"task": "t", "run_at": "2030-01-31T09:00:00+01:00", "delay": None},
    ]
    conn.execute("SELECT * FROM faultline.enqueue_jobs(%s::jsonb)", [json.dumps(jobs)])
    row = conn.execute(
        "SELECT DISTINCT queue, priority, max_attempts, expires_at, overrides FROM faultline.jobs"
    )
    assert row.fetchall() == [("default", 5, 10, None, None)]


OVERRIDES_OUT_OF_RANGE = [
    '{"timeout": 0}',
    '{"timeout": 3162240001}',
    '{"timeout": 1e300}',
    '{"timeout": "30"}',
    '{"timeout": "Infinity"}',
    '{"timeout": true}',
    '{"timeout": null}',
    '{"lease": 0.09}',
    '{"lease": 700000}',
    '{"lease": "60"}',
    '{"lease": [60]}',
    '{"other": 1}',
    "[]",
]


@pytest.mark.parametrize("overrides", OVERRIDES_OUT_OF_RANGE)
def test_sql_refuses_overrides_that_are_not_seconds_in_range(
    conn: Connection, overrides: str
) -> None:
    with pytest.raises(Exception, match="overrides_are_known"):
        conn.execute("SELECT %s::jsonb::faultline.job_overrides", [overrides])


@pytest.mark.parametrize("overrides", ['{"timeout": 3162240000}', '{"lease": 0.1}', "{}"])
def test_sql_takes_overrides_at_the_ends_of_the_range(conn: Connection, overrides: str) -> None:
    conn.execute("SELECT %s::jsonb::faultline.job_overrides", [overrides])


WRONG_SECONDS = ['"60"', "true", "null", "[60]", "0", "-1", "1e300", "NaN", "Infinity", "1" * 400]


@pytest.mark.parametrize("name", ["timeout", "lease"])
@pytest.mark.parametrize("value", WRONG_SECONDS, ids=[value[:12] for value in WRONG_SECONDS])
def test_a_claim_has_no_override_that_is_not_a_number_of_seconds(name: str, value: str) -> None:
    claim = Claim("i", 1, "l", "t", "q", "{}", 1, 1, 0, 5, "now", None, f'{{"{name}": {value}}}')
    assert claim.override(name) is None


def test_a_wrong_override_in_a_row_does_not_end_the_worker(
    app: Faultline, charge: Any, conn: Connection, ran: list[int]
) -> None:
    job_id = charge.options(lease=60, timeout=60).enqueue(invoice=1).job_id
    conn.execute(
        "ALTER DOMAIN faultline.job_overrides DROP CONSTRAINT overrides_are_known"
    )  # as an operator could, who restores rows of another release
    conn.execute(
        """UPDATE faultline.jobs SET overrides = '{"lease": "60", "timeout": "60"}' WHERE id = %s""",
        [job_id],
    )
    assert work_off(app, job_id).state is JobState.SUCCEEDED
    assert ran == [1]

"""Settings of tasks and workers, as a running worker applies them."""

from __future__ import annotations

import pytest

from faultline import Faultline, InvalidSettings, Job
from faultline.config import WorkerSettings
from faultline.workers import Worker
from tests.running import Connection, ended, value, wait_for_the_first_heartbeat, working
from tests.waiting import wait_until


def test_a_task_whose_lease_is_too_short_for_heartbeats_is_refused_by_name(app: Faultline) -> None:
    @app.task(name="too_short", lease=1)
    async def too_short(job: Job) -> None: ...

    with pytest.raises(InvalidSettings, match="lease of too_short is 1, but two heartbeat"):
        Worker(app, WorkerSettings(lease_seconds=15))


@pytest.mark.parametrize("own", [120.0, 80.0])
def test_a_tasks_own_lease_is_what_the_row_says(
    app: Faultline, conn: Connection, own: float
) -> None:
    """Longer or shorter than the worker's; the worker relies on it for no longer."""
    relied_on: list[float] = []

    @app.task(lease=own)
    def patient(job: Job) -> None:
        row = "SELECT lease_seconds FROM faultline.jobs WHERE id = %s"
        wait_until(lambda: value(conn, row, job.id) == own, "the first heartbeat")
        left = (
            "SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::float8"
            " FROM faultline.jobs WHERE id = %s"
        )
        wait_until(lambda: abs(job.lease_remaining - own) < 2, "the worker's own view of it")
        relied_on.extend((job.lease_remaining, value(conn, left, job.id)))

    with working(app, lease_seconds=100, heartbeat_seconds=30):
        wait_for_the_first_heartbeat(conn)  # the one after it is not awaited
        record = ended(app, patient.enqueue().job_id)
    assert record.last_error is None
    worker, database = relied_on
    assert worker <= database + 1


def test_a_worker_is_registered_while_it_runs(app: Faultline, conn: Connection) -> None:
    with working(app, queues=("red", "blue"), worker_id="me"):
        query = "SELECT queues FROM faultline.workers WHERE id = 'me' AND holds_locks"
        assert wait_until(lambda: conn.execute(query).fetchall()) == [(["red", "blue"],)]

"""Settings that contradict each other are refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from faultline import Faultline, InvalidSettings, Job, RetryPolicy
from faultline.config import WorkerSettings
from faultline.model import DEFAULT_MAX_ATTEMPTS
from faultline.workers import Worker
from tests.running import Connection, ended, value, wait_for_the_first_heartbeat, working
from tests.waiting import wait_until

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"queues": ()}, "at least one queue"),
    ({"concurrency": 0}, "concurrency must be 1 to 10,000, not 0"),
    ({"concurrency": 10_001}, "concurrency must be 1 to 10,000, not 10001"),
    ({"lease_seconds": 0.05}, "lease_seconds must be 0.1 to"),
    ({"lease_seconds": -1}, "lease_seconds must be 0.1 to"),
    ({"lease_seconds": float("nan")}, "lease_seconds"),
    ({"poll_seconds": 0}, "poll_seconds must be more than 0"),
    ({"drain_seconds": -1}, "drain_seconds must not be negative"),
    ({"commit_batch": 0}, "commit_batch must be 1 to 10,000"),
    ({"max_jobs": -1}, "max_jobs must not be negative"),
    ({"lease_seconds": 10, "heartbeat_seconds": 5}, "two heartbeats of 5 s and the margin of 1 s"),
    ({"lease_seconds": 10, "heartbeat_seconds": -1}, "heartbeat"),
    ({"lease_seconds": 1, "fence_margin_seconds": 0.9}, "the margin of 0.9 s need 1.4 s"),
    ({"fence_margin_seconds": -1}, "margin"),
    ({"queues": "default"}, "queue"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_a_contradiction_is_refused_with_the_reason(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        WorkerSettings(**settings)
    assert message in str(caught.value)
    assert caught.value.code == "invalid_settings"


def test_the_defaults_follow_the_lease() -> None:
    settings = WorkerSettings(lease_seconds=20)
    assert (settings.heartbeat_seconds, settings.fence_margin_seconds) == (5, 2)


def test_every_incarnation_of_a_worker_has_an_id_of_its_own() -> None:
    assert WorkerSettings().worker_id != WorkerSettings().worker_id


def test_a_task_whose_lease_is_too_short_for_heartbeats_is_refused_by_name(app: Faultline) -> None:
    @app.task(name="too_short", lease_seconds=1)
    async def too_short(job: Job) -> None: ...

    with pytest.raises(InvalidSettings, match="lease_seconds of too_short is 1, but two heartbeat"):
        Worker(app, WorkerSettings(lease_seconds=15))


@pytest.mark.parametrize("own", [120.0, 80.0])
def test_a_tasks_own_lease_is_what_the_row_says(
    app: Faultline, conn: Connection, own: float
) -> None:
    """Longer or shorter than the worker's; the worker relies on it for no longer."""
    relied_on: list[float] = []

    @app.task(lease_seconds=own)
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


@pytest.mark.parametrize(
    "policy",
    [
        {"base_seconds": -1},
        {"base_seconds": 10, "cap_seconds": 5},
        {"factor": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
    ],
)
def test_a_contradictory_retry_policy_is_refused(policy: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match="a retry policy needs"):
        RetryPolicy(**policy)


def test_retries_grow_up_to_the_cap_and_jitter_only_shortens_them() -> None:
    steady = RetryPolicy(base_seconds=1, factor=2, cap_seconds=10, jitter=0)
    assert [steady.delay_seconds(attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    spread = RetryPolicy(base_seconds=4, jitter=0.5)
    delays = [spread.delay_seconds(1) for _ in range(200)]
    assert all(2 <= delay <= 4 for delay in delays)
    assert len(set(delays)) > 100


def test_a_worker_is_registered_while_it_runs(app: Faultline, conn: Connection) -> None:
    with working(app, queues=("red", "blue"), worker_id="me"):
        query = "SELECT queues FROM faultline.workers WHERE id = 'me' AND holds_locks"
        assert wait_until(lambda: conn.execute(query).fetchall()) == [(["red", "blue"],)]


def test_the_default_retries_outlast_an_outage_of_two_hours() -> None:
    policy = RetryPolicy()
    longest = [
        min(policy.cap_seconds, policy.base_seconds * policy.factor**number)
        for number in range(DEFAULT_MAX_ATTEMPTS - 1)
    ]
    assert sum(longest) * (1 - policy.jitter) >= 2 * 3600
    assert longest[0] <= 5  # and what fails for a moment is tried again soon

"""A worker in the lifespan of a real uvicorn starts, drains and fails."""

from __future__ import annotations

import threading
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from faultline import Faultline, JobState
from tests.adapters.fastapi.served import Served
from tests.adapters.fastapi.shop import linger
from tests.running import count, ended, value
from tests.slow import slow_unless
from tests.waiting import wait_until

Conn = psycopg.Connection[Any]
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'faultline results'"
)


def post(url: str, **cookies: str) -> httpx.Response:
    return httpx.post(url, cookies=cookies, timeout=30)


def enqueue_linger(app: Faultline, seconds: float) -> Any:
    return app.enqueue(linger.job(seconds=seconds)).job_id


def lingers(conn: Conn) -> None:
    wait_until(lambda: count(conn, "effects") == 1, "the start of the job")


def test_jobs_that_a_request_enqueues_run_in_the_same_process(
    app: Faultline, database_url: str, effects: str, conn: Conn
) -> None:
    with Served(database_url) as served:
        address = served.wait_for_address()
        job_id = post(f"{address}/charge/42").json()
        assert ended(app, job_id).state is JobState.SUCCEEDED
        assert value(conn, "SELECT note FROM effects") == "invoice 42"
        served.terminate()
        served.wait_for_end()
        named = [
            served.output.index(each) for each in ("opened", "worker_up", "worker_down", "closed")
        ]
        assert named == sorted(named)


@pytest.mark.slow
def test_a_stop_waits_for_the_jobs_that_run(
    app: Faultline, database_url: str, effects: str, conn: Conn
) -> None:
    with Served(database_url) as served:
        served.wait_for_address()
        job_id = enqueue_linger(app, 0.5)
        lingers(conn)
        served.terminate()
        served.wait_for_end()
        assert app.get(job_id).state is JobState.SUCCEEDED, served.output


@pytest.mark.slow
def test_a_job_that_outlasts_the_drain_limit_is_released_for_another_worker(
    app: Faultline, database_url: str, effects: str, conn: Conn
) -> None:
    with Served(database_url) as served:
        served.wait_for_address()
        job_id = enqueue_linger(app, 3600)
        lingers(conn)
        served.terminate()
        served.wait_for_end()
    record = app.get(job_id)
    assert (record.state, record.attempts) == (JobState.QUEUED, 0)
    assert "Application shutdown complete" in served.output


@pytest.mark.slow
def test_an_open_dashboard_and_a_waiting_client_do_not_delay_a_stop(
    app: Faultline, database_url: str, effects: str, conn: Conn
) -> None:
    job_id = app.enqueue(linger.options(queue="elsewhere").job(seconds=3600)).job_id
    with (
        Served(database_url) as served,
        httpx.Client(cookies={"user": "ada"}, timeout=60) as client,
    ):
        address = served.wait_for_address()
        answers: list[int] = []
        waits = threading.Thread(
            target=lambda: answers.append(
                httpx.get(
                    f"{address}/queue/jobs/{job_id}?wait=30", cookies={"user": "ada"}, timeout=60
                ).status_code
            )
        )
        with client.stream("GET", f"{address}/faultline/api/stream") as stream:
            assert stream.status_code == 200
            events = stream.iter_lines()
            next(events)
            waits.start()
            wait_until(lambda: value(conn, WAITING) == 1, "the request that waits")
            served.terminate()
            for _ in events:  # it ends
                pass
        waits.join(60)
        assert answers == [200]
        served.wait_for_end()
        assert "Application shutdown complete" in served.output


def test_an_application_without_tasks_does_not_start(database_url: str) -> None:
    with Served(database_url, "tests.adapters.fastapi.shop:idle_shop") as served:
        assert served.wait_for_end() == 3
        assert "the application has no tasks, so the worker has nothing to run" in served.output


def test_a_database_without_the_schema_ends_the_start_with_advice(empty_database_url: str) -> None:
    with Served(empty_database_url) as served:
        assert served.wait_for_end() == 3
        assert "faultline migrate" in served.output


def test_a_server_that_is_down_does_not_keep_the_application_from_starting() -> None:
    with Served("postgresql://u@127.0.0.1:1/none") as served:
        address = served.wait_for_address()
        refused = httpx.get(f"{address}/faultline/api/overview", cookies={"user": "ada"})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "database_unavailable"
        assert "cannot connect to PostgreSQL at postgresql://u@127.0.0.1:1/none" in served.output
        served.terminate()
        served.wait_for_end()


@pytest.mark.parametrize(
    "path", slow_unless(["faultline/", "queue/queues", "keys/queues"], "queue/queues")
)
def test_what_is_mounted_lets_no_stranger_in(database_url: str, path: str) -> None:
    with Served(database_url) as served:
        assert httpx.get(f"{served.wait_for_address()}/{path}").status_code == 401

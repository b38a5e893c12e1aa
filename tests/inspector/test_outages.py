"""Outages: the inspector answers in time, and recovers without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from faultline.errors import DatabaseUnavailable
from faultline.inspector import overview, reader
from faultline.inspector.application import make_app
from faultline.inspector.inspector_settings import InspectorSettings
from faultline_drills.proxy import Proxy, proxy_to

Connection = psycopg.Connection[Any]
PATHS = ["/api/overview", "/api/leases", "/api/jobs", "/api/queues", "/api/rejections"]


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with proxy_to(database_url) as proxy:
        yield proxy


@pytest.fixture
def distant(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """An inspector whose way to the database can be disturbed."""
    monkeypatch.setattr(overview, "FRESH_SECONDS", 0.0)
    app = make_app(InspectorSettings(database_url=proxy.url))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def statuses(client: TestClient) -> list[int]:
    return [client.get(path).status_code for path in PATHS]


def codes(client: TestClient) -> set[str]:
    return {client.get(path).json()["error"]["code"] for path in PATHS}


def test_a_database_out_of_reach_is_given_up_in_time_and_found_again(
    distant: TestClient, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert statuses(distant) == [200] * len(PATHS)

    proxy.blackhole()
    with monkeypatch.context() as impatient:  # only while there is no answer to be had
        impatient.setattr(reader, "TRANSACTION_SECONDS", 0.3)
        impatient.setattr(reader, "CONNECT_SECONDS", 0.3)
        assert codes(distant) == {"database_unavailable"}
    proxy.clear_faults()

    assert statuses(distant) == [200] * len(PATHS)


def test_a_database_that_refuses_connections_is_found_again(
    distant: TestClient, proxy: Proxy
) -> None:
    proxy.refuse_connections()
    proxy.reset_all()
    assert statuses(distant) == [503] * len(PATHS)
    assert codes(distant) == {"database_unavailable"}
    proxy.clear_faults()

    assert statuses(distant) == [200] * len(PATHS)


def test_concurrent_requests_share_a_failed_reading(proxy: Proxy) -> None:
    """Otherwise they would wait in turn for a database that does not answer."""
    proxy.refuse_connections()

    async def ask_together() -> list[BaseException | object]:
        reader_of_all = reader.Reader(proxy.url)
        shared = overview.Snapshots(reader_of_all)
        try:
            return await asyncio.gather(
                *(shared.latest() for _ in range(10)), return_exceptions=True
            )
        finally:
            await reader_of_all.close()

    failures = asyncio.run(ask_together())

    assert isinstance(failures[0], DatabaseUnavailable)
    assert all(failure is failures[0] for failure in failures)


def test_a_table_that_somebody_has_locked_is_not_waited_for(
    client: TestClient, database_url: str
) -> None:
    assert client.get("/api/jobs").status_code == 200
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE faultline.jobs")
        answer = client.get("/api/jobs")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_refused")
    assert client.get("/api/jobs").status_code == 200


def test_an_unknown_job_does_not_cost_the_session(client: TestClient, conn: Connection) -> None:
    """Otherwise any client could make it open one connection after another."""
    sessions = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'faultline inspector'"
        " AND datname = current_database()"
    )
    client.get("/api/queues").raise_for_status()
    before = conn.execute(sessions).fetchall()

    for _ in range(3):
        assert client.get("/api/jobs/00000000-0000-7000-8000-000000000000").status_code == 404
        assert client.get("/api/jobs?after=nonsense").status_code == 422

    assert len(before) == 1
    assert conn.execute(sessions).fetchall() == before

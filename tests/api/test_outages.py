"""Claims about outages of the database, and about stopping the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import psycopg
import pytest

from faultline.postgres.migrate import migrate
from faultline_drills.proxy import Action, Match, Proxy, proxy_to
from tests.api.served import (
    BOUND_SECONDS,
    Served,
    client_of,
    code_of,
    make_key,
    served,
    wait_until_blocked,
)
from tests.waiting import wait_until

REQUEST_SECONDS = 2


@pytest.fixture(scope="module")
def proxy(api_url: str) -> Iterator[Proxy]:
    with proxy_to(api_url) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def server(proxy: Proxy) -> Iterator[Served]:
    with served(proxy.url, "--key-cache-seconds", "0") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Served, api_url: str) -> Iterator[httpx2.Client]:
    with client_of(server, make_key(api_url)) as client:
        yield client


@pytest.fixture
def hasty(proxy: Proxy, api_url: str) -> Iterator[httpx2.Client]:
    """A client of a server with short time limits, which already has a session."""
    with (
        served(proxy.url, "--request-seconds", str(REQUEST_SECONDS)) as server,
        client_of(server, make_key(api_url)) as client,
    ):
        wait_until_well(client, "/queues")
        yield client


def wait_until_well(client: httpx2.Client, path: str = "/ready") -> None:
    wait_until(lambda: client.get(path).is_success, f"success of {path}")


def test_during_an_outage_every_endpoint_answers_503_and_afterwards_all_work(
    proxy: Proxy, server: Served, client: httpx2.Client
) -> None:
    assert client.post("/jobs", json={"task": "t"}).status_code == 201
    proxy.refuse_connections()
    proxy.reset_all()
    for path in ("/health", "/ready", "/queues"):
        answer = client.get(path)
        assert (answer.status_code, code_of(answer)) == (503, "database_unavailable"), path
        assert answer.headers["retry-after"] == "1"
        for secret in ("127.0.0.1", "postgres", str(proxy.url)):
            assert secret not in answer.text
    answer = client.post("/jobs", json={"task": "t", "idempotency_key": "outage"})
    assert (answer.status_code, code_of(answer)) == (503, "database_unavailable")
    assert "idempotency key" in answer.json()["error"]["hint"]
    proxy.clear_faults()
    wait_until_well(client)
    assert client.post("/jobs", json={"task": "t", "idempotency_key": "outage"}).status_code == 201
    assert client.get("/health").json()["status"] == "ok"
    server.wait_for_event("database_unavailable", purpose="api")
    server.wait_for_event("database_back", purpose="api")


def test_a_crowd_during_an_outage_is_answered_and_leaves_nothing_behind(
    proxy: Proxy, client: httpx2.Client
) -> None:
    def answers() -> list[httpx2.Response]:
        with ThreadPoolExecutor(30) as crowd:
            return list(crowd.map(lambda _: client.get("/queues"), range(60)))

    proxy.refuse_connections()
    proxy.reset_all()
    assert {code_of(answer) for answer in answers()} <= {"database_unavailable", "overloaded"}
    proxy.clear_faults()
    wait_until_well(client)
    deadline = time.monotonic() + BOUND_SECONDS
    # A slow machine may turn some away; what was left behind would stay.
    while (codes := {answer.status_code for answer in answers()}) != {200}:
        assert time.monotonic() < deadline, codes


def test_a_request_that_gets_no_answer_from_the_database_is_given_up_in_time(
    proxy: Proxy, hasty: httpx2.Client
) -> None:
    """The server must not answer; the client's own timeout would raise."""
    proxy.blackhole()
    try:
        for path in ("/queues", "/health"):
            answer = hasty.get(path)
            assert answer.status_code == 503
            assert code_of(answer) in ("database_timeout", "database_unavailable")
    finally:
        proxy.clear_faults()
        proxy.reset_all()
    wait_until_well(hasty)
    wait_until_well(hasty, "/queues")


def test_a_lost_answer_and_a_retry_with_the_same_key_make_one_job(
    proxy: Proxy, hasty: httpx2.Client, client: httpx2.Client
) -> None:
    """The job is enqueued and the reply is lost: only the key identifies the job."""
    job = {"task": "t", "idempotency_key": "lost answer"}
    interception = proxy.on(Match(text="faultline.enqueue_many"), Action.DROP_REPLY)
    while interception.message is None:  # on a busy machine its time may be up before it has asked
        lost = hasty.post("/jobs", json=job)
        assert (lost.status_code, code_of(lost)) == (503, "database_timeout")
    assert interception.wait(BOUND_SECONDS) is not None
    again = client.post("/jobs", json=job)
    assert (again.status_code, again.json()["existing"]) == (200, True)


def test_a_server_that_starts_too_early_works_as_soon_as_it_can(empty_database_url: str) -> None:
    """First the database is away, then it has no schema, then it is migrated."""
    no_key = f"flk_{'a' * 8}_{'b' * 43}"
    with proxy_to(empty_database_url) as proxy:
        proxy.refuse_connections()  # or it would not even start
        with served(proxy.url) as server, client_of(server, no_key) as client:
            assert client.get("/health").status_code == 503
            assert client.get("/queues").status_code == 503
            proxy.clear_faults()
            assert client.get("/health").status_code == 200
            for path in ("/ready", "/queues"):
                answer = client.get(path)
                assert (answer.status_code, code_of(answer)) == (503, "schema_mismatch")
            server.wait_for_event("degraded", code="schema_mismatch")
            migrate(empty_database_url)
            assert client.get("/ready").status_code == 200
            assert client.get("/queues").status_code == 401


def test_a_server_finishes_its_requests_after_sigterm(api_url: str) -> None:
    patient = ("--request-seconds", "60", "--drain-seconds", "60")  # it is to wait for us
    with (
        served(api_url, *patient) as server,
        client_of(server, make_key(api_url)) as client,
        psycopg.connect(api_url) as holder,
        ThreadPoolExecutor(1) as waiting,
    ):
        holder.execute("SELECT faultline.enqueue('t', idempotency_key => 'last')")
        under_way = waiting.submit(
            client.post, "/jobs", json={"task": "t", "idempotency_key": "last"}
        )
        wait_until_blocked(api_url, 1)
        server.terminate()
        wait_until(lambda: _is_closed(server), "a closed port", limit_seconds=BOUND_SECONDS)
        holder.commit()
        answer: Any = under_way.result(BOUND_SECONDS)
        assert (answer.status_code, answer.json()["existing"]) == (200, True)
        assert server.wait() == 0


def test_a_port_in_use_is_reported_as_an_error(server: Served, api_url: str) -> None:
    from faultline.api import ApiSettings
    from faultline.api.application import create_api
    from faultline.errors import PortUnavailable
    from faultline.serving.server import serve
    from faultline.termination import Termination

    host, port = server.host_and_port
    settings = ApiSettings(host=host, port=port)
    with pytest.raises(PortUnavailable, match=str(port)):
        serve(
            create_api(api_url, settings),
            settings.server_limits,
            on_bound=lambda address: None,
            termination=Termination(),
        )


def _is_closed(server: Served) -> bool:
    try:
        with client_of(server) as client:
            client.get("/health")
    except httpx2.TransportError:
        return True
    return False

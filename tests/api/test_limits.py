"""Claims about the limits that protect clients from each other."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import httpx2
import psycopg
import pytest

from faultline.api import ApiSettings
from faultline.api.rate_limits import RateLimiter
from faultline.cli.api import api
from faultline.errors import InvalidSettings
from faultline.postgres.sessions import run
from faultline.statements import protocol
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

OK = b"HTTP/1.1 200 OK"


def test_a_body_with_a_too_large_content_length_is_not_read(guest: httpx2.Client) -> None:
    answer = guest.post("/jobs", json={"task": "t", "payload": {"n": "x" * 3000}})
    assert (answer.status_code, code_of(answer)) == (413, "body_too_large")


def test_a_body_that_does_not_say_how_long_it_is_is_cut_off(guest: httpx2.Client) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"task": "t", "payload": {"n": "'
        for _ in range(1000):
            yield b"x" * 100

    headers = {"Content-Type": "application/json"}
    with contextlib.suppress(httpx2.WriteError):  # it may hang up while we still send
        answer = guest.post("/jobs", content=endless(), headers=headers)
        assert (answer.status_code, code_of(answer)) == (413, "body_too_large")
    assert guest.get("/queues").is_success


def test_a_payload_that_nests_too_deep_is_refused(guest: httpx2.Client) -> None:
    assert guest.post("/jobs", json={"task": "t", "payload": {"a": {"b": [1]}}}).is_success
    answer = guest.post("/jobs", json={"task": "t", "payload": {"a": {"b": [[1]]}}})
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")


def test_a_batch_and_a_page_have_an_end(guest: httpx2.Client) -> None:
    jobs = [{"task": "t"}] * 3
    assert guest.post("/jobs/batch", json={"jobs": jobs}).status_code == 201
    for wrong in ([*jobs, {"task": "t"}], []):
        answer = guest.post("/jobs/batch", json={"jobs": wrong})
        assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert len(guest.get("/jobs").json()["jobs"]) <= 5
    assert guest.get("/jobs?limit=6").status_code == 422


def test_headers_that_are_too_long_are_refused(guest: httpx2.Client) -> None:
    answer = guest.get("/queues", headers={"X-Long": "x" * 2000})
    assert (answer.status_code, code_of(answer)) == (431, "headers_too_large")
    assert guest.get(f"/jobs?task={'x' * 2000}").status_code == 431


def test_headers_without_an_end_are_not_collected(small: Served) -> None:
    with socket.create_connection(small.host_and_port, timeout=BOUND_SECONDS) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with contextlib.suppress(OSError):
            for _ in range(100):
                line.sendall(b"x" * 8192)
        with contextlib.suppress(OSError):
            assert line.recv(100).startswith(b"HTTP/1.1 400")


def wait_until_hung_up(line: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert line.recv(100) == b""


def test_a_client_that_does_not_finish_its_headers_is_hung_up_on(impatient: Served) -> None:
    with (
        socket.create_connection(impatient.host_and_port, timeout=BOUND_SECONDS) as silent,
        socket.create_connection(impatient.host_and_port, timeout=BOUND_SECONDS) as halting,
    ):
        halting.sendall(b"GET /health HTTP/1.1\r\nHost: x")
        wait_until_hung_up(silent)
        wait_until_hung_up(halting)


def is_open_at_the_other_end(line: socket.socket) -> bool:
    """As the kernel knows it; nothing is taken from the line."""
    ends = (line.getpeername()[1], line.getsockname()[1])
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = row.split()
        if tuple(int(end.partition(":")[2], 16) for end in (local, remote)) == ends:
            return state == "01"
    return False


@pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="needs /proc to see it")
def test_a_client_that_does_not_take_its_answers_is_hung_up_on(
    impatient: Served, small_url: str
) -> None:
    with psycopg.connect(small_url, autocommit=True) as conn:
        large = protocol.enqueue(
            "t", {"n": "x" * 1_000_000}, queue="large", priority=5, max_attempts=5
        )
        job_id = run(conn, large).job_id
    key = make_key(small_url)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(impatient.host_and_port)
        asked = f"GET /jobs/{job_id} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
        line.sendall(asked.encode() * 20)  # the kernel would hold a few for us
        assert line.recv(len(OK)) == OK
        wait_until(lambda: not is_open_at_the_other_end(line), "the end of the connection")
        taken = 0
        with contextlib.suppress(ConnectionError):
            while chunk := line.recv(2**20):
                taken += len(chunk)
        assert taken < 20_000_000


def test_between_its_requests_a_client_may_take_its_time(impatient: Served) -> None:
    """More than for headers: by then one that came later has been hung up on."""
    line = http.client.HTTPConnection(*impatient.host_and_port, timeout=BOUND_SECONDS)
    with contextlib.closing(line):
        line.connect()
        line.auto_open = 0  # or it would just call again
        for _ in range(2):
            line.request("GET", "/health")
            answer = line.getresponse()
            answer.read()
            assert answer.status == 200
            with socket.create_connection(impatient.host_and_port, BOUND_SECONDS) as silent:
                wait_until_hung_up(silent)


def test_a_body_that_does_not_arrive_is_not_waited_for(impatient: Served, small_url: str) -> None:
    key = make_key(small_url)
    with socket.create_connection(impatient.host_and_port, timeout=BOUND_SECONDS) as line:
        line.sendall(
            b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\nAuthorization: Bearer " + key.encode() + b"\r\n\r\n{"
        )
        answer = b"".join(iter(lambda: line.recv(10_000), b""))  # its head may come before its body
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"request_timeout" in answer


def test_a_bucket_is_refilled_as_time_goes_by_and_never_above_its_brim() -> None:
    now = 0.0
    rates = RateLimiter(2, 3, clock=lambda: now, max_buckets=2)
    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 1]
    now = 0.4
    assert rates.take("a") == 1
    now = 0.5
    assert [rates.take("a"), rates.take("a")] == [0, 1]
    now = 1000.0
    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 1]
    rates.take("b")
    rates.take("c")  # "a" is forgotten, and starts over
    assert rates.take("a") == 0
    assert RateLimiter(0, 1).take("a") == 0


# ── a crowd ──────────────────────────────────────────────────────────────────────────────────────

CROWDED = {
    "concurrent-requests": "2",
    "connections": "1",
    "request-seconds": "60",
    "requests-per-second": "0.001",
    "burst": "3",
}


@pytest.fixture(scope="module")
def crowded(api_url: str) -> Iterator[Served]:
    with served(api_url, *[f"--{name}={value}" for name, value in CROWDED.items()]) as server:
        yield server


def test_each_key_has_a_rate_of_its_own(crowded: Served, api_url: str) -> None:
    with (
        client_of(crowded, make_key(api_url)) as busy,
        client_of(crowded, make_key(api_url)) as other,
    ):
        answers = [busy.get("/queues") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert code_of(answers[3]) == "rate_limited"
        assert 1 <= int(answers[3].headers["retry-after"]) <= 1000
        assert other.get("/queues").status_code == 200
        assert busy.get("/health").status_code == 200


def test_at_the_concurrency_limit_the_error_is_overloaded_not_an_outage(
    crowded: Served, api_url: str
) -> None:
    """One request waits for a lock, another for the connection; a third is refused."""
    with (
        client_of(crowded, make_key(api_url)) as first,
        client_of(crowded, make_key(api_url)) as second,
        client_of(crowded) as third,
        psycopg.connect(api_url) as holder,
        ThreadPoolExecutor(2) as waiting,
    ):
        second.get("/queues")  # its key is known from here on
        job = {"task": "t", "idempotency_key": "in the way"}
        holder.execute("SELECT faultline.enqueue('t', idempotency_key => 'in the way')")
        held = waiting.submit(first.post, "/jobs", json=job)
        wait_until_blocked(api_url, 1)
        queued = waiting.submit(second.get, "/queues")
        deadline = time.monotonic() + BOUND_SECONDS
        while (answer := third.get("/nowhere")).status_code != 503:
            assert answer.status_code == 404
            assert time.monotonic() < deadline
        assert code_of(answer) == "overloaded"
        assert answer.headers["retry-after"] == "1"
        assert third.get("/health").is_success
        assert not held.done()
        assert not queued.done()
        holder.rollback()
        assert held.result(BOUND_SECONDS).status_code == 201
        assert queued.result(BOUND_SECONDS).status_code == 200


def test_the_wait_for_a_lock_is_bounded(impatient: Served, small_url: str) -> None:
    job = {"task": "t", "idempotency_key": "in the way"}
    with client_of(impatient, make_key(small_url)) as client:
        client.get("/queues")  # from here on it has a session: all its time is for the lock
        with psycopg.connect(small_url) as holder:
            holder.execute("SELECT faultline.enqueue('t', idempotency_key => 'in the way')")
            refused = client.post("/jobs", json=job)
            assert (refused.status_code, code_of(refused)) == (503, "locked")
            assert refused.headers["retry-after"] == "1"
            holder.rollback()
        assert client.post("/jobs", json=job).status_code == 201


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


def test_every_limit_is_an_option_of_the_command_with_the_same_default() -> None:
    options = {parameter.name: parameter for parameter in api.params}
    for limit in fields(ApiSettings):
        if "range" in limit.metadata:
            assert options[limit.name].default == limit.default


def test_a_limit_outside_its_range_is_refused_before_anything_runs() -> None:
    for limit in fields(ApiSettings):
        if "range" in limit.metadata:
            low, high = limit.metadata["range"]
            for wrong in (low - 1, high + 1):
                with pytest.raises(InvalidSettings, match=limit.name):
                    ApiSettings(**{limit.name: wrong})

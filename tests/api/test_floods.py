"""Idle connections do not keep other clients from the API and the inspector."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx2
import pytest

from faultline.serving.limits import ServerLimits
from faultline.serving.server import Connections
from tests.api.served import BOUND_SECONDS, Served, client_of, code_of, served
from tests.inspector.conftest import Served as Inspector

# More than the API here may have, and more than one address may have of the inspector's.
HALF_OPEN = 260


@contextlib.contextmanager
def flood(address: tuple[str, int], count: int = HALF_OPEN) -> Iterator[list[socket.socket]]:
    with ExitStack() as held:
        lines = []
        for number in range(count):
            line = held.enter_context(socket.create_connection(address, BOUND_SECONDS))
            with contextlib.suppress(OSError):  # it may have made room already
                line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b"G")
            lines.append(line)
        yield lines


def test_half_open_connections_do_not_keep_clients_from_the_api(small_url: str) -> None:
    with (
        served(small_url, "--client-connections", "100", "--header-seconds", "600") as server,
        flood(server.host_and_port),
        client_of(server) as client,
    ):
        for _ in range(3):
            assert client.get("/health").status_code == 200


def test_half_open_connections_do_not_keep_clients_from_the_inspector(small_url: str) -> None:
    inspector = Inspector(small_url)
    try:
        host, _, port = inspector.address.removeprefix("http://").rpartition(":")
        with flood((host, int(port))):
            answer = httpx2.get(f"{inspector.address}/api/about", timeout=30, trust_env=False)
            assert answer.status_code == 200
    finally:
        inspector.end()


def test_a_request_that_is_not_http_gets_a_json_error(server: Served) -> None:
    with socket.create_connection(server.host_and_port, BOUND_SECONDS) as line:
        line.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'{"error":{"code":"bad_request"' in answer


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(server: Served) -> None:
    """If a proxy used the other length, the rest would be a smuggled request."""
    with socket.create_connection(server.host_and_port, BOUND_SECONDS) as line:
        line.sendall(
            b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"ambiguous_length" in answer
    assert answer.count(b"HTTP/1.1") == 1


# ── who makes room ───────────────────────────────────────────────────────────────────────────────


class Line:
    def __init__(self, address: str) -> None:
        self.address, self.is_open = address, True

    def hang_up(self) -> None:
        self.is_open = False


def test_the_longest_idle_connection_of_the_largest_crowd_makes_room() -> None:
    connections = Connections(limit=4, per_address=3)
    alone, *crowd = [Line("alone"), *(Line("crowd") for _ in range(3))]
    for line in (alone, *crowd):
        assert connections.admit(line)
    connections.busy(crowd[0])
    assert connections.admit(Line("other"))
    assert [line.is_open for line in (alone, *crowd)] == [True, True, False, True]
    assert len(connections) == 4


def test_an_address_at_its_limit_makes_room_itself_and_is_refused_when_all_are_busy() -> None:
    connections = Connections(limit=100, per_address=2)
    first, second, third = (Line("a") for _ in range(3))
    assert connections.admit(first)
    assert connections.admit(second)
    connections.busy(second)
    assert connections.admit(third)
    assert (first.is_open, second.is_open) == (False, True)
    connections.busy(third)
    assert not connections.admit(Line("a"))
    assert connections.admit(Line("b"))
    connections.leave(second)
    assert connections.admit(Line("a"))


def test_a_server_takes_no_more_connections_than_it_has_descriptors_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ServerLimits(host="", port=0, connections=1000, connections_per_address=1000)
    monkeypatch.setattr("faultline.serving.limits.open_files_limit", lambda: 256)
    assert 8 <= limits.affordable_connections <= 256 - 64 - 48
    monkeypatch.setattr("faultline.serving.limits.open_files_limit", lambda: None)
    assert limits.affordable_connections == 1000


def test_duplicate_keys_are_refused(client: httpx2.Client) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (
        b'{"task": "a", "task": "b"}',
        b'{"task": "a", "payload": {"n": [{"x": 1, "x": 1}]}}',
    ):
        answer = client.post("/jobs", content=body, headers=headers)
        assert (answer.status_code, code_of(answer)) == (422, "duplicate_key")

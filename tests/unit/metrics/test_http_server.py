"""The metrics port against hostile clients: limits and the token."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from faultline.errors import InvalidSettings
from faultline.metrics import http_server
from faultline.metrics.endpoint import Endpoint, read_token
from faultline.metrics.http_server import MetricsResponse, MetricsServer, listen

BOUND_SECONDS = 30.0
Address = tuple[str, int]


@contextlib.contextmanager
def serving(**limits: float) -> Iterator[Address]:
    listener = listen("127.0.0.1", 0)
    address: Address = listener.getsockname()
    with MetricsServer(listener, lambda request: MetricsResponse(200, b"well\n"), **limits):  # type: ignore[arg-type]
        yield address


def connect(address: Address) -> socket.socket:
    return socket.create_connection(address, timeout=BOUND_SECONDS)


def get(address: Address, **headers: str) -> tuple[int, str]:
    line = http.client.HTTPConnection(*address, timeout=BOUND_SECONDS)
    with contextlib.closing(line):
        line.request("GET", "/metrics", headers=headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()


def read_all(line: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: line.recv(4096), b""))
    return b""


def test_beyond_its_connections_a_client_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "GRACE_SECONDS", 600.0)
    with serving(connections=2, read_seconds=600.0) as address, ExitStack() as held:
        for _ in range(2):
            held.enter_context(connect(address))
        with connect(address) as third:
            assert read_all(third).startswith(b"HTTP/1.1 503 ")


def test_a_client_that_asks_is_answered_while_others_only_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "GRACE_SECONDS", 0.0)
    with serving(connections=3, read_seconds=600.0) as address, ExitStack() as held:
        lines = [held.enter_context(connect(address)) for _ in range(20)]
        assert get(address) == (200, "well\n")
        assert read_all(lines[0]) == b""  # it made room


def test_a_request_that_does_not_arrive_in_time_is_given_up() -> None:
    with serving(read_seconds=0.2) as address, connect(address) as halting:
        halting.sendall(b"GET /metrics HTTP/1.1\r\nHost: x")
        assert read_all(halting).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 20_000, 431),
        (b"\x16\x03\x01\x02\x00 not HTTP\r\n\r\n", 400),
    ],
)
def test_an_invalid_request_is_refused(sent: bytes, status: int) -> None:
    with serving() as address, connect(address) as line:
        line.sendall(sent)
        answer = read_all(line)
        assert answer.startswith(b"HTTP/1.1 %d " % status) or answer == b""  # reset under way
        assert get(address)[0] == 200


def test_the_last_descriptors_are_left_to_the_rest_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the limit were just above what is open now."""
    resource = pytest.importorskip("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving() as address:
        monkeypatch.setattr(http_server, "SPARE_FILES", soft)
        with connect(address) as line:
            assert read_all(line).startswith(b"HTTP/1.1 503 ")
        monkeypatch.setattr(http_server, "SPARE_FILES", 0)
        assert get(address)[0] == 200


# ── the token ────────────────────────────────────────────────────────────────────────────────────

TOKEN = "a-token-of-the-scraper's-own"


def test_metrics_with_a_token_are_refused_without_it() -> None:
    registry = CollectorRegistry()
    Gauge("shown", "…", registry=registry).set(1)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with Endpoint(registry, host="127.0.0.1", port=port, token=TOKEN):
        address = ("127.0.0.1", port)
        assert get(address)[0] == 401
        assert get(address, Authorization="Bearer another-token-entirely")[0] == 401
        status, page = get(address, Authorization=f"Bearer {TOKEN}")
    assert (status, "shown 1.0" in page) == (200, True)


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file, {"FAULTLINE_METRICS_TOKEN": "x" * 20}) == TOKEN
    assert read_token(None, {"FAULTLINE_METRICS_TOKEN": TOKEN}) == TOKEN
    assert read_token(None, {}) is None


@pytest.mark.parametrize("content", ["", "short", "with spaces in it, and long", "ü" * 20])
def test_a_token_that_protects_nothing_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(InvalidSettings, match="token"):
        read_token(file, {})


def test_a_token_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="missing"):
        read_token(tmp_path / "missing", {})

"""Starting the inspector: refused settings, and the messages at the start."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from faultline.errors import InvalidSettings
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.serving.limits import ServerLimits
from tests.cli.conftest import invoke

EVERYWHERE = "0.0.0.0"  # noqa: S104 - to be refused


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.0.2.1", "queue.example"])
def test_a_remote_address_needs_expose(database_url: str, host: str) -> None:
    refusal = invoke(database_url, "inspector", "serve", "--host", host)

    assert "--expose" in str(refusal.refused("invalid_settings").hint)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_a_loopback_address_needs_nothing(host: str) -> None:
    InspectorSettings(database_url="postgresql://nowhere", host=host)


@pytest.mark.parametrize("api_url", ["localhost:8000", "file:///etc", "http://", "http://a?b=c"])
def test_an_api_has_an_address(api_url: str) -> None:
    with pytest.raises(InvalidSettings):
        InspectorSettings(database_url="postgresql://nowhere", api_url=api_url)


def test_an_exposed_inspector_warns_that_payloads_are_readable(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test does not listen: it must not open this machine to others."""

    def listen(
        app: object, limits: ServerLimits, *, on_bound: Callable[[str], None], **rest: object
    ) -> None:
        on_bound(f"http://{limits.host}:{limits.port}")

    monkeypatch.setattr("faultline.serving.server.serve", listen)
    output = invoke(database_url, "inspector", "serve", "--host", EVERYWHERE, "--expose").out
    at_home = invoke(database_url, "inspector", "serve").out

    assert "faultline inspector on http://0.0.0.0:8001" in output
    assert "read every job and its payload" in output
    assert "payload" not in at_home


def test_a_port_in_use_is_one_clear_error(database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refusal = invoke(database_url, "inspector", "serve", "--port", port)

    assert port in refusal.refused("port_unavailable").message


def test_a_database_without_the_schema_is_refused_at_once(empty_database_url: str) -> None:
    refusal = invoke(empty_database_url, "inspector", "serve", "--port", "0")

    assert refusal.refused("schema_mismatch").hint == "faultline migrate"


def test_the_command_line_does_not_load_the_web_framework() -> None:
    loaded = "import sys, faultline.cli.main, faultline.cli.inspector, faultline.cli.top"
    check = f"{loaded}; print(sorted({{'fastapi', 'starlette', 'uvicorn'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"

"""`faultline db` runs the embedded server for development."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline import embedded

from .conftest import invoke


@pytest.fixture(autouse=True)
def development(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_DATA_DIR", str(home / "data"))
    monkeypatch.delenv("DATABASE_URL", raising=False)


def test_without_a_running_server_each_db_command_reports_it() -> None:
    assert invoke(None, "db", "status").out.startswith("not running")
    assert invoke(None, "db", "status", "--json").json["running"] is False
    assert invoke(None, "db", "stop").out == "the server was not running\n"
    assert invoke(None, "db", "url").refused("embedded_server").hint == "faultline db start"


def test_migrate_starts_the_embedded_server_and_only_url_shows_its_password() -> None:
    try:
        assert "applied 0001 initial" in invoke(None, "migrate").out
        url = invoke(None, "db", "url").out.strip()
        password = url.split(":")[2].split("@")[0]
        assert url == embedded.status().url

        assert invoke(None, "db", "start").out.startswith("already running: process ")
        status = invoke(None, "db", "status", "--json")
        assert status.json["running"] is True
        assert status.json["pid"] == embedded.status().pid
        for shown in (status.out, invoke(None, "db", "status").out, invoke(None, "doctor").out):
            assert password not in shown
            assert "127.0.0.1" in shown
    finally:
        assert invoke(None, "db", "stop").out == "stopped\n"
    assert invoke(None, "db", "status").out.startswith("not running")

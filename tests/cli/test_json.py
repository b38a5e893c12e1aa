"""Every command that prints data can print it as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson
import pytest
from click.testing import CliRunner

from faultline import embedded
from faultline.cli.main import cli

from .conftest import Connection, Faultline, enqueue, invoke, register
from .every_command import EVERY_COMMAND, Words

# The commands without --json, and why.
WITHOUT = {
    ("worker",): "a service: --log-format json",
    ("reconciler",): "a service: --log-format json",
    ("api",): "a service",
    ("inspector", "serve"): "a service",
    ("completion",): "prints a script",
    ("demo",): "--log-only prints JSON lines",
    ("drill", "report"): "writes report.json",
    ("init",): "writes files",
}


def is_group(command: click.Command) -> bool:
    return isinstance(command, click.Group) and not command.invoke_without_command


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_every_command_that_prints_data_has_the_option(words: Words) -> None:
    command = EVERY_COMMAND[words]
    names = {name for param in command.params for name in param.opts}
    assert ("--json" in names) != (is_group(command) or words in WITHOUT)


def test_migrate(empty_database_url: str) -> None:
    first = invoke(empty_database_url, "migrate", "--json").json
    assert first["applied"][0] == "0001 initial"
    assert (first["roles"], first["functions_replaced"]) == (False, True)
    second = invoke(empty_database_url, "migrate", "--json").json
    assert (second["applied"], second["version"]) == ([], first["version"])


@pytest.mark.parametrize("service", ["worker", "reconciler", "api", "inspector"])
def test_health(service: str, tmp_path: Path) -> None:
    option = (
        ["--url", "http://127.0.0.1:1"]
        if service in ("api", "inspector")
        else ["--health-file", str(tmp_path / "none")]
    )
    done = CliRunner().invoke(cli, ["health", service, "--json", *option])
    answer = orjson.loads(done.output)
    assert (done.exit_code, answer["ok"]) == (1, False)
    assert answer["why"]


def test_top_prints_one_frame(faultline: Faultline, conn: Connection) -> None:
    enqueue(conn, queue="mail")
    frame = faultline("top", "--json").json
    assert {"now", "queues", "workers", "risk", "soonest_leases"} <= set(frame)


def test_doctor_purge_audit_and_keys(faultline: Faultline) -> None:
    assert set(faultline("doctor", "--json").json) == {"ok", "checks"}
    assert faultline("purge", "--dry-run", "--json").json["dry_run"] is True
    assert faultline("audit", "--json").json["audit"] == []
    assert faultline("keys", "list", "--json").json == []


def test_queues_pause_and_resume(faultline: Faultline) -> None:
    paused = faultline("queues", "pause", "default", "--json").json
    assert paused == {"queue": "default", "paused": True, "changed": True}
    assert faultline("queues", "pause", "default", "--json").json["changed"] is False
    resumed = faultline("queues", "resume", "default", "--json").json
    assert resumed == {"queue": "default", "paused": False, "changed": True}


def test_epoch_bump(faultline: Faultline) -> None:
    before = faultline("epoch", "show", "--json").json["history"]
    begun = faultline("epoch", "bump", "--json").json["epoch"]
    assert begun not in [each["epoch"] for each in before]


def test_drain(faultline: Faultline, conn: Connection) -> None:
    assert faultline("drain", "--all", "--json").json == []
    register(conn, "here")
    assert faultline("drain", "here", "--json").json == [{"worker": "here", "state": "asked"}]
    waited = faultline("drain", "here", "--wait", "--timeout", "0.1", "--json")
    assert waited.code == 1
    assert orjson.loads(waited.out[waited.out.index("[") :])[0]["state"] == "running"


@pytest.mark.parametrize("command", ["start", "stop", "status", "url"])
def test_db(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    running = embedded.ServerStatus(True, 7, "postgresql://me:secret@h/db", "16.1", Path("/data"))
    monkeypatch.setattr(embedded, "status", lambda: running)
    monkeypatch.setattr(embedded, "ensure_running", lambda **options: running.url)
    monkeypatch.setattr(embedded, "stop_running", lambda: True)
    answer: dict[str, Any] = invoke(None, "db", command, "--json").json
    if command == "url":
        assert answer == {"url": running.url}
        return
    assert answer["was_running" if command in ("start", "stop") else "running"] is True
    assert "secret" not in str(answer)

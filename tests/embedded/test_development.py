"""The development server."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline import embedded
from faultline.events import log
from tests.running import EventTap

from .helpers import python, query_value


@pytest.mark.slow
def test_two_processes_that_ensure_a_server_at_once_get_the_same_one(home: Path) -> None:
    program = """
        import sys
        from faultline import embedded
        sys.stdin.readline()
        print(embedded.ensure_running(), embedded.status().pid)
    """
    data_dir = home / "data"
    with python(program, data_dir=data_dir) as one, python(program, data_dir=data_dir) as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = {process.communicate(timeout=90)[0] for process in (one, two)}
    try:
        assert len(answers) == 1
        url, pid = answers.pop().split()
        # It runs although both processes that could have started it have ended.
        found = embedded.status(data_dir)
        version = (data_dir / "PG_VERSION").read_text().strip()
        assert found == embedded.ServerStatus(True, int(pid), url, version, data_dir.resolve())
        assert query_value(url, "SELECT 1") == "1"
    finally:
        embedded.stop_running(data_dir)


def test_the_development_server_is_reused_until_it_is_stopped(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first start is announced on stderr."""
    monkeypatch.setattr(log, "_logger", None)
    monkeypatch.setenv("FAULTLINE_DATA_DIR", str(home / "data"))
    assert not embedded.status().running
    assert not embedded.stop_running()
    url = embedded.ensure_running()
    announced = capsys.readouterr().err
    try:
        assert announced.count("\n") == 1
        assert f"its data is in {(home / 'data').resolve()}" in announced
        assert "faultline db stop" in announced
        pid = embedded.status().pid
        assert embedded.ensure_running() == url
        assert embedded.status().pid == pid
        assert capsys.readouterr().err == ""
    finally:
        assert embedded.stop_running()
    assert not embedded.status().running
    assert embedded.status().url is None
    assert not embedded.stop_running()


def test_with_an_event_log_the_start_of_the_server_is_an_event(
    home: Path, capsys: pytest.CaptureFixture[str], events: EventTap
) -> None:
    embedded.ensure_running(home / "data")
    embedded.stop_running(home / "data")
    [event] = events.of("embedded_server_started")
    assert event["data_dir"] == str((home / "data").resolve())
    assert event["stop_with"] == "faultline db stop"
    assert capsys.readouterr().err == ""

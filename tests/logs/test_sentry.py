"""Sentry: tags of the attempt, one event for each failure, none twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from faultline.testing import using
from tests.logs import apps
from tests.logs.test_worker_lines import run_worker


def captured(url: str, path: Path, *, jobs: int) -> list[dict[str, Any]]:
    run_worker(url, "watched", jobs=jobs, SENTRY_EVENTS=str(path))
    return [json.loads(line) for line in path.read_text().splitlines()]


def error_of(event: dict[str, Any]) -> str:
    return str(event["exception"]["values"][-1]["value"])


def test_each_failed_attempt_is_one_event_with_the_tags_of_the_job(
    database_url: str, tmp_path: Path
) -> None:
    with using(apps.watched, database_url):
        tasks = (apps.fail_in_thread, apps.fail_on_loop, apps.fail_in_process, apps.too_slow)
        ids = {task.name: str(task.enqueue().job_id) for task in tasks}
    events = captured(database_url, tmp_path / "events", jobs=5)
    seen = {(each["tags"]["task"], each["tags"]["attempt"]): each for each in events}
    assert len(events) == len(seen) == 5
    for (task, attempt), event in seen.items():
        expected = {
            "job_id": ids[task],
            "task": task,
            "queue": "default",
            "attempt": attempt,
            "token": event["tags"]["token"],
        }
        assert {name: str(value) for name, value in event["tags"].items()} == {
            name: str(value) for name, value in expected.items()
        }
        assert event["transaction"] == task
    levels = {key: event["level"] for key, event in seen.items()}
    retried = [key for key, level in levels.items() if level == "warning"]
    assert [task for task, _ in retried] == ["thread"]
    assert set(levels.values()) == {"warning", "error"}
    for key, event in seen.items():
        if key[0] in ("thread", "loop", "process"):
            frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
            assert frames[-1]["function"].startswith("fail_")
            assert error_of(event) == key[0]
        else:
            assert "ran longer than" in error_of(event)


@pytest.mark.slow
def test_breadcrumbs_stay_with_their_attempt(database_url: str, tmp_path: Path) -> None:
    with using(apps.watched, database_url):
        apps.fail_in_thread.enqueue()
    for event in captured(database_url, tmp_path / "events", jobs=2):
        messages = [each["message"] for each in event["breadcrumbs"]["values"]]
        attempt = event["tags"]["attempt"]
        assert [text for text in messages if "breadcrumb" in text] == [f"a breadcrumb of {attempt}"]


@pytest.mark.slow
def test_an_error_that_the_handler_has_logged_is_not_sent_twice(
    database_url: str, tmp_path: Path
) -> None:
    with using(apps.watched, database_url):
        for task in (apps.fail_and_log, apps.log_an_error, apps.fail_after_commit):
            task.enqueue()
    events = captured(database_url, tmp_path / "events", jobs=3)
    assert Counter(event["tags"]["task"] for event in events) == {
        "logged": 1,
        "message": 1,
        "after": 1,
    }

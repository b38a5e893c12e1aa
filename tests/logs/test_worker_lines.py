"""The lines that a worker writes for its handlers, as JSON and for a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faultline.testing import using
from tests.logs import apps
from tests.slow import slow_unless

ROOT = Path(__file__).parents[2]


def run_worker(url: str, name: str, *options: str, jobs: int, **environment: str) -> str:
    """Run the app's worker for a number of attempts, and return what it wrote."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "faultline", "--app", f"tests.logs.apps:{name}", *options),
            *(
                "worker",
                "--concurrency",
                "1",
                "--max-jobs",
                str(jobs),
                "--claim-ahead",
                "0",
                "--no-reconciler",
            ),
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def as_json(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_of_a_handler_names_its_job(database_url: str) -> None:
    """Of stdlib logging and structlog; in a thread, on the event loop and in a child."""
    with using(apps.app, database_url):
        tasks = [apps.plain, apps.awaited, apps.child, apps.plain, apps.child]
        jobs = [(str(task.enqueue().job_id), task.name) for task in tasks]
    lines = as_json(run_worker(database_url, "app", jobs=5))
    for job_id, name in jobs:
        for library, logger in (("stdlib", "shop.mail"), ("structlog", None)):
            [line] = [
                each
                for each in lines
                if each.get("job_id") == job_id and each["event"].startswith(library)
            ]
            assert line["event"] == f"{library} of {name}"
            assert (line["task"], line["attempt"]) == (name, 1)
            assert line["token"] >= 1
            assert (line["level"], line.get("logger")) == ("info", logger)
            assert line["customer"] == 7
            assert "at" in line
    assert [each["event_"] for each in lines if "event_" in each] == ["mine"] * 5
    startups = [each for each in lines if each["event"] == "startup"]
    assert len(startups) == 2  # the worker and its child
    assert all("job_id" not in each for each in startups)
    shutdowns = {each["event"] for each in lines if each["event"].startswith("shutdown of")}
    assert len(shutdowns) == 2


def test_failures_are_logged_with_task_attempt_and_traceback(database_url: str) -> None:
    with using(apps.app, database_url):
        apps.fail.enqueue()
        apps.fail_in_child.enqueue()
    lines = as_json(run_worker(database_url, "app", jobs=3))
    [retried] = [each for each in lines if each["event"] == "job_retry_scheduled"]
    dead = {each["task"]: each for each in lines if each["event"] == "job_dead"}
    assert (retried["task"], retried["attempt"]) == ("fail", 1)
    assert (dead["fail"]["attempt"], dead["fail_in_child"]["attempt"]) == (2, 1)
    for line in (retried, dead["fail"]):
        assert "KeyError: 'inner'" in line["traceback"]
        assert line["traceback"].endswith("ValueError: outer")
        assert "in fail\n" in line["traceback"]
    assert dead["fail_in_child"]["traceback"].endswith("ValueError: in the child")
    assert "in fail_in_child\n" in dead["fail_in_child"]["traceback"]


def test_a_terminal_shows_lines_and_tracebacks_as_text(database_url: str) -> None:
    with using(apps.app, database_url):
        job_id = str(apps.plain.enqueue().job_id)
        apps.fail.enqueue()
    text = run_worker(database_url, "app", "--log-format", "console", jobs=3)
    lines = text.splitlines()
    for library in ("stdlib", "structlog"):
        [line] = [each for each in lines if f"{library} of plain" in each]
        assert f"job_id={job_id}" in line
        assert "task=plain" in line
    place = next(number for number, line in enumerate(lines) if "job_dead" in line)
    assert "ValueError: outer" in lines[place:]
    assert any(line.startswith('  File "') for line in lines[place:])


@pytest.mark.slow
def test_an_application_that_configures_logging_gets_only_its_own_lines(database_url: str) -> None:
    with using(apps.configured, database_url):
        job_id = str(apps.plain_configured.enqueue().job_id)
    text = run_worker(database_url, "configured", jobs=1)
    [line] = [each for each in text.splitlines() if "stdlib of" in each]
    assert line == f"own INFO stdlib of plain job={job_id} task=plain attempt=1 token=1"
    [line] = [each for each in text.splitlines() if "structlog of" in each]
    own = {"task": "plain", "attempt": 1, "token": 1, "customer": 7}
    assert json.loads(line) == {"event": "structlog of plain", "job_id": job_id, **own}


@pytest.mark.parametrize("options", slow_unless([[], ["-v"]], ["-v"]))
def test_a_child_follows_the_log_settings_of_its_worker(
    database_url: str, options: list[str]
) -> None:
    with using(apps.app, database_url):
        apps.child.enqueue()
    assert all(
        "event" in line for line in as_json(run_worker(database_url, "app", *options, jobs=1))
    )

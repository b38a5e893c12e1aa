"""`faultline worker --reload`: the worker is started again when its code changes."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from faultline import Faultline, JobState
from tests.processes.project import Project, ProjectProcess
from tests.running import Connection, ended
from tests.waiting import wait_until

APP = """
    from faultline import Faultline
    app = Faultline()
    app.autodiscover("shop")
"""
MAIL = """
    from shop.app import app
    from shop.text import TEXT

    @app.task(name="send")
    def send(job):
        return TEXT
"""


@pytest.fixture
def worker(project: Project) -> ProjectProcess:
    project.write(app=APP, mail=MAIL, text="TEXT = 'first'")
    process = project.faultline("worker", "--reload", "--poll-seconds", "0.1")
    process.wait_for("worker_started")
    return process


def result_of(app: Faultline, conn: Connection, task: str = "send") -> Any:
    row = conn.execute("SELECT job_id FROM faultline.enqueue(%s, '{}')", [task]).fetchone()
    assert row is not None
    record = ended(app, row[0])
    assert record.state is JobState.SUCCEEDED, record.last_error
    return record.result


def test_a_changed_module_is_used_after_the_worker_has_drained(
    project: Project, worker: ProjectProcess, app: Faultline, conn: Connection
) -> None:
    assert result_of(app, conn) == "first"
    project.write(text="TEXT = 'the second one'")
    worker.wait_for("code_changed")
    worker.wait_for("worker_started", times=2)
    assert result_of(app, conn) == "the second one"
    drained, changed = worker.output.index("worker_stopped"), worker.output.index("code_changed")
    assert changed < drained < worker.output.rindex("worker_started")


@pytest.mark.slow
def test_a_syntax_error_is_shown_and_the_next_change_is_awaited(
    project: Project, worker: ProjectProcess, app: Faultline, conn: Connection
) -> None:
    project.write(text="TEXT = = 'broken'")
    worker.wait_for("it starts again when its code changes")
    assert "importing shop.mail failed: SyntaxError: invalid syntax" in worker.output
    assert "text.py, line 1" in worker.output
    project.write(text="TEXT = 'repaired'")
    worker.wait_for("worker_started", times=2)
    assert result_of(app, conn) == "repaired"


def test_a_new_module_of_an_autodiscovered_package_is_noticed(
    project: Project, worker: ProjectProcess, app: Faultline, conn: Connection
) -> None:
    assert result_of(app, conn) == "first"
    project.write(later=MAIL.replace("send", "later"))
    worker.wait_for("worker_started", times=2)
    assert result_of(app, conn, "later") == "first"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_worker_and_its_reloader(
    worker: ProjectProcess, conn: Connection, number: signal.Signals
) -> None:
    worker.popen.send_signal(number)
    assert worker.wait() == 0, worker.output
    assert "worker_stopped" in worker.output
    assert conn.execute("SELECT count(*) FROM faultline.workers").fetchone() == (0,)


def test_a_worker_whose_reloader_was_killed_drains(worker: ProjectProcess) -> None:
    worker.popen.kill()
    worker.popen.wait()
    wait_until(lambda: "worker_stopped" in worker.output, "the end of the worker")


def test_reload_is_refused_for_several_processes(project: Project) -> None:
    project.write(app=APP)
    worker = project.faultline("worker", "--reload", "--processes", "2")
    assert worker.wait() == 2
    assert "--reload is for one process" in worker.output


def test_a_wrong_app_ends_at_once(project: Project) -> None:
    worker = project.faultline("worker", "--reload", app="no_such_module:app")
    assert worker.wait() == 2
    assert "there is no module 'no_such_module'" in worker.output

"""Workers of a user's project: from the command line, and by `app.run_worker`."""

from __future__ import annotations

import json
import signal

import pytest

from faultline import Faultline, JobState
from tests.processes.project import Project
from tests.running import Connection, ended

APP = """
    from faultline import Faultline
    app = Faultline({arguments})
"""
MAIL = """
    import os
    from shop.app import app

    @app.task(name="send", queue="mail", process={process})
    def send(job, to="you"):
        return [to, os.getpid()]
"""
PROGRAM = """
    import sys
    from shop.app import app

    if __name__ == "__main__":
        app.run_worker({arguments})
        print("after the worker", flush=True)
        {after}
"""


def write_shop(project: Project, arguments: str = "imports=['shop.mail']", **options: str) -> None:
    given = {"process": "False", **options}
    project.write(app=APP.format(arguments=arguments), mail=MAIL.format(**given))


def send(conn: Connection, queue: str = "mail") -> str:
    row = conn.execute("SELECT job_id FROM faultline.enqueue('send', '{}', %s)", [queue]).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("process", ["False", "True"], ids=["thread", "child_process"])
def test_a_worker_runs_tasks_of_modules_that_only_imports_names(
    project: Project, app: Faultline, conn: Connection, process: str
) -> None:
    """It serves their queues, too, without an option; a child process finds the task."""
    write_shop(project, process=process)
    worker = project.faultline("worker")
    record = ended(app, send(conn))  # type: ignore[arg-type]
    assert (record.state, record.last_error) == (JobState.SUCCEEDED, None)
    is_own = record.result[1] == worker.popen.pid
    assert is_own == (process == "False")


def test_enqueue_finds_tasks_of_autodiscovered_modules(
    project: Project, app: Faultline, conn: Connection
) -> None:
    project.write(
        app="from faultline import Faultline\napp = Faultline()\napp.autodiscover('shop')\n",
        mail=MAIL.format(process="False").replace("\n    ", "\n"),
    )
    enqueueing = project.faultline("enqueue", "send", '{"to": "me"}')
    assert enqueueing.wait() == 0, enqueueing.output
    assert app.get(enqueueing.output.strip()).queue == "mail"


def test_an_error_in_a_module_of_tasks_names_it(project: Project) -> None:
    write_shop(project)
    project.write(mail="1 / 0\n")
    worker = project.faultline("worker")
    assert worker.wait() == 1
    assert "importing shop.mail failed: ZeroDivisionError" in worker.output


@pytest.mark.parametrize("processes", ["1", "2"], ids=["alone", "supervised"])
def test_a_worker_whose_app_has_no_tasks_exits_with_2(project: Project, processes: str) -> None:
    write_shop(project, arguments="")
    worker = project.faultline("worker", "--processes", processes)
    assert worker.wait() == 2, worker.output
    assert "the application has no tasks" in worker.output
    assert "imports=" in worker.output
    assert "autodiscover" in worker.output


def test_a_mistyped_queue_is_a_warning_that_names_the_near_one(project: Project) -> None:
    write_shop(project)
    worker = project.faultline("worker", "--queues", "mial")
    worker.wait_for("worker_started")
    [event] = [json.loads(line) for line in worker.output.splitlines() if "queue_unused" in line]
    assert event["reason"] == "no task of this app uses the queue mial; did you mean mail?"
    assert "tasks_unserved" in worker.output


def test_queues_with_a_star_are_all_queues(
    project: Project, app: Faultline, conn: Connection
) -> None:
    write_shop(project)
    project.faultline("worker", "--queues", "*")
    assert ended(app, send(conn, "vip")).state is JobState.SUCCEEDED  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_worker_returns_after_a_signal_and_the_program_goes_on(
    project: Project, app: Faultline, conn: Connection, number: signal.Signals
) -> None:
    write_shop(project)
    project.write(program=PROGRAM.format(arguments="", after="sys.exit(7)"))
    program = project.start("-m", "shop.program")
    record = ended(app, send(conn))  # type: ignore[arg-type]
    assert record.result == ["you", program.popen.pid]
    program.popen.send_signal(number)
    assert program.wait() == 7, program.output
    assert "worker_draining" in program.output
    assert "after the worker" in program.output


def test_after_run_worker_a_signal_has_its_usual_effect(project: Project) -> None:
    write_shop(project)
    after = "import time; time.sleep(600)"
    project.write(program=PROGRAM.format(arguments="", after=after))
    program = project.start("-m", "shop.program")
    program.wait_for("worker_started")
    program.popen.send_signal(signal.SIGTERM)
    program.wait_for("after the worker")
    program.popen.send_signal(signal.SIGTERM)
    assert program.wait() == -signal.SIGTERM


def test_run_worker_takes_settings(project: Project, app: Faultline, conn: Connection) -> None:
    """The worker stops by itself after the last job."""
    write_shop(project)
    arguments = "settings=faultline.WorkerSettings(queues=['*'], max_jobs=1), reconciler=False"
    source = PROGRAM.format(arguments=arguments, after="").replace("import sys", "import faultline")
    project.write(program=source)
    job_id = send(conn, "vip")
    program = project.start("-m", "shop.program")
    assert program.wait() == 0, program.output
    assert app.get(job_id).state is JobState.SUCCEEDED


def test_run_worker_without_tasks_is_an_error(project: Project) -> None:
    write_shop(project, arguments="")
    project.write(program=PROGRAM.format(arguments="", after=""))
    program = project.start("-m", "shop.program")
    assert program.wait() == 1
    assert "NoTasks: the application has no tasks" in program.output

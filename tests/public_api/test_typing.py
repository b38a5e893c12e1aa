"""What type checkers say about a user's program: mypy and pyright, both strict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)  # a run of mypy: slow on a machine that is busy

PROGRAM = """
from datetime import datetime, timedelta, timezone
from typing import Any
import psycopg
from dataclasses import dataclass
from faultline import Batch, Enqueued, Faultline, Job, Retry, RetryPolicy, Snooze

app = Faultline("postgresql://")

@app.task()
async def charge(job: Job, invoice: int, note: str = "") -> str:
    async with job.transaction() as tx:
        await tx.execute("SELECT 1")
    return note

@app.task
def bare(job: Job, n: int) -> None:
    pass

@app.task(queue="mail", timeout=timedelta(minutes=1), lease=60)
def mail(job: Job, to: str) -> None:
    with job.transaction() as tx:
        tx.execute("SELECT 1")

@dataclass
class Payment:
    number: int
    note: str = ""

@app.batch_task(arguments=Payment, max_size=50, max_wait=timedelta(seconds=1))
async def pay(batch: Batch[Payment]) -> None:
    async with batch.transaction() as tx:
        for job in batch:
            await tx.execute("SELECT %s", [job.args.number + 1])

@app.batch_task
def count(batch: Batch[dict[str, Any]]) -> None:
    with batch.transaction() as tx:
        tx.execute("SELECT %s", [[job.args["number"] for job in batch]])

def keep(found: Enqueued) -> None:
    pass

def user(conn: psycopg.Connection[Any], aconn: psycopg.AsyncConnection[Any], job: Job) -> None:
    pass

async def main(
    conn: psycopg.Connection[Any], aconn: psycopg.AsyncConnection[Any], job: Job
) -> None:
    moment, hour = datetime.now(timezone.utc), timedelta(hours=1)
"""
ACCEPTED = {
    "retry_rules": (
        "RetryPolicy(on={ValueError: 1, OSError: [1, hour], KeyError: RetryPolicy()},"
        " give_up_on=(TypeError,))"
    ),
    "retry_control": "print(Snooze(hour), Snooze(until=moment), Retry(after=1, reason='x'))",
    "progress": "job.progress(1, 'done')",
    "by_name": 'keep(charge.enqueue(invoice=1, note="x"))',
    "by_position": "charge.enqueue(1)",
    "plain": 'mail.enqueue(to="x")',
    "async": "await charge.enqueue_async(invoice=1)",
    "bare": "bare.enqueue(n=1)",
    "filter": 'print(app.jobs(task=charge, state="failed", finished_before=moment).count())',
    "batch": 'keep(pay.enqueue(1, note="x")); pay.options(delay=1).enqueue(number=2)',
    "batch_of_dicts": "count.enqueue(anything=1)",
    "idempotency_key": 'charge.options(idempotency_key="k").enqueue(invoice=1)',
    "run_at": "charge.options(run_at=moment).enqueue(1)",
    "conn": "charge.options(conn=conn).enqueue(invoice=1)",
    "durations": "charge.options(delay=1, expires_in=hour, timeout=1.5, lease=hour).enqueue(1)",
    "many_options": 'charge.options(priority=0, queue="red").options(max_attempts=2).enqueue(1)',
    "async_conn": "await charge.options(conn=aconn).enqueue_async(invoice=1)",
    "enqueue_many": 'charge.options(conn=conn).enqueue_many([{"invoice": 1}])',
    "many_tasks": 'app.enqueue_many([charge.job(1), mail.options(priority=0).job(to="x")])',
    "many_tasks_async": "await app.enqueue_many_async([charge.job(invoice=1)], conn=aconn)",
}
REFUSED = {
    "wrong_type": 'charge.enqueue(invoice="x")',
    "missing": "charge.enqueue()",
    "wrong_type_of_batch": 'pay.enqueue(number="x")',
    "unknown_of_batch": "pay.enqueue(1, amount=2)",
    "unknown": "charge.enqueue(invoice=1, amount=2)",
    "wrong_type_async": 'await charge.enqueue_async(invoice="x")',
    "wrong_type_plain": "mail.enqueue(to=1)",
    "option_as_argument": 'charge.enqueue(invoice=1, idempotency_key="k")',
    "wrong_type_with_options": 'charge.options(delay=1).enqueue(invoice="x")',
    "missing_with_options": "charge.options(delay=1).enqueue()",
    "wrong_type_with_options_async": 'await charge.options(delay=1).enqueue_async(invoice="x")',
    "wrong_type_in_spec": 'app.enqueue_many([charge.job(invoice="x")])',
    "wrong_type_in_spec_with_options": "mail.options(priority=0).job(to=1)",
    "unknown_option": "charge.options(colour=1)",
    "wrong_option": 'charge.options(delay="soon")',
    "wrong_delay": 'RetryPolicy(on={ValueError: "soon"})',
    "wrong_class_to_give_up_on": 'RetryPolicy(give_up_on=("ValueError",))',
    "wrong_fraction": 'job.progress("half")',
    "not_a_spec": "app.enqueue_many([charge])",
    "wrong_state": 'app.jobs(state="nope")',
    "unknown_filter": 'app.jobs(quue="mail")',
    "not_awaited_result": "charge.enqueue_async(invoice=1).job_id",
}


def mypy(folder: Path) -> list[tuple[str, int]]:
    """The file and line of each error that mypy --strict finds in the program."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "program.py"]
    options = ["--no-error-summary", "--hide-error-context", f"--cache-dir={folder / 'cache'}"]
    output = run([*command, *options], folder)
    found = [complaint.split(":", 2) for complaint in output.splitlines()]
    return [(file, int(number)) for file, number, _ in found]


def pyright(folder: Path) -> list[tuple[str, int]]:
    """The same with pyright in strict mode; basedpyright brings it as a wheel."""
    settings = {"typeCheckingMode": "strict", "reportUnusedCoroutine": "none"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    found = json.loads(run([*command, "--outputjson", "program.py"], folder))
    return [
        (each["file"], each["range"]["start"]["line"] + 1)
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def run(command: list[str], folder: Path) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def complaints(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> set[str]:
    """The names of the lines above that a type checker complains of, found in one run."""
    cases = {**ACCEPTED, **REFUSED}
    program = PROGRAM + "".join(f"    {line}  # {name}\n" for name, line in cases.items())
    folder = tmp_path_factory.mktemp("typing")
    (folder / "program.py").write_text(program)
    lines, found = program.splitlines(), set()
    for file, number in request.param(folder):
        assert Path(file).name == "program.py", file
        found.add(lines[number - 1].partition("  # ")[2])
    return found


def test_the_checked_program_has_no_type_error_itself(complaints: set[str]) -> None:
    assert "" not in complaints


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_correct_call_is_accepted(complaints: set[str], name: str) -> None:
    assert name not in complaints


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_call_is_a_type_error(complaints: set[str], name: str) -> None:
    assert name in complaints

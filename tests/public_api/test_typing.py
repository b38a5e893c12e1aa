"""What a type checker makes of a user's program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)  # a run of mypy: slow on a machine that is busy

PROGRAM = """
from datetime import datetime, timezone
from typing import Any
import psycopg
from faultline import Enqueued, Faultline, Job

app = Faultline("postgresql://")

@app.task()
async def charge(job: Job, invoice: int, note: str = "") -> str:
    async with job.transaction() as tx:
        await tx.execute("SELECT 1")
    return note

@app.task(queue="mail")
def mail(job: Job, to: str) -> None:
    with job.transaction() as tx:
        tx.execute("SELECT 1")

def user(conn: psycopg.Connection[Any], aconn: psycopg.AsyncConnection[Any], job: Job) -> None:
    pass

async def main(conn: psycopg.Connection[Any], aconn: psycopg.AsyncConnection[Any]) -> None:
    moment = datetime.now(timezone.utc)
"""
ACCEPTED = {
    "by_name": 'found: Enqueued = charge.enqueue(invoice=1, note="x")',
    "by_position": "charge.enqueue(1)",
    "plain": 'mail.enqueue(to="x")',
    "async": "await charge.enqueue_async(invoice=1)",
    "idempotency_key": 'charge.enqueue(invoice=1, idempotency_key="k")',
    "run_at": "charge.enqueue(invoice=1, run_at=moment)",
    "conn": "charge.enqueue(invoice=1, conn=conn)",
    "priority": "charge.enqueue(invoice=1, priority=0)",
    "queue": 'charge.enqueue(invoice=1, queue="red")',
    "many_options": 'charge.enqueue(invoice=1, priority=0, queue="red", run_at=moment)',
    "async_conn": "await charge.enqueue_async(invoice=1, conn=aconn)",
    "async_priority": "await charge.enqueue_async(invoice=1, priority=0)",
    "enqueue_many": 'charge.enqueue_many([{"invoice": 1}], conn=conn)',
}
REFUSED = {
    "wrong_type": 'charge.enqueue(invoice="x")',
    "missing": "charge.enqueue()",
    "unknown": "charge.enqueue(invoice=1, amount=2)",
    "wrong_type_async": 'await charge.enqueue_async(invoice="x")',
    "wrong_type_plain": "mail.enqueue(to=1)",
    "conn_of_the_wrong_colour": "charge.enqueue(invoice=1, conn=aconn)",
    "not_awaited_result": "charge.enqueue_async(invoice=1).job_id",
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the lines above that mypy --strict complains of, found in one run."""
    cases = {**ACCEPTED, **REFUSED}
    program = PROGRAM + "".join(f"    {line}  # {name}\n" for name, line in cases.items())
    folder = tmp_path_factory.mktemp("typing")
    source = folder / "program.py"
    source.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "program.py"]
    options = ["--no-error-summary", "--hide-error-context", f"--cache-dir={folder / 'cache'}"]
    ran = subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    lines, found = program.splitlines(), set()
    for complaint in ran.stdout.splitlines():
        file, number, _ = complaint.split(":", 2)
        assert Path(file).name == "program.py", complaint
        found.add(lines[int(number) - 1].partition("  # ")[2])
    return found


def test_the_checked_program_has_no_type_error_itself(complaints: set[str]) -> None:
    assert "" not in complaints


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_correct_call_is_accepted(complaints: set[str], name: str) -> None:
    assert name not in complaints


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_call_is_a_type_error(complaints: set[str], name: str) -> None:
    assert name in complaints

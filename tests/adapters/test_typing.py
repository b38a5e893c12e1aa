"""What type checkers say of programs that use the adapters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
from sqlalchemy import Connection, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from faultline import Faultline, Job
from asyncpg import Pool  # type: ignore[import-untyped]
from django.db import connection
from faultline.adapters.django import app as shop, app_for
from faultline.adapters.sqlalchemy import use_sessions

app = Faultline("postgresql://")

@app.task()
def charge(job: Job, invoice: int) -> None:
    with job.session() as session:
        session.scalars(select(1))
        charge.options(conn=session).enqueue(invoice=invoice)

@app.task()
async def settle(job: Job, invoice: int) -> None:
    async with job.session() as session:
        await session.scalars(select(1))
        await charge.options(conn=session).enqueue_async(invoice=invoice)

@shop.task()
def ship(job: Job, order: int) -> None:
    with job.atomic(using="archive"):
        ship.options(conn=connection).enqueue(order=order)

async def main(
    job: Job, pool: Pool, s: Session, c: Connection, a: AsyncSession, ac: AsyncConnection,
    maker: sessionmaker[Session], amaker: async_sessionmaker[AsyncSession],
) -> None:
    use_sessions(app, maker, amaker)
"""
ACCEPTED = {
    "session": "job.commit(s, result=1)",
    "connection": "job.expect_commit(c)",
    "async_session": "await job.commit(a)",
    "async_connection": "await job.assert_fence(ac)",
    "transaction": "with job.transaction(s) as tx: tx.scalars(select(1))",
    "async_step": "async with job.fenced(a) as step: await step.scalars(select(1))",
    "pool": "async with job.transaction(pool) as tx: await tx.execute('select 1')",
    "atomic": "with job.atomic(): job.commit(connection)",
    "database": "app_for('archive').get(job.id).state",
    "maker": "with job.session(maker) as one: one.commit()",
}
REFUSED = {
    "text": 'charge.options(conn="postgresql://")',
    "number": "job.commit(42)",
    "alias": "with job.atomic(42): pass",
    "order": "ship.enqueue(order='42')",
    "argument": 'charge.options(conn=s).enqueue(invoice="42")',
    "attribute": "with job.transaction(s) as tx: tx.nothing()",
}


def program() -> str:
    lines = [f"    {line}  # accepted {name}" for name, line in ACCEPTED.items()]
    lines += [f"    {line}  # refused {name}" for name, line in REFUSED.items()]
    return PROGRAM + "\n".join(lines) + "\n"


def marked(path: Path, numbers: set[int]) -> set[str]:
    lines = path.read_text().splitlines()
    return {lines[number].rpartition("# ")[2] for number in numbers}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_right_calls_pass_and_wrong_ones_are_errors(tmp_path: Path, checker: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(program())
    if checker == "mypy":
        command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
        printed = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
        numbers = {
            int(line.split(":")[1]) - 1 for line in printed.splitlines() if ": error:" in line
        }
    else:
        config = {"typeCheckingMode": "standard", "include": ["program.py"]}
        (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
        python = f"--pythonpath={sys.executable}"
        command = [sys.executable, "-m", "basedpyright", "--outputjson", python]
        printed = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
        numbers = {
            found["range"]["start"]["line"]
            for found in json.loads(printed)["generalDiagnostics"]
            if found["severity"] == "error"
        }
    assert marked(path, numbers) == {f"refused {name}" for name in REFUSED}

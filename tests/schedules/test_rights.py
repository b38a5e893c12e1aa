"""Which accounts fire, declare, operate and read schedules."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from psycopg.types.json import Jsonb

from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from faultline.reconciler.scheduler import Scheduler
from faultline.statements import firing, schedules
from tests.security.accounts import account

from .steps import Connection, add, field, jobs, make_due

DEFINITION = {"name": "report", "task": "t", "every_seconds": 60}


@pytest.fixture(autouse=True)
def _roles(database_url: str) -> None:
    migrate(database_url, roles=True)


def test_a_worker_declares_and_fires_schedules(conn: Connection, database_url: str) -> None:
    with account(database_url, "faultline_worker") as url:
        with psycopg.connect(url, autocommit=True) as worker:
            register = "SELECT faultline.register_worker('w', 'host', 1, '{default}', false)"
            worker.execute(register)
            assert run(worker, schedules.declare("w", [DEFINITION])) == [("report", "added")]
            assert run(worker, firing.schedule_states()) == {"active": 1}
        make_due(conn)

        async def fire() -> None:
            scheduler = Scheduler(url)
            await scheduler.look()
            await scheduler._session.close()

        asyncio.run(fire())
    assert len(jobs(conn)) == 1


def test_an_operator_pauses_runs_and_removes_but_cannot_add(
    conn: Connection, database_url: str
) -> None:
    add(conn)
    with account(database_url, "faultline_operator") as url, psycopg.connect(url) as operator:
        operator.autocommit = True
        assert run(operator, schedules.pause("report"))
        run(operator, schedules.run_now("report"))
        assert run(operator, schedules.resume("report"))
        [found] = run(operator, schedules.schedules())
        assert found.name == "report"
        with pytest.raises(InsufficientPrivilege, match="may not enqueue"):
            operator.execute(
                "SELECT faultline.add_schedule(%s)", [Jsonb({**DEFINITION, "name": "x"})]
            )
        run(operator, schedules.remove("report"))
    assert len(jobs(conn)) == 1


def test_an_operator_who_may_enqueue_adds_schedules(conn: Connection, database_url: str) -> None:
    roles = ("faultline_operator", "faultline_producer")
    with account(database_url, *roles) as url, psycopg.connect(url, autocommit=True) as operator:
        assert run(operator, schedules.add(DEFINITION)) == "added"
    assert field(conn, "declared_by") == "operator"


def test_an_inspector_reads_schedules(conn: Connection, database_url: str) -> None:
    add(conn)
    with account(database_url, "faultline_inspector") as url, psycopg.connect(url) as inspector:
        [found] = run(inspector, schedules.schedules())
        assert run(inspector, schedules.firings(found.name, limit=5)) == []

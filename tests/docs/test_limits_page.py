"""The examples of docs/limits.md do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faultline import Faultline
from faultline.postgres.sessions import run
from faultline.statements import limits
from tests.cli.conftest import invoke
from tests.limits.steps import claim_all, enqueue, parked
from tests.protocol.steps import rows
from tests.running import working

Connection = psycopg.Connection[Any]
PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def run_python(block: str, names: dict[str, Any]) -> None:
    # Handlers are named by their module, as in the page's table.
    exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102


@pytest.fixture
def shop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page's first block defines."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    names: dict[str, Any] = {"__name__": "shop"}
    run_python(blocks("python")[0], names)
    return names


def declared(conn: Connection) -> dict[str, tuple[int | None, int | None]]:
    return {use.name: (use.max_running, use.rate_jobs) for use in run(conn, limits.uses())}


def test_the_code_declares_the_limits_of_the_table(shop: dict[str, Any], conn: Connection) -> None:
    app: Faultline = shop["app"]
    with working(app, queues=["nothing"]):
        pass
    assert declared(conn) == {
        "task:shop.resize": (3, None),
        "key:shop.charge.customer": (2, None),
        "task:shop.send_mail": (None, 100),
        "key:payment-api": (5, None),
        "queue:reports": (4, 1),
    }
    assert set(re.findall(r"`((?:task|key|queue):[^`…]+)`", PAGE.read_text())) >= {
        "task:shop.resize",
        "key:shop.charge.customer",
        "key:payment-api",
        "queue:reports",
    }
    # pay_out and refund share the places of an account.
    enqueue(conn, [{"account": "a"}] * 4, task="shop.pay_out")
    enqueue(conn, [{"owner": "a"}] * 4, task="shop.refund")
    assert len(claim_all(conn)) == 5
    assert parked(conn) == 3
    app.close()


def test_the_changes_in_python_and_in_sql_are_the_same(
    shop: dict[str, Any], conn: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    conn.execute("SELECT faultline.set_limit('queue:reports', 1)")
    run_python(blocks("python")[1], shop)
    shop["app"].close()
    assert capsys.readouterr().out == "queue:reports 0 0\n"
    assert declared(conn) == {}
    change, reset = blocks("sql")[0].strip().splitlines()
    conn.execute(change.encode())
    assert declared(conn) == {"queue:reports": (2, 10)}
    conn.execute(reset.encode())
    assert declared(conn) == {}


def test_the_commands_work(database_url: str, conn: Connection) -> None:
    [job_id] = enqueue(conn, [{}], task="shop.charge", queue="reports")
    commands = [line.split("#")[0] for text in blocks("") for line in text.splitlines()]
    assert len(commands) == 9
    for command in commands:
        words = shlex.split(command.replace("JOB", str(job_id)))[1:]
        done = invoke(database_url, *words)
        assert (done.code, done.error) == (0, None), command
    found = rows(conn, "SELECT task, argument FROM faultline.limit_arguments")
    assert found == [("shop.charge", "tenant_id")]

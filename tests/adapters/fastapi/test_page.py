"""Every code block of docs/fastapi.md is run, or is a part of an example."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from faultline.testing.databases import SERVER_VARIABLE
from tests.adapters.fastapi.served import ROOT, Served
from tests.docs.blocks import Block, blocks_of
from tests.running import value
from tests.waiting import wait_until

BLOCKS = [block for block in blocks_of(ROOT / "docs" / "fastapi.md") if block.language == "python"]
FILES = {block.file_name: block.text for block in BLOCKS if block.file_name}
OTHERS = [block for block in BLOCKS if not block.file_name]
CELLS = [block for block in OTHERS if "square" in block.text]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.slow
def test_the_shop_enqueues_charges_and_serves_the_dashboard(
    folder: Path, database_url: str, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("create table invoices (id int); create table payments (invoice int)")
    with Served(database_url, "shop:shop", folder=folder) as served:
        address = served.wait_for_address()
        httpx.post(f"{address}/invoices/42").raise_for_status()
        wait_until(lambda: value(conn, "select count(*) from payments") == 1, "the payment")
        assert httpx.get(f"{address}/faultline/").status_code == 401
        user = {"user": "ada"}
        assert "Faultline" in httpx.get(f"{address}/faultline/", cookies=user).text
        counts = httpx.get(f"{address}/queue/queues", cookies=user).json()
        assert [each["queue"] for each in counts["queues"]] == ["default"]
        served.terminate()
        served.wait_for_end()
        assert "Application shutdown complete" in served.output


def test_the_starlette_application_answers_with_a_result(folder: Path, database_url: str) -> None:
    with Served(database_url, "greetings:site", folder=folder) as served:
        answer = httpx.post(f"{served.wait_for_address()}/greet/ada", timeout=60)
        assert answer.json() == {"greeting": "hello ada"}


@pytest.mark.slow
def test_the_tests_of_the_shop_pass(folder: Path, server_url: str) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nfaultline_app = shop:queue\n")
    options = ["-p", "pytest_faultline", "-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options],
        cwd=folder,
        env={**os.environ, SERVER_VARIABLE: server_url, "PYTHONPATH": _path(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def _path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_the_cells_of_the_notebook_run_on_a_running_loop(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    notebook: dict[str, Any] = {"__name__": "__main__"}

    async def run_cells() -> None:
        for cell in [*CELLS, *CELLS]:  # and again, as in a notebook
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(cell.text, "cell", "exec", flags=flags, dont_inherit=True)
            ran = types.FunctionType(code, notebook)()
            if inspect.isawaitable(ran):
                await ran
        await notebook["app"].aclose()

    asyncio.run(run_cells())
    assert notebook["squares"] == [0, 1, 4, 9]


@pytest.mark.parametrize(
    "block", [block for block in OTHERS if block not in CELLS], ids=lambda block: str(block.line)
)
def test_other_blocks_are_parts_of_the_examples(block: Block) -> None:
    programs = [*ROOT.glob("examples/flask_app/*.py"), *ROOT.glob("examples/script/*.py")]
    assert any(block.text in program.read_text() for program in programs)

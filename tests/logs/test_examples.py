"""The code blocks of docs/hooks.md and docs/logs.md, run by a worker as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOT_INSTALLED = ("django", "sqlalchemy")
ENQUEUE = {
    "hooks": "greet.enqueue(name='ada')",
    "logs": "send.enqueue(to='ada')",
}
SAID = {"hooks": "", "logs": "INFO sending to ada job=01"}


@pytest.mark.parametrize("page", ["hooks", "logs"])
def test_the_code_of_the_page_runs(
    page: str, database_url: str, conn: psycopg.Connection[object], tmp_path: Path
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    code = [block for block in blocks if not any(name in block for name in NOT_INSTALLED)]
    assert len(code) >= 3
    (tmp_path / "example.py").write_text("\n".join(code))

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "DATABASE_URL": database_url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("-c", f"from example import *\n{ENQUEUE[page]}")
    command = ("-m", "faultline", "--app", "example:app", "worker", "--max-jobs", "1")
    assert SAID[page] in run(*command)
    assert conn.execute("SELECT state FROM faultline.jobs").fetchall() == [("succeeded",)]

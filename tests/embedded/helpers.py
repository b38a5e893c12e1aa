"""Queries to real servers, and processes that start servers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psycopg


def query_value(url: str, query: str) -> str:
    with psycopg.connect(url, connect_timeout=30) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return str(row[0])


def python(program: str, *arguments: str, data_dir: Path | None = None) -> subprocess.Popen[str]:
    chosen = {"FAULTLINE_DATA_DIR": str(data_dir)} if data_dir else {}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, **chosen},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

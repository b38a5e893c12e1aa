"""The tests of the Django shop pass, with its naive form as the control."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import url_of

from .conftest import EXAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def manage(folder: Path, server_url: str, *words: str) -> str:
    url = url_of(
        server_url, f"shop_{secrets.token_hex(6)}"
    )  # its test database is made from this name
    ran = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=folder,
        env={**os.environ, "DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "shop", tmp_path / "shop"))


def test_the_tests_of_the_shop_pass(folder: Path, server_url: str) -> None:
    log = manage(folder, server_url, "test", "--noinput")
    assert "Ran 6 tests" in log


def test_its_migrations_are_complete(folder: Path, server_url: str) -> None:
    log = manage(folder, server_url, "makemigrations", "--check", "--dry-run")
    assert "No changes detected" in log

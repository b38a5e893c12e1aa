"""The adapters for SQLAlchemy and asyncpg on other versions and drivers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters import versions
from tests.adapters.effects import jobs, payments

WITHOUT_GREENLET = """
import sys
sys.modules["greenlet"] = None  # its import fails, as if it were not installed
from faultline import Faultline
from faultline.adapters.sqlalchemy import use_sessions
from faultline.testing import run_until_idle
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

app = Faultline()
engine = create_engine(app.database_url.replace("postgresql://", "postgresql+psycopg://"))
use_sessions(app, sessionmaker(engine))

@app.task(name="charge")
def charge(job):
    with job.session() as session:
        session.execute(text("INSERT INTO payments (invoice) VALUES (42)"))
        charge.options(conn=session, delay=60).enqueue()

charge.enqueue()
run_until_idle(app)
assert "sqlalchemy.ext.asyncio" not in sys.modules
"""


def test_plain_sessions_do_not_need_greenlet(own_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_GREENLET],
        cwd=versions.ROOT,
        env={**os.environ, "DATABASE_URL": own_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert (payments(own_url), jobs(own_url)) == (1, 2)


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    """An environment with what the extras install, and no package of the suite's."""
    own = tmp_path / "newest"
    python = Path(sys.executable)
    return versions.environment(own, python, f"{versions.ROOT}[sqlalchemy,asyncpg]")


@pytest.fixture
def oldest(tmp_path: Path) -> Path:
    own, python = tmp_path / "oldest", versions.interpreter("3.11", "3.12")
    return versions.environment(
        own, python, "sqlalchemy[asyncio]==2.0.*", "asyncpg==0.30.*", "psycopg2-binary"
    )


SYNC_FILES = ["sqlalchemy", "sqlalchemy_enqueueing", "sqlalchemy_own_transactions"]
FILES = [*SYNC_FILES, "sqlalchemy_async", "asyncpg", "batches"]


def require_success(python: Path, server_url: str, *words: str, **variables: str) -> None:
    log = versions.run(
        python,
        *("-m", "pytest", "-q", *words),
        FAULTLINE_TEST_DATABASE_URL=server_url,
        PYTHONDONTWRITEBYTECODE="1",
        **variables,
    )
    assert " passed" in log
    assert " skipped" not in log


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("environment", ["newest", "oldest"])
def test_the_adapters_work_with_what_is_installed(
    request: pytest.FixtureRequest, server_url: str, environment: str
) -> None:
    python: Path = request.getfixturevalue(environment)
    files = [f"tests/adapters/test_{name}.py" for name in FILES]
    require_success(python, server_url, *files)
    if environment == "oldest":  # `zombies` finds no calls of psycopg2, and says so
        words = (*files[: len(SYNC_FILES)], "-k", "not whatever_happens")
        require_success(python, server_url, *words, FAULTLINE_TEST_ALCHEMY_DRIVER="psycopg2")

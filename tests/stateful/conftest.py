"""The state machine's database, patched by the file in `FAULTLINE_MUTANT_SQL`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.stateful.system import SystemUnderTest

MUTANT_VARIABLE = "FAULTLINE_MUTANT_SQL"


@pytest.fixture
def system(
    conn: psycopg.Connection[Any], database_url: str, caplog: pytest.LogCaptureFixture
) -> Iterator[SystemUnderTest]:
    # Each refusal cuts its session, and the driver says so: a thousand lines around one failure.
    caplog.set_level(logging.ERROR, logger="psycopg")
    if mutant := os.environ.get(MUTANT_VARIABLE):
        conn.execute(Path(mutant).read_bytes())
    system = SystemUnderTest(conn, database_url)
    yield system
    system.close()

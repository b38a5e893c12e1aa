"""A table of the user, to see whose writes took effect."""

from __future__ import annotations

import pytest

from .steps import Connection


@pytest.fixture
def effects(conn: Connection) -> str:
    conn.execute("CREATE TABLE effects (job_id uuid, writer text)")
    return "effects"

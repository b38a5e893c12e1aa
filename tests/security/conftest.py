"""A database and an account whose password must appear in no output."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from psycopg import conninfo

from faultline.postgres.migrate import migrate

from .accounts import EVERY_ROLE, account


@pytest.fixture
def with_password(database_url: str) -> Iterator[str]:
    """A URL in the usual form whose password is a canary, unique on this machine."""
    migrate(database_url, roles=True)
    canary = f"c4n4ry-{secrets.token_hex(8)}"
    with account(database_url, *EVERY_ROLE, password=canary) as made:
        part = conninfo.conninfo_to_dict(made)
        yield f"postgresql://{part['user']}:{canary}@{part['host']}:{part['port']}/{part['dbname']}"

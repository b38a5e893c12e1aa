"""A database with an account whose password is looked for everywhere, and is to be found nowhere."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from psycopg import conninfo

from faultline.postgres.migrate import migrate

from .accounts import EVERY_ROLE, account


@pytest.fixture
def with_password(database_url: str) -> Iterator[str]:
    """A URL in the usual form, with a canary in it that nobody else on this machine has."""
    migrate(database_url, roles=True)
    canary = f"c4n4ry-{secrets.token_hex(8)}"
    with account(database_url, *EVERY_ROLE, password=canary) as made:
        part = conninfo.conninfo_to_dict(made)
        yield f"postgresql://{part['user']}:{canary}@{part['host']}:{part['port']}/{part['dbname']}"

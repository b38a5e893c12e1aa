"""Login accounts, each a member of the given roles, dropped after the test."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

import psycopg
from psycopg import conninfo, sql

EVERY_ROLE = ("faultline_producer", "faultline_worker", "faultline_inspector", "faultline_operator")
PASSWORD = "a-password-of-the-tests"


@contextlib.contextmanager
def account(
    url: str, *roles: str, attributes: str = "", password: str = PASSWORD, name: str = "account"
) -> Iterator[str]:
    """The URL under which it logs in to the database at `url`, an administrator's."""
    made = f"t_{name}_{secrets.token_hex(4)}"
    identifier = sql.Identifier(made)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE ROLE {} LOGIN {} PASSWORD {}").format(
                identifier, sql.SQL(attributes), sql.Literal(password)
            )
        )
        try:
            for role in roles:
                admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), identifier))
            yield conninfo.make_conninfo(url, user=made, password=password)
        finally:
            admin.execute(sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(identifier))
            admin.execute(sql.SQL("DROP OWNED BY {}").format(identifier))
            admin.execute(sql.SQL("DROP ROLE {}").format(identifier))

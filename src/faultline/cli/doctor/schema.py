"""Checks of `doctor` on the schema: version, search path, owner and roles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from faultline.cli.doctor.check import Check, ok, problem, warning
from faultline.postgres.migrate import (
    functions_sql,
    installed_version,
    latest_version,
    schema_tables,
)
from faultline.postgres.sessions import Connection, run
from faultline.statements import server

_OUR_SCHEMA = "faultline"


def schema(conn: Connection) -> Iterator[Check]:
    installed, wanted = installed_version(conn), latest_version()
    if installed > wanted:
        finding = f"version {installed}, newer than the {wanted} that this Faultline knows"
        yield problem("schema", finding, "upgrade the faultline package")
    elif installed < wanted:
        finding = f"version {installed} of {wanted}" if installed else "not installed"
        yield problem("schema", finding, "faultline migrate")
    else:
        yield ok("schema", f"version {installed}")
        ours = hashlib.sha256(functions_sql().encode()).hexdigest()
        if run(conn, server.functions_fingerprint()) != f"functions {ours}":
            finding = "they belong to another release"
            yield warning("functions", finding, "faultline migrate")


def search_path(conn: Connection) -> Iterator[Check]:
    """Find tables in the wrong schema.

    "$user" puts the schema faultline first for an account of that name.
    """
    account, path = run(conn, server.account_search_path())
    schemas = [each.strip().strip('"').replace("$user", account) for each in path.split(",")]
    strays = run(conn, server.other_tables(sorted(schema_tables())))
    if strays:
        yield warning(
            "tables in the schema faultline",
            f"not Faultline's own: {', '.join(strays)}",
            f"ALTER TABLE {_OUR_SCHEMA}.{strays[0]} SET SCHEMA public, and likewise for the others",
        )
    before_public = schemas[: schemas.index("public")] if "public" in schemas else schemas
    if _OUR_SCHEMA in before_public:
        yield warning(
            "search_path",
            f"{path}: tables that the account {account} creates go to the schema {_OUR_SCHEMA}",
            f"ALTER ROLE {account} SET search_path = public",
        )
    else:
        yield ok("search_path", path)


def roles(conn: Connection) -> Iterator[Check]:
    in_use = run(conn, server.roles_in_use())
    account = run(conn, server.identity())
    owner = run(conn, server.schema_owner())
    if len(in_use) < len(server.ROLES):
        finding = "not used: every process runs as the owner of the schema"
        yield ok(
            "roles", finding, "for least privilege: faultline migrate --roles, then grant the roles"
        )
    elif owner.can_log_in:
        finding = f"in use, but the schema belongs to {owner.name}, which can log in and disable the fence"
        yield warning("roles", finding, "faultline migrate --roles makes faultline_owner its owner")
    else:
        yield ok("roles", f"{', '.join(in_use)}; the schema belongs to {owner.name}")
    if account.is_superuser:
        finding = f"{account.account} is a superuser, and can bypass every guard"
        yield ok(
            "account", finding, "fine for development; otherwise give workers their own account"
        )
    elif owner.is_us:
        finding = f"{account.account} owns the schema, or can become its owner, and could disable the fence"
        yield ok("account", finding, "right for migrations; give every process its own account")
    else:
        yield ok("account", f"{account.account}, neither a superuser nor the owner")

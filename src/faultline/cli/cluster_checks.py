"""Checks of `faultline doctor` on failover: standbys, who manages the cluster, and the search path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from faultline.cli.checks import Check, ok, warning
from faultline.config import WorkerSettings
from faultline.postgres.migrate import schema_tables
from faultline.postgres.sessions import Connection, run
from faultline.statements import server

_OUR_SCHEMA = "faultline"


@dataclass(frozen=True, slots=True)
class Manager:
    """What promotes standbys in a managed cluster, and where its settings are."""

    name: str
    synchronous: str  # how acknowledged commits are made to survive a failover
    failover: str  # how long a failover takes


MANAGERS = {
    server.PATRONI: Manager(
        "Patroni",
        "patronictl edit-config -s synchronous_mode=true; Patroni sets synchronous_standby_names itself",
        "Patroni promotes a standby after `ttl`, 30 s by default",
    ),
    server.CLOUD_NATIVE_PG: Manager(
        "CloudNativePG",
        "set .spec.postgresql.synchronous in the Cluster; the operator sets synchronous_standby_names itself",
        "the operator promotes a standby within about a minute",
    ),
    server.MANAGED_SERVICE: Manager(
        "a managed service",
        "use the provider's highly available deployment, which has a synchronous standby of its own",
        "the provider promotes a standby within one to two minutes",
    ),
}


def replication(conn: Connection) -> Iterator[Check]:
    """Whether an acknowledged commit survives a failover, and how long one takes."""
    names = run(conn, server.settings(["synchronous_standby_names"]))
    standbys = run(conn, server.identity()).standbys
    manager = MANAGERS.get(run(conn, server.cluster_manager()) or "")
    synchronous = names.get("synchronous_standby_names")
    if standbys and not synchronous:
        said = "none, with standbys attached: a failover may lose the newest commits"
        advice = "name them in synchronous_standby_names, or accept it knowingly"
        yield warning(
            "synchronous standbys", said, advice if manager is None else manager.synchronous
        )
    else:
        yield ok("synchronous standbys", synchronous or "none, and no standby is attached")
    if manager is None:
        return
    lease = WorkerSettings().lease_seconds
    yield ok(
        "managed cluster",
        f"managed by {manager.name}: {manager.failover}. Jobs whose lease ({lease:g} s by default) is shorter"
        " than a failover run again after it",
        "where that is expensive, give workers a --lease-seconds above the time of a failover and name every"
        " host in the URL",
    )


def search_path(conn: Connection) -> Iterator[Check]:
    """An account of our schema's name has that schema first in its path, by "$user"."""
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


EXAMINATIONS = (replication, search_path)

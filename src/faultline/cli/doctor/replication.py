"""Checks of `doctor` on failover: standbys and the cluster's manager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from faultline.cli.doctor.check import Check, ok, warning
from faultline.config import WorkerSettings
from faultline.postgres.sessions import Connection, run
from faultline.statements import server


@dataclass(frozen=True, slots=True)
class Manager:
    """The software that promotes standbys in a managed cluster."""

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
    """Check whether commits survive a failover; report how long one takes."""
    names = run(conn, server.settings(["synchronous_standby_names"]))
    standbys = run(conn, server.identity()).standbys
    manager = MANAGERS.get(run(conn, server.cluster_manager()) or "")
    synchronous = names.get("synchronous_standby_names")
    if standbys and not synchronous:
        said = "none, but standbys are attached: a failover may lose the newest commits"
        advice = "name them in synchronous_standby_names, unless you accept the loss"
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
        "if that is expensive, start workers with --lease-seconds above the time of a failover, and name"
        " every host in the URL",
    )

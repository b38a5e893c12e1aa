"""Checks of `doctor` on the server: version, role, settings, sessions, standbys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from faultline.cli.doctor.check import Check, ok, problem, warning
from faultline.cli.output import duration
from faultline.config import WorkerSettings
from faultline.postgres.sessions import Connection, run
from faultline.statements import server
from faultline.statements.clock import database_time

OLDEST_MAJOR, TESTED_MAJORS = 14, (15, 16, 18)
_CLOCK_SAMPLES = 3
_DURABILITY = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
# A limit below these milliseconds ends healthy work; in PostgreSQL 0 means no limit.
_TIMEOUTS = {
    "idle_session_timeout": None,  # harmful at any value: a listening session and an unused pool are idle
    "idle_in_transaction_session_timeout": 60_000,
    "transaction_timeout": 60_000,
    "statement_timeout": 30_000,
    "lock_timeout": 5_000,
}
LONG_TRANSACTION_SECONDS = 300.0


def version(conn: Connection) -> Iterator[Check]:
    identity = run(conn, server.identity())
    major = identity.version_number // 10_000
    tested = ", ".join(map(str, TESTED_MAJORS))
    if major < OLDEST_MAJOR:
        yield problem("version", f"PostgreSQL {identity.version}", f"use {OLDEST_MAJOR} or newer")
    elif major > max(TESTED_MAJORS):
        advice = f"tested on {tested}; report what you find"
        yield warning("version", f"PostgreSQL {identity.version}", advice)
    else:
        yield ok("version", f"PostgreSQL {identity.version} (tested on {tested})")


def role_of_the_server(conn: Connection) -> Iterator[Check]:
    read_only = run(conn, server.settings(["default_transaction_read_only"]))
    if run(conn, server.identity()).is_standby:
        advice = "connect to the primary: add target_session_attrs=read-write to the URL"
        yield problem("primary", "this is a standby: jobs cannot be written", advice)
    elif "on" in read_only.values():
        finding = (
            "a primary, but sessions of this account start read-only: Faultline's own sessions write"
            " anyway, connections that a handler opens itself cannot"
        )
        advice = "ALTER DATABASE … RESET default_transaction_read_only (or ALTER ROLE …)"
        yield warning("primary", finding, advice)
    else:
        yield ok("primary", "yes, and writable")


def durability(conn: Connection) -> Iterator[Check]:
    values = run(conn, server.settings(_DURABILITY))
    if values["fsync"] == "off":
        finding = "OFF: a crash of the machine may leave a CORRUPT database"
        yield problem("fsync", finding, "set fsync = on")
    else:
        yield ok("fsync", "on")
    if values["full_page_writes"] == "off":
        finding = "OFF: a crash of the machine may leave half-written pages"
        advice = "set full_page_writes = on, unless the file system writes whole pages atomically"
        yield problem("full_page_writes", finding, advice)
    else:
        yield ok("full_page_writes", "on")
    mode, names = values["synchronous_commit"], values["synchronous_standby_names"]
    if mode == "off":
        finding = "OFF: a crash may lose jobs and results that were REPORTED as committed"
        yield problem(
            "synchronous_commit", finding, "set synchronous_commit = on for Faultline's accounts"
        )
    elif mode == "local" and names:
        finding = f"local: commits do not wait for the standbys in {names!r}"
        yield warning("synchronous_commit", finding, "set synchronous_commit = on")
    else:
        yield ok("synchronous_commit", mode)


def clock(conn: Connection) -> Iterator[Check]:
    """Compare the server's clock with ours, by the fastest of a few round trips."""
    samples = []
    for _ in range(_CLOCK_SAMPLES):
        sent, started = time.time(), time.monotonic()
        theirs = run(conn, database_time()).timestamp()
        trip = time.monotonic() - started
        samples.append((trip, theirs - (sent + trip / 2)))
    trip, offset = min(samples)
    finding = (
        f"the server's is {abs(offset):.3f} s {'ahead of' if offset > 0 else 'behind'} this one's"
    )
    finding += f" (± {trip / 2:.3f} s); correctness does not depend on it"
    if abs(offset) > 1 + trip:
        yield warning(
            "clock",
            finding,
            "synchronize both with NTP: times in logs and run_at come from clients",
        )
    else:
        yield ok("clock", finding)


def isolation(conn: Connection) -> Iterator[Check]:
    name = "default_transaction_isolation"
    level = run(conn, server.settings([name]))[name]
    if level == "read committed":
        yield ok("isolation", level)
    else:
        yield warning(
            "isolation",
            f"{level} by default: such a transaction must assert the fence before its commit (FL007)",
            "call job.assert_fence(conn) first in your own transactions, or ALTER ROLE … SET"
            " default_transaction_isolation = 'read committed'",
        )


def timeouts(conn: Connection) -> Iterator[Check]:
    values = run(conn, server.settings(list(_TIMEOUTS)))
    harmless = True
    for name, floor in _TIMEOUTS.items():
        limit = int(values.get(name, "0"))
        if limit and (floor is None or limit < floor):
            harmless = False
            finding = f"{duration(limit / 1000)}: it may end statements or connections of handlers"
            yield warning(name, finding, f"ALTER ROLE … SET {name} = 0 for Faultline's accounts")
    for role, entry in run(conn, server.settings_of_other_roles([*_TIMEOUTS, *_DURABILITY])):
        harmless = False
        advice = f"change it if Faultline runs as {role}"
        yield warning("settings of a role", f"{role} has {entry}", advice)
    if harmless:
        yield ok("timeouts", "none that ends a worker's session early")


def text_forms(conn: Connection) -> Iterator[Check]:
    """Check the text form of timestamps: the driver reads one form only."""
    wanted = {"DateStyle": "ISO", "IntervalStyle": "postgres"}
    values = run(conn, server.settings(list(wanted)))
    wrong = {
        name: values[name]
        for name, form in wanted.items()
        if name in values and values[name].split(",")[0] != form
    }
    for name, value in wrong.items():
        finding = f"{value}: handlers' queries that return timestamps or intervals may fail"
        yield warning(name, finding, f"ALTER ROLE … RESET {name} for Faultline's accounts")
    if not wrong:
        yield ok("text forms", "timestamps and intervals have the text form that the driver reads")


def connections(conn: Connection) -> Iterator[Check]:
    used, available = run(conn, server.connections())
    finding = f"{used:,} of {available:,} used"
    advice = (
        "raise max_connections, lower the workers' concurrency, or put producers behind a pooler"
    )
    if used >= 0.95 * available:
        yield problem("connections", finding, advice)
    elif used >= 0.8 * available:
        yield warning("connections", finding, advice)
    else:
        yield ok("connections", finding)


def long_transactions(conn: Connection) -> Iterator[Check]:
    found = run(conn, server.long_transactions(older_than_seconds=LONG_TRANSACTION_SECONDS))
    for one in found:
        yield warning(
            "long transaction",
            f"session {one.pid} ({one.application}), {one.state}, for {duration(one.seconds)}:"
            " vacuum cannot remove rows that it may still see, and claims become slower",
            f"end it: SELECT pg_terminate_backend({one.pid})",
        )
    if not found:
        sees_all = run(conn, server.identity()).sees_other_sessions
        gap = "" if sees_all else ", among the sessions that this account may see"
        yield ok("long transactions", f"none over {duration(LONG_TRANSACTION_SECONDS)}{gap}")


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
        finding = "none, but standbys are attached: a failover may lose the newest commits"
        advice = "name them in synchronous_standby_names, unless you accept the loss"
        yield warning(
            "synchronous standbys", finding, advice if manager is None else manager.synchronous
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

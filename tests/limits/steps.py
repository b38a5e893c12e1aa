"""Limits, places and lines as the tests of limits set and read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tests.protocol.steps import Connection, Lease, claim_batch, rows, value

PARKED = "next_run_at > clock_timestamp() + interval '900 years'"


def set_limit(conn: Connection, name: str, running: int | None = None, **options: Any) -> None:
    named = "".join(f", {option} => %s" for option in options)
    conn.execute(f"SELECT faultline.set_limit(%s, %s{named})", [name, running, *options.values()])


def limit_customers(conn: Connection, running: int, *, fallback: str | None = None) -> None:
    """Limit jobs of the task charge by their customer."""
    declared = Jsonb({"key:customer": {"max_running": running}})
    bound = {"limit_name": "key:customer", "task": "charge", "argument": "customer"}
    conn.execute(
        "SELECT faultline.declare_limits(%s, %s)",
        [declared, Jsonb([{**bound, "fallback": fallback}])],
    )


def enqueue(
    conn: Connection, payloads: Sequence[Any], *, task: str = "charge", **options: Any
) -> list[UUID]:
    named = "".join(f", {name} => %s" for name in options)
    call = f"SELECT job_id FROM faultline.enqueue_many(%s, %s{named})"
    given = [Jsonb(payload) for payload in payloads]
    return [job_id for (job_id,) in rows(conn, call, task, given, *options.values())]


def claim_all(conn: Connection, size: int = 100, **options: Any) -> list[Lease]:
    return claim_batch(conn, size, **options)


def places(conn: Connection) -> dict[str, int]:
    return dict(rows(conn, "SELECT limit_key, count(*) FROM faultline.places GROUP BY limit_key"))


def waiting(conn: Connection) -> dict[str, int]:
    query = "SELECT limit_key, count(*) FROM faultline.waiting_jobs GROUP BY limit_key"
    return dict(rows(conn, query))


def parked(conn: Connection) -> int:
    return int(value(conn, f"SELECT count(*) FROM faultline.jobs WHERE {PARKED}"))


def due(conn: Connection) -> int:
    query = "SELECT count(*) FROM faultline.jobs WHERE state = 'queued' AND next_run_at <= clock_timestamp()"
    return int(value(conn, query))


def repair(conn: Connection) -> tuple[int, int, int]:
    [row] = rows(conn, "SELECT freed, resumed, forgotten FROM faultline.repair_limits()")
    freed, resumed, forgotten = row
    return freed, resumed, forgotten


def assert_consistent(conn: Connection) -> None:
    """Every place belongs to a running job, and every waiting job is in a line."""
    stray = "SELECT count(*) FROM faultline.places AS p LEFT JOIN faultline.jobs AS j ON j.id = p.job_id"
    assert value(conn, f"{stray} WHERE j.state IS DISTINCT FROM 'running'") == 0
    lines = (
        "SELECT count(*) FROM faultline.waiting_jobs AS w"
        " FULL JOIN (SELECT id, next_run_at FROM faultline.jobs"
        f"            WHERE state = 'queued' AND {PARKED}) AS j ON j.id = w.job_id"
        " WHERE w.job_id IS NULL OR j.id IS NULL"
    )
    assert value(conn, lines) == 0

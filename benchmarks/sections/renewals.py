"""Section of the report: what renewing a lease costs the server."""

from __future__ import annotations

import psycopg

from benchmarks import renewal_cost
from benchmarks.goal import Goal
from benchmarks.measurement import measurement, number
from benchmarks.section import Section, SectionContext
from faultline import embedded
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run as run_statement
from faultline.statements import protocol

_LEASE_SECONDS = 3600.0
_ENQUEUE = "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[%s]))"


def run(context: SectionContext) -> Section:
    leases, rounds = (1_000, 3) if context.short else (10_000, 7)
    return as_section(measure(leases, rounds), leases)


def measure(leases: int, rounds: int) -> list[renewal_cost.Cost]:
    """Claim so many jobs, and renew all their leases in each round."""
    settings = {"fsync": "off", "autovacuum": "off"}
    with (
        embedded.temporary_server(settings=settings) as server,
        psycopg.connect(server.url, autocommit=True) as conn,
    ):
        migrate(server.url)
        conn.execute(_ENQUEUE, [leases])
        claims = run_statement(
            conn,
            protocol.claim("bench", ["default"], batch_size=leases, lease_seconds=_LEASE_SECONDS),
        )
        heartbeat = protocol.heartbeat("bench", claims, lease_seconds=_LEASE_SECONDS)
        return [renewal_cost.measure(conn, heartbeat, len(claims)) for _ in range(rounds)]


def as_section(costs: list[renewal_cost.Cost], leases: int) -> Section:
    spent = measurement([cost.microseconds for cost in costs])
    wal = measurement([cost.wal_bytes for cost in costs])
    hot = measurement([100 * cost.hot_share for cost in costs])
    what = f"renewing one of {leases:,} leases"
    time_goal = Goal(f"{what}, processor time", "a bound", 8, at_least=False, unit="µs")
    hot_goal = Goal(f"{what}, HOT updates", "a bound", 90, unit="%")
    return Section(
        title="Renewals",
        json={"microseconds": spent.facts(), "wal_bytes": wal.facts(), "hot": hot.facts()},
        markdown=(
            f"A heartbeat renews {leases:,} leases: {number(spent.median)} µs of the server's processor"
            f" time and {wal.median:.0f} bytes of WAL each; {hot.median:.0f} % of the updates are HOT."
        ),
        verdicts=[
            time_goal.judge(
                spent.median, detail=f"{number(spent.low)}–{number(spent.high)}, n = {spent.n}"
            ),
            hot_goal.judge(hot.median, detail=f"n = {hot.n}"),
        ],
    )

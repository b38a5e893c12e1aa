"""Measures what one heartbeat costs the server per lease.

    python -m benchmarks.renewal_cost [--leases 10000] [--rounds 7]

One connection claims the jobs and renews all their leases again and again, on an embedded PostgreSQL. The
result is, per lease, the processor time of the backend as Linux counts it, the WAL, and the share of updates
that needed no new index entries: medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any, NamedTuple

import psycopg

from benchmarks.transaction_cost import processor_microseconds
from faultline import embedded
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement

_LEASE_SECONDS = 3600.0


class Cost(NamedTuple):
    """What one renewal cost."""

    microseconds: float
    wal_bytes: float
    hot_share: float


def _numbers(conn: psycopg.Connection[Any]) -> tuple[float, float, float]:
    """Return the bytes of WAL so far, and the updates of jobs: HOT ones, and all."""
    query = """
        SELECT pg_current_wal_insert_lsn() - '0/0', n_tup_hot_upd, n_tup_upd
        FROM pg_stat_user_tables WHERE relid = 'faultline.jobs'::regclass"""
    conn.execute("SELECT pg_stat_force_next_flush()")
    [(wal, hot, updates)] = conn.execute(query).fetchall()
    return float(wal), float(hot), float(updates)


def measure(conn: psycopg.Connection[Any], heartbeat: Statement[Any], leases: int) -> Cost:
    conn.execute("VACUUM faultline.jobs")
    conn.execute("CHECKPOINT")
    run(conn, heartbeat)  # the first change of a page after a checkpoint logs the whole page
    wal, hot, updates = _numbers(conn)
    processor = processor_microseconds(conn)
    run(conn, heartbeat)
    processor = processor_microseconds(conn) - processor
    wal_after, hot_after, updates_after = _numbers(conn)
    share = (hot_after - hot) / max(updates_after - updates, 1)
    return Cost(processor / leases, (wal_after - wal) / leases, share)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--leases", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with (
        embedded.temporary_server(settings={"fsync": "off", "autovacuum": "off"}) as server,
        psycopg.connect(server.url, autocommit=True) as conn,
    ):
        migrate(server.url)
        enqueue = (
            "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[%s]))"
        )
        conn.execute(enqueue, [options.leases])
        claim = protocol.claim(
            "bench",
            ["default"],
            batch_size=options.leases,
            lease_seconds=_LEASE_SECONDS,
            resume_after=None,
        )
        claims = run(conn, claim)
        heartbeat = protocol.heartbeat("bench", claims, lease_seconds=_LEASE_SECONDS)
        costs = [measure(conn, heartbeat, len(claims)) for _ in range(options.rounds)]
    median = Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))
    spread = f"{min(costs).microseconds:.1f}–{max(costs).microseconds:.1f}"
    print(f"processor time {median.microseconds:.1f} µs per renewal ({spread})")
    print(f"WAL            {median.wal_bytes:.0f} bytes")
    print(f"HOT updates    {median.hot_share:.0%}")


if __name__ == "__main__":
    main()

"""Measures what running jobs cost the server: renewals and looks for expired ones.

    python -m benchmarks.renewal_cost [--leases 100 1000 10000] [--rounds 7] [--markdown FILE]

One connection claims the jobs and renews all their leases again and again, on an embedded PostgreSQL. The
result is, per lease, the processor time of the backend as Linux counts it, the WAL, and the share of updates
that needed no new index entries. Then, with no lease expired: the time of one call of reconcile, as the
leading reconciler makes it, of its question for the first expiry, and of the claim of an idle worker.
Medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg

from benchmarks.before_after import REPOSITORY
from benchmarks.table_file import write_table
from benchmarks.transaction_cost import processor_microseconds
from faultline import embedded
from faultline.model import Claim
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline.statements.statement import Statement
from faultline_drills.provenance import commit_of

_LEASE_SECONDS = 3600.0
_LARGEST_CLAIM = 10_000


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


class Search(NamedTuple):
    """What one search for expired leases cost, in microseconds."""

    reconcile: float
    first_expiry: float
    idle_claim: float


_RECONCILE: LiteralString = "SELECT * FROM faultline.reconcile()"
_FIRST_EXPIRY: LiteralString = "SELECT faultline.next_expiry()"
_IDLE_CLAIM: LiteralString = "SELECT * FROM faultline.claim('idle', '{empty}')"
_FORGET: LiteralString = "SET faultline.next_expiry = ''"  # an answer serves for a while


def search(conn: psycopg.Connection[Any]) -> Search:
    costs = []
    for query in (_RECONCILE, _FIRST_EXPIRY, _IDLE_CLAIM):
        conn.execute(_FORGET)
        processor = processor_microseconds(conn)
        conn.execute(query, prepare=True)
        costs.append(processor_microseconds(conn) - processor)
    return Search(*costs)


def row(leases: int, rounds: int) -> str:
    """Measure with this number of running jobs, on a server of its own."""
    with (
        embedded.temporary_server(settings={"fsync": "off", "autovacuum": "off"}) as server,
        psycopg.connect(server.url, autocommit=True) as conn,
    ):
        migrate(server.url)
        enqueue = (
            "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[%s]))"
        )
        claims: list[Claim] = []
        while len(claims) < leases:
            count = min(leases - len(claims), _LARGEST_CLAIM)
            conn.execute(enqueue, [count])
            claim = protocol.claim(
                "bench",
                ["default"],
                batch_size=count,
                lease_seconds=_LEASE_SECONDS,
                resume_after=None,
            )
            claimed: list[Claim] = run(conn, claim)
            claims += claimed
        heartbeat = protocol.heartbeat("bench", claims, lease_seconds=_LEASE_SECONDS)
        costs = [measure(conn, heartbeat, len(claims)) for _ in range(rounds)]
        search(conn)
        searches = [search(conn) for _ in range(rounds)]
    median = Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))
    found = Search(*(statistics.median(values) for values in zip(*searches, strict=True)))
    spread = f"{min(costs).microseconds:.1f}–{max(costs).microseconds:.1f}"
    return (
        f"| {leases:,} | {median.microseconds:.1f} µs ({spread}) | {median.wal_bytes:.0f} B"
        f" | {median.hot_share:.0%} | {found.reconcile / 1000:.2f} ms"
        f" | {found.first_expiry / 1000:.2f} ms | {found.idle_claim / 1000:.2f} ms |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--leases", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    lines = [
        "| running jobs | renewal | WAL | HOT | reconcile | first expiry | idle claim |",
        *(row(leases, options.rounds) for leases in options.leases),
    ]
    print("\n".join(lines))
    if options.markdown is not None:
        source = commit_of(REPOSITORY / "src" / "faultline") or "unknown"
        origin = (
            f"commit {source}; a renewal per lease, the others per call; medians of"
            f" {options.rounds} rounds"
        )
        write_table(options.markdown, "Renewals and the search for expired leases", lines, origin)


if __name__ == "__main__":
    main()

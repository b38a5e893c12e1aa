"""Measures the server time of one `job.transaction()` block.

    python -m benchmarks.transaction_cost [--transactions 1000] [--rounds 5]

Runs the same block without the check of its COMMIT, with the check, and with the reset of the session, in
turn and repeatedly, on an embedded PostgreSQL. The result is the processor time of the backend per
transaction, as Linux counts it: the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from faultline import embedded
from faultline.model import Claim
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import run, run_together
from faultline.statements import protocol, transactions
from faultline.statements.session_settings import HANDLER
from faultline.statements.statement import Statement

Connection = psycopg.Connection[Any]
_LEASE_SECONDS = 3600.0


def unchecked(claim: Claim) -> tuple[tuple[Statement[Any], ...], tuple[Statement[Any], ...]]:
    """Return the statements of a client's own transaction: fence and commit."""
    opening = (transactions.begin(), protocol.assert_fence(claim, idle_seconds=15))
    return opening, (protocol.commit(claim), transactions.commit_transaction())


def checked(claim: Claim) -> tuple[tuple[Statement[Any], ...], tuple[Statement[Any], ...]]:
    """Return the statements of a block with the check of its COMMIT."""
    opened = transactions.open_transaction(claim, completes=True, idle_seconds=15)
    closing = (transactions.close_transaction(claim), transactions.commit_transaction())
    return (transactions.begin(), opened), (transactions.reset_role(), *closing)


def reset(claim: Claim) -> tuple[tuple[Statement[Any], ...], tuple[Statement[Any], ...]]:
    """Return the statements with the check and the reset of the session."""
    (begin, opened), closing = checked(claim)
    reset_statement = transactions.reset_session(
        tuple((name, value.strip("'")) for name, value in HANDLER.items())
    )
    return (begin, reset_statement, opened), closing


VARIANTS = {"fence and commit alone": unchecked, "with the check": checked, "with the reset": reset}


def processor_microseconds(conn: Connection) -> float:
    """Return the processor time that the backend has used."""
    schedule = Path(f"/proc/{conn.info.backend_pid}/schedstat").read_text()
    return int(schedule.split()[0]) / 1000


def measure(url: str, variant: Callable[[Claim], Any], count: int) -> float:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[%s]))",
            [count],
        )
        statement = protocol.claim(
            "bench", ["default"], batch_size=count, lease_seconds=_LEASE_SECONDS, resume_after=None
        )
        claims = run(conn, statement)
        before = processor_microseconds(conn)
        for claim in claims:
            opening, closing = variant(claim)
            run_together(conn, *opening)
            conn.execute("INSERT INTO effects VALUES (%s)", [claim.job_id])
            run_together(conn, *closing)
        return (processor_microseconds(conn) - before) / len(claims)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with embedded.temporary_server(
        settings={"fsync": "off", "synchronous_commit": "off"}
    ) as server:
        migrate(server.url)
        with psycopg.connect(server.url, autocommit=True) as conn:
            conn.execute("CREATE TABLE effects (job uuid)")
        samples: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for _ in range(options.rounds):
            for name, variant in VARIANTS.items():
                samples[name].append(measure(server.url, variant, options.transactions))
    first = statistics.median(next(iter(samples.values())))
    for name, values in samples.items():
        median = statistics.median(values)
        print(
            f"{name:24} {median:7.1f} µs  {median / first:.2f}×  ({min(values):.0f}–{max(values):.0f})"
        )


if __name__ == "__main__":
    main()

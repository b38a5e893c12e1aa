"""Server time of one `job.transaction()` block: the check of its COMMIT, and the reset of its session.

    python -m benchmarks.blocks [--transactions 1000] [--rounds 5]

Three ways to run the same block, in turn and several times over, on a PostgreSQL of its own. The figure is
the processor time of the server's one backend, as the kernel counts it (Linux only): the median over the
rounds, per transaction.
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
    """The fence and the entry, as clients with a transaction of their own use them."""
    opening = (transactions.begin(), protocol.assert_fence(claim, idle_seconds=15))
    return opening, (protocol.commit(claim), transactions.commit_transaction())


def checked(claim: Claim) -> tuple[tuple[Statement[Any], ...], tuple[Statement[Any], ...]]:
    """With the check of the COMMIT."""
    opened = transactions.open_transaction(claim, completes=True, idle_seconds=15)
    closing = (transactions.close_transaction(claim), transactions.commit_transaction())
    return (transactions.begin(), opened), (transactions.reset_role(), *closing)


def reset(claim: Claim) -> tuple[tuple[Statement[Any], ...], tuple[Statement[Any], ...]]:
    """With the check, in a session that another job has used before."""
    (begin, opened), closing = checked(claim)
    undone = transactions.reset_session(
        tuple((name, value.strip("'")) for name, value in HANDLER.items())
    )
    return (begin, undone, opened), closing


WAYS = {"fence and entry alone": unchecked, "with the check": checked, "and the reset": reset}


def processor_microseconds(conn: Connection) -> float:
    """What the backend has used so far."""
    schedule = Path(f"/proc/{conn.info.backend_pid}/schedstat").read_text()
    return int(schedule.split()[0]) / 1000


def measure(url: str, way: Callable[[Claim], Any], count: int) -> float:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[%s]))",
            [count],
        )
        take = protocol.claim(
            "bench", ["default"], batch_size=count, lease_seconds=_LEASE_SECONDS, resume_after=None
        )
        claims = run(conn, take)
        before = processor_microseconds(conn)
        for claim in claims:
            opening, closing = way(claim)
            run_together(conn, *opening)
            conn.execute("INSERT INTO effects VALUES (%s)", [claim.job_id])
            run_together(conn, *closing)
        return (processor_microseconds(conn) - before) / len(claims)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with embedded.temporary_server(
        settings={"fsync": "off", "synchronous_commit": "off"}
    ) as server:
        migrate(server.url)
        with psycopg.connect(server.url, autocommit=True) as conn:
            conn.execute("CREATE TABLE effects (job uuid)")
        samples: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(given.rounds):
            for name, way in WAYS.items():
                samples[name].append(measure(server.url, way, given.transactions))
    first = statistics.median(next(iter(samples.values())))
    for name, taken in samples.items():
        median = statistics.median(taken)
        print(
            f"{name:24} {median:7.1f} µs  {median / first:.2f}×  ({min(taken):.0f}–{max(taken):.0f})"
        )


if __name__ == "__main__":
    main()

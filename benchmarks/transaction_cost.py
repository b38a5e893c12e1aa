"""Measures the server time of one `job.transaction()` block.

    python -m benchmarks.transaction_cost [--transactions 1000] [--rounds 5]

Runs the same block without the check of its COMMIT, with the check, with the reset of the session, and all
of the last in one message, as `job.commit_with` sends it, in turn and repeatedly, on an embedded PostgreSQL.
Two more rows send the opening with the user's first statement, which `job.transaction()` does not do (see
docs/decisions/0040): as one text with the parameters written into it, and by libpq's pipeline mode.
The result is the processor time of the backend per transaction, as Linux counts it, and the time that passes
for the client: medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg

from faultline import embedded
from faultline.model import Claim
from faultline.postgres.migrate import migrate
from faultline.postgres.one_message import Write, send
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


_WRITE: LiteralString = "INSERT INTO effects VALUES (%s)"
Statements = tuple[Statement[Any], ...]
Send = Callable[[Connection, Statements, Claim, Statements], None]


def in_three_messages(
    conn: Connection, opening: Statements, claim: Claim, closing: Statements
) -> None:
    """Send the opening, the write and the closing, as a block does."""
    run_together(conn, *opening)
    conn.execute(_WRITE, [claim.job_id])
    run_together(conn, *closing)


def in_two_messages(
    conn: Connection, opening: Statements, claim: Claim, closing: Statements
) -> None:
    """Send the opening and the write as one text."""
    send(conn, opening, [Write(_WRITE, [claim.job_id])], ())
    run_together(conn, *closing)


def in_a_pipeline(conn: Connection, opening: Statements, claim: Claim, closing: Statements) -> None:
    """Send the opening and the write in one pipeline."""
    with conn.pipeline():
        for statement in opening:
            conn.execute(statement.sql, statement.params)
        conn.execute(_WRITE, [claim.job_id])
    run_together(conn, *closing)


def in_one_message(
    conn: Connection, opening: Statements, claim: Claim, closing: Statements
) -> None:
    """Send everything as one text."""
    send(conn, opening, [Write(_WRITE, [claim.job_id])], closing)


class Variant(NamedTuple):
    """The statements of a block, and how they are sent."""

    statements: Callable[[Claim], tuple[Statements, Statements]]
    send: Send = in_three_messages


VARIANTS = {
    "fence and commit alone": Variant(unchecked),
    "with the check": Variant(checked),
    "with the reset": Variant(reset),
    "fence with the first": Variant(reset, in_two_messages),
    "the same, in a pipeline": Variant(reset, in_a_pipeline),
    "in one message": Variant(reset, in_one_message),
}


class Cost(NamedTuple):
    """What one transaction cost, in microseconds."""

    processor: float
    elapsed: float


def processor_microseconds(conn: Connection) -> float:
    """Return the processor time that the backend has used."""
    schedule = Path(f"/proc/{conn.info.backend_pid}/schedstat").read_text()
    return int(schedule.split()[0]) / 1000


def measure(url: str, variant: Variant, count: int) -> Cost:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{}'::jsonb, ARRAY[%s]))",
            [count],
        )
        statement = protocol.claim(
            "bench", ["default"], batch_size=count, lease_seconds=_LEASE_SECONDS, resume_after=None
        )
        claims = run(conn, statement)
        before, began = processor_microseconds(conn), time.perf_counter()
        for claim in claims:
            opening, closing = variant.statements(claim)
            variant.send(conn, opening, claim, closing)
        elapsed = (time.perf_counter() - began) * 1e6
        return Cost((processor_microseconds(conn) - before) / len(claims), elapsed / len(claims))


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
        samples: dict[str, list[Cost]] = {name: [] for name in VARIANTS}
        for _ in range(options.rounds):
            for name, variant in VARIANTS.items():
                samples[name].append(measure(server.url, variant, options.transactions))
    first = Cost(
        *(statistics.median(each) for each in zip(*samples["with the reset"], strict=True))
    )
    print(f"{'':24} {'processor time':>22} {'elapsed':>22}")
    for name, values in samples.items():
        median = Cost(*(statistics.median(each) for each in zip(*values, strict=True)))
        print(
            f"{name:24} {median.processor:12.1f} µs {median.processor / first.processor:5.2f}×"
            f" {median.elapsed:13.1f} µs {median.elapsed / first.elapsed:5.2f}×"
        )


if __name__ == "__main__":
    main()

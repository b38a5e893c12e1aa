"""Measures claims before a million jobs under limits, waiting and due ones.

The tables are filled by inserts with triggers disabled. Beside the time of a claim, the pages that it touches
are counted by the server: other load on the machine does not change them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from benchmarks.servers import vacuum_and_checkpoint
from faultline.postgres.sessions import run
from faultline.statements import limits, protocol

Connection = psycopg.Connection[Any]
Claim = Callable[[Connection], object]
Insert = Callable[..., None]

KEYED = "key:line"
FEW = 10_000
_CLAIMS = 50  # of a round
_NOT_REACHED = 1_000_000

_WAITING: LiteralString = """
    WITH job AS (
        INSERT INTO faultline.jobs (task, payload, limited, next_run_at)
        SELECT 'line', jsonb_build_object('n', n %% %(keys)s), true,
               now() - interval '1 hour' + n * interval '1 microsecond' + faultline.parked_for()
        FROM generate_series(1, %(count)s) AS n
        RETURNING id, queue, priority, payload, next_run_at)
    INSERT INTO faultline.waiting_jobs (job_id, limit_key, queue, priority, due_at)
    SELECT id, %(name)s || '=' || (payload ->> 'n'), queue, priority, next_run_at - faultline.parked_for()
    FROM job
"""
_DUE: LiteralString = """
    INSERT INTO faultline.jobs (task, payload, next_run_at)
    SELECT 'line', '{}', now() - interval '1 hour' + n * interval '1 microsecond'
    FROM generate_series(1, %(count)s) AS n
"""
_PAGES: LiteralString = """
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM faultline.claim('bench', '{default}', 1, '1 hour')
"""


@dataclass(frozen=True)
class InTurn:
    """A claim in one database, and the same in another one, measured in turn."""

    ratio: float
    low: float
    high: float
    milliseconds: float  # in the first database
    pages: tuple[float, float]

    def __str__(self) -> str:
        return (
            f"{self.ratio:.2f}× ({self.low:.2f}–{self.high:.2f}) of {self.milliseconds:.2f} ms;"
            f" {self.pages[0]:.0f} → {self.pages[1]:.0f} pages"
        )


def in_turn(
    first: Connection, second: Connection, claim: Claim, insert: Insert | None, *, rounds: int
) -> InTurn:
    """Claim in both databases; `insert` first adds the jobs that are claimed."""
    ratios, base = [], []
    pages: dict[Connection, list[int]] = {first: [], second: []}
    for _ in range(rounds):
        times = {}
        for conn in (first, second):
            if insert is not None:
                insert(conn, "mail", _CLAIMS + 1, priority=0)
            spent = []
            for _ in range(_CLAIMS):
                began = time.perf_counter()
                claim(conn)
                spent.append(time.perf_counter() - began)
            times[conn] = statistics.median(spent)
            pages[conn].append(_pages(conn))
        ratios.append(times[second] / times[first])
        base.append(times[first] * 1000)
    found = (statistics.median(pages[first]), statistics.median(pages[second]))
    return InTurn(
        statistics.median(ratios), min(ratios), max(ratios), statistics.median(base), found
    )


def wait_in_lines(conn: Connection, count: int, *, keys: int, claim: Claim, insert: Insert) -> None:
    """Of each key one job runs, which is all that may; the others wait."""
    limit_each_key(conn)
    conn.execute(
        "INSERT INTO faultline.jobs (task, payload)"
        " SELECT 'line', jsonb_build_object('n', n) FROM generate_series(0, %s) AS n",
        [keys - 1],
    )
    while conn.execute("SELECT count(*) < %s FROM faultline.places", [keys]).fetchone() == (True,):
        claim(conn)
    fill(conn, _WAITING, {"count": count, "keys": keys, "name": KEYED})


def limit_each_key(conn: Connection) -> None:
    run(conn, limits.set_limit(KEYED, max_running=1, task="line", argument="n"))


def due_under_a_limit(conn: Connection, count: int) -> None:
    """Due jobs of a task whose limit is never reached."""
    run(conn, limits.set_limit("task:line", max_running=_NOT_REACHED))
    fill(conn, _DUE, {"count": count})


def fill(conn: Connection, statement: LiteralString, values: dict[str, Any]) -> None:
    conn.execute("SET session_replication_role = replica")
    conn.execute(statement, values)
    conn.execute("RESET session_replication_role")
    vacuum_and_checkpoint(conn)


def claim_jobs(size: int) -> Claim:
    def claim(conn: Connection) -> object:
        return run(
            conn, protocol.claim("bench", ["default"], batch_size=size, lease_seconds=3600.0)
        )

    return claim


def _pages(conn: Connection) -> int:
    [(plan,)] = conn.execute(_PAGES).fetchall()
    root = plan[0]["Plan"]
    return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])


def before_many(
    databases: Callable[[str], Any], insert: Insert, many: int, *, rounds: int
) -> Iterator[tuple[str, InTurn]]:
    """Claims flat, whatever the limits: what is measured, and the figures."""
    one, batch = claim_jobs(1), claim_jobs(1000)
    for keys in (1, FEW):
        with databases("none") as none, databases("lines") as lines:
            limit_each_key(none)
            wait_in_lines(lines, many, keys=keys, claim=batch, insert=insert)
            name = "one full key" if keys == 1 else f"{keys:,} full keys"
            yield (
                f"a claim of another job beside {many:,} waiting jobs of {name}",
                in_turn(none, lines, one, insert, rounds=rounds),
            )
    with databases("few") as few, databases("many") as much:
        due_under_a_limit(few, FEW)
        due_under_a_limit(much, many)
        yield (
            f"a claim of a job under a limit, of {many:,} due ones instead of {FEW:,}",
            in_turn(few, much, one, None, rounds=rounds),
        )

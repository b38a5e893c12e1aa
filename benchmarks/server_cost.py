"""Measures the server's work for a job, against the source at a recorded commit.

    python -m benchmarks.server_cost [--before COMMIT] [--rounds 9] [--jobs 3000] [--batch 100]
                                     [--markdown FILE]

Each source has a database of its own on one embedded PostgreSQL, migrated by that source. One connection
calls the same functions on both, in alternating order: claim, commit_many, a heartbeat, and the transaction
of one job and of a batch. The result is the processor time of the backend, as Linux counts it, and its WAL,
per job. Other load on the machine lengthens elapsed time and hardly changes these. Ratios are made within a
round: below 1, the newer source is cheaper.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg
from rich.progress import track

from benchmarks.before_after import REPOSITORY, SIDES, source_at
from benchmarks.measurement import measurement
from benchmarks.servers import database_of, postgres_server
from benchmarks.table_file import write_table
from benchmarks.transaction_cost import processor_microseconds
from faultline_drills.provenance import commit_of

# The last commit before the work of a claim, a commit and a renewal was reduced.
BEFORE = "408c5b7"
_MIGRATE = "import sys; from faultline.postgres.migrate import migrate; migrate(sys.argv[1])"

_ENQUEUE: LiteralString = (
    "SELECT count(*) FROM faultline.enqueue_many('t', array_fill('{\"n\": 1}'::jsonb, ARRAY[%s]))"
)
_CLAIM: LiteralString = (
    "SELECT * FROM faultline.claim('bench', batch_size => %s, lease => '1 hour', past => NULL)"
)
_COMMIT_MANY: LiteralString = "SELECT * FROM faultline.commit_many(%s, %s::bigint[], %s)"
_HEARTBEAT: LiteralString = (
    "SELECT * FROM faultline.heartbeat('bench', %s, %s::bigint[], %s, lease => '1 hour')"
)
_OPEN: LiteralString = "SELECT faultline.open_transaction(%s, %s, %s, true, '15 s')"
_CLOSE: LiteralString = "SELECT faultline.close_transaction(%s, %s, %s)"
_OPEN_BATCH: LiteralString = "SELECT faultline.open_batch(%s, %s::bigint[], %s, true, '15 s')"
_CLOSE_BATCH: LiteralString = "SELECT faultline.close_batch(%s, %s::bigint[], %s)"
_HAS_BATCHES: LiteralString = (
    "SELECT count(*) > 0 FROM pg_proc"
    " WHERE pronamespace = 'faultline'::regnamespace AND proname = 'open_batch'"
)

OPERATIONS = (
    "claim",
    "commit_many",
    "claim of one job",
    "transaction of one job",
    "transaction of a batch",
    "renewal",
)

Lease = tuple[Any, int, Any]


class Cost(NamedTuple):
    microseconds: float
    wal_bytes: float
    hot_share: float


class Side:
    """The database of one source, and the connection whose work is measured."""

    def __init__(self, url: str, source: Path) -> None:
        subprocess.run(
            [sys.executable, "-c", _MIGRATE, url], env={"PYTHONPATH": str(source)}, check=True
        )
        self.conn = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self.meter = psycopg.connect(url, autocommit=True)
        self.costs: dict[str, list[Cost]] = defaultdict(list)
        [(self.has_batches,)] = self.meter.execute(_HAS_BATCHES).fetchall()

    def _numbers(self) -> tuple[float, float, float]:
        """Return the WAL so far, and the updates of jobs: HOT ones, and all."""
        self.conn.execute("SELECT pg_stat_force_next_flush()")
        [row] = self.meter.execute(
            "SELECT pg_current_wal_insert_lsn() - '0/0', n_tup_hot_upd, n_tup_upd"
            " FROM pg_stat_user_tables WHERE relid = 'faultline.jobs'::regclass"
        ).fetchall()
        return float(row[0]), float(row[1]), float(row[2])

    @contextlib.contextmanager
    def measured(self, operation: str, jobs: int) -> Iterator[None]:
        """Measure the block's work on `conn` and note it per job."""
        wal, hot, updates = self._numbers()
        used = processor_microseconds(self.conn)
        yield
        used = processor_microseconds(self.conn) - used
        wal_after, hot_after, updates_after = self._numbers()
        share = (hot_after - hot) / max(updates_after - updates, 1)
        self.costs[operation].append(Cost(used / jobs, (wal_after - wal) / jobs, share))

    def prepare(self, jobs: int) -> None:
        """Enqueue jobs, and let no vacuum or checkpoint fall into the measurement."""
        self.conn.execute(_ENQUEUE, [jobs])
        self.meter.execute("VACUUM (ANALYZE) faultline.jobs")
        self.meter.execute("VACUUM (ANALYZE) faultline.ledger")
        self.meter.execute("CHECKPOINT")

    def claim(self, batch: int, count: int = 1) -> list[list[Lease]]:
        claimed = [self.conn.execute(_CLAIM, [batch]).fetchall() for _ in range(count)]
        return [[(row[0], row[1], row[2]) for row in each] for each in claimed]

    def drain(self, jobs: int, batch: int) -> None:
        self.prepare(jobs)
        with self.measured("claim", jobs):
            batches = self.claim(batch, jobs // batch)
        with self.measured("commit_many", jobs):
            for leases in batches:
                self.conn.execute(_COMMIT_MANY, _columns(leases))

    def renew(self, jobs: int) -> None:
        self.prepare(jobs)
        [leases] = self.claim(jobs)
        self.conn.execute(_HEARTBEAT, _columns(leases))  # the first change logs whole pages
        with self.measured("renewal", jobs):
            self.conn.execute(_HEARTBEAT, _columns(leases))
        self.conn.execute(_COMMIT_MANY, _columns(leases))

    def transact(self, jobs: int, batch: int) -> None:
        self.prepare(jobs + batch)
        with self.measured("claim of one job", jobs):
            leases = [each for [each] in self.claim(1, jobs)]
        with self.measured("transaction of one job", jobs):
            for lease in leases:
                self.conn.execute("BEGIN")
                self.conn.execute(_OPEN, lease)
                self.conn.execute(_CLOSE, lease)
                self.conn.execute("COMMIT")
        [leases] = self.claim(batch)
        if not self.has_batches:
            self.conn.execute(_COMMIT_MANY, _columns(leases))
            return
        with self.measured("transaction of a batch", batch):
            self.conn.execute("BEGIN")
            self.conn.execute(_OPEN_BATCH, _columns(leases))
            self.conn.execute(_CLOSE_BATCH, _columns(leases))
            self.conn.execute("COMMIT")

    def turn(self, jobs: int, batch: int) -> None:
        self.drain(jobs, batch)
        self.transact(max(batch, jobs // 10), batch)
        self.renew(jobs)


def _columns(leases: Sequence[Lease]) -> list[list[Any]]:
    return [list(column) for column in zip(*leases, strict=True)]


def _row(operation: str, before: Sequence[Cost], after: Sequence[Cost]) -> str:
    ratio = measurement(
        [b.microseconds / a.microseconds for a, b in zip(before, after, strict=True)]
    )
    old, new = (_median(costs) for costs in (before, after))
    return (
        f"| {operation} | {old.microseconds:.1f} µs | {new.microseconds:.1f} µs"
        f" | {ratio.median:.2f}× ({ratio.low:.2f}–{ratio.high:.2f})"
        f" | {old.wal_bytes:.0f} B | {new.wal_bytes:.0f} B"
        f" | {old.hot_share:.0%} | {new.hot_share:.0%} |"
    )


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def measure(url_server: Any, before: str, *, rounds: int, jobs: int, batch: int) -> list[str]:
    """Run all rounds; return the table."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faultline-before-")))
        sources = {"before": source_at(before, folder), "after": REPOSITORY / "src"}
        sides = {
            name: Side(stack.enter_context(database_of(url_server, name)), source)
            for name, source in sources.items()
        }
        for side in sides.values():
            stack.callback(side.meter.close)
            stack.callback(side.conn.close)
            side.turn(10 * batch, batch)
            side.costs.clear()
        for number in track(range(rounds), description="before and after in turn"):
            for name in SIDES if number % 2 == 0 else reversed(SIDES):
                sides[name].turn(jobs, batch)
        costs = [sides[name].costs for name in SIDES]
    return [
        "| per job | before | after | ratio | WAL before | after | HOT before | after |",
        *(_row(each, *(cost[each] for cost in costs)) for each in OPERATIONS if costs[0][each]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=3000, help="jobs of a turn")
    parser.add_argument("--batch", type=int, default=100, help="jobs of a claim and of a commit")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    with postgres_server(None) as server:
        with psycopg.connect(server.url, autocommit=True) as conn:
            conn.execute("ALTER SYSTEM SET autovacuum = off")
            conn.execute("SELECT pg_reload_conf()")
        lines = measure(
            server, options.before, rounds=options.rounds, jobs=options.jobs, batch=options.batch
        )
    print("\n".join(lines))
    if options.markdown is not None:
        after = commit_of(REPOSITORY / "src" / "faultline") or "unknown"
        origin = (
            f"PostgreSQL {server.version}; before: commit {options.before[:12]}; after: commit {after};"
            f" {options.rounds} rounds of {options.jobs} jobs, claimed and committed {options.batch} at"
            " once; medians, and of the ratios the range."
        )
        write_table(options.markdown, "The server's work for a job", lines, origin)


if __name__ == "__main__":
    main()

"""Measures what a job needs: processor time, WAL, disk, connections.

    python -m benchmarks.sizing [--jobs 20000] [--rounds 3] [--payload 200] [--markdown FILE]

One worker process on an embedded PostgreSQL runs each kind of job in turn, in several rounds. Processor time
is what Linux counts for PostgreSQL and for the worker while jobs are drained. WAL is the distance between two
of its positions, and disk the size of the tables with their indexes after VACUUM.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from rich.progress import track

from benchmarks.completion import wait_until_finished
from benchmarks.peer import FAULTLINE, PEERS, load_peer
from benchmarks.processes import Deadline, Program, RoleProcess, call
from benchmarks.processor_time import of_process, of_server
from benchmarks.servers import PostgresServer, database_of, postgres_server, vacuum_and_checkpoint
from benchmarks.sizing_page import CONCURRENCY, KINDS, Cost, Disk, Findings, Kind, as_markdown
from benchmarks.workloads import BULK
from faultline import embedded
from faultline_drills.provenance import provenance

_WAVES = 5
_PHASE_SECONDS = 300.0
_POLL_SECONDS = 0.05
_IDLE_SECONDS = 3.0  # until a worker that has started has all of its own connections
Connection = psycopg.Connection[Any]

_PAUSE: LiteralString = "SELECT faultline.pause_queue('default')"
_RESUME: LiteralString = "SELECT faultline.resume_queue('default')"
_FINISHED: LiteralString = "SELECT count(*) FROM faultline.ledger"
_REGISTERED: LiteralString = "SELECT count(*) FROM faultline.workers"
_WAL: LiteralString = "SELECT pg_current_wal_insert_lsn() - '0/0'"
_SESSIONS: LiteralString = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
      AND pid <> pg_backend_pid()
"""
_JOBS_SIZE: LiteralString = "SELECT pg_total_relation_size('faultline.jobs')"
_LEDGER_SIZE: LiteralString = "SELECT pg_total_relation_size('faultline.ledger')"


@dataclass(frozen=True)
class Target:
    """A new database with Faultline, for one kind of jobs."""

    url: str
    program: Program
    conn: Connection
    kind: Kind
    payload_bytes: int

    def value(self, query: LiteralString) -> float:
        [(found,)] = self.conn.execute(query).fetchall()
        return float(found)

    def enqueue(self, jobs: int) -> None:
        role = ["enqueue", "--task", self.kind.task, "--jobs", str(jobs), "--batch", str(BULK)]
        role += ["--payload", str(self.payload_bytes)]
        call(self.program, role, self.url, Deadline(_PHASE_SECONDS))

    @contextlib.contextmanager
    def worker(self) -> Iterator[RoleProcess]:
        """Run a worker, once it is registered and idle."""
        role = ["work", "--concurrency", str(CONCURRENCY)]
        with RoleProcess(self.program, role, self.url) as process:
            deadline = Deadline(_PHASE_SECONDS)
            while not self.value(_REGISTERED):
                process.require_alive()
                if not deadline.left:
                    raise SystemExit("the worker did not start")
                time.sleep(_POLL_SECONDS)
            time.sleep(_IDLE_SECONDS)
            yield process

    def finish(self, worker: RoleProcess, jobs: int) -> None:
        """Wait until so many jobs are in the ledger."""
        wait_until_finished(
            lambda: int(self.value(_FINISHED)),
            jobs,
            began_ns=time.monotonic_ns(),
            deadline=Deadline(_PHASE_SECONDS),
            check=worker.require_alive,
        )


@contextlib.contextmanager
def target(server: PostgresServer, kind: Kind, payload_bytes: int) -> Iterator[Target]:
    peer = load_peer(PEERS / FAULTLINE)
    program = Program((sys.executable, str(peer.program)), {"BENCH_WORKLOAD": kind.workload})
    with database_of(server, "sizing") as url, psycopg.connect(url, autocommit=True) as conn:
        call(program, ["prepare"], url, Deadline(_PHASE_SECONDS))
        yield Target(url, program, conn, kind, payload_bytes)


def measure_kind(server: PostgresServer, kind: Kind, jobs: int, payload_bytes: int) -> Cost:
    """Measure enqueueing and draining after a warm-up, with the queue paused between."""
    with target(server, kind, payload_bytes) as at, at.worker() as worker:
        idle = at.value(_SESSIONS)
        warm_up = max(100, jobs // 10)
        at.enqueue(warm_up)
        at.finish(worker, warm_up)
        at.conn.execute(_PAUSE)
        enqueueing = _spent(at, worker, lambda: at.enqueue(jobs))
        vacuum_and_checkpoint(at.conn)

        def drain() -> None:
            at.conn.execute(_RESUME)
            at.finish(worker, warm_up + jobs)

        draining = _spent(at, worker, drain)
        sessions = at.value(_SESSIONS)
    return Cost(
        server_us=draining[0] * 1e6 / jobs,
        worker_us=draining[1] * 1e6 / jobs,
        wal_bytes=draining[2] / jobs,
        enqueue_us=enqueueing[0] * 1e6 / jobs,
        enqueue_wal_bytes=enqueueing[2] / jobs,
        idle_connections=idle,
        connections=sessions,
    )


def _spent(at: Target, worker: RoleProcess, act: Callable[[], None]) -> tuple[float, float, float]:
    """Return the seconds of PostgreSQL and of the worker, and the bytes of WAL."""

    def numbers() -> tuple[float, float, float]:
        return of_server(at.conn), of_process(worker.process.pid), at.value(_WAL)

    before = numbers()
    act()
    server, seconds, wal = (b - a for a, b in zip(before, numbers(), strict=True))
    return server, seconds, wal


def measure_disk(server: PostgresServer, jobs: int, payload_bytes: int) -> Disk:
    """Fill a database with waiting jobs, and another one with finished jobs."""
    count = _WAVES * jobs
    with target(server, KINDS[0], payload_bytes) as at:
        empty, _ = _sizes(at)
        at.enqueue(count)
        waiting, _ = _sizes(at)
    with target(server, KINDS[0], payload_bytes) as at, at.worker() as worker:
        for wave in range(1, _WAVES + 1):
            at.enqueue(jobs)
            at.finish(worker, wave * jobs)
            at.conn.execute("VACUUM")
        finished, ledger = _sizes(at)
    return Disk((waiting - empty) / count, (finished - empty) / count, ledger / count)


def _sizes(at: Target) -> tuple[float, float]:
    at.conn.execute("VACUUM")
    return at.value(_JOBS_SIZE), at.value(_LEDGER_SIZE)


def measure(jobs: int, rounds: int, payload_bytes: int) -> Findings:
    costs: dict[str, list[Cost]] = {kind.workload: [] for kind in KINDS}
    without_pages: dict[str, Cost] = {}
    with postgres_server(None) as server:
        for kind in track(list(KINDS) * rounds, description="processor time"):
            count = round(jobs * kind.share)
            costs[kind.workload].append(measure_kind(server, kind, count, payload_bytes))
        disk = measure_disk(server, jobs, payload_bytes)
        version = server.version
    # How many whole pages are in the WAL depends on the time between checkpoints.
    settings = {"full_page_writes": "off", "max_connections": "200"}
    with (
        embedded.temporary_server(settings=settings) as other,
        postgres_server(other.url) as server,
    ):
        for kind in track(list(KINDS), description="WAL"):
            count = round(jobs * kind.share)
            without_pages[kind.workload] = measure_kind(server, kind, count, payload_bytes)
    return Findings(costs, without_pages, disk, version)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000, help="no-op jobs of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--payload", type=int, default=200, help="bytes of payload per job")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    findings = measure(options.jobs, options.rounds, options.payload)
    command = shlex.join(["python", "-m", "benchmarks.sizing", *sys.argv[1:]])
    origin = provenance(command, seed=0, postgres=findings.postgres)
    page = as_markdown(findings, command, origin.commit or "unknown", options.payload)
    print(page)
    if options.markdown is not None:
        options.markdown.write_text(page)


if __name__ == "__main__":
    main()

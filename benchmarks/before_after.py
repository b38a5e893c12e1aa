"""Measures what newer features cost the jobs that use none of them.

    python -m benchmarks.before_after [--before COMMIT] [--rounds 6] [--jobs 30000] [--markdown FILE]

"Before" is Faultline's source at a recorded commit, taken from git into a temporary folder; "after" is this
checkout. Each side has a database of its own on one embedded PostgreSQL, and one worker that stays idle
between its turns. In every round both sides enqueue and drain the same jobs by the same program,
peers/faultline, in alternating order. Ratios are made within a round: above 1, the newer source is slower.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from rich.progress import track

from benchmarks.completion import wait_until_finished
from benchmarks.measurement import measurement
from benchmarks.peer import FAULTLINE, PEERS
from benchmarks.processes import Deadline, Program, RoleProcess, call
from benchmarks.processor_time import of_process, of_server
from benchmarks.servers import PostgresServer, database_of, postgres_server, vacuum_and_checkpoint
from benchmarks.table_file import write_table
from benchmarks.workloads import BULK
from faultline_drills.provenance import commit_of

REPOSITORY = Path(__file__).parents[1]
# The last commit before schedules, limits, unique jobs, retry control, progress and slots of queues.
BEFORE = "bc1c49e8e16283f8db919a5c3ac4a37b7da55629"
SIDES = ("before", "after")
WORKLOADS = ("bulk_enqueue", "drain", "write_each")
_CONCURRENCY = 20
_WRITES = 0.05  # jobs that write, as a share of the no-op jobs
_WARM_UP_JOBS = 500
_PHASE_SECONDS = 120.0

_PAUSE: LiteralString = "SELECT faultline.pause_queue('default')"
_RESUME: LiteralString = "SELECT clock_timestamp(), faultline.resume_queue('default')"
_FINISHED: LiteralString = "SELECT count(*) FROM faultline.ledger WHERE committed_at > %s"
_SECONDS: LiteralString = (
    "SELECT extract(epoch FROM max(committed_at) - %s)::float8 FROM faultline.ledger"
)


@dataclass(frozen=True)
class Sample:
    """Seconds per job."""

    seconds: float
    server: float  # processor time of PostgreSQL
    worker: float = 0.0  # processor time of the worker, while it drains


@dataclass
class Side:
    """One source of Faultline with its database and its worker."""

    program: Program
    url: str
    conn: psycopg.Connection[Any]
    worker: RoleProcess

    def enqueue(self, task: str, jobs: int) -> Sample:
        """Enqueue while the queue is paused; the calls alone are timed."""
        self.conn.execute(_PAUSE)
        vacuum_and_checkpoint(self.conn)
        role = ["enqueue", "--task", task, "--jobs", str(jobs), "--batch", str(BULK)]
        used = of_server(self.conn)
        printed = call(self.program, role, self.url, Deadline(_PHASE_SECONDS))
        used = of_server(self.conn) - used
        vacuum_and_checkpoint(self.conn)
        return Sample(float(printed["seconds"]) / jobs, used / jobs)

    def drain(self, jobs: int) -> Sample:
        """Resume the queue; measure until the last ledger entry, by the database's clock."""
        server, worker = self._processor_seconds()
        [(began, _)] = self.conn.execute(_RESUME).fetchall()

        def count() -> int:
            [(done,)] = self.conn.execute(_FINISHED, [began]).fetchall()
            return int(done)

        deadline = Deadline(_PHASE_SECONDS)
        began_ns = time.monotonic_ns()
        wait_until_finished(
            count, jobs, began_ns=began_ns, deadline=deadline, check=self.worker.require_alive
        )
        server_now, worker_now = self._processor_seconds()
        [(seconds,)] = self.conn.execute(_SECONDS, [began]).fetchall()
        return Sample(seconds / jobs, (server_now - server) / jobs, (worker_now - worker) / jobs)

    def _processor_seconds(self) -> tuple[float, float]:
        return of_server(self.conn), of_process(self.worker.process.pid)


def source_at(commit: str, folder: Path) -> Path:
    """Unpack the package as it was at a commit; return the folder to import it from."""
    command = ["git", "-C", str(REPOSITORY), "archive", commit, "src/faultline"]
    archived = subprocess.run(command, capture_output=True, check=False)
    if archived.returncode != 0:
        raise SystemExit(f"git has no commit {commit}: {archived.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def program_of(source: Path) -> Program:
    """Faultline's peer program, with the package imported from this source."""
    environment = {"PYTHONPATH": str(source)}
    program = Program((sys.executable, str(PEERS / FAULTLINE / "peer.py")), environment)
    look = [sys.executable, "-c", "import faultline; print(faultline.__file__)"]
    found = subprocess.run(look, env=environment, capture_output=True, text=True, check=True)
    if not Path(found.stdout.strip()).is_relative_to(source):
        raise SystemExit(f"{found.stdout.strip()} was imported, not {source}")
    return program


@contextlib.contextmanager
def open_side(server: PostgresServer, name: str, source: Path) -> Iterator[Side]:
    program = program_of(source)
    with database_of(server, name) as url, psycopg.connect(url, autocommit=True) as conn:
        call(program, ["prepare"], url, Deadline(_PHASE_SECONDS))
        role = ["work", "--concurrency", str(_CONCURRENCY)]
        with RoleProcess(program, role, url) as worker:
            yield Side(program, url, conn, worker)


def turn(side: Side, jobs: int) -> dict[str, Sample]:
    """Enqueue and drain no-op jobs, then jobs with one write each."""
    enqueued = side.enqueue("noop", jobs)
    drained = side.drain(jobs)
    writes = max(1, round(jobs * _WRITES))
    side.enqueue("write", writes)
    return {"bulk_enqueue": enqueued, "drain": drained, "write_each": side.drain(writes)}


def measure(server: PostgresServer, before: str, *, rounds: int, jobs: int) -> list[str]:
    """Run all rounds; return the table."""
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faultline-before-")))
        sources = {"before": source_at(before, folder), "after": REPOSITORY / "src"}
        sides = {
            name: stack.enter_context(open_side(server, name, source))
            for name, source in sources.items()
        }
        for side in sides.values():
            turn(side, min(jobs, _WARM_UP_JOBS))
        for number in track(range(rounds), description="before and after in turn"):
            for name in SIDES if number % 2 == 0 else reversed(SIDES):
                for workload, sample in turn(sides[name], jobs).items():
                    samples[name, workload].append(sample)
    return [
        "| workload | time per job | PostgreSQL's processor time | the worker's processor time |",
        *(_row(each, samples["before", each], samples["after", each]) for each in WORKLOADS),
    ]


def _row(workload: str, before: Sequence[Sample], after: Sequence[Sample]) -> str:
    cells = []
    for of in (attrgetter("seconds"), attrgetter("server"), attrgetter("worker")):
        old, new = [of(sample) for sample in before], [of(sample) for sample in after]
        if not any(old):
            cells.append("–")
            continue
        ratio = measurement([b / a for a, b in zip(old, new, strict=True)])
        cells.append(
            f"{ratio.median:.2f}× ({ratio.low:.2f}–{ratio.high:.2f})"
            f" of {statistics.median(old) * 1e6:,.0f} µs"
        )
    return f"| {workload} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=30_000, help="no-op jobs of a turn")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    with postgres_server(None) as server:
        lines = measure(server, options.before, rounds=options.rounds, jobs=options.jobs)
    print("\n".join(lines))
    if options.markdown is not None:
        after = commit_of(REPOSITORY / "src" / "faultline") or "unknown"
        origin = (
            f"before: commit {options.before[:12]}; after: commit {after}; {options.rounds} rounds"
        )
        write_table(options.markdown, "Before and after", lines, origin)


if __name__ == "__main__":
    main()

"""What jobs need per job, as a Markdown page. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from benchmarks.measurement import measurement, number
from benchmarks.tables import table

CONCURRENCY = 20
_MILLION, _MEGABYTE, _GIGABYTE = 1_000_000, 1e6, 1e9


@dataclass(frozen=True)
class Kind:
    """A kind of job, by the workload and the task of the peer program."""

    workload: str
    task: str
    title: str
    share: float  # of the no-op jobs


KINDS = (
    Kind("drain", "noop", "no-op", 1.0),
    Kind("write_each", "write", "one INSERT, `job.transaction()`", 0.25),
    Kind("write_message", "write", "one INSERT, `job.commit_with`", 0.25),
    Kind("drain_batch", "noop", "no-op, in batches of up to 100", 1.0),
    Kind("write_batch", "write", "one INSERT, in batches of up to 100", 1.0),
)


@dataclass(frozen=True)
class Cost:
    """What one job of a kind needs."""

    server_us: float  # PostgreSQL's processor time, from the claim to the commit
    worker_us: float
    wal_bytes: float  # from the claim to the commit, with the row that the handler inserts
    enqueue_us: float  # PostgreSQL's processor time, 1,000 jobs in a call
    enqueue_wal_bytes: float
    idle_connections: float  # of the worker before its first job
    connections: float  # after many

    @property
    def total_us(self) -> float:
        return self.server_us + self.worker_us + self.enqueue_us


@dataclass(frozen=True)
class Disk:
    """Bytes per job, tables with their indexes after VACUUM."""

    waiting: float  # in the table of jobs
    finished: float  # in the table of jobs
    ledger: float


@dataclass(frozen=True)
class Findings:
    costs: Mapping[str, Sequence[Cost]]  # by workload, one for each round
    without_pages: Mapping[str, Cost]  # on a server that writes no whole pages to the WAL
    disk: Disk
    postgres: str


_INTRODUCTION = (
    "Jobs have {payload} bytes of payload. They are enqueued 1,000 at a time, and one worker process with"
    " {slots} slots drains them. Figures are medians over rounds, with the lowest and the highest."
)
_ABOUT_CORES = (
    "Jobs per second of a core that does nothing else: for PostgreSQL alone without enqueueing, for workers"
    " alone, and for PostgreSQL, enqueueing and workers together."
)
_ABOUT_PAGES = (
    "The first three columns are with `full_page_writes = off`: what every job writes. The last one is at the"
    " default settings, right after a checkpoint. Then the first change of each page logs the whole page, so"
    " this is the most."
)


def as_markdown(found: Findings, command: str, commit: str, payload_bytes: int) -> str:
    parts = [
        "# What a job needs",
        f"made by: `{command}`, commit {commit}, PostgreSQL {found.postgres}, two cores",
        _INTRODUCTION.format(payload=payload_bytes, slots=CONCURRENCY),
        *("## Processor time", _processor_time(found), _ABOUT_CORES),
        *("## WAL", _wal(found), _ABOUT_PAGES),
        *("## Disk", _disk(found.disk)),
        *("## Connections of a worker process", _connections(found)),
    ]
    return "\n\n".join(parts) + "\n"


def _processor_time(found: Findings) -> str:
    head = [
        "job",
        "PostgreSQL, µs",
        "worker, µs",
        "enqueueing, µs",
        "jobs/s per core of PostgreSQL",
    ]
    rows = []
    for kind in KINDS:
        costs = found.costs[kind.workload]
        rows.append(
            [
                kind.title,
                *(_span(costs, attrgetter(f)) for f in ("server_us", "worker_us", "enqueue_us")),
                *(
                    _per_second(costs, attrgetter(f))
                    for f in ("server_us", "worker_us", "total_us")
                ),
            ]
        )
    return table([*head, "of workers", "all"], rows)


def _wal(found: Findings) -> str:
    head = ["job", "enqueued", "claim to commit", "per million jobs", "after a checkpoint"]
    rows = []
    for kind in KINDS:
        cost = found.without_pages[kind.workload]
        both = cost.enqueue_wal_bytes + cost.wal_bytes
        with_pages = statistics.median(
            each.enqueue_wal_bytes + each.wal_bytes for each in found.costs[kind.workload]
        )
        rows.append(
            [
                kind.title,
                f"{cost.enqueue_wal_bytes:,.0f} bytes",
                f"{cost.wal_bytes:,.0f} bytes",
                _gigabytes(both),
                _gigabytes(with_pages),
            ]
        )
    return table(head, rows)


def _disk(disk: Disk) -> str:
    rows = [
        ("waiting jobs", disk.waiting),
        ("finished jobs, until they are purged", disk.finished),
        ("their ledger entries, until they are purged", disk.ledger),
    ]
    head = ["rows with their indexes", "per job", "per million"]
    return table(
        head,
        [
            [title, f"{size:,.0f} bytes", f"{size * _MILLION / _MEGABYTE:,.0f} MB"]
            for title, size in rows
        ],
    )


def _connections(found: Findings) -> str:
    rows = [["none yet", _count(found.costs["drain"], attrgetter("idle_connections"))]]
    rows += [
        [kind.title, _count(found.costs[kind.workload], attrgetter("connections"))]
        for kind in KINDS
    ]
    return table(["jobs that it has run", "connections"], rows)


def _span(costs: Sequence[Cost], of: Callable[[Cost], float]) -> str:
    figure = measurement([of(cost) for cost in costs])
    return f"{number(figure.median)} ({number(figure.low)}–{number(figure.high)})"


def _per_second(costs: Sequence[Cost], of: Callable[[Cost], float]) -> str:
    return f"{1e6 / statistics.median(of(cost) for cost in costs):,.0f}"


def _count(costs: Sequence[Cost], of: Callable[[Cost], float]) -> str:
    return f"{statistics.median(of(cost) for cost in costs):.0f}"


def _gigabytes(bytes_per_job: float) -> str:
    return f"{bytes_per_job * _MILLION / _GIGABYTE:.2f} GB"

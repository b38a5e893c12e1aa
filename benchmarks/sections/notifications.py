"""Section of the report: notifications among many producers and many idle workers."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass

import psycopg

from benchmarks import wakeups
from benchmarks.goal import Goal, GoalVerdict
from benchmarks.measurement import Measurement, number, paired_ratio
from benchmarks.section import Section, SectionContext
from benchmarks.tables import table
from faultline import embedded
from faultline.postgres.migrate import migrate

_SETTINGS = {"track_functions": "pl", "max_connections": "600"}
_CLIENTS = 32
_JOBS, _GAP_SECONDS = 200, 0.02
_WATCHED_SECONDS = 5.0
# Measured on two cores when each job woke every idle worker; 1.2 times that is the goal.
_BEFORE_P50_MS, _BEFORE_P99_MS = 1.8, 2.7
_CALLS = "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'claim'"
_TRANSACTIONS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'faultline%'"
_WAITS = """
    SELECT extract(epoch FROM claimed_at - created_at)::float8 * 1000
    FROM faultline.jobs WHERE state = 'succeeded'
"""


@dataclass(frozen=True)
class IdleWorkers:
    """What so many idle workers do, alone and when single jobs arrive."""

    workers: int
    transactions_per_second: float  # of each worker
    connections: float  # of each worker
    claims_per_job: float
    p50_ms: float  # from enqueue to claim, by the database's clock
    p99_ms: float


def run(context: SectionContext) -> Section:
    rounds, seconds = (1, 2.0) if context.short else (5, 3.0)
    context.progress(f"notifications: {_CLIENTS} producers")
    producers = measure_producers(rounds, seconds)
    idle = []
    for workers in (1, 5) if context.short else (1, 20, 100):
        context.progress(f"notifications: {workers} idle workers")
        with embedded.temporary_server(settings=_SETTINGS) as server:
            migrate(server.url)
            idle.append(measure_idle(server.url, workers))
    return as_section(producers, idle)


def measure_producers(rounds: int, seconds: float) -> Measurement:
    """Return the rate of enqueues with notifications to that without, by round."""
    rates: dict[bool, dict[int, float]] = {True: {}, False: {}}
    with embedded.temporary_server(settings=_SETTINGS) as server:
        migrate(server.url)
        for number_of_round in range(rounds):
            for notify, found in rates.items():
                found[number_of_round] = wakeups.enqueues_per_second(
                    server.url, _CLIENTS, seconds, notify=notify
                )
    ratio = paired_ratio(rates[True], rates[False])
    assert ratio is not None  # noqa: S101 - both were measured in every round
    return ratio


def measure_idle(url: str, workers: int) -> IdleWorkers:
    with wakeups.idle_workers(url, workers), psycopg.connect(url, autocommit=True) as conn:
        before, began = wakeups.one_value(conn, _TRANSACTIONS), time.monotonic()
        time.sleep(_WATCHED_SECONDS)
        passed = time.monotonic() - began
        idle = (wakeups.one_value(conn, _TRANSACTIONS) - before) / passed / workers
        connections = wakeups.one_value(conn, _SESSIONS) / workers
        claims = wakeups.one_value(conn, _CALLS)
        for _ in range(_JOBS):
            conn.execute("SELECT faultline.enqueue('nothing')", prepare=True)
            time.sleep(_GAP_SECONDS)
        wakeups.wait_for(conn, "ledger", _JOBS)
        time.sleep(2.0)  # statistics arrive late
        per_job = float(wakeups.one_value(conn, _CALLS) - claims) / _JOBS
        waits = [float(row[0]) for row in conn.execute(_WAITS)]
    return IdleWorkers(
        workers=workers,
        transactions_per_second=idle,
        connections=connections,
        claims_per_job=per_job,
        p50_ms=statistics.median(waits),
        p99_ms=wakeups.percentile(waits, 0.99),
    )


def as_section(producers: Measurement, idle: list[IdleWorkers]) -> Section:
    head = (
        "idle workers",
        "claims per job",
        "enqueue → claim p50",
        "p99",
        "transactions/s of each",
    )
    rows = [
        [
            *(str(each.workers), number(each.claims_per_job)),
            *(f"{number(each.p50_ms)} ms", f"{number(each.p99_ms)} ms"),
            *(number(each.transactions_per_second), number(each.connections)),
        ]
        for each in idle
    ]
    span = f"{number(producers.low)}–{number(producers.high)}"
    return Section(
        title="Notifications",
        json={"producers": producers.facts(), "idle_workers": [asdict(each) for each in idle]},
        markdown=(
            f"{_CLIENTS} sessions that enqueue single jobs reach {number(producers.median)}× ({span})"
            f" of the rate without notifications.\n\n{_JOBS} single jobs for idle workers, one every"
            f" {_GAP_SECONDS * 1000:g} ms:\n\n" + table([*head, "connections of each"], rows)
        ),
        verdicts=[
            Goal(f"single enqueue by {_CLIENTS} clients", "without notifications", 0.85).judge(
                producers.median, detail=f"{span}, n = {producers.n}"
            ),
            *(verdict for each in idle for verdict in _judge(each)),
        ],
    )


def _judge(each: IdleWorkers) -> list[GoalVerdict]:
    def at_most(what: str, bound: float, unit: str, against: str = "a bound") -> Goal:
        return Goal(what, against, bound, at_least=False, unit=unit)

    many = f"{each.workers} idle workers"
    rows = [
        at_most(f"transactions of an idle worker, of {each.workers}", 1.5, "/s").judge(
            each.transactions_per_second
        )
    ]
    if each.workers == 1:
        rows.append(at_most("connections of an idle worker", 3, "").judge(each.connections))
        return rows
    rows.append(at_most(f"claims per job, {many}", 3, "").judge(each.claims_per_job))
    before = "1.2 times that of waking all, measured earlier on two cores"
    for name, value, bound in (
        ("p50", each.p50_ms, _BEFORE_P50_MS),
        ("p99", each.p99_ms, _BEFORE_P99_MS),
    ):
        what = f"enqueue → claim {name}, {many}"
        rows.append(at_most(what, round(1.2 * bound, 2), "ms", before).judge(value))
    return rows

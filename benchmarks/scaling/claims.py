"""Measures a claim on tables with many waiting, scheduled or finished jobs.

Claims commit, one after another, like a worker's: a claim that is rolled back would read the same pages
again. The session commits asynchronously, because flushing the disk takes the same time for every table and
would dilute the ratios. The pages that a claim touches are counted too: other load does not change them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchmarks.scaling.population import Population, Templates
from benchmarks.scaling.process import NotMeasured
from faultline.postgres.sessions import Connection, connect, run
from faultline.statements import protocol

BATCHES = (1, 100)
_LEASE_SECONDS = 3_600.0  # longer than the run, so that no lease expires
_WARM_UP = 12  # PostgreSQL may keep a generic plan from the sixth use on

_EXPLAIN = """
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM faultline.claim('bench', %s, %s, '1 hour')
"""


@dataclass(frozen=True)
class Case:
    name: str
    population: Population
    against: str  # the case that the ratio refers to
    judged: bool = True  # whether the ratio has a bound


@dataclass
class Cost:
    """Milliseconds per claim by batch size, one median per round."""

    case: Case
    rounds: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in BATCHES})
    pages: dict[int, list[int]] = field(default_factory=lambda: {size: [] for size in BATCHES})
    claims: dict[int, int] = field(default_factory=lambda: dict.fromkeys(BATCHES, 0))


def cases(*, short: bool) -> list[Case]:
    some, many, finished = (20_000, 50_000, 100_000) if short else (100_000, 1_000_000, 10_000_000)
    small, lanes = Population(waiting=10_000), Population(waiting=10_000, queues=2, priorities=10)
    base = "10,000 waiting"
    lane_base = f"{base}, 2 queues with 10 priorities"
    return [
        Case(base, small, base, judged=False),
        Case(f"{some:,} waiting", Population(waiting=some), base),
        Case(f"{many:,} waiting", Population(waiting=many), base),
        Case(f"{base}, {many:,} for later", Population(waiting=10_000, later=many), base),
        Case(f"{base}, {finished:,} finished", Population(waiting=10_000, finished=finished), base),
        Case(lane_base, lanes, base, judged=False),
        Case(
            f"{many:,} waiting, 2 queues with 10 priorities",
            Population(waiting=many, queues=2, priorities=10),
            lane_base,
        ),
    ]


def measure(
    templates: Templates,
    cases: Sequence[Case],
    *,
    rounds: int,
    seed: int,
    progress: Callable[[str], None],
) -> list[Cost]:
    """Measure every case in every round, in random order."""
    order = random.Random(seed)  # noqa: S311 - not for secrets
    costs = [Cost(case) for case in cases]
    with ExitStack() as stack:
        sessions = {}
        for case in cases:
            progress(f"building {case.name}")
            url = stack.enter_context(templates.copy(case.population))
            sessions[case.name] = stack.enter_context(_session(url, case.population))
        for number in range(rounds):
            progress(f"claiming, round {number + 1} of {rounds}")
            for cost in order.sample(costs, len(costs)):
                _measure_once(sessions[cost.case.name], cost)
    return costs


def _session(url: str, population: Population) -> Connection:
    conn = connect(url, application_name="faultline bench")
    conn.execute("SET synchronous_commit = off")
    for _ in range(_WARM_UP):
        _claim(conn, population, 1)
    return conn


def _measure_once(conn: Connection, cost: Cost) -> None:
    for size, times in ((1, 20), (100, 4)):
        spent = [_claim(conn, cost.case.population, size) for _ in range(times)]
        cost.rounds[size].append(median(spent))
        cost.claims[size] += times
        cost.pages[size].append(_pages(conn, cost.case.population, size))


def _claim(conn: Connection, population: Population, size: int) -> float:
    """Claim as a worker does; return the milliseconds."""
    statement = protocol.claim(
        "bench", population.queue_names, batch_size=size, lease_seconds=_LEASE_SECONDS
    )
    began = time.perf_counter_ns()
    claims = run(conn, statement)
    spent = time.perf_counter_ns() - began
    if len(claims) != size:
        raise NotMeasured(f"a claim of {size} returned {len(claims)} jobs of {population}")
    return spent / 1e6


def _pages(conn: Connection, population: Population, size: int) -> int:
    """Return how many pages one claim touches, of tables, indexes and the catalogue."""
    row = conn.execute(_EXPLAIN, [list(population.queue_names), size]).fetchone()
    plan = row[0][0]["Plan"] if row else {}
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

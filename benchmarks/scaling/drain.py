"""Measures throughput while an old snapshot keeps dead rows from being removed.

A claim reads an index in order. The entries of earlier claims are at its front. Usually the next reader marks
them as dead and later readers skip them, but not while an old snapshot could still see them.

The speed is read from the ledger at the end, so that no query disturbs the drain.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

from benchmarks.scaling.held_snapshot import held_snapshot
from benchmarks.scaling.population import Population, Templates
from benchmarks.scaling.process import NotMeasured, sleep_until, workers
from benchmarks.scaling.sql_loop import drain_by_sql
from faultline.postgres.sessions import Connection, connect

TENTHS = 10
_POLL_SECONDS, _UNCHANGED_POLLS = 0.25, 4
_AGEING, _BY_SQL = "ageing", "sql"
_AGEING_BATCH = 500
_BATCH = 100
# When each transaction ended, and the number of jobs it committed.
_COMMITS = """
    SELECT max(extract(epoch FROM committed_at))::float8 AS moment, count(*)
    FROM faultline.ledger WHERE worker <> %s GROUP BY xmin::text ORDER BY moment
"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A way to drain a queue: by workers, or by a loop of SQL on one connection."""

    name: str
    jobs: int
    workers: int = 1  # 0: by SQL
    at_once: int = _BATCH  # concurrency of each worker, or jobs per claim by SQL
    priorities: int = 1
    task: str = "noop"
    with_cursor: bool = False  # by SQL only: pass the claim cursor to each claim
    aged: int = 0  # jobs that are done by SQL before, and not timed
    repeats: int
    seconds: float  # a drain that takes longer is judged by the jobs it has done

    @property
    def population(self) -> Population:
        return Population(waiting=self.jobs, priorities=self.priorities, task=self.task)


@dataclass(frozen=True)
class Drain:
    shape: str
    held: bool
    repeat: int
    jobs: int  # done, without the aged ones
    rates: tuple[float, ...]  # jobs per second for each tenth of the jobs


def shapes(*, short: bool, cursor: bool) -> list[Shape]:
    """Return the shapes; with `cursor`, also those that use the claim cursor."""
    jobs, seconds, often, twice = (20_000, 4.0, 1, 1) if short else (100_000, 40.0, 3, 2)
    shape = partial(Shape, jobs=jobs, repeats=twice)
    # One by one takes too long for all jobs: most are done before, under the same snapshot.
    single = partial(shape, at_once=1, aged=jobs * 9 // 10, seconds=2.0 if short else 15.0)
    found = [
        shape(name="batches", repeats=often, seconds=seconds),
        single(name="concurrency 1"),
        shape(name="two workers", workers=2, seconds=seconds),
        shape(name="retries, ten priorities", task="flaky", priorities=10, seconds=seconds),
        shape(name="plain SQL", workers=0, seconds=seconds),
        single(name="plain SQL, one by one", workers=0),
    ]
    if cursor:
        found += [
            shape(name="plain SQL, with cursor", workers=0, with_cursor=True, seconds=seconds),
            single(name="plain SQL, one by one, with cursor", workers=0, with_cursor=True),
        ]
    return [found[0], found[1], found[-1]] if short else found


def has_claim_cursor(url: str) -> bool:
    """Tell whether faultline.claim of this database accepts a claim cursor."""
    query = (
        "SELECT 'past' = ANY (p.proargnames) FROM pg_proc AS p"
        " WHERE p.oid = to_regproc('faultline.claim')"
    )
    with connect(url, application_name="faultline bench") as conn:
        return bool(conn.execute(query).fetchone() == (True,))


def measure(
    templates: Templates,
    shapes: Sequence[Shape],
    *,
    seed: int,
    progress: Callable[[str], None],
    missing: dict[str, str],
) -> list[Drain]:
    """Measure every shape with and without a pinned snapshot, in random order.

    A shape that cannot be measured is skipped from then on, and `missing` has the reason.
    """
    order = random.Random(seed)  # noqa: S311 - not for secrets
    found: list[Drain] = []
    for repeat in range(max(shape.repeats for shape in shapes)):
        for shape in shapes:
            if repeat >= shape.repeats or shape.name in missing:
                continue
            progress(f"draining, {shape.name}, {repeat + 1} of {shape.repeats}")
            try:
                for held in order.sample((True, False), 2):
                    with templates.copy(shape.population) as url, held_snapshot(url, held=held):
                        found.append(_drain(url, shape, held=held, repeat=repeat))
            except NotMeasured as problem:
                missing[shape.name] = str(problem)
    return [drain for drain in found if drain.shape not in missing]


def rates_by_tenth(commits: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    """Return the jobs per second in each tenth; `commits` are (time, jobs), in order.

    The clock starts when the first jobs are done. If a tenth ends within a batch, the jobs of the batch count
    as done evenly since the batch before.
    """
    moments = [moment for moment, _ in commits]
    done = list(accumulate(count for _, count in commits))
    edges = [done[0] + (done[-1] - done[0]) * number / TENTHS for number in range(TENTHS + 1)]

    def moment_of(edge: float) -> float:
        at = max(1, bisect_left(done, edge))
        share = (edge - done[at - 1]) / (done[at] - done[at - 1])
        return moments[at - 1] + share * (moments[at] - moments[at - 1])

    return tuple(
        (end - start) / (moment_of(end) - moment_of(start)) for start, end in pairwise(edges)
    )


def _drain(url: str, shape: Shape, *, held: bool, repeat: int) -> Drain:
    if shape.aged:
        drain_by_sql(url, _AGEING, at_once=_AGEING_BATCH, jobs=shape.aged)
    deadline = time.monotonic() + shape.seconds
    if shape.workers == 0:
        drain_by_sql(
            url, _BY_SQL, at_once=shape.at_once, with_cursor=shape.with_cursor, deadline=deadline
        )
    else:
        options = ("--concurrency", str(shape.at_once), "--drain-seconds", "2")
        with workers(url, shape.workers, *options), connect(url) as watcher:
            _wait_until_done(watcher, shape.jobs, deadline)
    with connect(url, application_name="faultline bench") as conn:
        commits = conn.execute(_COMMITS, [_AGEING]).fetchall()
    done = sum(count for _, count in commits)
    if len(commits) < TENTHS:
        raise NotMeasured(
            f"{done} jobs were done in {len(commits)} transactions: too few to be divided by ten"
        )
    return Drain(shape.name, held, repeat, done, rates_by_tenth(commits))


def _wait_until_done(conn: Connection, jobs: int, deadline: float) -> None:
    """Wait for all jobs or the deadline; count the ledger when it stops growing."""
    last_size, unchanged = -1, 0
    while sleep_until(deadline, _POLL_SECONDS):
        (size,) = conn.execute("SELECT pg_relation_size('faultline.ledger')").fetchone() or (0,)
        unchanged = unchanged + 1 if size == last_size else 0
        last_size = size
        if unchanged == _UNCHANGED_POLLS:
            unchanged = 0
            (done,) = conn.execute("SELECT count(*) FROM faultline.ledger").fetchone() or (0,)
            if done >= jobs:
                return

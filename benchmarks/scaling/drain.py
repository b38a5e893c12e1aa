"""How fast jobs are done as a drain goes on, while nothing that they leave behind may be removed.

A claim reads an index in order. What earlier claims have used up lies at its front; usually the next reader
marks it as dead and nobody looks at it again, but not while some old snapshot could still see it.

The speed is read from the ledger when all is over, so that nothing looks at the tables meanwhile.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

from benchmarks.scaling.hand import drain_by_hand
from benchmarks.scaling.pin import snapshot_held
from benchmarks.scaling.population import Population, Templates
from benchmarks.scaling.process import NotMeasured, sleep_until, workers
from faultline.postgres.sessions import Connection, connect

TENTHS = 10
_LOOK_SECONDS, _STILL_LOOKS = 0.25, 4
_AGEING, _BY_HAND = "ageing", "hand"
_AGEING_BATCH = 500
_BATCH = 100
# When each transaction ended, and how many jobs it committed.
_COMMITS = """
    SELECT max(extract(epoch FROM committed_at))::float8 AS moment, count(*)
    FROM faultline.ledger WHERE worker <> %s GROUP BY xmin::text ORDER BY moment
"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One way to drain a queue: by worker processes, or by hand in a loop over one connection."""

    name: str
    jobs: int
    workers: int = 1  # 0: by hand
    at_once: int = _BATCH  # concurrency of each worker, or jobs per claim by hand
    priorities: int = 1
    task: str = "noop"
    hinted: bool = False  # by hand only: say at each claim how far the last one got
    aged: int = 0  # jobs that are done by hand before, and not timed
    repeats: int
    seconds: float  # a drain that has not ended by then is judged by what it has done

    @property
    def population(self) -> Population:
        return Population(waiting=self.jobs, priorities=self.priorities, task=self.task)


@dataclass(frozen=True)
class Drain:
    shape: str
    held: bool
    repeat: int
    jobs: int  # that were done, without those before
    rates: tuple[float, ...]  # jobs per second, for each tenth of them


def shapes(*, short: bool, hint: bool) -> list[Shape]:
    """With `hint`, also by hand with it. A short run has time for the plainest of them."""
    jobs, seconds, often, twice = (20_000, 4.0, 1, 1) if short else (100_000, 40.0, 3, 2)
    shape = partial(Shape, jobs=jobs, repeats=twice)
    # One by one there is no time for all of them: most are done before, under the same snapshot.
    single = partial(shape, at_once=1, aged=jobs * 9 // 10, seconds=2.0 if short else 15.0)
    found = [
        shape(name="batches", repeats=often, seconds=seconds),
        single(name="concurrency 1"),
        shape(name="two workers", workers=2, seconds=seconds),
        shape(name="retries, ten priorities", task="flaky", priorities=10, seconds=seconds),
        shape(name="SQL by hand", workers=0, seconds=seconds),
        single(name="SQL by hand, one by one", workers=0),
    ]
    if hint:
        found += [
            shape(name="SQL by hand, hinted", workers=0, hinted=True, seconds=seconds),
            single(name="SQL by hand, one by one, hinted", workers=0, hinted=True),
        ]
    return [found[0], found[1], found[-1]] if short else found


def has_hint(url: str) -> bool:
    """Whether a claim of this database can be told how far the last one got."""
    query = (
        "SELECT 'past' = ANY (p.proargnames) FROM pg_proc AS p"
        " WHERE p.oid = to_regproc('faultline.claim')"
    )
    with connect(url, application_name="faultline bench") as conn:
        return bool(conn.execute(query).fetchone() == (True,))


def measure(
    templates: Templates,
    given: Sequence[Shape],
    *,
    seed: int,
    progress: Callable[[str], None],
    missing: dict[str, str],
) -> list[Drain]:
    """Every shape with and without the pin, in turn: which of the two comes first is drawn.

    A shape that cannot be measured is left out from then on, and named in `missing` with the reason.
    """
    order = random.Random(seed)  # noqa: S311 - a run must be repeatable
    found: list[Drain] = []
    for repeat in range(max(shape.repeats for shape in given)):
        for shape in given:
            if repeat >= shape.repeats or shape.name in missing:
                continue
            progress(f"draining, {shape.name}, {repeat + 1} of {shape.repeats}")
            try:
                for held in order.sample((True, False), 2):
                    with templates.copy(shape.population) as url, snapshot_held(url, held=held):
                        found.append(_drain(url, shape, held=held, repeat=repeat))
            except NotMeasured as problem:
                missing[shape.name] = str(problem)
    return [drain for drain in found if drain.shape not in missing]


def rates_by_tenth(commits: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    """Jobs per second in each tenth of the jobs, given when how many were committed together, in order.

    The clock starts when the first of them are done. A tenth may end in the middle of a batch: its jobs
    count as done one after another since the batch before.
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
        drain_by_hand(url, _AGEING, at_once=_AGEING_BATCH, jobs=shape.aged)
    deadline = time.monotonic() + shape.seconds
    if shape.workers == 0:
        drain_by_hand(url, _BY_HAND, at_once=shape.at_once, hinted=shape.hinted, deadline=deadline)
    else:
        options = ("--concurrency", str(shape.at_once), "--drain-seconds", "2")
        with workers(url, shape.workers, *options), connect(url) as watcher:
            _watch(watcher, shape.jobs, deadline)
    with connect(url, application_name="faultline bench") as conn:
        commits = conn.execute(_COMMITS, [_AGEING]).fetchall()
    done = sum(count for _, count in commits)
    if len(commits) < TENTHS:
        raise NotMeasured(
            f"{done} jobs were done in {len(commits)} transactions: too few to be divided by ten"
        )
    return Drain(shape.name, held, repeat, done, rates_by_tenth(commits))


def _watch(conn: Connection, jobs: int, deadline: float) -> None:
    """Until all are done or the time is up. The ledger is counted only once its file no longer grows."""
    last_size, still = -1, 0
    while sleep_until(deadline, _LOOK_SECONDS):
        (size,) = conn.execute("SELECT pg_relation_size('faultline.ledger')").fetchone() or (0,)
        still = still + 1 if size == last_size else 0
        last_size = size
        if still == _STILL_LOOKS:
            still = 0
            (done,) = conn.execute("SELECT count(*) FROM faultline.ledger").fetchone() or (0,)
            if done >= jobs:
                return

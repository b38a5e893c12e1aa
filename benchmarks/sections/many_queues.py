"""Section of the report: claims over many queues of which few hold jobs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from benchmarks.goal import Goal
from benchmarks.measurement import measurement, number, paired_ratio
from benchmarks.section import Section, SectionContext
from benchmarks.servers import vacuum_and_checkpoint
from benchmarks.tables import table
from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import Connection, connect
from faultline.postgres.sessions import run as run_statement
from faultline.statements import protocol
from faultline_drills.servers.scratch_database import scratch_database

SIZES = (500, 5_000)
BOUND = 1.5
_WITH_JOBS = 5
_CLAIMS = 20  # of one job each, per round and size
_WARM_UP = 12  # PostgreSQL may keep a generic plan from the sixth use on
_LEASE_SECONDS = 3_600.0

_ENQUEUE = """
    SELECT count(*) FROM faultline.enqueue_many(
        'bench', array_fill('{}'::jsonb, ARRAY[%s]), queue => %s)
"""


def run(context: SectionContext) -> Section:
    rounds = 4 if context.short else 15
    with (
        scratch_database(context.server.url, prefix="bench") as url,
        connect(url, application_name="faultline bench") as conn,
    ):
        migrate(url)
        fill(conn, rounds)
        return as_section(measure(conn, rounds))


def names(count: int) -> list[str]:
    return [f"queue-{number:05}" for number in range(count)]


def fill(conn: Connection, rounds: int) -> None:
    """Enqueue more jobs than are claimed, in queues spread over all of them."""
    most = max(SIZES)
    jobs = (rounds * _CLAIMS + _WARM_UP) * (len(SIZES) + 1)
    for name in (names(min(SIZES))[:: min(SIZES) // _WITH_JOBS])[:_WITH_JOBS]:
        conn.execute(_ENQUEUE, [jobs, name])
    conn.execute(_ENQUEUE, [jobs, names(most)[-1]])
    vacuum_and_checkpoint(conn)
    conn.execute("SET synchronous_commit = off")  # the disk takes the same time for each


def measure(conn: Connection, rounds: int) -> dict[int, list[float]]:
    """Return the median milliseconds per claim in each round, by the number of queues."""
    queues = {size: names(size) for size in (1, *SIZES)}
    for each in queues.values():
        for _ in range(_WARM_UP):
            claim(conn, each)
    found: dict[int, list[float]] = {size: [] for size in queues}
    for _ in range(rounds):
        for size, each in queues.items():
            found[size].append(statistics.median(claim(conn, each) for _ in range(_CLAIMS)))
    return found


def claim(conn: Connection, queues: Sequence[str]) -> float:
    """Claim one job as a worker does; return the milliseconds."""
    statement = protocol.claim("bench", queues, batch_size=1, lease_seconds=_LEASE_SECONDS)
    began = time.perf_counter_ns()
    claims = run_statement(conn, statement)
    spent = time.perf_counter_ns() - began
    assert len(claims) == 1  # noqa: S101 - fill() enqueued enough
    return spent / 1e6


def as_section(found: dict[int, list[float]]) -> Section:
    rows, verdicts = [], []
    one = dict(enumerate(found[1]))
    for size, values in found.items():
        ratio = paired_ratio(dict(enumerate(values)), one)
        assert ratio is not None  # noqa: S101 - every size has a figure in every round
        figure = measurement(values)
        span = f"{number(ratio.low)}–{number(ratio.high)}"
        rows.append(
            [f"{size:,}", f"{number(figure.median)} ms", f"{number(ratio.median)}× ({span})"]
        )
        if size > 1:
            goal = Goal(f"a claim over {size:,} queues", "one queue", BOUND, at_least=False)
            few = f"{_WITH_JOBS + 1} of the queues hold jobs"
            verdicts.append(goal.judge(ratio.median, few, f"{span}, n = {ratio.n}"))
    return Section(
        title="Many queues",
        json={"milliseconds": {str(size): values for size, values in found.items()}},
        markdown=(
            "A claim of one job from one queue, and over many of which few hold jobs. Claims commit without"
            " waiting for the disk.\n\n" + table(["queues", "per claim", "of one queue"], rows)
        ),
        verdicts=verdicts,
    )

"""The results as Markdown. Pure."""

from __future__ import annotations

from benchmarks.measurement import Measurement, measurement
from benchmarks.scaling.claims import BATCHES
from benchmarks.scaling.findings import Findings
from benchmarks.scaling.maintenance import BATCH_SIZE
from benchmarks.tables import table

_CLAIMS = """\
### Claim cost

Milliseconds for one claim of 1 and of 100 jobs by `faultline.claim`, measured by the client: the median of
the rounds (each itself a median of its claims), and their range. Claims are committed asynchronously, because
flushing the disk takes the same time for every table. Large tables were filled by a superuser with triggers
disabled, then vacuumed and analyzed. Ratios are computed within a round. Pages are those that one claim of
each round touched, counted by the server.
"""
_HELD_SNAPSHOT = """\
### A pinned snapshot

Jobs per second in the first and the last tenth of a drain, with and without an idle REPEATABLE READ
transaction that began before it and keeps vacuum from removing dead rows. The times are read from the ledger
afterwards. A drain that exceeds its time limit is judged by the jobs that it has done; jobs done "before" are
done in large batches by SQL, under the same snapshot, and not timed. The ratio is pinned to not pinned, in
the last tenth. "Plain SQL" is a loop of `claim` and `commit_many` on one connection.
"""
_IDLE = """\
### Idle workers

Workers at default settings without jobs, several in one process, which makes no difference to the server.
Transactions are those of `pg_stat_database`; processor time is that of the server's processes, from
`/proc`: 100 % is one core.
"""
_MEMORY = """\
### Memory of a worker

In MB (of 1,000,000 bytes), from `/proc`: resident size at the end and at its highest, and the proportional
size, which divides shared memory among processes.
"""
_MAINTENANCE = f"""\
### Counting and purging

Milliseconds for `faultline.queues()`, which counts all queues, and for one batch of retention, which purges
{BATCH_SIZE} jobs with their records, with few and with many finished jobs: the median of all rounds, and
the range.
"""


def as_markdown(findings: Findings) -> str:
    parts = []
    if findings.costs:
        parts.append(_CLAIMS + "\n" + _claims(findings))
    if findings.drains:
        parts.append(_HELD_SNAPSHOT + "\n" + _drains(findings))
    if findings.loads:
        parts.append(_IDLE + "\n" + _loads(findings))
    if findings.footprints:
        parts.append(_MEMORY + "\n" + _footprints(findings))
    if findings.maintenance_times:
        parts.append(_MAINTENANCE + "\n" + _maintenance(findings))
    parts += [f"Not measured: {part}: {why}\n" for part, why in findings.missing.items()]
    return "\n".join(parts)


def _claims(findings: Findings) -> str:
    head = ["table"]
    for size in BATCHES:
        head += [f"claim of {size}, ms", "n", "ratio", "pages"]
    rows = []
    for cost in findings.costs:
        row = [cost.case.name]
        for size in BATCHES:
            row += [_ranged(measurement(cost.rounds[size]), 3), str(cost.claims[size])]
            row.append(f"{_ranged(findings.claim_ratio(cost, size), 2)}×")
            row.append(_ranged(measurement(cost.pages[size]), 0))
        rows.append([*row, cost.case.against])
    return table([*head, "compared with"], rows)


def _drains(findings: Findings) -> str:
    head = [
        "drained by",
        "jobs done",
        "n",
        "not pinned: first → last",
        "pinned: first → last",
        "ratio",
    ]
    rows = []
    for shape in findings.shapes:
        held = findings.drains_of(shape, held=True)
        speeds = [
            " → ".join(f"{findings.tenth(shape, at, held=is_held).median:,.0f}" for at in (0, -1))
            for is_held in (False, True)
        ]
        done = f"{shape.aged + min(each.jobs for each in held):,} of {shape.jobs:,}"
        if shape.aged:
            done += f", {shape.aged:,} of them before"
        ratio = f"{_ranged(findings.pinned_ratio(shape), 2)}×"
        rows.append([shape.name, done, str(len(held)), *speeds, ratio])
    return table(head, rows)


def _loads(findings: Findings) -> str:
    head = ["workers", "connections", "transactions/s", "per worker", "processor", "measured for"]
    rows = [
        [
            str(load.workers),
            str(load.connections),
            f"{load.transactions_per_second:,.0f}",
            f"{load.transactions_per_second / load.workers:.1f}" if load.workers else "–",
            f"{load.cpu_share:.1%}",
            f"{load.seconds:.0f} s",
        ]
        for load in findings.loads
    ]
    return table(head, rows)


def _footprints(findings: Findings) -> str:
    rows = []
    for name, peak in findings.peaks().items():
        own = [each.memory for each in findings.footprints if each.what == name]
        rss = measurement([memory.rss for memory in own])
        pss = measurement([memory.pss for memory in own])
        rows.append([name, _ranged(rss, 1), _ranged(peak, 1), _ranged(pss, 1), str(peak.n)])
    return table(["worker", "resident", "highest", "proportional", "n"], rows)


def _maintenance(findings: Findings) -> str:
    rows = [
        [
            f"{finished:,}",
            _ranged(measurement(times.count), 2),
            _ranged(measurement(times.purge), 1),
            str(len(times.purge)),
        ]
        for finished, times in findings.maintenance_times.items()
    ]
    return table(["finished jobs", "counting, ms", f"purging {BATCH_SIZE}, ms", "n"], rows)


def _ranged(found: Measurement, digits: int) -> str:
    median = f"{found.median:.{digits}f}"
    return median if found.n == 1 else f"{median} ({found.low:.{digits}f}–{found.high:.{digits}f})"

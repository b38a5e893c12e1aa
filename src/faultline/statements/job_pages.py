"""Pages of jobs, each read from one index in that index's order. No writes.

A filter that no index covers, such as a task's name, is applied to a bounded number of jobs. Such a page
may have fewer jobs than asked for, even none, and still have a next page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, LiteralString, assert_never
from uuid import UUID

from faultline.model import JobState
from faultline.statements import page_cursor
from faultline.statements.jobs import ERROR_LENGTH, JOB_COLUMNS, JobRow, read_job_row
from faultline.statements.statement import Row, Statement

MAX_EXAMINED = 5_000  # jobs, for one page
MAX_EXAMINED_IN_EACH_QUEUE = 500
MAX_QUEUES = 1_000


@dataclass(frozen=True, slots=True)
class JobRowPage:
    jobs: list[JobRow]
    next: str | None
    examined: int  # an upper bound
    is_cut_short: bool  # it ended at the bound of examined jobs, not because it was full
    last_at: datetime | None  # of its last examined job: when it was enqueued, due or finished


@dataclass(frozen=True, slots=True)
class JobFilter:
    state: JobState | None = None
    queue: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The index that a page is read from, and which filters that index covers."""

    name: str
    where: LiteralString
    params: tuple[Any, ...] = ()
    scan: LiteralString  # the order of the index
    by: LiteralString  # the same, then by id
    moment: LiteralString = "NULL::timestamptz"
    key: tuple[str, ...]  # the sort key: some of queue, priority, moment and id
    behind: LiteralString  # the condition for rows after a key
    behind_key: tuple[str, ...]  # the parameters of `behind`
    uncovered: tuple[str, ...]  # filters that are applied job by job
    each: LiteralString = ""  # joined laterally: the index is read once for each of its rows


_KEY_TYPES: dict[str, type] = {"queue": str, "priority": int, "moment": datetime, "id": UUID}

_NEWEST = _Order(
    name="newest",
    where="true",
    scan="j.id DESC",  # ids begin with the time of the enqueue
    by="j.id DESC",
    key=("id",),
    behind=" AND j.id < %s",
    behind_key=("id",),
    uncovered=("state", "queue", "task"),
)
_ENDING_FIRST = _Order(
    name="running",
    where="j.state = 'running'",
    scan="j.lease_expires_at",
    by="j.lease_expires_at, j.id",
    moment="j.lease_expires_at",
    key=("moment", "id"),
    behind=" AND j.lease_expires_at >= %s AND (j.lease_expires_at, j.id) > (%s, %s)",
    behind_key=("moment", "moment", "id"),
    uncovered=("queue", "task"),
)
_AS_CLAIMED = _Order(
    name="queued",
    where="j.state = 'queued'",
    scan="j.queue, j.priority, j.next_run_at, j.id",
    by="j.queue, j.priority, j.next_run_at, j.id",
    moment="j.next_run_at",
    key=("queue", "priority", "moment", "id"),
    behind=" AND (j.queue, j.priority, j.next_run_at, j.id) > (%s, %s, %s, %s)",
    behind_key=("queue", "priority", "moment", "id"),
    uncovered=("task",),
)
# Reads a whole page from each queue, and merges them.
_FAILED_LAST = _Order(
    name="failed",
    where="j.state = 'failed' AND j.queue = f.queue",
    scan="j.finished_at DESC",
    by="j.finished_at DESC, j.id DESC",
    moment="j.finished_at",
    key=("moment", "id"),
    behind=" AND j.finished_at <= %s AND (j.finished_at, j.id) < (%s, %s)",
    behind_key=("moment", "moment", "id"),
    uncovered=("task",),
    each="failing AS f CROSS JOIN LATERAL ",
)


def _order(wanted: JobFilter) -> _Order:
    match wanted.state:
        case JobState.RUNNING:
            return _ENDING_FIRST
        case JobState.SUCCEEDED | None:
            return _NEWEST
        case JobState.QUEUED:
            where: LiteralString = "j.state = 'queued' AND j.queue = %s"
            every = _AS_CLAIMED
        case JobState.FAILED:
            where = "j.state = 'failed' AND j.queue = %s"
            every = _FAILED_LAST
        case _:
            assert_never(wanted.state)
    if wanted.queue is None:
        return every
    return replace(every, where=where, params=(wanted.queue,), each="")


_TESTS: dict[str, LiteralString] = {
    "state": " AND j.state = %s",
    "queue": " AND j.queue = %s",
    "task": " AND j.task = %s",
}


def is_search(wanted: JobFilter) -> bool:
    """Whether no index covers a part of the filter: jobs are examined one by one."""
    return any(getattr(wanted, name) is not None for name in _order(wanted).uncovered)


def page(
    wanted: JobFilter, *, limit: int, after: str | None = None, max_examined: int = MAX_EXAMINED
) -> Statement[JobRowPage]:
    """A search examines at most `max_examined` jobs."""
    order = _order(wanted)
    test: LiteralString = "true"
    test_params: tuple[Any, ...] = ()
    for name in order.uncovered:
        if (value := getattr(wanted, name)) is not None:
            test += _TESTS[name]
            test_params += (value,)
    behind: LiteralString = ""
    behind_params: tuple[Any, ...] = ()
    if after is not None:
        types = [_KEY_TYPES[part] for part in order.key]
        key = dict(zip(order.key, page_cursor.decode(after, order.name, types), strict=True))
        behind, behind_params = order.behind, tuple(key[part] for part in order.behind_key)
    if order.each:
        max_examined = min(max_examined, MAX_EXAMINED_IN_EACH_QUEUE)
    examined = max_examined if test_params else limit + 1
    # `failing` has the names of the queues with failed jobs, by one index probe each, and is not run
    # unless `order.each` uses it. The index may not order by id: WITH TIES also reads the rows equal to
    # the last, so that the outer ORDER BY can sort them by id.
    return Statement(
        f"""
        WITH RECURSIVE names (queue) AS (
            (SELECT q.queue::text FROM faultline.jobs AS q WHERE q.state = 'failed'
             ORDER BY q.queue LIMIT 1)
            UNION ALL
            SELECT (SELECT q.queue FROM faultline.jobs AS q
                    WHERE q.state = 'failed' AND q.queue > n.queue ORDER BY q.queue LIMIT 1)
            FROM names AS n WHERE n.queue IS NOT NULL),
        failing AS (SELECT queue FROM names WHERE queue IS NOT NULL LIMIT %s),
        ordered AS MATERIALIZED (
            SELECT j.id, j.queue, j.priority, {order.moment} AS moment, {test} AS is_wanted
            FROM {order.each}(
                SELECT j.* FROM faultline.jobs AS j WHERE {order.where}{behind}
                ORDER BY {order.scan} FETCH FIRST %s ROWS WITH TIES) AS j
            ORDER BY {order.by} LIMIT %s),
        places AS (SELECT *, row_number() OVER () AS place FROM ordered),
        seen AS (SELECT * FROM places WHERE is_wanted OR place = %s ORDER BY place LIMIT %s)
        SELECT seen.place, seen.is_wanted, seen.queue, seen.priority, seen.moment, seen.id, job.*
        FROM seen LEFT JOIN LATERAL (
            SELECT {JOB_COLUMNS}, left(j.last_error, %s)
            FROM faultline.jobs AS j WHERE j.id = seen.id LIMIT 1) AS job ON seen.is_wanted
        ORDER BY seen.place
        """,  # noqa: S608 - of literals, all in this file
        (
            *(MAX_QUEUES, *test_params, *order.params, *behind_params),
            *(examined, examined, examined, limit + 1, ERROR_LENGTH),
        ),
        lambda rows: _read_page(rows, order, limit, examined),
    )


def _read_page(rows: list[Row], order: _Order, limit: int, examined: int) -> JobRowPage:
    wanted = [row for row in rows if row[1]]
    last = None
    is_full = len(wanted) > limit
    if is_full:
        last = wanted[limit - 1]
    elif rows and rows[-1][0] == examined:  # there are more to examine
        last = rows[-1]
    following, last_at = None, None
    if last is not None:
        parts = dict(zip(_KEY_TYPES, last[2:6], strict=True))
        following = page_cursor.encode(order.name, [parts[part] for part in order.key])
        last_at = parts["moment"] or _enqueued_at(parts["id"])
    return JobRowPage(
        [read_job_row(row[6:]) for row in wanted[:limit]],
        following,
        rows[-1][0] if rows else 0,
        last is not None and not is_full,
        last_at,
    )


def _enqueued_at(job_id: UUID) -> datetime:
    """Ids begin with the time of the enqueue in milliseconds."""
    return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)

"""Pages of jobs, each read from one index in that index's order. No writes.

A filter that no index covers, such as a task's name, is applied to a bounded number of jobs. Such a page
may have fewer jobs than asked for, even none, and still have a next page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, assert_never
from uuid import UUID

from faultline.model import JobState
from faultline.statements import page_cursor
from faultline.statements.job_filter import JobFilter, conditions
from faultline.statements.jobs import DUE_AT, ERROR_LENGTH, JOB_COLUMNS, JobRow, read_job_row
from faultline.statements.progress import PROGRESS_COLUMN
from faultline.statements.statement import Row, Statement

MAX_EXAMINED = 5_000  # jobs, for one page
MAX_EXAMINED_IN_EACH_QUEUE = 500
MAX_QUEUES = 1_000
# Ids begin with the time at which the enqueue began; created_at is read when the row is written, which
# may be later, and after the clock was set back it may be earlier.
ID_TOLERANCE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class JobRowPage:
    jobs: list[JobRow]
    next: str | None
    examined: int  # an upper bound
    is_cut_short: bool  # it ended at the bound of examined jobs, not because it was full
    last_at: datetime | None  # of its last examined job: when it was enqueued, due or finished


@dataclass(frozen=True, slots=True)
class JobIdPage:
    ids: list[UUID]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The index that a page is read from, and which filters that index covers."""

    name: str
    where: LiteralString
    params: tuple[Any, ...] = ()
    scan: LiteralString  # the order of the index
    by: LiteralString  # the same, then by id
    moment: LiteralString = "NULL::timestamptz"
    last_moment: LiteralString = "NULL::timestamptz"  # of the last row of `seen`, where it differs
    key: tuple[str, ...]  # the sort key: some of queue, priority, moment and id
    behind: LiteralString  # the condition for rows after a key
    behind_key: tuple[str, ...]  # the parameters of `behind`
    covered: tuple[str, ...] = ()  # filters that `where` applies; the others are applied job by job
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
)
# No index has the time at which a lease ends: renewals would write to it.
_OLDEST_FIRST = _Order(
    name="oldest",
    where="j.state = 'running'",
    scan="j.created_at, j.id",
    by="j.created_at, j.id",
    moment="j.created_at",
    key=("moment", "id"),
    behind=" AND (j.created_at, j.id) > (%s, %s)",
    behind_key=("moment", "id"),
    covered=("state",),
)
_AS_CLAIMED = _Order(
    name="queued",
    where="j.state = 'queued'",
    scan="j.queue, j.priority, j.next_run_at, j.id",
    by="j.queue, j.priority, j.next_run_at, j.id",
    moment="j.next_run_at",
    last_moment=f"""(
        SELECT {DUE_AT} FROM faultline.jobs AS j
        WHERE j.id = seen.id AND seen.place = (SELECT max(s.place) FROM seen AS s))""",  # noqa: S608
    key=("queue", "priority", "moment", "id"),
    behind=" AND (j.queue, j.priority, j.next_run_at, j.id) > (%s, %s, %s, %s)",
    behind_key=("queue", "priority", "moment", "id"),
    covered=("state",),
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
    covered=("state", "finished_after", "finished_before"),
    each="failing AS f CROSS JOIN LATERAL ",
)


def _order(wanted: JobFilter) -> _Order:
    if wanted.ids is not None:
        return replace(
            _NEWEST, where="j.id = ANY (%s)", params=(list(wanted.ids),), covered=("ids",)
        )
    state = wanted.state
    if state is None and wanted.failed_reason is not None:
        state = JobState.FAILED
    match state:
        case JobState.RUNNING:
            return _OLDEST_FIRST
        case JobState.SUCCEEDED | None:
            return _with_id_range(wanted)
        case JobState.QUEUED:
            order = _AS_CLAIMED
        case JobState.FAILED:
            where, params = conditions(wanted, names=("finished_after", "finished_before"))
            order = replace(_FAILED_LAST, where=_FAILED_LAST.where + where, params=params)
        case _:
            assert_never(state)
    if wanted.queue is None:
        return order
    return replace(
        order,
        where=order.where.replace(" AND j.queue = f.queue", "") + " AND j.queue = %s",
        params=(*order.params, wanted.queue),
        covered=(*order.covered, "queue"),
        each="",
    )


def _with_id_range(wanted: JobFilter) -> _Order:
    """The newest first, from the range of ids in which jobs of these times can be.

    The conditions on the times themselves are applied job by job.
    """
    where: LiteralString = "true"
    params: tuple[UUID, ...] = ()
    if wanted.created_after is not None:
        where += " AND j.id >= %s"
        params += (_first_id_at(wanted.created_after, -ID_TOLERANCE),)
    for moment in (wanted.created_before, wanted.finished_before):
        if moment is not None:
            where += " AND j.id < %s"
            params += (_first_id_at(moment, ID_TOLERANCE),)
    return replace(_NEWEST, where=where, params=params)


def is_search(wanted: JobFilter) -> bool:
    """Whether no index covers a part of the filter: jobs are examined one by one."""
    return bool(conditions(wanted, without=_order(wanted).covered)[1])


def page(
    wanted: JobFilter, *, limit: int, after: str | None = None, max_examined: int = MAX_EXAMINED
) -> Statement[JobRowPage]:
    """A search examines at most `max_examined` jobs."""
    order = _order(wanted)
    seen, params, examined = _seen(wanted, order, limit, after, max_examined)
    return Statement(
        f"""
        {seen}
        SELECT seen.place, seen.is_wanted, seen.queue, seen.priority, seen.moment, seen.id,
            {order.last_moment}, job.*
        FROM seen LEFT JOIN LATERAL (
            SELECT {JOB_COLUMNS}, {PROGRESS_COLUMN}, left(j.last_error, %s)
            FROM faultline.jobs AS j WHERE j.id = seen.id LIMIT 1) AS job ON seen.is_wanted
        ORDER BY seen.place
        """,  # noqa: S608 - of literals, all in this file
        (*params, ERROR_LENGTH),
        lambda rows: _read_page(rows, order, limit, examined),
    )


def id_page(
    wanted: JobFilter, *, limit: int, after: str | None = None, max_examined: int = MAX_EXAMINED
) -> Statement[JobIdPage]:
    """The ids of the same jobs, in the same order."""
    order = _order(wanted)
    seen, params, examined = _seen(wanted, order, limit, after, max_examined)

    def read(rows: list[Row]) -> JobIdPage:
        found = [row for row in rows if row[1]]
        last = _last_examined(rows, found, limit, examined)
        following = None if last is None else _cursor(order, last)
        return JobIdPage([row[5] for row in found[:limit]], following)

    return Statement(
        f"""
        {seen}
        SELECT place, is_wanted, queue, priority, moment, id FROM seen ORDER BY place
        """,  # noqa: S608 - of literals, all in this file
        params,
        read,
    )


def _seen(
    wanted: JobFilter, order: _Order, limit: int, after: str | None, max_examined: int
) -> tuple[LiteralString, tuple[Any, ...], int]:
    """The WITH clause of a page, its parameters, and how many jobs it examines."""
    test, test_params = conditions(wanted, without=order.covered)
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
    text: LiteralString = f"""
        WITH RECURSIVE names (queue) AS (
            (SELECT q.queue::text FROM faultline.jobs AS q WHERE q.state = 'failed'
             ORDER BY q.queue LIMIT 1)
            UNION ALL
            SELECT (SELECT q.queue FROM faultline.jobs AS q
                    WHERE q.state = 'failed' AND q.queue > n.queue ORDER BY q.queue LIMIT 1)
            FROM names AS n WHERE n.queue IS NOT NULL),
        failing AS (SELECT queue FROM names WHERE queue IS NOT NULL LIMIT %s),
        ordered AS MATERIALIZED (
            SELECT j.id, j.queue, j.priority, {order.moment} AS moment, true{test} AS is_wanted
            FROM {order.each}(
                SELECT j.* FROM faultline.jobs AS j WHERE {order.where}{behind}
                ORDER BY {order.scan} FETCH FIRST %s ROWS WITH TIES) AS j
            ORDER BY {order.by} LIMIT %s),
        places AS (SELECT *, row_number() OVER () AS place FROM ordered),
        seen AS (SELECT * FROM places WHERE is_wanted OR place = %s ORDER BY place LIMIT %s)
        """  # noqa: S608 - of literals, all in this file
    params = (
        *(MAX_QUEUES, *test_params, *order.params, *behind_params),
        *(examined, examined, examined, limit + 1),
    )
    return text, params, examined


def _read_page(rows: list[Row], order: _Order, limit: int, examined: int) -> JobRowPage:
    wanted = [row for row in rows if row[1]]
    last = _last_examined(rows, wanted, limit, examined)
    following, last_at = None, None
    if last is not None:
        following = _cursor(order, last)
        last_at = last[6] or last[4] or _enqueued_at(last[5])
    return JobRowPage(
        [read_job_row(row[7:]) for row in wanted[:limit]],
        following,
        rows[-1][0] if rows else 0,
        last is not None and len(wanted) <= limit,
        last_at,
    )


def _last_examined(rows: list[Row], wanted: list[Row], limit: int, examined: int) -> Row | None:
    """The row after which the next page begins; None if there is none."""
    if len(wanted) > limit:
        return wanted[limit - 1]
    if rows and rows[-1][0] == examined:  # there are more to examine
        return rows[-1]
    return None


def _cursor(order: _Order, row: Row) -> str:
    parts = dict(zip(_KEY_TYPES, row[2:6], strict=True))
    return page_cursor.encode(order.name, [parts[part] for part in order.key])


def _enqueued_at(job_id: UUID) -> datetime:
    """Ids begin with the time of the enqueue in milliseconds."""
    return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)


def _first_id_at(moment: datetime, shift: timedelta) -> UUID:
    milliseconds = int((moment.timestamp() + shift.total_seconds()) * 1000)
    return UUID(int=max(0, milliseconds) << 80)
